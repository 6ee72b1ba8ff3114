//! A part of the accounts that are banned or on the way to it, behind one lock.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::record::Record;
use crate::limit::clock::Timestamp;
use crate::limit::name::Name;
use crate::policy::ban::Ban;
use crate::policy::identity::Identity;

/// A policy and an identity.
pub(super) type Key = (Name, Identity);

/// Records by account, aligned so that no two shards share a cache line.
#[repr(align(128))]
pub(super) struct Shard {
    records: HashMap<Key, Record, RandomState>,
    capacity: usize,
    /// Since the last sweep.
    newcomers: usize,
    swept_at: Timestamp,
}

/// How many records are looked through for each newcomer, one time with another.
const SWEEP_PER_NEW: usize = 16;
/// How often a full shard is looked through at least, while newcomers find no room: so seldom that
/// no flood of them makes it costly.
const SWEEP_FULL_EVERY: Duration = Duration::from_secs(1);

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        Self { records: HashMap::default(), capacity, newcomers: 0, swept_at: Timestamp::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn record(&mut self, key: &Key) -> Option<&mut Record> {
        self.records.get_mut(key)
    }

    /// An account's record, made if there is room.
    pub(super) fn record_or_new(
        &mut self,
        key: Key,
        ban: Ban,
        now: Timestamp,
    ) -> Option<&mut Record> {
        if !self.records.contains_key(&key) {
            self.sweep_now_and_then(now);
            if self.records.len() >= self.capacity {
                return None;
            }
        }
        Some(self.records.entry(key).or_insert_with(|| Record::new(ban)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut Record)> {
        self.records.iter_mut()
    }

    pub(super) fn forget(&mut self, key: &Key) {
        self.records.remove(key);
    }

    /// Forgets the accounts of all policies but these.
    pub(super) fn keep(&mut self, policies: &[&Name]) {
        self.records.retain(|(policy, _), _| policies.contains(&policy));
    }

    /// Looks through all records, so seldom that it comes to a few for each newcomer, or once in a
    /// while if there is no room.
    fn sweep_now_and_then(&mut self, now: Timestamp) {
        self.newcomers += 1;
        let is_full = self.records.len() >= self.capacity;
        let is_overdue = is_full && now.saturating_since(self.swept_at) >= SWEEP_FULL_EVERY;
        if self.newcomers * SWEEP_PER_NEW < self.records.len() && !is_overdue {
            return;
        }
        self.newcomers = 0;
        self.swept_at = now;
        self.records.retain(|_, record| !record.is_over(now));
        if self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(self.records.len() * 2);
        }
    }
}
