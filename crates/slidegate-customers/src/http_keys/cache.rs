//! The last answers of the service.

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;
use slidegate::policy::KeyDigest;
use tokio::time::Instant;

use crate::key::KnownKey;

const MAX_KNOWN_KEYS: u64 = 1_000_000;

/// Clients can invent keys without end, and each is remembered for seconds only.
const MAX_UNKNOWN_KEYS: u64 = 100_000;

/// A service that fails is not asked for the same known key more often.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Known and unknown keys apart, so that invented keys push out no known ones.
///
/// Ages are checked here by tokio's clock; moka's own only frees memory.
pub(super) struct KeyCache {
    known: Cache<KeyDigest, Arc<CachedKey>, RandomState>,
    unknown: Cache<KeyDigest, Instant, RandomState>,
    stale: Duration,
    unknown_for: Duration,
}

/// What is cached for a digest.
pub(super) enum Cached {
    Known(Arc<CachedKey>),
    Unknown,
}

/// A known key and when it was asked for.
pub(super) struct CachedKey {
    pub(super) key: KnownKey,
    asked: Instant,
    refreshed: Mutex<Option<Instant>>,
}

impl KeyCache {
    pub(super) fn new(stale: Duration, unknown_for: Duration) -> Self {
        let known = Cache::builder()
            .max_capacity(MAX_KNOWN_KEYS)
            .time_to_live(stale)
            .eviction_policy(EvictionPolicy::lru())
            .build_with_hasher(RandomState::default());
        let unknown = Cache::builder()
            .max_capacity(MAX_UNKNOWN_KEYS)
            .time_to_live(unknown_for)
            .eviction_policy(EvictionPolicy::lru())
            .build_with_hasher(RandomState::default());
        Self { known, unknown, stale, unknown_for }
    }

    /// Leaves out what is too old to count.
    pub(super) fn get(&self, digest: KeyDigest) -> Option<Cached> {
        if let Some(known) = self.known.get(&digest)
            && known.age() < self.stale
        {
            return Some(Cached::Known(known));
        }
        let asked = self.unknown.get(&digest)?;
        (asked.elapsed() < self.unknown_for).then_some(Cached::Unknown)
    }

    pub(super) fn insert_known(&self, digest: KeyDigest, key: KnownKey, asked: Instant) {
        let refreshed = Mutex::new(None);
        self.known.insert(digest, Arc::new(CachedKey { key, asked, refreshed }));
    }

    /// A key that was known is so no longer.
    pub(super) fn insert_unknown(&self, digest: KeyDigest, asked: Instant) {
        self.unknown.insert(digest, asked);
        self.known.invalidate(&digest);
    }

    pub(super) fn known_keys(&self) -> usize {
        // Until then the count leaves out the latest changes.
        self.known.run_pending_tasks();
        usize::try_from(self.known.entry_count()).unwrap_or(usize::MAX)
    }
}

impl CachedKey {
    pub(super) fn age(&self) -> Duration {
        self.asked.elapsed()
    }

    /// Calls `start` unless a refresh was started less than a second ago. `start` returns none if it
    /// could not start one.
    pub(super) fn try_refresh(&self, start: impl FnOnce() -> Option<()>) {
        // If it is locked, another request starts a refresh at this instant.
        let Some(mut refreshed) = self.refreshed.try_lock() else { return };
        if refreshed.is_some_and(|at| at.elapsed() < REFRESH_INTERVAL) {
            return;
        }
        if start().is_some() {
            *refreshed = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u64) -> KeyDigest {
        KeyDigest(u128::from(number).to_be_bytes())
    }

    fn acme() -> KnownKey {
        KnownKey { customer: Some("acme".into()), plan: None, quotas: None, expires: None }
    }

    #[test]
    fn invented_keys_are_bounded_and_push_out_no_known_one() {
        let hour = Duration::from_secs(3600);
        let cache = KeyCache::new(hour, hour);
        for number in 0..1_000 {
            cache.insert_known(digest(number), acme(), Instant::now());
        }
        for number in 1_000..1_000 + 3 * MAX_UNKNOWN_KEYS {
            cache.insert_unknown(digest(number), Instant::now());
        }
        cache.unknown.run_pending_tasks();
        assert_eq!(cache.unknown.entry_count(), MAX_UNKNOWN_KEYS);
        assert_eq!(cache.known_keys(), 1_000);
        let is_known = |number| matches!(cache.get(digest(number)), Some(Cached::Known(_)));
        assert!((0..1_000).all(is_known));
    }

    #[test]
    fn the_last_answer_counts() {
        let hour = Duration::from_secs(3600);
        let cache = KeyCache::new(hour, hour);
        let now = Instant::now();
        assert!(cache.get(digest(1)).is_none());
        cache.insert_unknown(digest(1), now);
        assert!(matches!(cache.get(digest(1)), Some(Cached::Unknown)));
        cache.insert_known(digest(1), acme(), now);
        assert!(matches!(cache.get(digest(1)), Some(Cached::Known(_))));
        cache.insert_unknown(digest(1), now);
        assert!(matches!(cache.get(digest(1)), Some(Cached::Unknown)));
        assert_eq!(cache.known_keys(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_end_on_time() {
        let cache = KeyCache::new(Duration::from_secs(100), Duration::from_secs(5));
        cache.insert_known(digest(1), acme(), Instant::now());
        cache.insert_unknown(digest(2), Instant::now());
        tokio::time::advance(Duration::from_millis(4_999)).await;
        assert!(matches!(cache.get(digest(2)), Some(Cached::Unknown)));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(cache.get(digest(2)).is_none());
        tokio::time::advance(Duration::from_millis(94_999)).await;
        assert!(matches!(cache.get(digest(1)), Some(Cached::Known(_))));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(cache.get(digest(1)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_refreshed_once_a_second() {
        let (asked, refreshed) = (Instant::now(), Mutex::new(None));
        let known = CachedKey { key: acme(), asked, refreshed };
        let starts = |started| {
            let mut calls = 0;
            known.try_refresh(|| {
                calls += 1;
                started
            });
            calls == 1
        };
        assert!(starts(None));
        assert!(starts(Some(())));
        assert!(!starts(Some(())));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(!starts(Some(())));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(starts(Some(())));
    }
}
