//! Costs that are known from the response.

use std::collections::VecDeque;
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::BodyExt;
use slidegate::limit::{AccountReading, Charge, Charges, Receipt, Settled, Settlement, Spent};
use slidegate::policy::CostSource;
use slidegate::{Decision, Facts, Gate, ManualClock, MemoryStore, Policy, Store, StoreError};
use slidegate_tower::{
    LimiterOutcome, NotCounted, RateLimitLayer, RequestHead, RequestLimiter, ResponseCost,
    SettleOutcome, UnreadReason,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Down, field, gate, get, policies};

const MINUTE: Duration = Duration::from_secs(60);

fn tokens(hold: u32) -> Policy {
    let path = "usage.total_tokens".parse().unwrap();
    Policy::new("tokens").quota("10000/min").response_cost(CostSource::Json(path), hold)
}

/// What is left of the first quota, without spending anything.
fn left(gate: &Gate) -> u32 {
    let client = "203.0.113.7".parse().unwrap();
    let peeked = gate.peek_now(&Facts::new(&http::Method::GET, "/").client(client)).unwrap();
    peeked.policies()[0].standings[0].remaining()
}

/// A service behind a layer that answers every request as `answer` says, and the gate.
fn layered(
    policy: Policy,
    answer: impl Fn() -> Response<Body> + Clone + Send + 'static,
) -> (
    impl Service<
        Request<Body>,
        Response = Response<slidegate_tower::ResponseBody<Body>>,
        Error = std::io::Error,
    > + Clone,
    Arc<Gate>,
) {
    let gate = Arc::new(gate(&ManualClock::default(), policies([policy])));
    let answering = service_fn(move |_: Request<Body>| {
        let answer = answer.clone();
        async move { Ok::<_, std::io::Error>(answer()) }
    });
    (RateLimitLayer::new(gate.clone()).expose_decision().layer(answering), gate)
}

fn status(code: u16) -> Response<Body> {
    Response::builder().status(code).body(Body::empty()).unwrap()
}

fn json(body: impl Into<Body>) -> Response<Body> {
    typed("application/json", body)
}

fn typed(media_type: &str, body: impl Into<Body>) -> Response<Body> {
    Response::builder().header(header::CONTENT_TYPE, media_type).body(body.into()).unwrap()
}

/// A body that comes in these pieces.
struct Pieces(VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

fn in_pieces(bytes: &[u8], size: usize) -> Body {
    Body::new(Pieces(bytes.chunks(size).map(Bytes::copy_from_slice).collect()))
}

async fn cost_of(response: impl Fn() -> Response<Body> + Clone + Send + 'static, hold: u32) -> u32 {
    let (service, gate) = layered(tokens(hold), response);
    let response = service.oneshot(get("/")).await.unwrap();
    assert_eq!(left(&gate), 10_000 - hold, "held until the body has been read");
    response.into_body().collect().await.unwrap();
    10_000 - left(&gate)
}

#[tokio::test]
async fn only_counted_statuses_cost_something_and_headers_say_so() {
    for (code, remaining) in [(200, 5), (302, 5), (401, 4), (403, 4), (404, 5), (500, 4), (503, 4)]
    {
        let login = Policy::new("login").quota("5/min").count_statuses(["401", "403", "5xx"]);
        let (service, gate) = layered(login, move || status(code));
        let response = service.oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), code);
        assert_eq!(left(&gate), remaining, "after {code}");
        assert_eq!(field(response.headers(), "x-ratelimit-remaining"), remaining.to_string());
    }
    let api = || Policy::new("api").quota("5/min").refund_statuses(["5xx"]);
    for (code, remaining) in [(200, 4), (404, 4), (500, 5), (599, 5)] {
        let (service, gate) = layered(api(), move || status(code));
        let response = service.oneshot(get("/")).await.unwrap();
        assert_eq!(left(&gate), remaining, "after {code}");
        assert_eq!(field(response.headers(), "x-ratelimit-remaining"), remaining.to_string());
    }
}

#[tokio::test]
async fn good_logins_never_use_up_what_failed_ones_may() {
    let codes = Arc::new(Mutex::new(Vec::new()));
    let next = codes.clone();
    let login = Policy::new("login").quota("5/min").count_statuses(["401"]);
    let (service, _) = layered(login, move || status(next.lock().unwrap().pop().unwrap()));
    let ask = async |code| {
        codes.lock().unwrap().push(code);
        let response = service.clone().oneshot(get("/login")).await.unwrap();
        response.status().as_u16()
    };
    for _ in 0..1000 {
        assert_eq!(ask(200).await, 200);
    }
    for _ in 0..5 {
        assert_eq!(ask(401).await, 401);
    }
    assert_eq!(ask(401).await, 429);
    assert_eq!(ask(200).await, 429, "the next guess may be right");
}

