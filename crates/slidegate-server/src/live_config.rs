//! The gate and its settings in force; a reload replaces them.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, Uri};
use slidegate::policy::PathReading;
use slidegate::{Bearer, Facts, Gate, HeldCharge};
use slidegate_customers::Customers;
use slidegate_tower::{
    ClientAddress, LimiterOutcome, RequestHead, RequestLimiter, Responder, SettleOutcome,
};

use crate::config::{LimiterConfig, StandingConfig};
use crate::standing::StandingEndpoint;
use crate::store::AnyStore;

/// The gate and its settings in force, for every endpoint.
#[derive(Debug)]
pub(crate) struct LiveConfig {
    gate: Arc<Gate<AnyStore>>,
    settings: ArcSwap<HttpSettings>,
}

/// How requests are read and answered.
#[derive(Debug, Clone)]
pub(crate) struct HttpSettings {
    /// How paths are read.
    pub(crate) paths: PathReading,
    /// The headers that identities and plans are read from, besides those that always are.
    pub(crate) identity_headers: Vec<HeaderName>,
    /// The gate, how the client's address is found, and how requests are answered.
    pub(crate) limiter: RequestLimiter<AnyStore>,
    /// Answers callers that ask where they stand.
    pub(crate) standing: Option<Arc<StandingEndpoint>>,
    /// Finds who sends a request, in the operator's own systems.
    customers: Option<Arc<Customers>>,
}

impl LiveConfig {
    /// A gate with its policies, and how requests are read and answered.
    pub(crate) fn new(
        gate: Gate<AnyStore>,
        responder: Responder,
        client_address: ClientAddress,
        standing: Option<StandingConfig>,
        customers: Option<Arc<Customers>>,
    ) -> Self {
        let gate = Arc::new(gate);
        let limiter = RequestLimiter::new(gate.clone());
        let standing = standing.map(StandingEndpoint::new).map(Arc::new);
        let settings = HttpSettings::new(limiter, responder, client_address);
        let settings = HttpSettings { standing, customers, ..settings };
        Self { gate, settings: ArcSwap::from_pointee(settings) }
    }

    /// The same for a test, of a whole configuration.
    #[cfg(test)]
    pub(crate) fn of(limiter: LimiterConfig, store: impl Into<AnyStore>) -> Arc<Self> {
        let LimiterConfig { policies, responder, client_address, standing, .. } = limiter;
        let gate = Gate::new(policies, store.into());
        Arc::new(Self::new(gate, responder, client_address, standing, None))
    }

    pub(crate) fn gate(&self) -> &Arc<Gate<AnyStore>> {
        &self.gate
    }

    pub(crate) fn settings(&self) -> Arc<HttpSettings> {
        self.settings.load_full()
    }

    /// Puts other policies and settings in force. Accounts keep their history.
    pub(crate) fn replace(&self, limiter: LimiterConfig) {
        let LimiterConfig { policies, responder, client_address, standing, .. } = limiter;
        self.gate.replace_policies(policies);
        let before = self.settings();
        let standing = standing.map(|config| match &before.standing {
            // What its callers have asked stays counted.
            Some(same) if same.config == config => same.clone(),
            _ => Arc::new(StandingEndpoint::new(config)),
        });
        let customers = before.customers.clone();
        let settings = HttpSettings::new(before.limiter.clone(), responder, client_address);
        self.settings.store(Arc::new(HttpSettings { standing, customers, ..settings }));
    }

    /// Calls `listener` for each charge that was held until the response was known.
    pub(crate) fn on_settled(
        &self,
        listener: impl Fn(&HeldCharge, SettleOutcome) + Send + Sync + 'static,
    ) {
        let before = self.settings();
        let limiter = before.limiter.clone().on_settled(listener);
        self.settings.store(Arc::new(HttpSettings { limiter, ..(*before).clone() }));
    }
}

impl HttpSettings {
    fn new(
        limiter: RequestLimiter<AnyStore>,
        responder: Responder,
        client_address: ClientAddress,
    ) -> Self {
        let policies = limiter.gate().policies();
        let paths = policies.path_reading();
        let limiter = limiter.responder(responder).client_address(client_address);
        let identity_headers = policies.identity_headers().cloned().collect();
        Self { paths, identity_headers, limiter, standing: None, customers: None }
    }

    /// What answers requests for this target instead of upstream, if it is where callers ask how they
    /// stand.
    pub(crate) fn standing_for(&self, target: &Uri) -> Option<&StandingEndpoint> {
        self.standing.as_deref().filter(|standing| standing.is_for(target))
    }

    /// Decides a request, after finding out who sends it. A request that its address alone is refused
    /// for costs neither a look-up nor a signature check.
    pub(crate) async fn decide(&self, head: RequestHead<'_>) -> LimiterOutcome {
        let Some(customers) = &self.customers else { return self.limiter.decide(head).await };
        if let Some(bearer) = customers.find_now(head.headers(), |key| self.lists_key(key)) {
            return self.limiter.decide(head.bearer(&bearer)).await;
        }
        if let Some(refusal) = self.limiter.refuse_early(head) {
            return refusal;
        }
        let client = head.resolve(&self.limiter.client_address).client;
        // Boxed, so that other requests do not carry its state.
        let sought = customers.find(head.headers(), client, |key| self.lists_key(key));
        let bearer = Box::pin(sought).await;
        self.limiter.decide(head.bearer(&bearer)).await
    }

    /// Whether there are sources that know who bears credentials.
    pub(crate) fn has_customers(&self) -> bool {
        self.customers.is_some()
    }

    /// Who bears the credentials of a request that is described. If its address is enough to refuse it,
    /// nothing is looked up: the decision will be that refusal, or, if the address has room again by then,
    /// that the bearer is not known.
    pub(crate) async fn bearer_of(
        &self,
        facts: &Facts<'_>,
        headers: &HeaderMap,
        client: Option<IpAddr>,
    ) -> Option<Bearer> {
        let customers = self.customers.as_ref()?;
        let is_known = customers.find_now(headers, |key| self.lists_key(key)).is_some();
        if !is_known && self.limiter.gate().is_refused_by_address(facts) {
            return Some(customers.unavailable(headers));
        }
        self.bearer(headers, client).await
    }

    /// Who bears the credentials in these headers. The address bounds how many tokens are checked;
    /// operators give none.
    pub(crate) async fn bearer(
        &self,
        headers: &HeaderMap,
        address: Option<IpAddr>,
    ) -> Option<Bearer> {
        let customers = self.customers.as_ref()?;
        let is_listed = |key: &[u8]| self.lists_key(key);
        match customers.find_now(headers, is_listed) {
            Some(bearer) => Some(bearer),
            None => Some(Box::pin(customers.find(headers, address, is_listed)).await),
        }
    }

    /// Whether the configuration itself has an API key, so that no source is asked for it.
    fn lists_key(&self, key: &[u8]) -> bool {
        self.limiter.gate().lists_key(key)
    }

    /// What is known of the credentials in these headers, a line for each.
    pub(crate) async fn explain_credentials(&self, headers: &HeaderMap) -> Vec<String> {
        match &self.customers {
            Some(customers) => customers.explain(headers, |key| self.lists_key(key)).await,
            None => Vec::new(),
        }
    }
}
