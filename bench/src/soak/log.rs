//! What the clients sent and were answered, and what arrived upstream, on one clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::rules::Rule;

/// One request of a client. Its number is its place in the log.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub rule: Rule,
    /// The account under the rule: the number of an address, a key or a user.
    pub account: u32,
    pub address: u32,
    pub sent: Duration,
    /// When it first arrived upstream, or for the decision API, when it was answered with `allow`.
    pub arrived: Option<Duration>,
    /// How often it arrived upstream.
    pub arrivals: u32,
    pub ended: Option<Duration>,
    pub outcome: Outcome,
    /// What it spent under the rule if it was admitted.
    pub units: u32,
}

/// How a request ended at its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Pending,
    /// A complete response with this status.
    Answered(u16),
    /// The client closed the connection or the stream.
    Aborted,
    /// The connection ended or was silent before the response was complete.
    Broken,
    /// The response is that of another request.
    Foreign,
}

/// A log that clients and the upstream share.
#[derive(Clone)]
pub struct Log(Arc<Shared>);

struct Shared {
    start: Instant,
    exchanges: Mutex<Vec<Exchange>>,
    complaints: Mutex<Vec<String>>,
}

impl Log {
    pub fn new() -> Self {
        let (exchanges, complaints) = Default::default();
        Self(Arc::new(Shared { start: Instant::now(), exchanges, complaints }))
    }

    /// The time since the log began.
    pub fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// Notes a request that is sent now, and returns its number.
    pub fn sends(&self, rule: Rule, account: u32, address: u32) -> usize {
        let mut exchanges = lock(&self.0.exchanges);
        let (sent, outcome) = (self.now(), Outcome::Pending);
        let (arrived, arrivals, ended, units) = (None, 0, None, 1);
        exchanges.push(Exchange {
            rule,
            account,
            address,
            sent,
            arrived,
            arrivals,
            ended,
            outcome,
            units,
        });
        exchanges.len() - 1
    }

    /// Notes that a request has arrived upstream.
    pub fn arrived(&self, number: usize) {
        let now = self.now();
        match lock(&self.0.exchanges).get_mut(number) {
            Some(exchange) => {
                exchange.arrived.get_or_insert(now);
                exchange.arrivals += 1;
            }
            None => {
                self.complain(format!("upstream received request {number}, which was not sent"))
            }
        }
    }

    /// Notes what a request spent.
    pub fn costs(&self, number: usize, units: u32) {
        lock(&self.0.exchanges)[number].units = units;
    }

    /// Notes how a request ended.
    pub fn ended(&self, number: usize, outcome: Outcome) {
        let exchange = &mut lock(&self.0.exchanges)[number];
        exchange.ended = Some(self.now());
        exchange.outcome = outcome;
    }

    /// Notes something that must not happen, whatever the faults.
    pub fn complain(&self, text: String) {
        let mut complaints = lock(&self.0.complaints);
        // What goes wrong once may go wrong at every request.
        if complaints.len() < MAX_COMPLAINTS {
            complaints.push(format!("at {:.1} s: {text}", self.now().as_secs_f64()));
        }
    }

    /// How many requests there are so far.
    pub fn len(&self) -> usize {
        lock(&self.0.exchanges).len()
    }

    /// Everything so far.
    pub fn take(&self) -> (Vec<Exchange>, Vec<String>) {
        let exchanges = std::mem::take(&mut *lock(&self.0.exchanges));
        (exchanges, std::mem::take(&mut *lock(&self.0.complaints)))
    }
}

const MAX_COMPLAINTS: usize = 1000;

fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