#[tokio::test]
async fn a_service_that_fails_is_no_answer() {
    let gate = Arc::new(gate(
        &ManualClock::default(),
        policies([Policy::new("api").quota("5/min").refund_statuses(["503"])]),
    ));
    let failing = service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, _>(std::io::Error::other("upstream is gone"))
    });
    let layered = RateLimitLayer::new(gate.clone()).layer(failing);
    assert!(layered.oneshot(get("/")).await.is_err());
    assert_eq!(left(&gate), 5, "whatever the status would have been");
}

#[tokio::test]
async fn a_client_that_leaves_before_the_response_pays_unless_499_is_refunded() {
    for (policy, remaining) in [
        (Policy::new("api").quota("5/min").refund_statuses(["5xx"]), 4),
        (Policy::new("api").quota("5/min").refund_statuses(["5xx", "499"]), 5),
        (Policy::new("login").quota("5/min").count_statuses(["401"]), 4),
    ] {
        let gate = Arc::new(gate(&ManualClock::default(), policies([policy])));
        let hanging = service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, std::io::Error>>()
        });
        let asking = RateLimitLayer::new(gate.clone()).layer(hanging).oneshot(get("/"));
        assert!(tokio::time::timeout(Duration::from_millis(10), asking).await.is_err());
        assert_eq!(left(&gate), remaining);
    }
}

#[tokio::test]
async fn a_header_has_the_cost_and_clients_do_not_see_it() {
    for (value, cost, remaining) in [
        ("7", 7, "9993"),
        ("0", 0, "10000"),
        ("50", 50, "9950"),
        ("2500.2", 2501, "7499"),
        ("no", 50, "9950"),
    ] {
        let source = CostSource::Header(http::HeaderName::from_static("x-cost"));
        let queries = Policy::new("queries").quota("10000/min").response_cost(source, 50);
        let (service, gate) = layered(queries, move || {
            Response::builder().header("x-cost", value).body(Body::empty()).unwrap()
        });
        let response = service.oneshot(get("/")).await.unwrap();
        assert!(!response.headers().contains_key("x-cost"));
        assert_eq!(left(&gate), 10_000 - cost, "for {value}");
        assert_eq!(field(response.headers(), "x-ratelimit-remaining"), remaining);
    }
}

