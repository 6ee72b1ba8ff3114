//! Look-ups in flight: one for a digest, and a bounded number in all.

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::Mutex;
use slidegate::policy::KeyDigest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::key::KeyAnswer;

/// Requests to the service at once.
const MAX_REQUESTS: usize = 32;

/// Of these, only for known keys: a flood of invented ones does not keep a revoked key alive.
const REFRESH_REQUESTS: usize = 8;

/// Look-ups that are in flight or wait for a place. More would not get one before their decisions'
/// deadline.
const MAX_FLIGHTS: usize = 4096;

/// The look-ups in flight.
#[derive(Clone, Default)]
pub(super) struct Flights(Arc<Mutex<FlightMap>>);

type FlightMap = HashMap<KeyDigest, Landing, RandomState>;

/// A look-up in flight. It ends on drop, without an answer unless it has landed.
pub(super) struct Flight {
    flights: Flights,
    digest: KeyDigest,
    answer: watch::Sender<Option<KeyAnswer>>,
}

/// Where a look-up's answer arrives.
#[derive(Clone)]
pub(super) struct Landing(watch::Receiver<Option<KeyAnswer>>);

/// What a request for a digest has to do.
pub(super) enum Boarding {
    /// Wait for a look-up in flight.
    Joined(Landing),
    /// Start one.
    First(Flight, Landing),
    /// Go without.
    Full,
}

impl Flights {
    pub(super) fn board(&self, digest: KeyDigest) -> Boarding {
        let mut flights = self.0.lock();
        let is_full = flights.len() >= MAX_FLIGHTS;
        match flights.entry(digest) {
            Entry::Occupied(flight) => Boarding::Joined(flight.get().clone()),
            Entry::Vacant(_) if is_full => Boarding::Full,
            Entry::Vacant(free) => {
                let (answer, landing) = watch::channel(None);
                let landing = free.insert(Landing(landing)).clone();
                Boarding::First(Flight { flights: self.clone(), digest, answer }, landing)
            }
        }
    }
}

impl Flight {
    pub(super) fn digest(&self) -> KeyDigest {
        self.digest
    }

    /// Gives all who wait their answer.
    pub(super) fn land(self, answer: KeyAnswer) {
        self.answer.send_replace(Some(answer));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights.0.lock().remove(&self.digest);
    }
}

impl Landing {
    pub(super) async fn answer(mut self) -> KeyAnswer {
        let landed = self.0.wait_for(Option::is_some).await;
        landed.ok().and_then(|answer| answer.clone()).unwrap_or(KeyAnswer::Unavailable)
    }
}

/// The right to send one request.
pub(super) type Place = OwnedSemaphorePermit;

/// Bounds the requests in flight.
pub(super) struct Places {
    shared: Arc<Semaphore>,
    refreshes: Arc<Semaphore>,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            shared: Arc::new(Semaphore::new(MAX_REQUESTS - REFRESH_REQUESTS)),
            refreshes: Arc::new(Semaphore::new(REFRESH_REQUESTS)),
        }
    }
}

impl Places {
    /// Waits for a place for a first look-up, in order of arrival.
    pub(super) async fn wait(&self, deadline: Duration) -> Option<Place> {
        let place = Arc::clone(&self.shared).acquire_owned();
        timeout(deadline, place).await.ok()?.ok()
    }

    /// A place that no first look-up waits for, or one of those kept for refreshes.
    pub(super) fn for_refresh(&self) -> Option<Place> {
        let take = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        take(&self.shared).or_else(|| take(&self.refreshes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> KeyDigest {
        KeyDigest((number as u128).to_be_bytes())
    }

    #[tokio::test]
    async fn a_flight_without_an_answer_leaves_the_key_unavailable_and_the_way_free() {
        let flights = Flights::default();
        let Boarding::First(flight, first) = flights.board(digest(1)) else { panic!("not first") };
        let Boarding::Joined(second) = flights.board(digest(1)) else { panic!("not joined") };
        drop(flight);
        assert_eq!(first.answer().await, KeyAnswer::Unavailable);
        assert_eq!(second.answer().await, KeyAnswer::Unavailable);
        assert!(matches!(flights.board(digest(1)), Boarding::First(..)));
    }

    #[test]
    fn flights_are_bounded() {
        let flights = Flights::default();
        let mut all: Vec<Boarding> = (0..MAX_FLIGHTS).map(|n| flights.board(digest(n))).collect();
        assert!(all.iter().all(|boarding| matches!(boarding, Boarding::First(..))));
        assert!(matches!(flights.board(digest(MAX_FLIGHTS)), Boarding::Full));
        assert!(matches!(flights.board(digest(0)), Boarding::Joined(_)));
        all.pop();
        assert!(matches!(flights.board(digest(MAX_FLIGHTS)), Boarding::First(..)));
    }

    #[tokio::test(start_paused = true)]
    async fn first_look_ups_and_refreshes_leave_places_to_each_other() {
        let places = Places::default();
        let wait = || places.wait(Duration::from_millis(200));
        let mut first = Vec::new();
        while let Some(place) = wait().await {
            first.push(place);
        }
        let refreshes: Vec<Place> = std::iter::from_fn(|| places.for_refresh()).collect();
        assert_eq!((first.len(), refreshes.len()), (24, 8));
        drop((first, refreshes));

        let mut refreshes: Vec<Place> = std::iter::from_fn(|| places.for_refresh()).collect();
        assert_eq!(refreshes.len(), 32);
        let waiting = tokio::spawn({
            let shared = Arc::clone(&places.shared);
            async move { shared.acquire_owned().await }
        });
        tokio::task::yield_now().await;
        drop(refreshes.remove(0));
        assert!(places.for_refresh().is_none(), "the place goes to the look-up that waits for it");
        assert!(waiting.await.unwrap().is_ok());
    }
}
