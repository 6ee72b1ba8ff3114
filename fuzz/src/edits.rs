//! Inputs at random that are close to those of a corpus.

use std::fmt;

use bolero::{Driver, ValueGenerator};

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

/// An input, which is shown as text.
pub(crate) struct EditedInput(pub(crate) Vec<u8>);

impl fmt::Debug for EditedInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

impl EditedInputs {
    /// The corpus has at least one input.
    pub(crate) fn new(corpus: Vec<Vec<u8>>) -> Self {
        Self { corpus }
    }

    /// Part of any input of the corpus.
    fn piece<D: Driver>(&self, driver: &mut D) -> Option<&[u8]> {
        let other = &self.corpus[below(driver, self.corpus.len())?];
        let start = below(driver, other.len() + 1)?;
        let length = below(driver, MAX_PIECE)?;
        Some(&other[start..other.len().min(start + length)])
    }

    fn edit<D: Driver>(&self, driver: &mut D, input: &mut Vec<u8>) -> Option<()> {
        let at = below(driver, input.len() + 1)?;
        let end = input.len().min(at + 1 + below(driver, MAX_PIECE)?);
        match below(driver, 8)? {
            0 => drop(input.drain(at..end)),
            1 => input.truncate(at),
            2 => {
                let piece = self.piece(driver)?.to_vec();
                input.splice(at..at, piece);
            }
            3 => {
                let piece = self.piece(driver)?.to_vec();
                input.splice(at..end, piece);
            }
            4 => {
                let repeated = input[at..end].repeat(1 + below(driver, 100)?);
                input.splice(at..at, repeated);
            }
            5 => input.insert(at, NOTABLE[below(driver, NOTABLE.len())?]),
            6 if at < input.len() => input[at] = NOTABLE[below(driver, NOTABLE.len())?],
            _ if at < input.len() => input[at] = driver.produce()?,
            _ => input.push(driver.produce()?),
        }
        input.truncate(MAX_BYTES);
        Some(())
    }
}

impl ValueGenerator for EditedInputs {
    type Output = EditedInput;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<EditedInput> {
        let mut input = self.corpus[below(driver, self.corpus.len())?].clone();
        for _ in 0..1 + below(driver, MAX_EDITS)? {
            self.edit(driver, &mut input)?;
        }
        Some(EditedInput(input))
    }
}

/// A number below a bound, which is not zero.
fn below<D: Driver>(driver: &mut D, bound: usize) -> Option<usize> {
    (0..bound).generate(driver)
}
