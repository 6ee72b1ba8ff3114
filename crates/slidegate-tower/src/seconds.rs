//! Time as the wire has it: whole seconds, never too early.

use std::time::Duration;

use slidegate::{Decision, Standing};

/// Whole seconds, rounded up: who comes back by them is not early.
///
/// Standings are kept in nanoseconds of 64 bits, so this has at most 11 digits, and fits the 15
/// that a structured field has room for.
pub(crate) const fn ceil(time: Duration) -> u64 {
    time.as_secs() + if time.subsec_nanos() > 0 { 1 } else { 0 }
}

/// How long the client can use no more than what remains: until the first spent unit is free
/// again, or for a whole window if none is spent.
pub(crate) fn effective_window(standing: &Standing) -> Duration {
    let reset_after = standing.reset_after();
    if reset_after.is_zero() { standing.quota().window() } else { reset_after }
}

/// The effective window as headers tell it: never longer than the quota can hold a unit.
pub(crate) fn effective_window_s(standing: &Standing) -> u64 {
    ceil(effective_window(standing).min(standing.quota().longest_reset()))
}

/// When the same request is worth sending again.
pub(crate) fn reset(standing: &Standing) -> Duration {
    effective_window(standing).max(standing.retry_after())
}

/// When the request is worth sending again, where only the tightest quota is told: not before a ban
/// is over that its denial has begun, nor before another policy has room, if one of these takes
/// longer than the quota itself.
pub(crate) fn reset_of(decision: &Decision, tightest: &Standing) -> Duration {
    let own = reset(tightest).min(tightest.quota().longest_reset());
    let wait = decision.retry_after().unwrap_or_default();
    if wait > tightest.retry_after() { own.max(wait) } else { own }
}
