//! Stops what runs beside a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, at the end of a test or when the test fails.
#[derive(Debug)]
pub(crate) struct StopGuard<'f>(&'f AtomicBool);

impl<'f> StopGuard<'f> {
    pub(crate) fn new(over: &'f AtomicBool) -> Self {
        Self(over)
    }
}

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
