//! Identities that clients choose themselves, and how many of them each address has brought.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;

use crate::identity::{Identity, Prefixes};
use crate::limit::Timestamp;
use crate::limit::clock::Warning;

/// Knows the live identities that clients chose, each with the address that brought it first. An
/// identity is live for the longest window since its last request: as long as it can have an account.
///
/// It is this process's own knowledge, kept as digests: other gateways count for themselves, and a
/// restart begins anew.
#[derive(Debug)]
pub(crate) struct ChosenIdentities {
    shards: [Mutex<ChosenShard>; SHARDS],
    /// How many of the identities in `shards` each address has brought, sharded by the address. Locked
    /// after a shard of identities.
    counts: [Mutex<HashMap<u64, u32, RandomState>>; SHARDS],
    /// The seed is random, because clients choose what is hashed.
    hasher: RandomState,
    /// When all were looked through last.
    swept: Mutex<Option<Timestamp>>,
    without_account: AtomicU64,
    warning: Warning,
}

/// What an address may have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChosenBound {
    /// The most identities of one address.
    pub(crate) per_address: u32,
    /// How long an identity is live after a request.
    pub(crate) lasting: Duration,
}

/// How many identities that clients chose there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChosenStats {
    /// Those that are live, or not swept yet.
    pub identities: usize,
    /// Requests whose identity got no account because its address had too many, or the store had no
    /// room: the policy's next source counted.
    pub without_account: u64,
}

/// Enough that threads seldom meet.
const SHARDS: usize = 16;
/// Shards go by bits of the hash that their tables do not go by.
const SHARD_SHIFT: u32 = 32;
/// A million identities in all, as many as a memory store has accounts by default; they take about
/// 50 MB. Identities beyond them are counted as ever and towards no address.
const MAX_PER_SHARD: usize = 1_000_000 / SHARDS;
/// How many buckets a newcomer's call looks through for identities that are over. Two would keep up
/// with any stream of newcomers.
const SWEEP_BUCKETS: usize = 16;
/// Between two sweeps of all buckets, each of which takes some milliseconds for a million.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct ChosenShard {
    identities: HashTable<Chosen>,
    cursor: usize,
}

#[derive(Debug, Clone, Copy)]
struct Chosen {
    identity: u64,
    address: u64,
    until: Timestamp,
}

impl ChosenIdentities {
    pub(crate) fn new() -> Self {
        Self {
            shards: Default::default(),
            counts: Default::default(),
            hasher: RandomState::default(),
            swept: Mutex::default(),
            without_account: AtomicU64::new(0),
            warning: Warning::default(),
        }
    }

    /// Whether an identity may have an account: it is known, or its address has fewer than its bound
    /// and the store has room. One that may is known from now on if `remember` says so.
    pub(crate) fn admit(
        &self,
        identity: &Identity,
        address: IpAddr,
        bound: ChosenBound,
        now: Timestamp,
        remember: bool,
        has_room: impl FnOnce() -> bool,
    ) -> bool {
        let hash = self.hasher.hash_one(identity.as_str());
        let shard = &self.shards[(hash >> SHARD_SHIFT) as usize % SHARDS];
        let is_this = |known: &Chosen| known.identity == hash;
        if let Some(known) = shard.lock().identities.find_mut(hash, is_this)
            && known.until > now
        {
            if remember {
                known.until = now + bound.lasting;
            }
            return true;
        }
        let network = Identity::ip(address, Prefixes::default());
        let address = self.hasher.hash_one(network.as_str());
        let count = || self.counts_of(address).lock().get(&address).copied().unwrap_or(0);
        if count() >= bound.per_address {
            self.sweep_all_if_due(now);
        }
        let count = count();
        if count >= bound.per_address || !has_room() {
            self.refuse(&network, count, bound, now);
            return false;
        }
        if remember {
            let mut shard = shard.lock();
            self.sweep(&mut shard, now, SWEEP_BUCKETS);
            let chosen = Chosen { identity: hash, address, until: now + bound.lasting };
            let has_room = shard.identities.len() < MAX_PER_SHARD;
            match shard.identities.find_mut(hash, is_this) {
                // It is over and not swept, or another thread was faster.
                Some(known) => self.forget(&std::mem::replace(known, chosen)),
                None if !has_room => return true,
                None => _ = shard.identities.insert_unique(hash, chosen, |known| known.identity),
            }
            *self.counts_of(address).lock().entry(address).or_insert(0) += 1;
        }
        true
    }

    pub(crate) fn stats(&self) -> ChosenStats {
        let identities = self.shards.iter().map(|shard| shard.lock().identities.len()).sum();
        ChosenStats { identities, without_account: self.without_account.load(Ordering::Relaxed) }
    }

