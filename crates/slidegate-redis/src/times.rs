//! When the parts of a request were spent that a cluster keeps in several places.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use slidegate::Timestamp;

/// The times of the latest requests in several places. Each server has a clock of its own, and a
/// receipt has room for the first one's time only; a refund needs them all.
#[derive(Default)]
pub(crate) struct SpendTimes(Mutex<VecDeque<Vec<(u16, Timestamp)>>>);

/// A refund nearly always follows its request at once.
const MOST: usize = 4096;

impl SpendTimes {
    /// Keeps the time at each slot, the first of which is the receipt's.
    pub(crate) fn keep(&self, times: Vec<(u16, Timestamp)>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == MOST {
            kept.pop_front();
        }
        kept.push_back(times);
    }

    /// The time at a slot of a request with some slots, if it is known, else the receipt's.
    pub(crate) fn at(&self, receipt_at: Timestamp, slots: &[u16], slot: u16) -> Timestamp {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_request = |times: &&Vec<(u16, Timestamp)>| {
            times.first().is_some_and(|(_, at)| *at == receipt_at)
                && slots.iter().all(|slot| times.iter().any(|(known, _)| known == slot))
        };
        let times = kept.iter().rev().find(of_request);
        let found = times.and_then(|times| times.iter().find(|(known, _)| *known == slot));
        found.map_or(receipt_at, |(_, at)| *at)
    }
}
