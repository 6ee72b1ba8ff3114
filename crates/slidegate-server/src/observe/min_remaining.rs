//! The account that was nearest to its quota lately.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slidegate::Standing;

use super::per_thread::PerThread;

/// The lowest standing of the current period and of the one before, for one thread.
///
/// A standing is one number, so that the lowest is found without a lock: what remains, and below
/// it how far the reset is from the longest there is. Of those with as much remaining, the one
/// that waits longest is the lowest.
#[derive(Debug)]
pub(super) struct MinRemaining {
    current: AtomicU64,
    previous: AtomicU64,
}

/// No standing was recorded.
const NOBODY: u64 = u64::MAX;
/// Of a reset. In 32 bits there is room for more than a year, the longest window.
const TICK_MS: u32 = 10;
const TICKS_PER_SECOND: u64 = 100;
const TICK_NS: u32 = TICK_MS * 1_000_000;

impl Default for MinRemaining {
    fn default() -> Self {
        Self { current: AtomicU64::new(NOBODY), previous: AtomicU64::new(NOBODY) }
    }
}

impl MinRemaining {
    #[inline]
    pub(super) fn record(&self, standing: &Standing) {
        // Nearly always there was a lower one.
        let current = self.current.load(Ordering::Relaxed);
        if u64::from(standing.remaining()) <= current >> 32 {
            let packed = pack(standing);
            if packed < current {
                self.current.fetch_min(packed, Ordering::Relaxed);
            }
        }
    }

    /// What remained for the lowest of both periods, and how long until its reset.
    pub(super) fn of<T>(
        all: &PerThread<T>,
        lowest: impl Fn(&T) -> &MinRemaining,
    ) -> Option<(u32, Duration)> {
        let both = |own: &MinRemaining| {
            let (current, previous) = (&own.current, &own.previous);
            current.load(Ordering::Relaxed).min(previous.load(Ordering::Relaxed))
        };
        let packed = all.iter().map(|own| both(lowest(own))).min()?;
        (packed != NOBODY).then(|| unpack(packed))
    }

    /// Lets the period before go and begins a new one.
    pub(super) fn turn(&self) {
        self.previous.store(self.current.swap(NOBODY, Ordering::Relaxed), Ordering::Relaxed);
    }
}

fn pack(standing: &Standing) -> u64 {
    let reset = standing.reset_after();
    let ticks =
        reset.as_secs() * TICKS_PER_SECOND + u64::from(reset.subsec_nanos().div_ceil(TICK_NS));
    let until_longest = u32::MAX - u32::try_from(ticks).unwrap_or(u32::MAX);
    u64::from(standing.remaining()) << 32 | u64::from(until_longest)
}

fn unpack(packed: u64) -> (u32, Duration) {
    let ticks = u32::MAX - packed as u32;
    ((packed >> 32) as u32, Duration::from_millis(TICK_MS.into()) * ticks)
}

#[cfg(test)]
mod tests {
    use slidegate::Quota;

    use super::*;

    fn standing(remaining: u32, reset_ms: u64) -> Standing {
        let untouched = Standing::untouched(Quota::per_day(1000));
        untouched.with_remaining(remaining).with_reset_after(Duration::from_millis(reset_ms))
    }

    #[test]
    fn the_least_remaining_counts_and_then_the_longest_wait() {
        let all = PerThread::<MinRemaining>::default();
        let lowest = || MinRemaining::of(&all, |own| own);
        assert_eq!(lowest(), None);
        let year_ms = 366 * 24 * 3600 * 1000;
        for (seen, remaining, reset_ms) in [
            (standing(7, 500), 7, 500),
            (standing(9, 900), 7, 500),
            (standing(0, 300), 0, 300),
            (standing(0, 1201), 0, 1210),
            (standing(0, year_ms), 0, year_ms),
        ] {
            all.own().record(&seen);
            assert_eq!(lowest(), Some((remaining, Duration::from_millis(reset_ms))));
        }
    }

    #[test]
    fn it_is_forgotten_after_two_turns() {
        let all = PerThread::<MinRemaining>::default();
        let turn = || all.iter().for_each(MinRemaining::turn);
        all.own().record(&standing(3, 10));
        turn();
        all.own().record(&standing(5, 10));
        let remaining = || MinRemaining::of(&all, |own| own).map(|(remaining, _)| remaining);
        assert_eq!(remaining(), Some(3));
        turn();
        assert_eq!(remaining(), Some(5));
        turn();
        assert_eq!(remaining(), None);
    }
}
