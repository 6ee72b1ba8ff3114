//! Outgoing calls: within the quota, in order, bounded, and nothing taken by who gave up.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Down, Slow, policies};
use http::{HeaderMap, Method, Request};
use slidegate::{
    AccessList, Clock, Facts, Gate, MemoryStore, OnStoreError, Policy, Source, Timestamp,
};
use slidegate_tower::{
    Cost, Exempt, OutgoingError, OutgoingLayer, OutgoingQueue, RateLimited, User,
};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);

/// Tokio's time, which stands still until everybody waits.
#[derive(Clone, Copy)]
struct PausedClock(Instant);

impl PausedClock {
    fn new() -> Self {
        Self(Instant::now())
    }

    fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_767_225_600_000) + self.elapsed()
    }
}

fn vendor(quota: &str) -> Policy {
    Policy::new("vendor").quota(quota).identity([Source::User, Source::Everyone])
}

fn gate(clock: PausedClock, policy: Policy) -> Gate {
    gate_of(clock, [policy])
}

fn gate_of(clock: PausedClock, list: impl IntoIterator<Item = Policy>) -> Gate {
    let store = MemoryStore::builder().clock(clock).build();
    Gate::new(policies(list).build().unwrap(), store)
}

/// Five a second for everybody together, and one in ten seconds for each user.
fn vendor_and_users() -> [Policy; 2] {
    [
        Policy::new("vendor").quota("5/s").identity([Source::Everyone]),
        Policy::new("per-user").quota("1/10s").identity([Source::User]),
    ]
}

fn call() -> Request<()> {
    Request::new(())
}

fn call_of(user: &str) -> Request<()> {
    let mut call = call();
    call.extensions_mut().insert(User(user.to_owned()));
    call
}

/// What went out, and when.
#[derive(Clone)]
struct Third {
    clock: PausedClock,
    seen: Arc<Mutex<Vec<(String, Duration)>>>,
}

impl Third {
    fn new(clock: PausedClock) -> Self {
        Self { clock, seen: Arc::default() }
    }

    fn service(
        &self,
    ) -> impl Service<
        Request<()>,
        Response = (),
        Error = Infallible,
        Future: Future<Output = Result<(), Infallible>> + Send,
    > + Clone
    + Send
    + 'static {
        let third = self.clone();
        service_fn(move |request: Request<()>| {
            let who = request.extensions().get().map(|User(who)| who.clone()).unwrap_or_default();
            third.seen.lock().unwrap().push((who, third.clock.elapsed()));
            std::future::ready(Ok(()))
        })
    }

    fn seen(&self) -> Vec<(String, Duration)> {
        self.seen.lock().unwrap().clone()
    }

    fn at_of(&self, name: &str) -> Vec<u64> {
        let own = self.seen().into_iter().filter(|(who, _)| who == name);
        own.map(|(_, at)| at.as_secs()).collect()
    }

    fn at(&self) -> Vec<u64> {
        self.seen().into_iter().map(|(_, at)| at.as_secs()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_does_not_wait_fails_at_once() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let service = OutgoingLayer::fail_at_once(gate(clock, vendor("2/10s"))).layer(third.service());
    for _ in 0..2 {
        service.clone().oneshot(call()).await.unwrap();
    }
    let error = service.clone().oneshot(call()).await.unwrap_err();
    let OutgoingError::RateLimited(held @ RateLimited::Denied(_)) = error else {
        panic!("{error}")
    };
    assert_eq!(held.retry_after(), Some(10 * SECOND));
    assert!(!held.decision().unwrap().is_allowed());
    assert_eq!((third.at(), clock.elapsed()), (vec![0, 0], Duration::ZERO), "no call waited");
}

#[tokio::test(start_paused = true)]
async fn calls_wait_until_they_are_allowed() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let queue = OutgoingQueue::new(gate(clock, vendor("2/10s"))).wait_up_to(60 * SECOND);
    let service = OutgoingLayer::new(queue).layer(third.service());
    for _ in 0..5 {
        service.clone().oneshot(call()).await.unwrap();
    }
    assert_eq!(third.at(), [0, 0, 10, 10, 20]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_would_wait_too_long_fails_at_once() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let queue = OutgoingQueue::new(gate(clock, vendor("1/10s"))).wait_up_to(9 * SECOND);
    let service = OutgoingLayer::new(queue).layer(third.service());
    service.clone().oneshot(call()).await.unwrap();
    let error = service.clone().oneshot(call()).await.unwrap_err();
    assert!(matches!(error, OutgoingError::RateLimited(RateLimited::Denied(_))));
    assert_eq!(clock.elapsed(), Duration::ZERO);
    tokio::time::sleep(SECOND).await;
    service.oneshot(call()).await.unwrap();
    assert_eq!(third.at(), [0, 10]);
}

#[tokio::test(start_paused = true)]
async fn behind_others_too_a_call_that_would_wait_too_long_fails_at_once() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let queue = OutgoingQueue::new(gate(clock, vendor("2/10s"))).wait_up_to(9 * SECOND);
    let service = OutgoingLayer::new(queue).layer(third.service());
    service.clone().oneshot(call()).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    service.clone().oneshot(call()).await.unwrap();
    let waiting = tokio::spawn(service.clone().oneshot(call()));
    tokio::task::yield_now().await;
    let mut costly = call();
    costly.extensions_mut().insert(Cost::Units(2.try_into().unwrap()));
    let error = service.oneshot(costly).await.unwrap_err();
    let OutgoingError::RateLimited(held @ RateLimited::Denied(_)) = error else {
        panic!("{error}")
    };
    assert_eq!(held.retry_after(), Some(10 * SECOND));
    assert_eq!(clock.elapsed().as_secs(), 5, "it did not wait");
    waiting.await.unwrap().unwrap();
    assert_eq!(third.at(), [0, 5, 10]);
}

