//! The limit of requests in flight to upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bounded counter of requests in flight.
#[derive(Debug, Clone)]
pub(crate) struct InFlightLimit {
    in_flight: Arc<AtomicUsize>,
    most: usize,
}

/// One request's place, free again when dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit(Arc<AtomicUsize>);

impl InFlightLimit {
    pub(crate) fn new(most: usize) -> Self {
        Self { in_flight: Arc::default(), most }
    }

    /// A place, or none if there are too many.
    pub(crate) fn begin(&self) -> Option<InFlightPermit> {
        let permit = InFlightPermit(self.in_flight.clone());
        // Taken first and given back if it is one too many, by dropping it.
        (self.in_flight.fetch_add(1, Ordering::Relaxed) < self.most).then_some(permit)
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let in_flight = InFlightLimit::new(2);
        let first = in_flight.begin().unwrap();
        let _second = in_flight.begin().unwrap();
        assert!(in_flight.begin().is_none());
        drop(first);
        assert!(in_flight.begin().is_some());
    }
}
