//! The entries of a ledger: stamps and units, oldest first, in one flat list.

use smallvec::SmallVec;

use super::ledger::MAX_ENTRIES;

/// A ledger's entries, and the sum of their units.
///
/// An entry is a word for its stamp, and a second one for its units if it has more than one. The
/// first two words need no allocation: most accounts of a large store have no more, and finding the
/// account finds them too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries {
    words: SmallVec<[Word; 2]>,
    /// Words at the front that were taken out, and stay until the list is full.
    taken: u32,
    used: u32,
}

/// The most words that the entries of any ledger take: a stamp and its units each.
pub(super) const MAX_WORDS: usize = 2 * MAX_ENTRIES;

/// A stamp in milliseconds since the epoch, which lasts until the year 6429, or, with its highest
/// bit set, the units of the stamp before it.
#[derive(Debug, Clone, Copy)]
struct Word([u8; 6]);

impl Word {
    const UNITS: u64 = 1 << 47;

    fn new(value: u64) -> Self {
        let [a, b, c, d, e, f, ..] = value.to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    fn units(units: u32) -> Self {
        Self::new(u64::from(units) | Self::UNITS)
    }

    #[inline]
    fn value(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    #[inline]
    fn is_units(self) -> bool {
        self.value() & Self::UNITS != 0
    }

    #[inline]
    fn as_units(self) -> u32 {
        self.value() as u32
    }
}

impl Entries {
    /// The units of all entries.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    #[inline]
    pub(crate) fn first_ms(&self) -> Option<u64> {
        self.words.get(self.taken as usize).map(|word| word.value())
    }

    #[inline]
    pub(crate) fn last_ms(&self) -> Option<u64> {
        self.last().map(|at| self.words[at].value())
    }

    /// The stamp of the `n`-th unit, the oldest being the first.
    pub(crate) fn unit_ms(&self, n: u32) -> Option<u64> {
        let mut newer = n.checked_sub(1)?;
        for (stamp_ms, units) in self.iter() {
            match newer.checked_sub(units) {
                Some(left) => newer = left,
                None => return Some(stamp_ms),
            }
        }
        None
    }

    /// Stamp and units of each entry, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let mut rest = &self.words[self.taken as usize..];
        std::iter::from_fn(move || {
            let (entry, newer) = match rest {
                [stamp, count, newer @ ..] if count.is_units() => {
                    ((stamp.value(), count.as_units()), newer)
                }
                [stamp, newer @ ..] => ((stamp.value(), 1), newer),
                [] => return None,
            };
            rest = newer;
            Some(entry)
        })
    }

    /// Appends an entry, or adds to the last one if that is not earlier. There will not be more than
    /// `most` words.
    #[inline]
    pub(crate) fn push(&mut self, stamp_ms: u64, units: u32, most: usize) {
        self.used += units;
        let units = match self.words.as_mut_slice() {
            [.., last, count] if count.is_units() && last.value() >= stamp_ms => {
                *count = Word::units(count.as_units() + units);
                return;
            }
            [.., last] if !last.is_units() && last.value() >= stamp_ms => 1 + units,
            _ => {
                self.push_word(Word::new(stamp_ms), most);
                units
            }
        };
        if units > 1 {
            self.push_word(Word::units(units), most);
        }
    }

    /// Takes up to `units` out of the oldest entry, of which there is one; tells how many.
    pub(crate) fn take_first(&mut self, units: u32) -> u32 {
        self.take(self.taken as usize, units)
    }

    /// Takes up to `units` out of the newest entry; tells how many.
    pub(crate) fn take_last(&mut self, units: u32) -> u32 {
        self.last().map_or(0, |at| self.take(at, units))
    }

    /// Takes up to `units` out of the entry with this stamp; tells how many.
    pub(crate) fn take_at(&mut self, stamp_ms: u64, units: u32) -> u32 {
        let at = self.words.iter().rposition(|word| word.value() == stamp_ms);
        at.filter(|at| *at >= self.taken as usize).map_or(0, |at| self.take(at, units))
    }

    /// Takes up to `units` out of the entry whose stamp is at `at`.
    fn take(&mut self, at: usize, units: u32) -> u32 {
        let (there, end) = match self.words.get(at + 1) {
            Some(count) if count.is_units() => (count.as_units(), at + 2),
            _ => (1, at + 1),
        };
        let taken = units.min(there);
        self.used -= taken;
        if taken < there {
            self.words[at + 1] = Word::units(there - taken);
        } else if end == self.words.len() {
            self.words.truncate(at);
        } else if at == self.taken as usize {
            self.taken = end as u32;
        } else {
            self.words.drain(at..end);
        }
        if self.used == 0 {
            self.words.clear();
            self.taken = 0;
        }
        taken
    }

    #[inline]
    fn last(&self) -> Option<usize> {
        let last = self.words.len().checked_sub(1)?;
        Some(last - usize::from(self.words[last].is_units()))
    }

    #[inline]
    fn push_word(&mut self, word: Word, most: usize) {
        if self.words.len() == self.words.capacity() {
            self.make_room(most);
        }
        self.words.push(word);
    }

    /// Forgets the words that were taken out, if those are an eighth of what there may be, so that
    /// moving the others costs little for each of them, or if there cannot be more. Otherwise
    /// doubles the list.
    #[cold]
    fn make_room(&mut self, most: usize) {
        let (len, taken) = (self.words.len(), self.taken as usize);
        if taken > 0 && (taken >= len.min(most) / 8 || len >= MAX_WORDS) {
            self.words.drain(..taken);
            self.taken = 0;
        } else {
            let wanted = if len < most { (2 * len).min(most) } else { most + most.div_ceil(8) };
            self.words.reserve_exact(wanted.max(len + 1) - len);
        }
    }
}
