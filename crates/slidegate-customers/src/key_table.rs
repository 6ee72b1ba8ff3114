//! Issued keys in memory, which are read again in place.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};
use slidegate::Timestamp;
use slidegate::limit::Quotas;
use slidegate::policy::KeyDigest;

use crate::key::KnownKey;

/// A look-up waits for at most one insertion into one of 256 maps.
const SHARDS: usize = 256;

/// Of about 114 bytes each. Keys beyond cannot be told from unknown ones, so then none is unknown.
const MAX_KEYS: usize = 10_000_000;

/// The keys of a source, by digest. Look-ups go on while the source is read.
pub(crate) struct KeyTable {
    shards: Box<[RwLock<KeyShard>]>,
    generation: AtomicU32,
    len: AtomicUsize,
    capacity: usize,
    /// How many times a key had no room.
    refused: AtomicUsize,
    /// Whether there may be keys that had none.
    is_overfull: AtomicBool,
    /// The keys that changed while a pass runs, which the pass may show as they were before.
    changed: Mutex<Option<HashSet<KeyDigest, RandomState>>>,
}

type KeyShard = HashMap<KeyDigest, KeyRecord, RandomState>;

/// What is kept of a key. Its size decides how much memory a key takes.
#[derive(Debug)]
pub(crate) struct KeyRecord {
    customer: Option<Box<str>>,
    /// None if the key's row cannot be read, and never could.
    terms: Option<Arc<Terms>>,
    expires: KeyExpiry,
    /// The pass that saw it last.
    generation: u32,
}

impl KeyRecord {
    pub(crate) fn new(customer: Option<&str>, terms: Arc<Terms>, expires: KeyExpiry) -> Self {
        let customer = customer.map(Box::from);
        Self { customer, terms: Some(terms), expires, generation: 0 }
    }
}

/// What a table has of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TableEntry {
    Known(KnownKey),
    /// It is in the source, but what its row says cannot be read, apart from when it ends.
    Unreadable {
        expires: Option<Timestamp>,
    },
}

/// The plan or the quotas of a key, which many keys share.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) plan: Option<Arc<str>>,
    pub(crate) quotas: Option<Quotas>,
}

/// When a key ends, in whole seconds since the Unix epoch; 0 if it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyExpiry(u32);

impl KeyExpiry {
    pub(crate) const NEVER: Self = Self(0);

    /// Before the epoch is the epoch's first second, and what is after 2106 never comes.
    pub(crate) fn at_second(second: i64) -> Self {
        Self(u32::try_from(second.max(1)).unwrap_or(0))
    }

    fn timestamp(self) -> Option<Timestamp> {
        (self != Self::NEVER).then(|| Timestamp::from_millis(u64::from(self.0) * 1000))
    }
}

impl KeyTable {
    pub(crate) fn new() -> Self {
        Self::with_capacity(MAX_KEYS)
    }

    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            generation: AtomicU32::new(0),
            len: AtomicUsize::new(0),
            capacity,
            refused: AtomicUsize::new(0),
            is_overfull: AtomicBool::new(false),
            changed: Mutex::new(None),
        }
    }

    pub(crate) fn find(&self, digest: KeyDigest) -> Option<TableEntry> {
        let shard = self.shard(digest).read();
        let KeyRecord { customer, terms, expires, .. } = shard.get(&digest)?;
        let Some(terms) = terms else {
            return Some(TableEntry::Unreadable { expires: expires.timestamp() });
        };
        Some(TableEntry::Known(KnownKey {
            customer: customer.as_deref().map(Arc::from),
            plan: terms.plan.clone(),
            quotas: terms.quotas.clone(),
            expires: expires.timestamp(),
        }))
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// How many keys it has room for, if the source has more.
    pub(crate) fn exceeded_capacity(&self) -> Option<usize> {
        self.is_overfull.load(Ordering::Relaxed).then_some(self.capacity)
    }

    /// Sets a key that is new or has changed.
    pub(crate) fn change(&self, digest: KeyDigest, record: KeyRecord) {
        let mut changed = self.changed.lock();
        if let (Put::First | Put::Again, Some(changed)) = (self.put(digest, record), &mut *changed)
        {
            changed.insert(digest);
        }
    }

    /// Keeps a key whose row cannot be read as it is known, but for its end, if it has one: a key that ends
    /// has to end, whatever else is wrong with its row. One that is not known is kept as unreadable.
    pub(crate) fn keep(&self, digest: KeyDigest, expires: KeyExpiry) {
        let generation = self.generation.load(Ordering::Relaxed);
        let mut shard = self.shard(digest).write();
        match shard.get_mut(&digest) {
            Some(known) if expires != KeyExpiry::NEVER => known.expires = expires,
            Some(_) => {}
            None if self.has_room() => {
                let unreadable = KeyRecord { customer: None, terms: None, expires, generation };
                shard.insert(digest, unreadable);
            }
            None => {}
        }
    }

    /// Takes the place of a new key, if there is one.
    fn has_room(&self) -> bool {
        let has_room = self.len.fetch_add(1, Ordering::Relaxed) < self.capacity;
        if !has_room {
            self.len.fetch_sub(1, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.is_overfull.store(true, Ordering::Relaxed);
        }
        has_room
    }

    /// Begins to read all keys again. One pass runs at a time.
    pub(crate) fn begin_pass(&self) -> TablePass<'_> {
        self.generation.fetch_add(1, Ordering::Relaxed);
        *self.changed.lock() = Some(HashSet::default());
        let refused = self.refused.load(Ordering::Relaxed);
        TablePass { table: self, repeated: 0, refused_before: refused }
    }

    fn put(&self, digest: KeyDigest, record: KeyRecord) -> Put {
        let generation = self.generation.load(Ordering::Relaxed);
        let record = KeyRecord { generation, ..record };
        let mut shard = self.shard(digest).write();
        match shard.get_mut(&digest) {
            Some(known) => {
                let before = mem::replace(known, record);
                if before.generation == generation { Put::Again } else { Put::First }
            }
            None if self.has_room() => {
                shard.insert(digest, record);
                Put::First
            }
            None => Put::NoRoom,
        }
    }

    fn shard(&self, digest: KeyDigest) -> &RwLock<KeyShard> {
        &self.shards[usize::from(digest.0[0]) % SHARDS]
    }
}

