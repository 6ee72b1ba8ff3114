//! Where time comes from: the only place that reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) const NANOS_PER_MILLI: u64 = 1_000_000;

/// An instant on a [`Clock`], in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant this many milliseconds after the epoch.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(NANOS_PER_MILLI))
    }

    /// The instant this many nanoseconds after the epoch.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the epoch, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / NANOS_PER_MILLI
    }

    pub(crate) const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(NANOS_PER_MILLI)
    }

    /// How long after `earlier` this is; zero if it is not.
    pub const fn saturating_since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the end of time, in the year 2554.
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the beginning of time.
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A source of time.
///
/// Readings should never go back. If they do, accounts hold what they have for at most one
/// window longer; they never admit more for it.
pub trait Clock: Send + Sync + 'static {
    /// The current instant.
    fn now(&self) -> Timestamp;

    /// The calendar time, which may step: for dates in output, and for how long a process was down.
    /// No limit depends on it.
    fn wall(&self) -> Timestamp {
        wall()
    }
}

/// A clock that several share.
impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn wall(&self) -> Timestamp {
        (**self).wall()
    }
}

/// The machine's monotonic clock, set to the calendar once, when made.
///
/// It reads the processor's counter where that is steady, by way of [`quanta`], else the kernel's
/// clock.
#[derive(Debug, Clone)]
pub struct SystemClock {
    clock: quanta::Clock,
    origin: u64,
    origin_ns: u64,
}

impl SystemClock {
    /// Starts a clock at the calendar's time.
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        Self { origin: clock.raw(), origin_ns: wall().0, clock }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp(self.origin_ns + self.clock.delta_as_nanos(self.origin, self.clock.raw()))
    }
}

/// The clock of a store: the machine's, which is read without an indirect call, or another.
#[derive(Clone)]
pub(crate) enum StoreClock {
    System(SystemClock),
    Other(Arc<dyn Clock>),
}

impl Clock for StoreClock {
    #[inline]
    fn now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    fn wall(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.wall(),
            Self::Other(clock) => clock.wall(),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the clock")]
fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::default() + since_epoch
}

/// A clock that stands still until it is moved, for tests and simulations. Clones share it.
///
/// ```
/// use std::time::Duration;
///
/// use slidegate::{Limiter, ManualClock, Quota, Timestamp};
///
/// let clock = ManualClock::new(Timestamp::default());
/// let limiter = Limiter::new(Quota::per_minute(1)).clock(clock.clone());
/// assert!(limiter.check("user:42").is_ok());
///
/// clock.advance(Duration::from_millis(59_999));
/// assert!(limiter.check("user:42").is_err());
/// clock.advance(Duration::from_millis(1));
/// assert!(limiter.check("user:42").is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `start`.
    pub fn new(start: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(start.0)))
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        let moved = |now| Some((Timestamp(now) + by).0);
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, moved);
    }

    /// Sets the clock, forwards or back.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.0, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    /// Starts on a whole day of 2026, far from the epoch.
    fn default() -> Self {
        Self::new(Timestamp::from_millis(1_767_225_600_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn wall(&self) -> Timestamp {
        self.now()
    }
}

/// A warning that is due at most once a minute, whichever threads would give it. It is not a
/// [`Limiter`](crate::Limiter), because that is built on the memory store, which itself warns.
#[derive(Debug, Default)]
pub(crate) struct Warning {
    last_ns: AtomicU64,
}

impl Warning {
    const INTERVAL: Duration = Duration::from_secs(60);

    /// Whether to warn now; if so, it is not due again for a minute.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let last_ns = self.last_ns.load(Ordering::Relaxed);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        now >= Timestamp(last_ns) + Self::INTERVAL
            && self.last_ns.compare_exchange(last_ns, now.0, set, fetch).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the clock is compared with the kernel's")]
    fn a_system_clock_starts_at_the_calendar_and_keeps_to_the_kernels_time() {
        let clock = SystemClock::new();
        let apart = clock.now().0.abs_diff(clock.wall().0);
        assert!(apart < 1_000_000_000, "{apart} ns from the calendar");
        let (start, kernel) = (clock.now(), std::time::Instant::now());
        // Two processors' counters need not agree to the nanosecond.
        let slack = Duration::from_micros(2);
        let mut last = start;
        for _ in 0..1_000_000 {
            let now = clock.now();
            assert!(now + slack >= last, "back by {:?}", last.saturating_since(now));
            last = now;
        }
        let (took, kernel) = (clock.now().saturating_since(start), kernel.elapsed());
        let apart = took.abs_diff(kernel);
        assert!(apart < kernel / 100 + slack, "{took:?} by the clock, {kernel:?} by the kernel's");
    }

    #[test]
    fn arithmetic_of_timestamps_saturates() {
        let end = Timestamp::from_nanos(u64::MAX);
        assert_eq!(end + Duration::from_secs(1), end);
        assert_eq!(Timestamp::from_millis(1) - Duration::from_secs(1), Timestamp::default());
        assert_eq!(
            Timestamp::from_millis(1001) - Duration::from_secs(1),
            Timestamp::from_millis(1)
        );
        assert_eq!(Timestamp::from_millis(1).saturating_since(end), Duration::ZERO);
        assert_eq!(Timestamp::from_millis(u64::MAX), end);
    }
}
