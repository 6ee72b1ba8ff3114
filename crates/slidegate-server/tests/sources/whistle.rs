//! The end of what goes on beside a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Blown when it is dropped, be it at the end of a test or because the test has failed.
#[derive(Debug)]
pub(crate) struct Whistle<'w>(&'w AtomicBool);

impl<'w> Whistle<'w> {
    pub(crate) fn new(over: &'w AtomicBool) -> Self {
        Self(over)
    }
}

impl Drop for Whistle<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
