//! A short queue of stamps, kept without an allocation while it is shortest.

use std::collections::VecDeque;

/// Milliseconds since the epoch in six bytes, which last until the year 10889.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp([u8; 6]);

impl Stamp {
    const ZERO: Self = Self([0; 6]);

    pub(crate) fn new(ms: u64) -> Self {
        let [a, b, c, d, e, f, ..] = ms.to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    pub(crate) fn ms(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// As many as fit where a longer queue would keep its pointers, and a little more: most accounts
/// of a large store never have more.
const FEW: usize = 7;

/// Stamps, oldest first.
#[derive(Debug, Clone)]
pub(crate) enum Stamps {
    Few { len: u8, stamps: [Stamp; FEW] },
    Many(VecDeque<Stamp>),
}

impl Stamps {
    pub(crate) const fn new() -> Self {
        Self::Few { len: 0, stamps: [Stamp::ZERO; FEW] }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few { len, .. } => usize::from(*len),
            Self::Many(stamps) => stamps.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<Stamp> {
        match self {
            Self::Few { len, stamps } => (*len > 0).then_some(stamps[0]),
            Self::Many(stamps) => stamps.front().copied(),
        }
    }

    #[inline]
    pub(crate) fn last(&self) -> Option<Stamp> {
        match self {
            Self::Few { len, stamps } => stamps[..usize::from(*len)].last().copied(),
            Self::Many(stamps) => stamps.back().copied(),
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Stamp> + '_ {
        let (front, back) = match self {
            Self::Few { len, stamps } => (&stamps[..usize::from(*len)], &[][..]),
            Self::Many(stamps) => stamps.as_slices(),
        };
        front.iter().chain(back).copied()
    }

    /// Appends a stamp; there will never be more than `most`.
    pub(crate) fn push(&mut self, stamp: Stamp, most: usize) {
        match self {
            Self::Few { len, stamps } if usize::from(*len) < FEW => {
                stamps[usize::from(*len)] = stamp;
                *len += 1;
            }
            Self::Few { stamps, .. } => {
                let mut many = VecDeque::new();
                many.reserve_exact(room_beyond(FEW, most));
                many.extend(*stamps);
                many.push_back(stamp);
                *self = Self::Many(many);
            }
            Self::Many(stamps) => {
                if stamps.len() == stamps.capacity() {
                    stamps.reserve_exact(room_beyond(stamps.len(), most) - stamps.len());
                }
                stamps.push_back(stamp);
            }
        }
    }

    pub(crate) fn remove(&mut self, i: usize) {
        match self {
            Self::Few { len, stamps } => {
                stamps.copy_within(i + 1..usize::from(*len), i);
                *len -= 1;
            }
            Self::Many(stamps) => {
                stamps.remove(i);
                if stamps.is_empty() {
                    *self = Self::new();
                }
            }
        }
    }
}

/// Room for twice as many, but not for more than there will ever be.
pub(crate) fn room_beyond(len: usize, most: usize) -> usize {
    (len * 2).min(most).max(len + 1)
}
