//! Requests to a service in this process, without a socket.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderName, HeaderValue, header};
use tower::Service as _;

use super::services::{Service, UNITS};
use crate::alloc;
use crate::calls::repeat;

/// Whether the clients are within their quota.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    Allowed,
    Denied,
}

impl Traffic {
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }

    fn requests(self) -> u32 {
        match self {
            Self::Allowed => CLIENTS * ALLOWED_VISITS,
            Self::Denied => CLIENTS * DENIED_VISITS,
        }
    }
}

/// How many clients take turns.
const CLIENTS: u32 = 1000;
/// Has no divisor in common with the clients, so that they come in another order than they were
/// made known in.
const STRIDE: u32 = 617;
/// How often each client comes in a round if it is allowed: with the visit that makes it known,
/// half its quota.
const ALLOWED_VISITS: u32 = UNITS / 2 - 1;
/// How often it comes if it is denied: few enough to be over before governor gives a unit back.
const DENIED_VISITS: u32 = 10;
/// Requests that are made beforehand and then sent without a look at the clock.
const BATCH: u32 = 250;

/// What one round of requests took.
#[derive(Default, Clone, Copy)]
pub struct Round {
    pub took: Duration,
    pub allocations: u64,
    pub sent: u32,
    pub allowed: u32,
}

impl Round {
    pub fn ns(&self) -> f64 {
        self.took.as_nanos() as f64 / f64::from(self.sent)
    }

    pub fn allocations(&self) -> f64 {
        self.allocations as f64 / f64::from(self.sent)
    }
}

/// A router and the traffic for it.
pub struct Callee {
    pub service: Service,
    pub traffic: Traffic,
    router: Router,
}

impl Callee {
    pub fn new(service: Service, traffic: Traffic) -> Self {
        Self { service, traffic, router: service.router() }
    }

    /// Sends a round and takes its time.
    pub fn time(&mut self) -> Round {
        self.round(|router, batch, round| {
            let start = Instant::now();
            round.allowed += send(router, batch);
            round.took += start.elapsed();
        })
    }

    /// Sends a round and counts its allocations.
    pub fn count(&mut self) -> Round {
        self.round(|router, batch, round| {
            let (allocations, allowed) = alloc::allocations_of(|| send(router, batch));
            round.allowed += allowed;
            round.allocations += allocations;
        })
    }

    fn round(&mut self, mut send: impl FnMut(&mut Router, Vec<Request>, &mut Round)) -> Round {
        self.prepare();
        let mut round = Round::default();
        let mut client = 0;
        while round.sent < self.traffic.requests() {
            let batch = (0..BATCH).map(|_| {
                client = (client + STRIDE) % CLIENTS;
                request(client)
            });
            send(&mut self.router, batch.collect(), &mut round);
            round.sent += BATCH;
        }
        self.check(&round);
        round
    }

    /// Makes every client known to a new router, or uses up the quota of every client.
    fn prepare(&mut self) {
        match self.traffic {
            Traffic::Allowed => {
                self.router = self.service.router();
                (0..CLIENTS).for_each(|client| assert!(call(&mut self.router, request(client))));
            }
            Traffic::Denied => {
                // All clients in turns, and not one after the other: in a slow build governor
                // would give the first ones units back before the last have spent theirs.
                let mut pass = || send(&mut self.router, (0..CLIENTS).map(request).collect());
                let _ = (0..2 * UNITS).find(|_| pass() <= CLIENTS / 10);
            }
        }
    }

    /// A round of the wrong answers would be the wrong figure.
    fn check(&self, round: &Round) {
        match self.traffic {
            Traffic::Allowed => assert_eq!(round.allowed, round.sent, "all are within the quota"),
            // On a busy machine, governor may have given units back after all.
            Traffic::Denied => assert!(
                round.allowed < round.sent / 4,
                "{}: {} of {} were allowed; is this a debug build, or a busy machine?",
                self.service.name(),
                round.allowed,
                round.sent,
            ),
        }
    }
}

/// Calls a service for clients in turn, within their quotas.
pub fn call_often(service: Service, calls: u32) {
    assert!(calls <= CLIENTS * ALLOWED_VISITS, "more than the quotas allow");
    let mut router = service.router();
    let mut send = |client| assert!(call(&mut router, request(client)));
    (0..CLIENTS).for_each(&mut send);
    repeat(calls, send);
}

/// What a browser sends. Looking for a header among none would cost nothing.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::HOST, "api.example.com"),
    (header::USER_AGENT, "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    (header::ACCEPT, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    (header::ACCEPT_LANGUAGE, "en-US,en;q=0.5"),
    (header::ACCEPT_ENCODING, "gzip, deflate, br, zstd"),
];

fn request(client: u32) -> Request {
    let address = Ipv4Addr::from_bits(0x0a00_0000 + client);
    let mut request = Request::new(Body::empty());
    for (name, value) in HEADERS {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((address, 40_000))));
    request
}

/// How many of the requests were allowed.
fn send(router: &mut Router, batch: Vec<Request>) -> u32 {
    batch.into_iter().map(|request| u32::from(call(router, request))).sum()
}

/// Whether the request was allowed. The response is dropped here, which is part of what it costs.
fn call(router: &mut Router, request: Request) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    // A router is always ready, so it is not asked.
    match pin!(router.call(request)).poll(&mut context) {
        Poll::Ready(Ok(response)) => response.status().is_success(),
        Poll::Pending => unreachable!("nothing here waits"),
    }
}