#[tokio::test(start_paused = true)]
async fn calls_go_out_in_order_and_the_quota_is_kept() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let policy = Policy::new("vendor").quota("3/10s");
    let queue = OutgoingQueue::new(gate(clock, policy)).wait_up_to(100 * SECOND);
    let service = OutgoingLayer::new(queue).layer(third.service());
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..20 {
        let service = service.clone();
        tasks.spawn(async move { service.oneshot(call_of(&i.to_string())).await });
        // The later ones come while others wait already, some just as units come back.
        tokio::time::sleep(SECOND).await;
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    let seen = third.seen();
    let order: Vec<usize> = seen.iter().map(|(who, _)| who.parse().unwrap()).collect();
    assert_eq!(order, (0..20).collect::<Vec<_>>());
    for window in seen.windows(4) {
        let (first, last) = (window[0].1, window[3].1);
        assert!(last - first >= 10 * SECOND, "four calls from {first:?} to {last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_one_account_does_not_delay_another() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let queue = OutgoingQueue::new(gate(clock, vendor("1/10s"))).wait_up_to(100 * SECOND);
    let service = OutgoingLayer::new(queue).layer(third.service());
    let mut tasks = tokio::task::JoinSet::new();
    for who in ["a", "a", "a", "b", "b"] {
        let service = service.clone();
        tasks.spawn(async move { service.oneshot(call_of(who)).await });
        tokio::task::yield_now().await;
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    assert_eq!((third.at_of("a"), third.at_of("b")), (vec![0, 10, 20], vec![0, 10]));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_user_has_no_units_does_not_delay_calls_of_others() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let queue = OutgoingQueue::new(gate_of(clock, vendor_and_users())).wait_up_to(10 * SECOND);
    let service = OutgoingLayer::new(queue).layer(third.service());
    service.clone().oneshot(call_of("ann")).await.unwrap();
    tokio::time::sleep(2 * SECOND).await;
    let mut tasks = tokio::task::JoinSet::new();
    let before = (0..8).map(|i| format!("before {i}"));
    let after = (0..20).map(|i| format!("after {i}"));
    for who in before.chain(["ann".to_owned()]).chain(after) {
        let service = service.clone();
        tasks.spawn(async move { service.oneshot(call_of(&who)).await.is_ok() });
        tokio::task::yield_now().await;
    }
    assert!(tasks.join_all().await.into_iter().all(|passed| passed));
    assert_eq!(third.at_of("ann"), [0, 10]);
    assert_eq!(third.at_of("after 1"), [3], "when the vendor has units again");
    assert_eq!(third.at_of("after 19"), [7]);
}

#[tokio::test(start_paused = true)]
async fn a_call_at_the_head_of_the_queue_whose_user_has_no_units_lets_others_pass() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let queue = OutgoingQueue::new(gate_of(clock, vendor_and_users()));
    let queue = queue.wait_up_to(20 * SECOND).max_waiting(4);
    let service = OutgoingLayer::new(queue).layer(third.service());
    let mut tasks = tokio::task::JoinSet::new();
    // Five go out. Then both of Ann's calls wait for the vendor, since she has a unit still.
    for who in ["1", "2", "3", "4", "5", "6", "ann", "ann", "7"] {
        let service = service.clone();
        tasks.spawn(async move { service.oneshot(call_of(who)).await.is_ok() });
        tokio::task::yield_now().await;
    }
    assert!(tasks.join_all().await.into_iter().all(|passed| passed));
    assert_eq!((third.at_of("6"), third.at_of("7")), (vec![1], vec![1]));
    assert_eq!(third.at_of("ann"), [1, 11]);
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_wait_than_may() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let queue =
        OutgoingQueue::new(gate(clock, vendor("1/10s"))).wait_up_to(1000 * SECOND).max_waiting(2);
    let service = OutgoingLayer::new(queue).layer(third.service());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let service = service.clone();
        tasks.spawn(async move { service.oneshot(call()).await });
        tokio::task::yield_now().await;
    }
    let results = tasks.join_all().await;
    let crowded = results.iter().filter(|result| {
        matches!(result, Err(OutgoingError::RateLimited(RateLimited::QueueFull(_))))
    });
    assert_eq!(crowded.count(), 3);
    assert_eq!(third.at(), [0, 10, 20]);
    service.oneshot(call()).await.unwrap();
    assert_eq!(third.at().len(), 4, "the line is empty again");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_behind_others_gives_up_in_time() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let queue = OutgoingQueue::new(gate(clock, vendor("1/10s"))).wait_up_to(12 * SECOND);
    let service = OutgoingLayer::new(queue).layer(third.service());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let service = service.clone();
        tasks.spawn(async move { service.oneshot(call()).await.is_ok() });
        tokio::task::yield_now().await;
    }
    let passed = tasks.join_all().await.into_iter().filter(|passed| *passed).count();
    assert_eq!((passed, third.at()), (2, vec![0, 10]));
    assert!(clock.elapsed() <= 12 * SECOND + Duration::from_millis(2), "{:?}", clock.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_takes_nothing_and_the_next_moves_up() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let gate = Arc::new(gate(clock, vendor("1/10s")));
    let queue = Arc::new(OutgoingQueue::new(gate.clone()).wait_up_to(100 * SECOND));
    let service = OutgoingLayer::new(queue).layer(third.service());
    let spawn = |who: &'static str| tokio::spawn(service.clone().oneshot(call_of(who)));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(spawn("x"));
        tokio::task::yield_now().await;
    }
    // The first went out. The second sleeps at the head of the line, the third is behind it.
    tokio::time::sleep(5 * SECOND).await;
    tasks[1].abort();
    tasks[2].abort();
    for task in tasks.drain(..) {
        let _ = task.await;
    }
    assert_eq!(third.at(), [0, 10], "the fourth took the unit that no other call wanted");
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(third.at().len(), 2, "no call is retried");
    let facts = Facts::new(&Method::GET, "/").user("x");
    let decision = gate.peek_now(&facts).unwrap();
    let (_, standing) = decision.tightest().unwrap();
    assert_eq!(standing.remaining(), 1, "and nothing is held");
}

