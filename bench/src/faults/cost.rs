//! What a fault cost, by brute force from the list of all decisions.

use std::time::{Duration, Instant};

use super::load::{ACCOUNTS, Call, HOT, HOT_UNITS, HOT_WINDOW, Nap, Seen};

/// A decision that takes longer has hung: the store's deadline of 50 ms, and 50 ms.
pub const BOUND: Duration = Duration::from_millis(100);
/// Twice the longest that a denial is repeated without Redis.
const DENIALS_LAST: Duration = Duration::from_secs(2);

/// What was seen of one fault.
pub struct Cost {
    pub decisions: usize,
    pub degraded: usize,
    pub lost: usize,
    pub longest: Duration,
    /// The longest that the load had to wait for a processor.
    pub lag: Duration,
    /// The longest decision, not counting that wait, and those longer than [`BOUND`].
    pub longest_without_lag: Duration,
    pub hung: usize,
    /// Units of the hot account beyond its quota in some window: that Redis admitted, and that
    /// Redis and the gateways admitted together.
    pub beyond_by_redis: usize,
    pub beyond: usize,
    /// Units of the other accounts that were admitted and that Redis has not counted, or the reverse.
    pub forgotten: usize,
    pub overcounted: usize,
    pub heal: Option<Duration>,
    /// How much of that the servers took to agree on another primary.
    pub agreed: Duration,
}

impl Cost {
    pub fn new(seen: &Seen, heal: Option<Duration>, agreed: Duration) -> Self {
        let Seen { calls, naps, counted } = seen;
        let count = |is: &dyn Fn(&Call) -> bool| calls.iter().filter(|call| is(call)).count();
        let rest = (0..ACCOUNTS).filter(|account| *account != HOT).map(|account| {
            let admitted = count(&|call| call.account == account && call.is_admitted);
            (admitted, counted[account] as usize)
        });
        let rest: Vec<(usize, usize)> = rest.collect();
        let hot = || calls.iter().filter(|call| call.account == HOT && call.is_admitted);
        let without_lag = |call: &Call| {
            let meanwhile = |nap: &&Nap| nap.began < call.returned && nap.woken > call.called;
            let lag: Duration = naps.iter().filter(meanwhile).map(|nap| nap.lag).sum();
            call.took().saturating_sub(lag)
        };
        Self {
            decisions: calls.len(),
            degraded: count(&|call| call.is_degraded),
            lost: count(&|call| call.is_lost),
            longest: calls.iter().map(Call::took).max().unwrap_or_default(),
            lag: naps.iter().map(|nap| nap.lag).max().unwrap_or_default(),
            longest_without_lag: calls.iter().map(without_lag).max().unwrap_or_default(),
            hung: count(&|call| without_lag(call) > BOUND),
            beyond_by_redis: beyond(&hot().filter(|call| !call.is_degraded).collect::<Vec<_>>()),
            beyond: beyond(&hot().collect::<Vec<_>>()),
            forgotten: rest
                .iter()
                .map(|(admitted, counted)| admitted.saturating_sub(*counted))
                .sum(),
            overcounted: rest
                .iter()
                .map(|(admitted, counted)| counted.saturating_sub(*admitted))
                .sum(),
            heal,
            agreed,
        }
    }
}

impl Call {
    fn took(&self) -> Duration {
        self.returned - self.called
    }
}

/// The most admissions that certainly lie in one window, less the quota. A decision was made at
/// some time between call and return, so it lies in a window for certain if both do.
fn beyond(admitted: &[&Call]) -> usize {
    let in_window = |first: &&Call| {
        let ends = first.called + HOT_WINDOW;
        admitted.iter().filter(|call| call.called >= first.called && call.returned < ends).count()
    };
    let most = admitted.iter().map(in_window).max().unwrap_or_default();
    most.saturating_sub(HOT_UNITS as usize)
}

/// When a fault began and ended, and the accounts that it concerned.
pub struct Span {
    pub began: Instant,
    pub ended: Instant,
    pub accounts: Vec<usize>,
}

impl Span {
    /// Whether Redis did not decide something.
    pub fn has_cost(&self, calls: &[Call]) -> bool {
        calls.iter().any(|call| self.concerns(call) && call.is_degraded)
    }

    /// How long after the end Redis decided again, at the last gateway.
    pub fn heal(&self, calls: &[Call], gateways: usize) -> Option<Duration> {
        let first = |gateway: usize| {
            let is_first = |call: &&Call| {
                // A denial may be repeated from before.
                let is_fresh = call.is_admitted || call.called > self.began + DENIALS_LAST;
                let is_by_redis = !call.is_degraded && !call.is_lost && is_fresh;
                call.gateway == gateway && call.called >= self.ended && is_by_redis
            };
            calls.iter().filter(|call| self.concerns(call)).find(is_first)
        };
        let firsts = (0..gateways).map(|gateway| Some(first(gateway)?.returned - self.ended));
        firsts.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    fn concerns(&self, call: &Call) -> bool {
        call.called >= self.began && self.accounts.contains(&call.account)
    }
}
