//! How many requests are under way to upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the requests under way, up to a bound.
#[derive(Debug, Clone)]
pub(crate) struct InFlightLimit {
    under_way: Arc<AtomicUsize>,
    most: usize,
}

/// One request's place, free again when dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit(Arc<AtomicUsize>);

impl InFlightLimit {
    pub(crate) fn new(most: usize) -> Self {
        Self { under_way: Arc::default(), most }
    }

    /// A place, or none if there are too many.
    pub(crate) fn begin(&self) -> Option<InFlightPermit> {
        let flight = InFlightPermit(self.under_way.clone());
        // Taken first and given back if it is one too many, by dropping it.
        (self.under_way.fetch_add(1, Ordering::Relaxed) < self.most).then_some(flight)
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
        let flights = InFlightLimit::new(2);
        let first = flights.begin().unwrap();
        let _second = flights.begin().unwrap();
        assert!(flights.begin().is_none());
        drop(first);
        assert!(flights.begin().is_some());
    }
}
