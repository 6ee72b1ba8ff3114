//! Where in a shard an account's book is, by its hash.
//!
//! Written by hand because a lookup in a large store is all waiting for memory: a general table
//! keeps tags and values in two places, and this keeps them in one.

/// A hash table from accounts to positions, with open addressing and linear probing.
///
/// A slot has the low half of the hash above the position plus one; zero is an empty slot. The
/// half that is kept also says where the slot belongs, so the table grows without a look at the
/// accounts.
#[derive(Debug, Default)]
pub(super) struct Index {
    slots: Box<[u64]>,
    len: usize,
}

const MIN_SLOTS: usize = 8;

impl Index {
    /// The position of the account with this hash that `is_it` recognises.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(hash as u32);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if tag(slot) == hash as u32 && is_it(position(slot)) {
                return Some(position(slot));
            }
            at = self.next(at);
        }
    }

    /// Adds an account that is not there.
    pub(super) fn insert(&mut self, hash: u64, position: usize) {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.resize((self.slots.len() * 2).max(MIN_SLOTS));
        }
        self.place(slot(hash as u32, position));
        self.len += 1;
    }

    /// Removes an account that is there.
    pub(super) fn remove(&mut self, hash: u64, position: usize) {
        let mut hole = self.locate(hash, position);
        self.len -= 1;
        // Whatever was pushed past the hole moves back into it, so that no search ends early.
        let mut at = self.next(hole);
        while self.slots[at] != 0 {
            let home = self.home(tag(self.slots[at]));
            let mask = self.slots.len() - 1;
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
        self.slots[at] = slot(hash as u32, to);
    }

    /// Gives back memory that a much larger table has left.
    pub(super) fn shrink(&mut self) {
        let wanted = (self.len * 2).next_power_of_two().max(MIN_SLOTS);
        if wanted < self.slots.len() {
            self.resize(wanted);
        }
    }

    fn locate(&self, hash: u64, position: usize) -> usize {
        let wanted = slot(hash as u32, position);
        let mut at = self.home(hash as u32);
        while self.slots[at] != wanted {
            assert!(self.slots[at] != 0, "every book is in the index");
            at = self.next(at);
        }
        at
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![0; slots].into_boxed_slice());
        old.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.place(slot));
    }

    fn place(&mut self, slot: u64) {
        let mut at = self.home(tag(slot));
        while self.slots[at] != 0 {
            at = self.next(at);
        }
        self.slots[at] = slot;
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        tag as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

fn slot(tag: u32, position: usize) -> u64 {
    let position = u32::try_from(position + 1).expect("a shard has fewer than 2^32 accounts");
    u64::from(tag) << 32 | u64::from(position)
}

#[inline]
fn tag(slot: u64) -> u32 {
    (slot >> 32) as u32
}

#[inline]
fn position(slot: u64) -> usize {
    slot as u32 as usize - 1
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
            let mut index = Index::default();
            let mut map: HashMap<u64, usize> = HashMap::new();
            for (i, (key, step)) in steps.into_iter().enumerate() {
                match (step, map.get(&key).copied()) {
                    (0..=1, None) => {
                        index.insert(hash(key), i);
                        map.insert(key, i);
                    }
                    (0, Some(position)) => {
                        index.relocate(hash(key), position, i);
                        map.insert(key, i);
                    }
                    (2, Some(position)) => {
                        index.remove(hash(key), position);
                        map.remove(&key);
                    }
                    (3, _) => index.shrink(),
                    _ => {}
                }
                prop_assert_eq!(index.len, map.len());
                for key in 0..40 {
                    let found = index.find(hash(key), |p| map.get(&key) == Some(&p));
                    prop_assert_eq!(found, map.get(&key).copied());
                }
            }
        }
    }
}