/// Whether the pass had the key already, if the table has room for it.
enum Put {
    First,
    Again,
    NoRoom,
}

/// One reading of all keys. Keys that it does not see go when it is finished; if it is dropped
/// before, none goes.
pub(crate) struct TablePass<'t> {
    table: &'t KeyTable,
    repeated: usize,
    refused_before: usize,
}

impl TablePass<'_> {
    /// Sets a key, unless it has changed since the pass began.
    pub(crate) fn put(&mut self, digest: KeyDigest, record: KeyRecord) {
        let changed = self.table.changed.lock();
        if changed.as_ref().is_some_and(|changed| changed.contains(&digest)) {
            return;
        }
        if let Put::Again = self.table.put(digest, record) {
            self.repeated += 1;
        }
    }

    /// Keeps a key whose row cannot be read, as [`KeyTable::keep`] does.
    pub(crate) fn keep(&mut self, digest: KeyDigest, expires: KeyExpiry) {
        self.table.keep(digest, expires);
        if let Some(record) = self.table.shard(digest).write().get_mut(&digest) {
            record.generation = self.table.generation.load(Ordering::Relaxed);
        }
    }

    /// How many times a key came that the pass had seen before.
    pub(crate) fn repeated(&self) -> usize {
        self.repeated
    }

    /// Removes all keys that the pass has not seen.
    pub(crate) fn finish(self) {
        let generation = self.table.generation.load(Ordering::Relaxed);
        for shard in &self.table.shards {
            let mut shard = shard.write();
            let before = shard.len();
            shard.retain(|_, record| record.generation == generation);
            self.table.len.fetch_sub(before - shard.len(), Ordering::Relaxed);
            // After most keys are gone, their memory goes too.
            if shard.len() < shard.capacity() / 4 {
                shard.shrink_to_fit();
            }
        }
        if self.table.refused.load(Ordering::Relaxed) == self.refused_before {
            self.table.is_overfull.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for TablePass<'_> {
    fn drop(&mut self) {
        *self.table.changed.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap as Model;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A key and its new value.
    type Change = (u8, u32);

    /// What happens to a table, with keys from a small range so that they meet.
    #[derive(Debug, Clone)]
    enum Step {
        Change(u8, u32),
        /// The row of a key that changed cannot be read.
        Unreadable(u8),
        /// Rows of a pass, a change after each that has one, and keys whose rows cannot be read.
        Pass {
            rows: Vec<(u8, u32, Option<Change>)>,
            unreadable: Vec<u8>,
            finished: bool,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        let row = (0..40_u8, 1..1000_u32, proptest::option::weighted(0.2, (0..40_u8, 1..1000_u32)));
        let pass = (vec(row, 0..60), vec(0..40_u8, 0..4), any::<bool>());
        prop_oneof![
            (0..40_u8, 1..1000_u32).prop_map(|(key, value)| Step::Change(key, value)),
            (0..40_u8).prop_map(Step::Unreadable),
            pass.prop_map(|(rows, unreadable, finished)| Step::Pass { rows, unreadable, finished }),
        ]
    }

    fn digest(key: u8) -> KeyDigest {
        // A few shards, with several keys each.
        let mut digest = [key; 16];
        digest[0] = key % 4;
        KeyDigest(digest)
    }

    fn record(value: u32) -> KeyRecord {
        let customer = (!value.is_multiple_of(5)).then(|| format!("customer-{value}"));
        KeyRecord::new(customer.as_deref(), Arc::default(), KeyExpiry(value))
    }

    fn known(value: u32) -> KnownKey {
        KnownKey {
            customer: record(value).customer.map(Arc::from),
            plan: None,
            quotas: None,
            expires: Some(Timestamp::from_millis(u64::from(value) * 1000)),
        }
    }

    proptest! {
        #[test]
        fn a_table_has_what_a_plain_map_has(steps in vec(step(), 1..12)) {
            // Keys without a value are unreadable.
            let (table, mut model) = (KeyTable::new(), Model::<u8, Option<u32>>::new());
            for step in steps {
                match step {
                    Step::Change(key, value) => {
                        table.change(digest(key), record(value));
                        model.insert(key, Some(value));
                    }
                    Step::Unreadable(key) => {
                        table.keep(digest(key), KeyExpiry::NEVER);
                        model.entry(key).or_insert(None);
                    }
                    Step::Pass { rows, unreadable, finished } => {
                        let mut pass = table.begin_pass();
                        let (mut seen, mut changed) = (Vec::new(), Vec::new());
                        for (key, value, change) in rows {
                            pass.put(digest(key), record(value));
                            seen.push(key);
                            if !changed.contains(&key) {
                                model.insert(key, Some(value));
                            }
                            if let Some((key, value)) = change {
                                table.change(digest(key), record(value));
                                model.insert(key, Some(value));
                                changed.push(key);
                            }
                        }
                        for key in unreadable {
                            pass.keep(digest(key), KeyExpiry::NEVER);
                            model.entry(key).or_insert(None);
                            seen.push(key);
                        }
                        if finished {
                            pass.finish();
                            model.retain(|key, _| seen.contains(key) || changed.contains(key));
                        }
                    }
                }
                for key in 0..40 {
                    let expected = model.get(&key).map(|value| match value {
                        Some(value) => TableEntry::Known(known(*value)),
                        None => TableEntry::Unreadable { expires: None },
                    });
                    prop_assert_eq!(table.find(digest(key)), expected, "key {}", key);
                }
                prop_assert_eq!(table.len(), model.len());
            }
        }
    }

    #[test]
    fn a_key_that_comes_twice_in_a_pass_is_counted_and_the_last_row_is_kept() {
        let table = KeyTable::new();
        table.change(digest(1), record(7));
        let mut pass = table.begin_pass();
        pass.put(digest(1), record(1));
        assert_eq!(pass.repeated(), 0);
        pass.put(digest(1), record(2));
        assert_eq!(pass.repeated(), 1);
        pass.finish();
        assert_eq!(table.find(digest(1)), Some(TableEntry::Known(known(2))));
    }

    #[test]
    fn keys_beyond_the_capacity_have_no_room_until_others_go() {
        let table = KeyTable::with_capacity(3);
        let is_known = |key| table.find(digest(key)).is_some();
        let mut pass = table.begin_pass();
        (1..=3).for_each(|key| pass.put(digest(key), record(1)));
        pass.finish();
        assert_eq!((table.len(), table.exceeded_capacity()), (3, None));
        table.change(digest(2), record(2));
        assert_eq!(table.exceeded_capacity(), None, "it has its place");
        table.change(digest(4), record(1));
        table.keep(digest(5), KeyExpiry::NEVER);
        assert_eq!((table.len(), table.exceeded_capacity()), (3, Some(3)));
        assert!(is_known(2) && !is_known(4) && !is_known(5));
        // The places of deleted keys are free after the pass that does not see them.
        for (rows, expected) in [(2..=4, Some(3)), (2..=4, None)] {
            let mut pass = table.begin_pass();
            rows.for_each(|key| pass.put(digest(key), record(1)));
            pass.finish();
            assert_eq!(table.exceeded_capacity(), expected);
        }
        assert!(is_known(4) && !is_known(1));
    }

    #[test]
    fn the_end_of_a_key_is_known_whatever_else_its_row_says() {
        let table = KeyTable::new();
        let ended = KeyExpiry(7);
        table.change(digest(1), record(1000));
        table.keep(digest(1), ended);
        let expected = KnownKey { expires: ended.timestamp(), ..known(1000) };
        assert_eq!(table.find(digest(1)), Some(TableEntry::Known(expected)));
        table.begin_pass().keep(digest(2), ended);
        let expires = ended.timestamp();
        assert_eq!(table.find(digest(2)), Some(TableEntry::Unreadable { expires }));
    }

    #[test]
    fn an_expiry_is_kept_to_the_second_from_1970_to_2106() {
        let seconds = |second| KeyExpiry::at_second(second).timestamp().map(Timestamp::as_millis);
        assert_eq!(seconds(1_800_000_000), Some(1_800_000_000_000));
        assert_eq!(seconds(-5), Some(1000));
        assert_eq!(seconds(i64::from(u32::MAX)), Some(4_294_967_295_000));
        assert_eq!(seconds(i64::from(u32::MAX) + 1), None);
    }

    #[test]
    fn a_stored_key_takes_48_bytes_in_its_map() {
        assert_eq!(size_of::<(KeyDigest, KeyRecord)>(), 48);
    }
}
