//! What the future allocates: nothing with a memory store, and if the store has to be waited for,
//! only when it is made.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::alloc::System;
use std::convert::Infallible;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use cap::Cap;
use http::{Extensions, Request, Response};
use slidegate::{Decision, Gate, MemoryStore, Policy, Quota, Store};
use slidegate_tower::{Exempt, Headers, Peer, RateLimitLayer};
use support::{CLIENT, Slow, policies};
use tower::{Layer, Service, service_fn};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn allocated<T>(run: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATOR.total_allocated();
    let output = run();
    (ALLOCATOR.total_allocated() - before, output)
}

/// What making the future of a response allocates, and what polling it does.
fn cost<S: Store>(layer: &RateLimitLayer<S>, request: Request<()>) -> (usize, usize, Response<()>) {
    let inner =
        service_fn(|_: Request<()>| std::future::ready(Ok::<_, Infallible>(Response::new(()))));
    let mut service = layer.layer(inner);
    assert_eq!(allocated(|| black_box(service.clone())).0, 0, "a clone");
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    let (made, future) = allocated(|| service.call(request));
    let (polled, response) = allocated(|| {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(response) = future.as_mut().poll(&mut cx) {
                break response.unwrap();
            }
        }
    });
    (made, polled, response.map(drop))
}

fn request() -> Request<()> {
    Request::builder().extension(Peer(CLIENT.parse().unwrap())).body(()).unwrap()
}

fn layer<S: Store>(store: S) -> RateLimitLayer<S> {
    let policy = Policy::new("api").quota(Quota::per_minute(1000));
    let gate = Gate::new(policies([policy]).build().unwrap(), store);
    RateLimitLayer::new(gate).headers(Headers::none())
}

#[test]
fn only_the_decision_and_a_place_to_wait_are_allocated() {
    let (memory, slow) = (layer(MemoryStore::new()), layer(Slow(MemoryStore::new())));
    // The first request makes the account.
    let exposing = memory.clone().expose_decision();
    let (_, _, response) = cost(&exposing, request());
    // Of the first requests of a thread, a sample leaves its policies in the responses.
    for _ in 0..100 {
        let (_, _, response) = cost(&memory, request());
        assert!(response.extensions().get::<Decision>().is_none());
    }
    cost(&slow, request());
    let decision = response.extensions().get::<Decision>().unwrap();
    let list = size_of_val(decision.policies());
    let (kept, _) = allocated(|| {
        let mut extensions = Extensions::new();
        extensions.insert(decision.clone());
        black_box(extensions)
    });

    let mut exempt = request();
    exempt.extensions_mut().insert(Exempt);
    let (made, polled, _) = cost(&memory, exempt);
    assert_eq!((made, polled), (0, 0), "an exempt request");

    let (made, polled, _) = cost(&memory, request());
    assert_eq!(made + polled, list, "the decision");

    let (made, polled, _) = cost(&exposing, request());
    assert_eq!(made + polled, kept, "the decision, and where it is kept");

    let (boxed, polled, _) = cost(&slow, request());
    assert!(boxed > 0, "the future has to be put somewhere while it waits");
    assert_eq!(polled, list, "and nothing more while it waits");
}