    /// Looks through all identities for those that are over, before an address is refused another.
    fn sweep_all_if_due(&self, now: Timestamp) {
        let mut last = self.swept.lock();
        if last.is_some_and(|last| now.saturating_since(last) < SWEEP_INTERVAL) {
            return;
        }
        *last = Some(now);
        drop(last);
        for shard in &self.shards {
            self.sweep(&mut shard.lock(), now, usize::MAX);
        }
    }

    /// Looks through some buckets for identities that are over.
    fn sweep(&self, shard: &mut ChosenShard, now: Timestamp, most: usize) {
        let buckets = shard.identities.num_buckets();
        for _ in 0..most.min(buckets) {
            shard.cursor = if shard.cursor + 1 < buckets { shard.cursor + 1 } else { 0 };
            if let Ok(entry) = shard.identities.get_bucket_entry(shard.cursor)
                && entry.get().until <= now
            {
                let (over, _) = entry.remove();
                self.forget(&over);
            }
        }
    }

    /// Takes an identity off its address's count.
    fn forget(&self, over: &Chosen) {
        let mut counts = self.counts_of(over.address).lock();
        if let Entry::Occupied(mut count) = counts.entry(over.address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn counts_of(&self, address: u64) -> &Mutex<HashMap<u64, u32, RandomState>> {
        &self.counts[(address >> SHARD_SHIFT) as usize % SHARDS]
    }

    fn refuse(&self, address: &Identity, count: u32, bound: ChosenBound, now: Timestamp) {
        self.without_account.fetch_add(1, Ordering::Relaxed);
        if count >= bound.per_address && self.warning.is_due(now) {
            tracing::warn!(
                address = address.value(),
                identities = count,
                "an address has as many API keys, Authorization headers or named headers as it may \
                 have: more of them are counted by the policy's next source, in the end by the \
                 address; if it is a proxy, name it as a trusted one, else raise \
                 identities_per_address"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: ChosenBound = ChosenBound { per_address: 2, lasting: Duration::from_secs(60) };

    fn admit(chosen: &ChosenIdentities, key: &str, address: &str, at_s: u64) -> bool {
        let identity = Identity::api_key(key.as_bytes());
        let now = Timestamp::from_millis(at_s * 1000);
        chosen.admit(&identity, address.parse().unwrap(), BOUND, now, true, || true)
    }

    #[test]
    fn an_address_has_a_bounded_number_of_identities_and_known_ones_stay_known() {
        let chosen = ChosenIdentities::new();
        for (key, address, at_s, expected) in [
            ("a", "203.0.113.7", 0, true),
            ("b", "203.0.113.7", 0, true),
            ("c", "203.0.113.7", 1, false),
            ("a", "203.0.113.7", 30, true),
            // Known from another address, and not counted to this one.
            ("a", "203.0.113.8", 30, true),
            ("c", "203.0.113.8", 30, true),
            ("d", "203.0.113.8", 30, true),
            ("e", "203.0.113.8", 30, false),
            ("c", "203.0.113.7", 31, true),
            // Only "b" is over.
            ("f", "203.0.113.7", 60, true),
            ("g", "203.0.113.7", 60, false),
            ("b", "203.0.113.7", 60, false),
        ] {
            assert_eq!(admit(&chosen, key, address, at_s), expected, "{key} {address} {at_s}");
        }
        assert_eq!(chosen.stats().without_account, 4);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_what_is_over_leaves_nothing() {
        let chosen = ChosenIdentities::new();
        assert!(admit(&chosen, "a", "2001:db8::1", 0));
        assert!(admit(&chosen, "b", "2001:db8::2", 0));
        assert!(!admit(&chosen, "c", "2001:db8::3", 0));
        assert!(admit(&chosen, "c", "2001:db8:0:1::3", 0));
        for n in 0..10_000 {
            admit(&chosen, &format!("n{n}"), &format!("10.0.{}.{}", n / 250, n % 250), 100);
        }
        let old = ["2001:db8::1", "2001:db8:0:1::3"].map(|address| {
            let network = Identity::ip(address.parse().unwrap(), Prefixes::default());
            chosen.hasher.hash_one(network.as_str())
        });
        let is_counted = |address: &u64| chosen.counts_of(*address).lock().contains_key(address);
        assert!(!old.iter().any(is_counted));
    }

    #[test]
    fn a_look_leaves_nothing_and_no_room_is_a_refusal() {
        let chosen = ChosenIdentities::new();
        let (identity, address) = (Identity::api_key(b"k"), "203.0.113.7".parse().unwrap());
        let now = Timestamp::from_millis(0);
        assert!(chosen.admit(&identity, address, BOUND, now, false, || true));
        assert!(!chosen.admit(&identity, address, BOUND, now, true, || false));
        assert_eq!(chosen.stats(), ChosenStats { identities: 0, without_account: 1 });
        assert!(chosen.admit(&identity, address, BOUND, now, true, || true));
        assert!(chosen.admit(&identity, address, BOUND, now, true, || false), "it is known");
    }
}
