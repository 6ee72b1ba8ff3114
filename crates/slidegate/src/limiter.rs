//! One quota for any number of keys.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::limit::memory::{Commit, MemoryStore};
use crate::limit::{Clock, Quota, Standing};

/// One quota for any number of keys, in memory, exact, for any number of threads.
///
/// Each key has the whole quota to itself. Keys are remembered for as long as they have spent
/// something in the window; there is room for a million of them, or as many as
/// [`capacity`](Self::capacity) says. When all of them are live, keys that are not among them share
/// one quota, so that a flood of invented keys admits no flood of requests.
///
/// For limits by plan, path and identity, or with accounts in Redis, see [`Gate`](crate::Gate).
///
/// ```
/// use slidegate::Limiter;
///
/// let limiter = Limiter::new("3/min".parse()?);
/// for _ in 0..3 {
///     assert!(limiter.check("user:42").is_ok());
/// }
/// let denied = limiter.check("user:42").unwrap_err();
/// println!("come back in {:?}", denied.retry_after());
/// assert!(limiter.check("user:43").is_ok());
/// # Ok::<(), slidegate::QuotaError>(())
/// ```
#[derive(Debug)]
pub struct Limiter {
    quota: Quota,
    store: MemoryStore,
}

impl Limiter {
    /// A limiter with room for a million keys, on the machine's clock.
    pub fn new(quota: Quota) -> Self {
        Self { quota, store: MemoryStore::new() }
    }

    /// The same limiter with room for so many keys. What was spent is forgotten.
    #[must_use]
    pub fn capacity(self, keys: usize) -> Self {
        Self { store: self.store.into_builder().capacity(keys).build(), ..self }
    }

    /// The same limiter on another clock. What was spent is forgotten.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { store: self.store.into_builder().clock(clock).build(), ..self }
    }

    /// Spends one unit of a key's quota, if there is one.
    pub fn check(&self, key: &str) -> Result<Standing, Denied> {
        self.check_n(key, NonZeroU32::MIN)
    }

    /// Spends so many units of a key's quota, or none if there are fewer.
    pub fn check_n(&self, key: &str, units: NonZeroU32) -> Result<Standing, Denied> {
        let (is_spent, standing) = match units <= self.quota.units() {
            true => self.attempt(key, units, Commit::Spend),
            false => (false, self.peek(key)),
        };
        if is_spent { Ok(standing) } else { Err(Denied { standing, units }) }
    }

    /// Where a key stands now. Spends nothing.
    pub fn peek(&self, key: &str) -> Standing {
        self.attempt(key, NonZeroU32::MIN, Commit::Nothing).1
    }

    /// How long until [`check`](Self::check) succeeds if nothing else is spent; zero if it would
    /// now. Spends nothing.
    pub fn retry_after(&self, key: &str) -> Duration {
        self.peek(key).retry_after()
    }

    /// Forgets what a key has spent.
    pub fn reset(&self, key: &str) {
        self.store.remove(key);
    }

    /// The quota of each key.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn attempt(&self, key: &str, units: NonZeroU32, commit: Commit) -> (bool, Standing) {
        self.store.attempt_key(key, self.quota, units.get(), commit)
    }
}

/// A key has not enough units left, and nothing was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub struct Denied {
    standing: Standing,
    units: NonZeroU32,
}

impl Denied {
    /// How long until the same call succeeds if nothing else is spent. None if it never does,
    /// because it asks for more units than the quota has.
    pub fn retry_after(&self) -> Option<Duration> {
        (self.units <= self.standing.quota().units()).then(|| self.standing.retry_after())
    }

    /// Where the key stands.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    fn message(&self) -> String {
        let quota = self.standing.quota();
        match self.retry_after() {
            Some(wait) => {
                // Rounded up: a retry after this time is never too early.
                let tenths = wait.as_nanos().div_ceil(100_000_000);
                let (seconds, tenths) = (tenths / 10, tenths % 10);
                let tenths = if tenths == 0 { String::new() } else { format!(".{tenths}") };
                format!("more than {quota}: retry in {seconds}{tenths} s")
            }
            None => format!("{} units are more than {quota} ever allows", self.units),
        }
    }
}
