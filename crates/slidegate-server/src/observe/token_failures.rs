//! Wrong tokens, and the addresses that present them.

use std::net::IpAddr;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use slidegate::policy::Prefixes;
use slidegate::{Identity, Limiter, Quota};

use super::ListenerKind;

/// Counts wrong tokens and logs them. An address that presents too many is not listened to for a while,
/// so that a token cannot be guessed at the speed of the network.
#[derive(Debug)]
pub(crate) struct TokenFailures {
    /// By address.
    wrong: Limiter,
    /// By address too.
    logged: Limiter,
    pub(super) counts: Family<[(&'static str, &'static str); 1], Counter>,
}

/// The wrong tokens that an address may present in a minute. An operator mistypes a few, and a guesser
/// needs many.
const WRONG_PER_MINUTE: u32 = 10;
/// Addresses that are known at a time; those beyond them share one account.
const MAX_ADDRESSES: usize = 10_000;

impl Default for TokenFailures {
    fn default() -> Self {
        let counts = Family::default();
        for listener in
            [ListenerKind::Decisions, ListenerKind::Resp, ListenerKind::Rls, ListenerKind::Admin]
        {
            drop(counts.get_or_create(&[("listener", listener.as_str())]));
        }
        let limiter = |quota| Limiter::new(quota).capacity(MAX_ADDRESSES);
        Self {
            wrong: limiter(Quota::per_minute(WRONG_PER_MINUTE)),
            logged: limiter(Quota::per_minute(1)),
            counts,
        }
    }
}

impl TokenFailures {
    /// How long an address has to wait until its tokens are looked at again.
    pub(crate) fn wait(&self, peer: Option<IpAddr>) -> Option<Duration> {
        Some(self.wrong.retry_after(&key(peer))).filter(|wait| !wait.is_zero())
    }

    /// Records a wrong token.
    pub(crate) fn record(&self, listener: ListenerKind, peer: Option<IpAddr>) {
        let listener = listener.as_str();
        self.counts.get_or_create(&[("listener", listener)]).inc();
        let key = key(peer);
        // It has room: an address without is not listened to.
        let _ = self.wrong.check(&key);
        if self.logged.check(&key).is_ok() {
            tracing::warn!(
                listener,
                peer = key,
                "wrong token; more from this address are not logged for a minute"
            );
        }
    }
}

/// A client's network, as policies count it.
fn key(peer: Option<IpAddr>) -> String {
    let network = peer.map(|peer| Identity::ip(peer, Prefixes::default()));
    network.map_or_else(|| "unix".to_owned(), |network| network.value().to_owned())
}
