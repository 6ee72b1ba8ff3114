//! The entries of a ledger, kept as small as they can be.

use std::collections::VecDeque;

use crate::quota::FINE_UNITS;

/// Spends, oldest first: a stamp in milliseconds and units each.
///
/// Most accounts of a large store have spent a unit or three. Those are kept in place, so that
/// finding the account finds them too.
#[derive(Debug, Clone)]
pub(crate) enum Entries {
    /// Entries of one unit each.
    Few {
        len: u8,
        coarse: bool,
        stamps: [Stamp; FEW],
    },
    Many(Box<Many>),
}

/// As many as make a ledger half a cache line.
const FEW: usize = 3;

#[derive(Debug, Clone)]
pub(crate) struct Many {
    stamps: VecDeque<Stamp>,
    /// The units of each entry; `None` while all are of one unit.
    counts: Option<VecDeque<u32>>,
    used: u32,
    coarse: bool,
}

impl Entries {
    pub(crate) const fn new(coarse: bool) -> Self {
        Self::Few { len: 0, coarse, stamps: [Stamp::ZERO; FEW] }
    }

    /// Whether the stamps are whole ticks of a coarse quota.
    #[inline]
    pub(crate) fn is_coarse(&self) -> bool {
        match self {
            Self::Few { coarse, .. } => *coarse,
            Self::Many(many) => many.coarse,
        }
    }

    pub(crate) fn set_coarse(&mut self, to: bool) {
        match self {
            Self::Few { coarse, .. } => *coarse = to,
            Self::Many(many) => many.coarse = to,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few { len, .. } => usize::from(*len),
            Self::Many(many) => many.stamps.len(),
        }
    }

    /// The units of all entries.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        match self {
            Self::Few { len, .. } => u32::from(*len),
            Self::Many(many) => many.used,
        }
    }

    #[inline]
    pub(crate) fn first_ms(&self) -> Option<u64> {
        match self {
            Self::Few { len, stamps, .. } => (*len > 0).then(|| stamps[0].ms()),
            Self::Many(many) => many.stamps.front().map(|stamp| stamp.ms()),
        }
    }

    #[inline]
    pub(crate) fn last_ms(&self) -> Option<u64> {
        match self {
            Self::Few { len, stamps, .. } => {
                stamps[..usize::from(*len)].last().map(|stamp| stamp.ms())
            }
            Self::Many(many) => many.stamps.back().map(|stamp| stamp.ms()),
        }
    }

    /// Stamp and units of each entry, oldest first.
    pub(crate) fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = (u64, u32)> + ExactSizeIterator + '_ {
        (0..self.len()).map(|i| match self {
            Self::Few { stamps, .. } => (stamps[i].ms(), 1),
            Self::Many(many) => (many.stamps[i].ms(), many.units(i)),
        })
    }

    /// Appends an entry, or adds to the last one if it has the same stamp and entries are counted.
    /// There will never be more than `most`.
    #[inline]
    pub(crate) fn push(&mut self, stamp_ms: u64, units: u32, most: usize) {
        match self {
            Self::Few { len, stamps, .. } if units == 1 && usize::from(*len) < FEW => {
                stamps[usize::from(*len)] = Stamp::new(stamp_ms);
                *len += 1;
            }
            _ => self.many(most).push(Stamp::new(stamp_ms), units, most),
        }
    }

    /// Takes up to `units` out of one entry, and the entry with its last unit; tells how many.
    pub(crate) fn take(&mut self, entry: usize, units: u32) -> u32 {
        match self {
            Self::Few { len, stamps, .. } => {
                stamps.copy_within(entry + 1..usize::from(*len), entry);
                *len -= 1;
                1
            }
            Self::Many(many) => {
                let taken = many.take(entry, units);
                if many.stamps.is_empty() {
                    *self = Self::new(many.coarse);
                }
                taken
            }
        }
    }

    fn many(&mut self, most: usize) -> &mut Many {
        if let Self::Few { len, coarse, stamps } = *self {
            let mut queue = VecDeque::new();
            queue.reserve_exact(room_beyond(FEW, most));
            queue.extend(&stamps[..usize::from(len)]);
            let used = u32::from(len);
            *self = Self::Many(Box::new(Many { stamps: queue, counts: None, used, coarse }));
        }
        match self {
            Self::Many(many) => many,
            Self::Few { .. } => unreachable!("they have just become many"),
        }
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