#[tokio::test(start_paused = true)]
async fn what_can_never_pass_fails_at_once() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let queue = OutgoingQueue::new(gate(clock, vendor("2/10s"))).wait_up_to(100 * SECOND);
    let service = OutgoingLayer::new(queue).layer(third.service());
    let mut costly = call();
    costly.extensions_mut().insert(Cost::Units(3.try_into().unwrap()));
    let error = service.oneshot(costly).await.unwrap_err();
    let OutgoingError::RateLimited(held) = error;
    assert_eq!(held.retry_after(), None);

    let blocked = policies([vendor("2/10s")]).blocked(AccessList::new().path("/{*rest}"));
    let gate = Gate::new(blocked.build().unwrap(), MemoryStore::builder().clock(clock).build());
    let layer = OutgoingLayer::new(OutgoingQueue::new(gate).wait_up_to(100 * SECOND));
    let request = Request::get("/blocked").body(()).unwrap();
    assert!(layer.layer(third.service()).oneshot(request).await.is_err());
    assert_eq!(clock.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_exempt_call_goes_out_uncounted() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let service = OutgoingLayer::fail_at_once(gate(clock, vendor("1/10s"))).layer(third.service());
    for _ in 0..3 {
        let mut exempt = call();
        exempt.extensions_mut().insert(Exempt);
        service.clone().oneshot(exempt).await.unwrap();
    }
    service.oneshot(call()).await.unwrap();
    assert_eq!(third.at().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_header_of_the_call_can_tell_quotas_apart() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let by_host = vendor("1/10s").identity([Source::Header(http::header::HOST)]);
    let service = OutgoingLayer::fail_at_once(gate(clock, by_host)).layer(third.service());
    for (host, passes) in [("a.example", true), ("b.example", true), ("a.example", false)] {
        let mut call = call();
        call.headers_mut().insert("host", host.parse().unwrap());
        assert_eq!(service.clone().oneshot(call).await.is_ok(), passes, "{host}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_holds_the_call_back_where_the_policy_says_so() {
    let clock = PausedClock::new();
    let third = Third::new(clock);
    let policy = vendor("1/10s").on_store_error(OnStoreError::Deny);
    let gate = Gate::new(policies([policy]).build().unwrap(), Down);
    let layer = OutgoingLayer::new(OutgoingQueue::new(gate).wait_up_to(100 * SECOND));
    let error = layer.layer(third.service()).oneshot(call()).await.unwrap_err();
    assert!(matches!(error, OutgoingError::RateLimited(RateLimited::Store(_))));
    assert!(third.at().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_inner_services_error_is_distinct_from_a_refusal() {
    let clock = PausedClock::new();
    let inner = service_fn(async |_: Request<()>| Err::<(), _>(std::io::Error::other("reset")));
    let service = OutgoingLayer::fail_at_once(gate(clock, vendor("1/10s"))).layer(inner);
    let error = service.oneshot(call()).await.unwrap_err();
    assert!(matches!(&error, OutgoingError::Inner(inner) if inner.to_string() == "reset"));
}

#[tokio::test(start_paused = true)]
async fn a_queue_works_without_tower_and_with_a_store_that_awaits() {
    let clock = PausedClock::new();
    let store = Slow(MemoryStore::builder().clock(clock).build());
    let gate = Gate::new(policies([vendor("1/10s")]).build().unwrap(), store);
    let queue = Arc::new(OutgoingQueue::new(gate).wait_up_to(25 * SECOND));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let queue = queue.clone();
        tasks.spawn(async move {
            let headers = HeaderMap::new();
            let facts = Facts::new(&Method::GET, "/v1/charge").headers(&headers);
            queue.pass(&facts).await.is_ok()
        });
        tokio::task::yield_now().await;
    }
    let passed = tasks.join_all().await.into_iter().filter(|passed| *passed).count();
    assert_eq!(passed, 3);
}
