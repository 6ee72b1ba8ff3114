//! The policies of `CL.THROTTLE` and `THROTTLE`, which are in force if `[resp]` is there and which no
//! file can write.

use slidegate::limit::Quotas;
use slidegate::{Identity, OnStoreError, Policy, Quota, Source};

/// The policy of `count` in `period`, which is the kind of its identities too.
pub(crate) const WINDOW: &str = "throttle";
/// The policy of bursts below `count`.
pub(crate) const BURST: &str = "throttle-burst";
/// The names of both, which no other policy can have.
pub(crate) const POLICIES: [&str; 2] = [WINDOW, BURST];

/// The policies that calls are charged under.
pub(crate) fn policies(on_store_error: OnStoreError) -> [Policy; 2] {
    POLICIES.map(|name| {
        let policy = Policy::new(name).identity([Source::named(name)]).not_in_headers();
        policy.caller_quotas(quotas_of).on_store_error(on_store_error)
    })
}

/// The window of an account is in its identity; its units are known to callers alone.
fn quotas_of(identity: &Identity) -> Quotas {
    let window = identity.value().split_once(':').map_or("", |(window, _)| window);
    let quota = format!("{}/{window}", u32::MAX).parse();
    quota.unwrap_or(Quota::per_day(u32::MAX)).into()
}