#[tokio::test]
async fn a_document_has_the_cost() {
    let document = r#"{"id":"x","choices":[{"text":"\"usage\""}],"usage":{"total_tokens":1370}}"#;
    assert_eq!(cost_of(move || json(document), 1000).await, 1370);
    assert_eq!(cost_of(move || json(document), 2000).await, 1370);
    for size in [1, 2, 7, 1000] {
        assert_eq!(cost_of(move || json(in_pieces(document.as_bytes(), size)), 1000).await, 1370);
    }
    let ld = move || typed("application/vnd.api+json; charset=utf-8", document);
    assert_eq!(cost_of(ld, 1000).await, 1370);
    let large = format!(r#"{{"text":"{}","usage":{{"total_tokens":5}}}}"#, "x".repeat(900_000));
    assert_eq!(cost_of(move || json(large.clone()), 1000).await, 5);
}

fn events(last: &str) -> String {
    let mut text = String::from(": comment\n\nevent: message\nid: 7\n");
    for word in ["Hel", "lo"] {
        text += &format!("data: {{\"choices\":[{{\"delta\":\"{word}\"}}],\"usage\":null}}\r\n\r\n");
    }
    text + last
}

#[tokio::test]
async fn the_last_event_that_has_it_has_the_cost() {
    let usage =
        |units| format!("data:{{\"choices\":[],\"usage\":{{\"total_tokens\":{units}}}}}\n\n");
    let endings =
        [usage(42) + "data: [DONE]\n\n", usage(7) + &usage(42), usage(42).trim_end().to_owned()];
    for ending in endings {
        for size in [1, 13, 100_000] {
            let text = events(&ending);
            let stream = move || typed("text/event-stream", in_pieces(text.as_bytes(), size));
            assert_eq!(cost_of(stream, 1000).await, 42, "{ending}");
        }
    }
    let lines = "{\"done\":false}\n{\"usage\":{\"total_tokens\":9},\"done\":true}\n";
    assert_eq!(cost_of(move || typed("application/x-ndjson", lines), 1000).await, 9);
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn encoded(response: Response<Body>, encoding: &'static str) -> Response<Body> {
    let mut response = response;
    let encoding = header::HeaderValue::from_static(encoding);
    response.headers_mut().insert(header::CONTENT_ENCODING, encoding);
    response
}

#[tokio::test]
async fn gzip_is_read_too() {
    let document = gzipped(r#"{"usage":{"total_tokens":1370}}"#);
    let stream = gzipped(&events("data: {\"usage\":{\"total_tokens\":77}}\n\ndata: [DONE]\n\n"));
    for size in [1, 10, 10_000] {
        let bytes = document.clone();
        let json = move || encoded(json(in_pieces(&bytes, size)), "gzip");
        assert_eq!(cost_of(json, 1000).await, 1370);
        let bytes = stream.clone();
        let events = move || encoded(typed("text/event-stream", in_pieces(&bytes, size)), "gzip");
        assert_eq!(cost_of(events, 1000).await, 77);
    }
}

/// What cannot be read leaves the hold, and is reported with the reason.
#[tokio::test]
async fn what_cannot_be_read_leaves_the_hold_and_says_why() {
    let long = format!(r#"{{"text":"{}","usage":{{"total_tokens":5}}}}"#, "x".repeat(1_100_000));
    // A hundred megabytes of spaces.
    let bomb = gzipped(&" ".repeat(100_000_000));
    type Answer = Box<dyn Fn() -> Response<Body> + Send + Sync>;
    let answers: Vec<(UnreadReason, Answer)> = vec![
        (UnreadReason::Missing, Box::new(|| json("{}"))),
        (UnreadReason::Missing, Box::new(|| json(Body::empty()))),
        (UnreadReason::Missing, Box::new(|| json(r#"{"usage":{"total_tokens":"5"}}"#))),
        (UnreadReason::Missing, Box::new(|| typed("text/event-stream", "data: {}\n\n"))),
        (UnreadReason::Malformed, Box::new(|| json(r#"{"usage":{"total_tokens":5}"#))),
        (
            UnreadReason::Malformed,
            Box::new(|| encoded(json("not gzip at all, not even close"), "gzip")),
        ),
        (UnreadReason::TooLarge, Box::new(move || json(long.clone()))),
        (
            UnreadReason::TooLarge,
            Box::new(move || encoded(typed("text/event-stream", bomb.clone()), "gzip")),
        ),
        (
            UnreadReason::ContentType,
            Box::new(|| typed("text/html", r#"{"usage":{"total_tokens":5}}"#)),
        ),
        (
            UnreadReason::Encoding,
            Box::new(|| encoded(json(r#"{"usage":{"total_tokens":5}}"#), "br")),
        ),
    ];
    for (reason, answer) in answers {
        let (limiter, outcomes) = watched(tokens(1000));
        let response = pass(&limiter, answer()).await;
        response.into_body().collect().await.unwrap();
        assert_eq!(*outcomes.lock().unwrap(), [SettleOutcome::Unread(reason)]);
        assert_eq!(left(limiter.gate()), 9000);
    }
}

type Outcomes = Arc<Mutex<Vec<SettleOutcome>>>;

/// A limiter, and what became of the charges that it held.
fn watched(policy: Policy) -> (RequestLimiter, Outcomes) {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    let limiter = RequestLimiter::new(gate(&ManualClock::default(), policies([policy])))
        .on_settled(move |_, outcome| seen.lock().unwrap().push(outcome));
    (limiter, outcomes)
}

/// What a server without Tower does.
async fn pass<S: Store>(
    limiter: &RequestLimiter<S>,
    response: Response<Body>,
) -> Response<slidegate_tower::SettlingBody<Body>> {
    let request = get("/");
    let LimiterOutcome::Pass(mut decision) = limiter.decide(RequestHead::from(&request)).await
    else {
        panic!("it may pass");
    };
    let pending = limiter.await_response(decision.as_ref());
    limiter.respond(pending, decision.as_mut(), response)
}

#[tokio::test]
async fn an_aborted_stream_costs_the_hold_or_what_was_seen_if_that_is_more() {
    let usage = |units| format!("data: {{\"usage\":{{\"total_tokens\":{units}}}}}\n\n");
    let cases = [
        (String::new(), 1000, SettleOutcome::Unread(UnreadReason::Aborted)),
        (usage(300), 1000, SettleOutcome::Unchanged),
        (usage(1500), 1500, SettleOutcome::Recorded(500.try_into().unwrap())),
        (usage(300) + "data: [DONE]\n\n", 300, SettleOutcome::Refunded(700.try_into().unwrap())),
    ];
    for (seen, cost, outcome) in cases {
        let (limiter, outcomes) = watched(tokens(1000));
        let frames = [events(&seen), "data: {\"more\":true}\n\n".to_owned()];
        let body = Body::new(Pieces(frames.map(Bytes::from).into()));
        let response = pass(&limiter, typed("text/event-stream", body)).await;
        let mut body = response.into_body();
        body.frame().await.unwrap().unwrap();
        assert_eq!(left(limiter.gate()), 9000);
        drop(body);
        assert_eq!(left(limiter.gate()), 10_000 - cost, "{seen}");
        assert_eq!(*outcomes.lock().unwrap(), [outcome]);
    }
}

#[tokio::test]
async fn an_application_says_the_cost_in_the_extensions_of_its_response() {
    let policy =
        || Policy::new("tokens").quota("10000/min").response_cost(CostSource::Application, 100);
    type Insert = fn(&mut http::Extensions);
    let answer = |insert: Insert| {
        move || {
            let mut response = status(200);
            insert(response.extensions_mut());
            response
        }
    };
    let cases: [(Insert, u32); 3] = [
        (|extensions| _ = extensions.insert(ResponseCost(1370)), 1370),
        (|extensions| _ = extensions.insert(NotCounted), 0),
        (|_| {}, 100),
    ];
    for (insert, cost) in cases {
        let (service, gate) = layered(policy(), answer(insert));
        let response = service.oneshot(get("/")).await.unwrap();
        assert_eq!(left(&gate), 10_000 - cost);
        assert_eq!(field(response.headers(), "x-ratelimit-remaining"), (10_000 - cost).to_string());
        let decision = response.extensions().get::<Decision>().unwrap();
        assert_eq!(decision.policies()[0].standings[0].remaining(), 10_000 - cost);
    }
    let (service, gate) =
        layered(Policy::new("login").quota("5/min").count_statuses(["401"]), || {
            let mut response = status(401);
            response.extensions_mut().insert(NotCounted);
            response
        });
    service.oneshot(get("/")).await.unwrap();
    assert_eq!(left(&gate), 5, "a status that counts, and the application says that it does not");
}

#[tokio::test]
async fn upstream_is_asked_for_what_can_be_read() {
    for (accepted, asked) in [
        (Some("gzip, deflate, br, zstd"), "gzip"),
        (Some("br"), "identity"),
        (Some("GZIP;q=0.5"), "gzip"),
        (Some("gzip;q=0, br"), "identity"),
        (None, "identity"),
    ] {
        let seen = Arc::new(Mutex::new(None));
        let noted = seen.clone();
        let service = service_fn(move |request: Request<Body>| {
            *noted.lock().unwrap() = Some(request.into_parts().0.headers);
            async { Ok::<_, std::io::Error>(status(200)) }
        });
        let gate = gate(&ManualClock::default(), policies([tokens(10)]));
        let mut request = get("/");
        request.headers_mut().insert(header::RANGE, "bytes=0-1".parse().unwrap());
        if let Some(accepted) = accepted {
            request.headers_mut().insert(header::ACCEPT_ENCODING, accepted.parse().unwrap());
        }
        RateLimitLayer::new(gate).layer(service).oneshot(request).await.unwrap();
        let headers = seen.lock().unwrap().take().unwrap();
        assert_eq!(field(&headers, "accept-encoding"), asked, "{accepted:?}");
        assert!(!headers.contains_key(header::RANGE));
    }
}

#[tokio::test]
async fn policies_that_do_not_look_at_responses_leave_them_alone() {
    let (service, gate) = layered(Policy::new("api").quota("10/min"), || {
        let mut response = status(500);
        response.headers_mut().insert("x-cost", "7".parse().unwrap());
        response.extensions_mut().insert(NotCounted);
        response
    });
    let mut request = get("/");
    request.headers_mut().insert(header::ACCEPT_ENCODING, "br".parse().unwrap());
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(field(response.headers(), "x-cost"), "7");
    assert_eq!(left(&gate), 9);
}

#[tokio::test]
async fn a_cost_above_the_quota_closes_the_account_for_a_window() {
    let clock = ManualClock::default();
    let gate = Arc::new(gate(&clock, policies([tokens(1000)])));
    let answering = service_fn(|_: Request<Body>| async {
        Ok::<_, std::io::Error>(json(r#"{"usage":{"total_tokens":70000}}"#))
    });
    let service = RateLimitLayer::new(gate.clone()).layer(answering);
    let ask = async || {
        let response = service.clone().oneshot(get("/")).await.unwrap();
        let (status, retry) = (response.status(), field(response.headers(), "retry-after"));
        response.into_body().collect().await.unwrap();
        (status, retry)
    };
    assert_eq!(ask().await.0, StatusCode::OK);
    assert_eq!(ask().await, (StatusCode::TOO_MANY_REQUESTS, "60".to_owned()));
    clock.advance(MINUTE - Duration::from_millis(1));
    assert_eq!(ask().await.0, StatusCode::TOO_MANY_REQUESTS);
    // A quota of this size has ticks of 15 ms.
    clock.advance(Duration::from_millis(15));
    assert_eq!(ask().await.0, StatusCode::OK);
}

/// A store in memory whose settlements fail, or never end.
struct Unsettling {
    store: MemoryStore,
    hangs: bool,
}

impl Store for Unsettling {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.store.spend_now(charges)
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.store.peek_now(charges)
    }

    async fn read(&self, charge: Charge<'_>) -> Result<AccountReading, StoreError> {
        Ok(self.store.read_now(charge))
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        self.store.refund_now(charges, spent);
        Ok(())
    }

    async fn settle(&self, _: &Charges<'_>, _: Settlement<'_>) -> Result<Settled, StoreError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Err(StoreError::Deadline(Duration::from_millis(50)))
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.store.reset_now(charges);
        Ok(())
    }
}

/// Answers `requests` requests with 200, and returns what became of their holds.
async fn unsettled(hangs: bool, requests: usize) -> Vec<SettleOutcome> {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    let login = Policy::new("login").quota("1000000/min").count_statuses(["401"]);
    let store = Unsettling { store: MemoryStore::new(), hangs };
    let limiter = RequestLimiter::new(Gate::new(policies([login]).build().unwrap(), store))
        .on_settled(move |_, outcome| seen.lock().unwrap().push(outcome));
    for _ in 0..requests {
        pass(&limiter, status(200)).await;
    }
    outcomes.lock().unwrap().clone()
}

#[tokio::test]
async fn settlements_that_fail_or_hang_are_reported_and_bounded() {
    assert_eq!(unsettled(false, 1).await, [SettleOutcome::Failed]);
    assert_eq!(unsettled(true, 10_002).await, [SettleOutcome::Dropped; 2]);
}

#[tokio::test]
async fn what_the_gates_own_store_has_counted_is_settled_there() {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    let login = Policy::new("login").quota("5/min").count_statuses(["401"]);
    let gate = Gate::new(policies([login]).build().unwrap(), Down);
    let limiter =
        RequestLimiter::new(gate).on_settled(move |_, outcome| seen.lock().unwrap().push(outcome));
    for _ in 0..20 {
        pass(&limiter, status(200)).await;
    }
    limiter.settled().await;
    let refunded = SettleOutcome::Refunded(1.try_into().unwrap());
    assert_eq!(*outcomes.lock().unwrap(), [refunded; 20]);
}

#[tokio::test]
async fn waiting_for_the_end_keeps_no_settlement_from_its_turn() {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    let login = Policy::new("login").quota("1000/min").count_statuses(["401"]);
    let store = Unsettling { store: MemoryStore::new(), hangs: true };
    let limiter = RequestLimiter::new(Gate::new(policies([login]).build().unwrap(), store))
        .on_settled(move |_, outcome| seen.lock().unwrap().push(outcome));
    pass(&limiter, status(200)).await;
    let mut end = Box::pin(limiter.settled());
    let waited = tokio::time::timeout(Duration::from_millis(20), &mut end).await;
    assert!(waited.is_err(), "one is in flight");
    pass(&limiter, status(200)).await;
    assert_eq!(*outcomes.lock().unwrap(), [], "the second waits for the store, too");
}
