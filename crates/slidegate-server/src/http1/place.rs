//! Where the parts of a head are in its bytes.

use std::ops::Range;

use smallvec::SmallVec;

/// Where something is in a head's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteSpan {
    start: u32,
    end: u32,
}

/// Where names and values are. Lent by whoever parses a head, because it is large to hand over.
pub(crate) type FieldSpans = SmallVec<[(ByteSpan, ByteSpan); 24]>;

impl ByteSpan {
    /// The place of a part in the whole that it is of.
    pub(crate) fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = part.as_ptr() as usize - whole.as_ptr() as usize;
        // Heads are far shorter than that.
        let place = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Self { start: place(start), end: place(start + part.len()) }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}
