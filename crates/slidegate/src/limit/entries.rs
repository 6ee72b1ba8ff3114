//! The entries of a ledger, kept as small as they can be.

use std::collections::VecDeque;

use crate::limit::quota::FINE_UNITS;

/// Spends, oldest first: a stamp in milliseconds and units each.
///
/// Most accounts of a large store have spent a few units. Those are kept in place, so that finding
/// the account finds them too.
#[derive(Debug, Clone)]
pub(crate) enum Entries {
    /// Entries of one unit each.
    Few(Few),
    Many(Box<Many>),
}

/// The first stamp, and how much later the others are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Few {
    len: u8,
    first: Stamp,
    later_ms: [[u8; 4]; LATER],
}

/// As many as make a ledger half a cache line.
const LATER: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct Many {
    stamps: VecDeque<Stamp>,
    /// The units of each entry; `None` while all are of one unit.
    counts: Option<VecDeque<u32>>,
    used: u32,
}

impl Entries {
    pub(crate) const fn new() -> Self {
        Self::Few(Few { len: 0, first: Stamp::ZERO, later_ms: [[0; 4]; LATER] })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => usize::from(few.len),
            Self::Many(many) => many.stamps.len(),
        }
    }

    /// The units of all entries.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        match self {
            Self::Few(few) => u32::from(few.len),
            Self::Many(many) => many.used,
        }
    }

    #[inline]
    pub(crate) fn first_ms(&self) -> Option<u64> {
        match self {
            Self::Few(few) => (few.len > 0).then(|| few.first.ms()),
            Self::Many(many) => many.stamps.front().map(|stamp| stamp.ms()),
        }
    }

    #[inline]
    pub(crate) fn last_ms(&self) -> Option<u64> {
        match self {
            Self::Few(few) => (few.len > 0).then(|| few.ms(usize::from(few.len) - 1)),
            Self::Many(many) => many.stamps.back().map(|stamp| stamp.ms()),
        }
    }

    /// Stamp and units of each entry, oldest first.
    pub(crate) fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = (u64, u32)> + ExactSizeIterator + '_ {
        (0..self.len()).map(|i| match self {
            Self::Few(few) => (few.ms(i), 1),
            Self::Many(many) => (many.stamps[i].ms(), many.units(i)),
        })
    }

    /// Appends an entry, or adds to the last one if it has the same stamp and entries are counted.
    /// There will never be more than `most`.
    #[inline]
    pub(crate) fn push(&mut self, stamp_ms: u64, units: u32, most: usize) {
        let fits = match self {
            Self::Few(few) => units == 1 && few.push(stamp_ms),
            Self::Many(_) => false,
        };
        if !fits {
            self.many(most).push(Stamp::new(stamp_ms), units, most);
        }
    }

    /// Takes up to `units` out of one entry, and the entry with its last unit; tells how many.
    pub(crate) fn take(&mut self, entry: usize, units: u32) -> u32 {
        match self {
            Self::Few(few) => {
                few.remove(entry);
                1
            }
            Self::Many(many) => {
                let taken = many.take(entry, units);
                if many.stamps.is_empty() {
                    *self = Self::new();
                }
                taken
            }
        }
    }

    fn many(&mut self, most: usize) -> &mut Many {
        if let Self::Few(few) = *self {
            let len = usize::from(few.len);
            let mut stamps = VecDeque::new();
            stamps.reserve_exact(room_beyond(len, most));
            stamps.extend((0..len).map(|i| Stamp::new(few.ms(i))));
            *self = Self::Many(Box::new(Many { stamps, counts: None, used: len as u32 }));
        }
        match self {
            Self::Many(many) => many,
            Self::Few(_) => unreachable!("they have just become many"),
        }
    }
}

impl Few {
    #[inline]
    fn ms(&self, entry: usize) -> u64 {
        let later_ms = entry.checked_sub(1).map_or(0, |i| u32::from_le_bytes(self.later_ms[i]));
        self.first.ms() + u64::from(later_ms)
    }

    /// Appends a stamp; tells whether there was room.
    #[inline]
    fn push(&mut self, stamp_ms: u64) -> bool {
        let len = usize::from(self.len);
        if len == 0 {
            self.first = Stamp::new(stamp_ms);
        } else {
            let later_ms = u32::try_from(stamp_ms - self.first.ms());
            let (Some(place), Ok(later_ms)) = (self.later_ms.get_mut(len - 1), later_ms) else {
                return false;
            };
            *place = later_ms.to_le_bytes();
        }
        self.len += 1;
        true
    }

    fn remove(&mut self, entry: usize) {
        let mut kept = Self { len: 0, ..*self };
        for i in (0..usize::from(self.len)).filter(|i| *i != entry) {
            // What is nearer to its first stamp than before has room.
            kept.push(self.ms(i));
        }
        *self = kept;
    }
}

impl Many {
    fn units(&self, entry: usize) -> u32 {
        self.counts.as_ref().map_or(1, |counts| counts[entry])
    }

    fn push(&mut self, stamp: Stamp, units: u32, most: usize) {
        if self.counts.is_none() && (units > 1 || self.stamps.len() >= FINE_UNITS as usize) {
            self.start_counting();
        }
        self.used += units;
        if let Some(counts) = &mut self.counts {
            if self.stamps.back() == Some(&stamp) {
                *counts.back_mut().expect("a count for every stamp") += units;
                return;
            }
            grow(counts, most);
            counts.push_back(units);
        }
        grow(&mut self.stamps, most);
        self.stamps.push_back(stamp);
    }

    /// Gives every entry a count, and entries of one stamp become one.
    fn start_counting(&mut self) {
        let mut stamps: VecDeque<Stamp> = VecDeque::new();
        let mut counts: VecDeque<u32> = VecDeque::new();
        for stamp in std::mem::take(&mut self.stamps) {
            if stamps.back() == Some(&stamp) {
                *counts.back_mut().expect("a count for every stamp") += 1;
            } else {
                stamps.push_back(stamp);
                counts.push_back(1);
            }
        }
        self.stamps = stamps;
        self.counts = Some(counts);
    }

    fn take(&mut self, entry: usize, units: u32) -> u32 {
        let there = self.units(entry);
        let taken = there.min(units);
        self.used -= taken;
        if taken < there {
            self.counts.as_mut().expect("entries of several units are counted")[entry] -= taken;
            return taken;
        }
        self.stamps.remove(entry);
        if let Some(counts) = &mut self.counts {
            counts.remove(entry);
        }
        taken
    }
}

/// Milliseconds since the epoch in six bytes, which last until the year 10889.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp([u8; 6]);

impl Stamp {
    const ZERO: Self = Self([0; 6]);

    fn new(ms: u64) -> Self {
        let [a, b, c, d, e, f, ..] = ms.to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    fn ms(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

fn grow<T>(queue: &mut VecDeque<T>, most: usize) {
    if queue.len() == queue.capacity() {
        queue.reserve_exact(room_beyond(queue.len(), most) - queue.len());
    }
}

/// Room for twice as many, but not for more than there will ever be.
fn room_beyond(len: usize, most: usize) -> usize {
    (len * 2).max(4).min(most).max(len + 1)
}
