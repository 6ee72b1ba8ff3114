//! The limiters that are compared, each asked in its own words.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use governor::DefaultKeyedRateLimiter;
use slidegate::limit::{Charge, Charges, Quotas};
use slidegate::{Identity, MemoryStore, Name, Quota};
use throttlecrab::{AdaptiveStore, RateLimiter};

/// The quota of every cell: 100 in 60 seconds.
pub const UNITS: u32 = 100;
const WINDOW: Duration = Duration::from_secs(60);

/// A limiter under test.
pub trait Candidate: Sync {
    /// What it takes a key as, made of a client address.
    type Key: From<String> + Sync;

    /// An empty limiter.
    fn new() -> Self;

    /// Decides one request.
    fn decide(&self, key: &Self::Key) -> bool;
}

/// Slidegate's limiter of one quota.
pub struct Limiter(slidegate::Limiter);

impl Candidate for Limiter {
    type Key = String;

    fn new() -> Self {
        Self(slidegate::Limiter::new(Quota::per_minute(UNITS)).capacity(2_000_000))
    }

    fn decide(&self, key: &String) -> bool {
        self.0.check(key).is_ok()
    }
}

/// The identity that a store counts.
pub struct User(Identity);

impl From<String> for User {
    fn from(address: String) -> Self {
        Self(Identity::user(&address))
    }
}

/// Slidegate's memory store, as a gate uses it.
pub struct Store {
    store: MemoryStore,
    policy: Name,
    quotas: Quotas,
}

impl Store {
    /// A store for this quota.
    pub fn with_quota(quota: Quota) -> Self {
        let policy = "api".parse().expect("a good name");
        let store = MemoryStore::builder().capacity(2_000_000).build();
        Self { store, policy, quotas: quota.into() }
    }
}

impl Candidate for Store {
    type Key = User;

    fn new() -> Self {
        Self::with_quota(Quota::per_minute(UNITS))
    }

    fn decide(&self, key: &User) -> bool {
        let charge = Charge::new(&self.policy, &key.0, &self.quotas);
        self.store.spend_now(&Charges::from(charge)).expect("the store has room").spent
    }
}

/// governor's keyed limiter on DashMap.
pub struct Governor(DefaultKeyedRateLimiter<String>);

impl Candidate for Governor {
    type Key = String;

    fn new() -> Self {
        let units = NonZeroU32::new(UNITS).expect("not zero");
        Self(governor::RateLimiter::dashmap(governor::Quota::per_minute(units)))
    }

    fn decide(&self, key: &String) -> bool {
        self.0.check_key(key).is_ok()
    }
}

/// throttlecrab's default store behind a mutex, as its limiter is not shared by itself.
pub struct Throttlecrab(Mutex<RateLimiter<AdaptiveStore>>);

impl Candidate for Throttlecrab {
    type Key = String;

    fn new() -> Self {
        Self(Mutex::new(RateLimiter::new(AdaptiveStore::new())))
    }

    fn decide(&self, key: &String) -> bool {
        let mut limiter = self.0.lock().expect("no panics");
        let (units, seconds) = (i64::from(UNITS), WINDOW.as_secs() as i64);
        let answer = limiter.rate_limit(key, units, units, seconds, 1, SystemTime::now());
        answer.expect("the arguments are good").0
    }
}

/// A map of timestamp vectors, as one writes it in an afternoon: exact, and a scan per decision.
pub struct Naive(Mutex<HashMap<String, Vec<Instant>>>);

impl Candidate for Naive {
    type Key = String;

    fn new() -> Self {
        Self(Mutex::default())
    }

    fn decide(&self, key: &String) -> bool {
        let now = Instant::now();
        let mut map = self.0.lock().expect("no panics");
        let spends = match map.get_mut(key) {
            Some(spends) => spends,
            None => map.entry(key.clone()).or_default(),
        };
        spends.retain(|at| now.duration_since(*at) < WINDOW);
        let allowed = spends.len() < UNITS as usize;
        if allowed {
            spends.push(now);
        }
        allowed
    }
}
