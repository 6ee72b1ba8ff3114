//! The rules in force, which a reload puts others in the place of.

use std::mem;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderName;
use slidegate::policy::PathReading;
use slidegate::{Gate, MemoryStore};
use slidegate_tower::{ClientAddress, RequestLimiter, Responder};

use crate::config::LimiterConfig;
use crate::shared::BanQueue;
use crate::store::AnyStore;

/// The gate and the rules in force, for every endpoint.
#[derive(Debug)]
pub(crate) struct LiveConfig {
    gate: Arc<Gate<AnyStore>>,
    settings: ArcSwap<HttpSettings>,
}

/// How requests are read and answered.
#[derive(Debug)]
pub(crate) struct HttpSettings {
    /// Writes headers and refusals.
    pub(crate) answers: Responder,
    /// How the gateway finds the client behind proxies.
    pub(crate) client_address: ClientAddress,
    /// How paths are read.
    pub(crate) paths: PathReading,
    /// The headers that identities and plans are read from, besides those that always are.
    pub(crate) identity_headers: Vec<HeaderName>,
    /// The gate with all of these.
    pub(crate) limiter: RequestLimiter<AnyStore>,
}

impl LiveConfig {
    /// Puts rules in force, whose policies the gate has from now on. Bans that begin are queued.
    pub(crate) fn new(
        rules: &mut LimiterConfig,
        store: AnyStore,
        local: MemoryStore,
        queue: Option<Arc<BanQueue>>,
    ) -> Self {
        let gate = Gate::with_local(mem::take(&mut rules.policies), store, local);
        let gate = Arc::new(match queue {
            Some(queue) => gate.on_ban(move |ban| queue.push(ban)),
            None => gate,
        });
        let settings = HttpSettings::new(&gate, rules);
        Self { gate, settings: ArcSwap::from_pointee(settings) }
    }

    pub(crate) fn gate(&self) -> &Arc<Gate<AnyStore>> {
        &self.gate
    }

    pub(crate) fn settings(&self) -> Arc<HttpSettings> {
        self.settings.load_full()
    }

    /// Puts other rules in force. Accounts keep their history.
    pub(crate) fn replace(&self, rules: &mut LimiterConfig) {
        self.gate.replace_policies(mem::take(&mut rules.policies));
        self.settings.store(Arc::new(HttpSettings::new(&self.gate, rules)));
    }
}

impl HttpSettings {
    fn new(gate: &Arc<Gate<AnyStore>>, rules: &LimiterConfig) -> Self {
        let policies = gate.policies();
        let paths = policies.path_reading();
        let (answers, client_address) = (rules.answers.clone(), rules.client_address.clone());
        let limiter = RequestLimiter::new(gate.clone())
            .responder(answers.clone())
            .client_address(client_address.clone());
        let identity_headers = policies.identity_headers().cloned().collect();
        Self { answers, client_address, paths, identity_headers, limiter }
    }
}
