//! Inputs at random that are close to those of a corpus.

use fastrand::Rng;

/// The most changes to an input.
const MAX_EDITS: usize = 8;

/// The most bytes of an input, so that copies of copies stay short.
const MAX_BYTES: usize = 64 * 1024;

/// The most bytes that are copied, removed or repeated at once.
const MAX_PIECE: usize = 64;

/// Bytes that parsers of text treat in a way of their own.
const NOTABLE: &[u8] = b"\0\t\n\r \"#$%&'()*+,-./0189:;<=>?@A[\\]_`az{|}~\x7f\x80\xc3\xff";

/// Inputs of a corpus with a few changes.
pub(crate) struct EditedInputs {
    corpus: Vec<Vec<u8>>,
}

impl EditedInputs {
    /// The corpus has at least one input.
    pub(crate) fn new(corpus: Vec<Vec<u8>>) -> Self {
        Self { corpus }
    }

    /// An input with a few changes.
    pub(crate) fn next(&self, rng: &mut Rng) -> Vec<u8> {
        let mut input = self.corpus[rng.usize(..self.corpus.len())].clone();
        for _ in 0..rng.usize(1..=MAX_EDITS) {
            self.edit(rng, &mut input);
        }
        input
    }

    fn edit(&self, rng: &mut Rng, input: &mut Vec<u8>) {
        let at = rng.usize(..=input.len());
        let end = input.len().min(at + rng.usize(1..=MAX_PIECE));
        match rng.u8(..8) {
            0 => drop(input.drain(at..end)),
            1 => input.truncate(at),
            2 => drop(input.splice(at..at, self.piece(rng).iter().copied())),
            3 => drop(input.splice(at..end, self.piece(rng).iter().copied())),
            4 => {
                let repeated = input[at..end].repeat(rng.usize(1..=100));
                input.splice(at..at, repeated);
            }
            5 => input.insert(at, NOTABLE[rng.usize(..NOTABLE.len())]),
            6 if at < input.len() => input[at] = NOTABLE[rng.usize(..NOTABLE.len())],
            _ if at < input.len() => input[at] = rng.u8(..),
            _ => input.push(rng.u8(..)),
        }
        input.truncate(MAX_BYTES);
    }

    /// Part of any input of the corpus.
    fn piece(&self, rng: &mut Rng) -> &[u8] {
        let other = &self.corpus[rng.usize(..self.corpus.len())];
        let start = rng.usize(..=other.len());
        &other[start..other.len().min(start + rng.usize(..MAX_PIECE))]
    }
}
