//! The entries of a ledger: stamps and units, oldest first, kept as small as they can be.

use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::quota::FINE_UNITS;

#[derive(Debug, Clone)]
pub(crate) enum Entries {
    /// A few entries of one unit each. Most accounts of a large store have no more, and finding the
    /// account finds them too.
    Few(ArrayVec<Stamp, 3>),
    /// Entries of one unit each.
    Ones(VecDeque<Stamp>),
    Counted(Box<Counted>),
}

/// Entries of several units each, and their sum.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    entries: VecDeque<(Stamp, u32)>,
    used: u32,
}

impl Entries {
    pub(crate) const fn new() -> Self {
        Self::Few(ArrayVec::new_const())
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Ones(ones) => ones.len(),
            Self::Counted(counted) => counted.entries.len(),
        }
    }

    /// The units of all entries.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        match self {
            Self::Few(few) => few.len() as u32,
            Self::Ones(ones) => ones.len() as u32,
            Self::Counted(counted) => counted.used,
        }
    }

    #[inline]
    pub(crate) fn first_ms(&self) -> Option<u64> {
        let first = match self {
            Self::Few(few) => few.first(),
            Self::Ones(ones) => ones.front(),
            Self::Counted(counted) => counted.entries.front().map(|(stamp, _)| stamp),
        };
        first.map(Stamp::ms)
    }

    #[inline]
    pub(crate) fn last_ms(&self) -> Option<u64> {
        let last = match self {
            Self::Few(few) => few.last(),
            Self::Ones(ones) => ones.back(),
            Self::Counted(counted) => counted.entries.back().map(|(stamp, _)| stamp),
        };
        last.map(Stamp::ms)
    }

    /// Stamp and units of each entry, oldest first.
    pub(crate) fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = (u64, u32)> + ExactSizeIterator + '_ {
        (0..self.len()).map(|i| match self {
            Self::Few(few) => (few[i].ms(), 1),
            Self::Ones(ones) => (ones[i].ms(), 1),
            Self::Counted(counted) => (counted.entries[i].0.ms(), counted.entries[i].1),
        })
    }

    /// Appends an entry, or adds to the last one if it has the same stamp and entries are counted.
    /// There will never be more than `most`.
    #[inline]
    pub(crate) fn push(&mut self, stamp_ms: u64, units: u32, most: usize) {
        let stamp = Stamp::new(stamp_ms);
        match self {
            Self::Few(few) if units == 1 && !few.is_full() => few.push(stamp),
            Self::Ones(ones) if units == 1 && ones.len() < FINE_UNITS as usize => {
                grow(ones, most);
                ones.push_back(stamp);
            }
            Self::Counted(counted) => counted.push(stamp, units, most),
            Self::Few(few) if units == 1 => {
                *self = Self::Ones(few.iter().copied().chain([stamp]).collect());
            }
            Self::Few(_) | Self::Ones(_) => {
                let mut counted = Box::<Counted>::default();
                self.iter().for_each(|(ms, units)| counted.push(Stamp::new(ms), units, most));
                counted.push(stamp, units, most);
                *self = Self::Counted(counted);
            }
        }
    }

    /// Takes up to `units` out of one entry, and the entry with its last unit; tells how many.
    pub(crate) fn take(&mut self, entry: usize, units: u32) -> u32 {
        let taken = match self {
            Self::Few(few) => few.pop_at(entry).map_or(0, |_| 1),
            Self::Ones(ones) => ones.remove(entry).map_or(0, |_| 1),
            Self::Counted(counted) => counted.take(entry, units),
        };
        if self.len() == 0 {
            *self = Self::new();
        }
        taken
    }
}

impl Counted {
    fn push(&mut self, stamp: Stamp, units: u32, most: usize) {
        self.used += units;
        match self.entries.back_mut() {
            Some((last, counted)) if *last == stamp => *counted += units,
            _ => {
                grow(&mut self.entries, most);
                self.entries.push_back((stamp, units));
            }
        }
    }

    fn take(&mut self, entry: usize, units: u32) -> u32 {
        let there = &mut self.entries[entry].1;
        let taken = units.min(*there);
        *there -= taken;
        if *there == 0 {
            self.entries.remove(entry);
        }
        self.used -= taken;
        taken
    }
}

/// Milliseconds since the epoch in six bytes, which last until the year 10889.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp([u8; 6]);

impl Stamp {
    fn new(ms: u64) -> Self {
        let [a, b, c, d, e, f, ..] = ms.to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    #[inline]
    fn ms(&self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// Makes room for twice as many, but not for more than there will ever be.
fn grow<T>(queue: &mut VecDeque<T>, most: usize) {
    let len = queue.len();
    if len == queue.capacity() {
        queue.reserve_exact((len * 2).max(4).min(most).max(len + 1) - len);
    }
}
