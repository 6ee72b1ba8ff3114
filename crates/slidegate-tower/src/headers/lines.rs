//! Fields as HTTP/1 has them.

use http::HeaderName;

use crate::headers::text::{Fields, Text};

/// A line for each field.
#[derive(Debug)]
pub(super) struct Lines(Vec<u8>);

/// Room for the fields of a policy with a quota or two.
const USUAL_BYTES: usize = 256;

impl Lines {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// All lines, each with its end.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.end_line();
        self.0
    }

    fn end_line(&mut self) {
        if !self.0.is_empty() {
            self.0.extend_from_slice(b"\r\n");
        }
    }
}

impl Text for Lines {
    fn put(&mut self, piece: &str) {
        self.0.put(piece);
    }

    fn put_quote(&mut self) {
        self.0.put_quote();
    }
}

impl Fields for Lines {
    fn begin(&mut self, name: &HeaderName) {
        if self.0.is_empty() {
            self.0.reserve(USUAL_BYTES);
        }
        self.end_line();
        self.0.put(name.as_str());
        self.0.put(": ");
    }
}
