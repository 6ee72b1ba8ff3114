//! Where time comes from: the only place that reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

    /// The calendar time, which may step: for telling people and clients of an instant, and how long
    /// a process was down. No limit goes by it.
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
/// Where the kernel itself keeps time by the processor's counter, so does this clock, which makes
/// a reading twice as fast. It asks the kernel again every millisecond, so the two are never
/// further apart than the counter's drift in that time: tens of nanoseconds. The same goes for the
/// calendar, whose steps it follows within that millisecond.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
    origin_ns: u64,
    counter: Option<Counter>,
    anchor: Anchor,
}

/// The processor's counter, and how fast it counts.
#[derive(Debug)]
struct Counter {
    clock: quanta::Clock,
    /// Nanoseconds in 2^32 counts.
    scale: u64,
    /// Counts in the time that an anchor is carried on for.
    most: u64,
}

impl Counter {
    fn new() -> Self {
        let clock = quanta::Clock::new();
        let scale = clock.delta_as_nanos(0, 1 << 32).max(1);
        Self { clock, scale, most: (ANCHOR_NS << 32) / scale }
    }

    #[inline]
    fn read(&self) -> u64 {
        self.clock.raw()
    }

    /// How long ago `from` was at `to`, in nanoseconds, if that is no longer than an anchor holds.
    #[inline]
    fn short_time(&self, from: u64, to: u64) -> Option<u64> {
        let counts = to.wrapping_sub(from);
        (counts < self.most).then(|| (counts * self.scale) >> 32)
    }
}

/// When the kernel was last asked: the counter's value, the time and the calendar's. A sequence lock:
/// `version` is odd while the others are written.
#[derive(Debug, Default)]
struct Anchor {
    version: AtomicU64,
    count: AtomicU64,
    ns: AtomicU64,
    wall_ns: AtomicU64,
}

/// How long a reading of the kernel's clock is carried on with the counter.
const ANCHOR_NS: u64 = NANOS_PER_MILLI;

const SAME_INSTANT_NS: u64 = 1000;

impl SystemClock {
    /// Starts a clock at the calendar's time.
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
            origin_ns: wall().0,
            counter: kernel_trusts_counter().then(Counter::new),
            anchor: Anchor::default(),
        }
    }

    /// One of the anchor's times, carried on to now; none if it is too old.
    #[inline(always)]
    fn carried_on(&self, counter: &Counter, count: u64, time: &AtomicU64) -> Option<Timestamp> {
        let (anchor_count, anchor_ns) = self.anchor.load(time)?;
        let since_ns = counter.short_time(anchor_count, count)?;
        Some(Timestamp(anchor_ns + since_ns))
    }

    /// Asks for both times, and keeps them for the next readings.
    #[cold]
    fn ask_kernel(&self, counter: &Counter, count: u64) -> (Timestamp, Timestamp) {
        let (ns, wall) = (self.kernel_ns(), wall());
        // If the thread lost its processor between the readings, they are not of one instant.
        let took_ns = counter.short_time(count, counter.read());
        if took_ns.is_some_and(|took_ns| took_ns < SAME_INSTANT_NS) {
            self.anchor.store(count, ns, wall.0);
        }
        (Timestamp(ns), wall)
    }

    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    fn kernel_ns(&self) -> u64 {
        let elapsed = Instant::now().saturating_duration_since(self.origin);
        self.origin_ns + elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        let Some(counter) = &self.counter else { return Timestamp(self.kernel_ns()) };
        let count = counter.read();
        match self.carried_on(counter, count, &self.anchor.ns) {
            Some(now) => now,
            None => self.ask_kernel(counter, count).0,
        }
    }

    fn wall(&self) -> Timestamp {
        let Some(counter) = &self.counter else { return wall() };
        let count = counter.read();
        match self.carried_on(counter, count, &self.anchor.wall_ns) {
            Some(wall) => wall,
            None => self.ask_kernel(counter, count).1,
        }
    }
}

impl Anchor {
    /// The counter's value and one of the times, unless they are being written.
    #[inline]
    fn load(&self, time: &AtomicU64) -> Option<(u64, u64)> {
        let version = self.version.load(Ordering::Acquire);
        let anchor = (self.count.load(Ordering::Relaxed), time.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        whole.then_some(anchor)
    }

    /// Sets the anchor, unless another thread is doing so.
    fn store(&self, count: u64, ns: u64, wall_ns: u64) {
        let version = self.version.load(Ordering::Relaxed);
        let (taken, lost) = (Ordering::Acquire, Ordering::Relaxed);
        if version % 2 == 1
            || self.version.compare_exchange(version, version + 1, taken, lost).is_err()
        {
            return;
        }
        fence(Ordering::Release);
        self.count.store(count, Ordering::Relaxed);
        self.ns.store(ns, Ordering::Relaxed);
        self.wall_ns.store(wall_ns, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }
}

/// Linux checks the counter against other clocks, and stops using it where it is not steady.
fn kernel_trusts_counter() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(source).is_ok_and(|source| source.trim() == "tsc")
}

#[allow(clippy::disallowed_methods, reason = "this is the clock")]
fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::default() + since_epoch
}

/// A clock that stands still until it is moved, for tests and simulations. Clones share it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_starts_at_the_calendar_and_keeps_to_the_kernels_time() {
        let clock = SystemClock::new();
        let apart = clock.now().0.abs_diff(clock.wall().0);
        assert!(apart < 1_000_000_000, "{apart} ns from the calendar");
        // Another anchor may set the counter right by some nanoseconds.
        let slack = Duration::from_micros(2);
        let mut last = clock.now();
        for _ in 0..1_000_000 {
            let now = clock.now();
            assert!(now + slack >= last, "back by {:?}", last.saturating_since(now));
            last = now;
        }
        let (before, now, after) = (clock.kernel_ns(), clock.now(), clock.kernel_ns());
        let slack = slack.as_nanos() as u64;
        assert!((before - slack..=after + slack).contains(&now.0), "{before} {now:?} {after}");
        let (before, now, after) = (wall(), clock.wall(), wall());
        // The calendar may be set right by some milliseconds, at any time.
        let slack = Duration::from_secs(1);
        assert!((before - slack..=after + slack).contains(&now), "{before:?} {now:?} {after:?}");
    }

    #[test]
    fn arithmetic_saturates() {
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
