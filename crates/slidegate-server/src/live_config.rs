//! The gate and its settings in force; a reload replaces them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderName;
use slidegate::policy::PathReading;
use slidegate::{Gate, HeldCharge};
use slidegate_tower::{ClientAddress, RequestLimiter, Responder, SettleOutcome};

use crate::config::LimiterConfig;
use crate::store::AnyStore;

/// The gate and its settings in force, for every endpoint.
#[derive(Debug)]
pub(crate) struct LiveConfig {
    gate: Arc<Gate<AnyStore>>,
    settings: ArcSwap<HttpSettings>,
}

/// How requests are read and answered.
#[derive(Debug)]
pub(crate) struct HttpSettings {
    /// How paths are read.
    pub(crate) paths: PathReading,
    /// The headers that identities and plans are read from, besides those that always are.
    pub(crate) identity_headers: Vec<HeaderName>,
    /// The gate, how the client's address is found, and how requests are answered.
    pub(crate) limiter: RequestLimiter<AnyStore>,
}

impl LiveConfig {
    /// A gate with its policies, and how requests are read and answered.
    pub(crate) fn new(
        gate: Gate<AnyStore>,
        responder: Responder,
        client_address: ClientAddress,
    ) -> Self {
        let gate = Arc::new(gate);
        let limiter = RequestLimiter::new(gate.clone());
        let settings = HttpSettings::new(limiter, responder, client_address);
        Self { gate, settings: ArcSwap::from_pointee(settings) }
    }

    /// The same for a test, of a whole configuration.
    #[cfg(test)]
    pub(crate) fn of(limiter: LimiterConfig, store: impl Into<AnyStore>) -> Arc<Self> {
        let LimiterConfig { policies, responder, client_address, .. } = limiter;
        Arc::new(Self::new(Gate::new(policies, store.into()), responder, client_address))
    }

    pub(crate) fn gate(&self) -> &Arc<Gate<AnyStore>> {
        &self.gate
    }

    pub(crate) fn settings(&self) -> Arc<HttpSettings> {
        self.settings.load_full()
    }

    /// Puts other policies and settings in force. Accounts keep their history.
    pub(crate) fn replace(&self, limiter: LimiterConfig) {
        let LimiterConfig { policies, responder, client_address, .. } = limiter;
        self.gate.replace_policies(policies);
        let limiter = self.settings().limiter.clone();
        let settings = HttpSettings::new(limiter, responder, client_address);
        self.settings.store(Arc::new(settings));
    }

    /// Calls `listener` for each charge that was held until the response was known.
    pub(crate) fn on_settled(
        &self,
        listener: impl Fn(&HeldCharge, SettleOutcome) + Send + Sync + 'static,
    ) {
        let HttpSettings { paths, identity_headers, limiter } = &*self.settings();
        let limiter = limiter.clone().on_settled(listener);
        let (paths, identity_headers) = (*paths, identity_headers.clone());
        self.settings.store(Arc::new(HttpSettings { paths, identity_headers, limiter }));
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
        Self { paths, identity_headers, limiter }
    }
}
