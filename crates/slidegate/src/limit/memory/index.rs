//! Where in a shard an account's book is, by its hash.
//!
//! Written by hand because a lookup in a large store is all waiting for memory: a general table
//! keeps tags and values in two places, and this keeps them in one, in half the space.

/// A hash table from accounts to positions, with open addressing and linear probing.
///
/// A slot has the position plus one in its low bits, as many as the capacity needs, and above them
/// a tag: bits of the hash that spare most looks at the wrong account. Zero is an empty slot.
#[derive(Debug)]
pub(super) struct Index {
    slots: Box<[u32]>,
    len: usize,
    position_bits: u32,
}

const MIN_SLOTS: usize = 8;

impl Index {
    /// An index of positions below `capacity`, which is below 2^31.
    pub(super) fn new(capacity: usize) -> Self {
        let most = u32::try_from(capacity).expect("a store has fewer than 2^31 accounts");
        Self { slots: Box::default(), len: 0, position_bits: most.max(1).ilog2() + 1 }
    }

    /// The position of the account with this hash that `is_it` recognises.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let tag = self.tag(hash);
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if slot >> self.position_bits == tag && is_it(self.position(slot)) {
                return Some(self.position(slot));
            }
            at = self.next(at);
        }
    }

    /// Adds an account that is not there. `hash_of` tells the hash of any that is.
    pub(super) fn insert(&mut self, hash: u64, position: usize, hash_of: impl Fn(usize) -> u64) {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.resize((self.slots.len() * 2).max(MIN_SLOTS), hash_of);
        }
        self.place(hash, self.slot(hash, position));
        self.len += 1;
    }

    /// Removes an account that is there. `hash_of` tells the hash of any other.
    pub(super) fn remove(&mut self, hash: u64, position: usize, hash_of: impl Fn(usize) -> u64) {
        let mut hole = self.locate(hash, position);
        self.len -= 1;
        // Whatever was pushed past the hole moves back into it, so that no search ends early.
        let mask = self.slots.len() - 1;
        let mut at = self.next(hole);
        while self.slots[at] != 0 {
            let home = self.home(hash_of(self.position(self.slots[at])));
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.slots[hole] = 0;
    }

    /// Notes that an account has moved.
    pub(super) fn relocate(&mut self, hash: u64, from: usize, to: usize) {
        let at = self.locate(hash, from);
        self.slots[at] = self.slot(hash, to);
    }

    /// Gives back memory that a much larger table has left.
    pub(super) fn shrink(&mut self, hash_of: impl Fn(usize) -> u64) {
        let wanted = (self.len * 2).next_power_of_two().max(MIN_SLOTS);
        if wanted < self.slots.len() {
            self.resize(wanted, hash_of);
        }
    }

    fn locate(&self, hash: u64, position: usize) -> usize {
        let wanted = self.slot(hash, position);
        let mut at = self.home(hash);
        while self.slots[at] != wanted {
            assert!(self.slots[at] != 0, "every book is in the index");
            at = self.next(at);
        }
        at
    }

    fn resize(&mut self, slots: usize, hash_of: impl Fn(usize) -> u64) {
        let old = std::mem::replace(&mut self.slots, vec![0; slots].into_boxed_slice());
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            self.place(hash_of(self.position(slot)), slot);
        }
    }

    fn place(&mut self, hash: u64, slot: u32) {
        let mut at = self.home(hash);
        while self.slots[at] != 0 {
            at = self.next(at);
        }
        self.slots[at] = slot;
    }

    fn slot(&self, hash: u64, position: usize) -> u32 {
        debug_assert!(((position + 1) >> self.position_bits) == 0);
        self.tag(hash) << self.position_bits | (position + 1) as u32
    }

    #[inline]
    fn position(&self, slot: u32) -> usize {
        (slot & !(u32::MAX << self.position_bits)) as usize - 1
    }

    /// Of the low half of the hash, the bits that go least into where a slot belongs.
    #[inline]
    fn tag(&self, hash: u64) -> u32 {
        hash as u32 >> self.position_bits
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        hash as u32 as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few hashes, so that runs collide, wrap around the end and are torn by removals.
        #[test]
        fn it_does_what_a_map_does(steps in prop::collection::vec((0..40u64, 0..4u8), 1..600)) {
            let hash = |key: u64| key % 7 + (key % 3) * 8 + 0xffff_fff8;
            let mut index = Index::new(600);
            let mut positions: HashMap<u64, usize> = HashMap::new();
            let mut keys: HashMap<usize, u64> = HashMap::new();
            for (i, (key, step)) in steps.into_iter().enumerate() {
                let hash_of = |position: usize| hash(keys[&position]);
                match (step, positions.get(&key).copied()) {
                    (0..=1, None) => {
                        index.insert(hash(key), i, hash_of);
                        positions.insert(key, i);
                        keys.insert(i, key);
                    }
                    (0, Some(position)) => {
                        index.relocate(hash(key), position, i);
                        positions.insert(key, i);
                        keys.remove(&position);
                        keys.insert(i, key);
                    }
                    (2, Some(position)) => {
                        index.remove(hash(key), position, hash_of);
                        positions.remove(&key);
                        keys.remove(&position);
                    }
                    (3, _) => index.shrink(hash_of),
                    _ => {}
                }
                prop_assert_eq!(index.len, positions.len());
                for key in 0..40 {
                    let found = index.find(hash(key), |p| positions.get(&key) == Some(&p));
                    prop_assert_eq!(found, positions.get(&key).copied());
                }
            }
        }
    }
}
