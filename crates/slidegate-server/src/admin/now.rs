//! What the server is doing now: decisions of the last fifteen minutes, the store, the gateways that
//! share it, and the configuration.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use bytes::Bytes;
use http::header;
use parking_lot::Mutex;
use slidegate::{Clock, Timestamp};
use tokio::time::sleep;

use crate::api::{NowView, Readiness, ReloadView, StoreView};
use crate::calendar::Rfc3339;
use crate::observe::{Observer, ReloadState, STEP, Sampler, breaker_word};
use crate::shared::Heartbeats;

/// The route of `GET /v1/now`.
pub(crate) fn router<C: Clock>(now: Arc<NowService<C>>) -> Router {
    let answer = async |State(now): State<Arc<NowService<C>>>| {
        ([(header::CONTENT_TYPE, "application/json")], now.answer())
    };
    Router::new().route("/v1/now", get(answer)).with_state(now)
}

/// Samples the decisions and keeps the answer to `GET /v1/now`, which is made at most once a second,
/// however many ask for it.
#[derive(Debug)]
pub(crate) struct NowService<C> {
    observer: Observer,
    heartbeats: Arc<Heartbeats>,
    clock: C,
    sampler: Mutex<Sampler>,
    /// When it was made.
    answer: Mutex<Option<(Timestamp, Bytes)>>,
}

/// An answer of up to this age is given again.
const MAX_ANSWER_AGE: Duration = Duration::from_secs(1);
/// How often the state of the store is queried.
const STORE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

impl<C: Clock> NowService<C> {
    pub(crate) fn new(observer: Observer, heartbeats: Arc<Heartbeats>, clock: C) -> Self {
        let (sampler, answer) = (Mutex::default(), Mutex::default());
        Self { observer, heartbeats, clock, sampler, answer }
    }

    /// Samples for as long as the process lives.
    pub(crate) async fn run(self: Arc<Self>) {
        tokio::join!(self.sample_repeatedly(), self.observe_store());
    }

    /// The JSON of a [`NowView`].
    pub(crate) fn answer(&self) -> Bytes {
        let now = self.clock.now();
        let mut answer = self.answer.lock();
        match &*answer {
            Some((made, bytes)) if now.saturating_since(*made) < MAX_ANSWER_AGE => bytes.clone(),
            _ => {
                let json = serde_json::to_vec(&self.view());
                let bytes = Bytes::from(json.expect("strings and numbers can be JSON"));
                *answer = Some((now, bytes.clone()));
                bytes
            }
        }
    }

    async fn sample_repeatedly(&self) {
        loop {
            sleep(STEP).await;
            self.sample();
        }
    }

    /// Asks the store what it says of itself, for as long as the process lives.
    async fn observe_store(&self) {
        loop {
            self.observer.gate().store().refresh().await;
            sleep(STORE_CHECK_INTERVAL).await;
        }
    }

    fn sample(&self) {
        let (totals, times) = (self.observer.policy_totals(), self.observer.decision_times());
        self.sampler.lock().step(self.observer.request_totals(), &totals, times);
    }

    fn view(&self) -> NowView {
        let sampler = self.sampler.lock();
        NowView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: Rfc3339(self.clock.wall()),
            started: Rfc3339(self.observer.started_at()),
            reload: ReloadView::new(self.observer.reload_state()),
            store: StoreView::of(&self.observer),
            gateways: self.heartbeats.gateways(self.observer.gate().now()),
            step_ms: STEP.as_millis() as u64,
            requests: sampler.requests.clone(),
            policies: sampler.policies.clone(),
            decision_time: sampler.decision_time.clone(),
        }
    }
}

impl ReloadView {
    fn new(state: ReloadState) -> Self {
        let ReloadState { last, failures, restart_needed } = state;
        Self { last: Rfc3339(last), failures, restart_needed }
    }
}

impl StoreView {
    fn of(observer: &Observer) -> Self {
        let readiness = Readiness::of(observer, false);
        let stats = observer.gate().store().stats();
        Self {
            kind: stats.kind.to_owned(),
            state: if readiness.degraded { "degraded" } else { "ready" }.to_owned(),
            reason: readiness.reason(),
            accounts: stats.memory.map(|memory| memory.accounts),
            capacity: stats.memory.map(|memory| memory.capacity),
            url: stats.url,
            breaker: stats.redis.as_ref().map(|redis| breaker_word(redis.breaker).to_owned()),
            decided_locally: stats.redis.as_ref().map(|redis| redis.fallbacks),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};
    use serde_json::{Value, json};
    use slidegate::{Facts, Gate, ManualClock, MemoryStore, Policies, Policy, Quota};

    use super::*;
    use crate::config::{LogConfig, LogFormat};
    use crate::observe::{ListenerKind, RequestOutcome, UpstreamOutcome};
    use crate::store::{AnyStore, decide_now};

    const LOG: LogConfig =
        LogConfig { format: LogFormat::Json, level: String::new(), access: false };

    fn gate(clock: &ManualClock) -> Arc<Gate<AnyStore>> {
        let policies = Policies::builder()
            .policy(Policy::new("api").quota("2/h").candidate("1/h"))
            .policy(Policy::new("trial").quota(Quota::per_hour(1)).shadow());
        let store = || MemoryStore::builder().clock(clock.clone()).build();
        Arc::new(Gate::with_local(policies.build().unwrap(), store().into(), store()))
    }

    /// A request that is decided within so many microseconds.
    fn ask(gate: &Gate<AnyStore>, observer: &Observer, us: u64) {
        let facts = Facts::new(&Method::GET, "/").client([10, 0, 0, 1].into());
        let (decision, began) = (decide_now(gate, &facts), gate.now());
        observer.record(&RequestOutcome {
            listener: ListenerKind::Gateway,
            method: &Method::GET,
            path: "/",
            client: None,
            status: StatusCode::OK,
            decision: Some(&decision),
            upstream: UpstreamOutcome::NotCalled,
            began,
            asked: began,
            decided: Some(began + Duration::from_micros(us)),
            ended: began + Duration::from_micros(us),
        });
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_a_step_every_five_seconds_and_is_made_once_a_second() {
        let clock = ManualClock::default();
        let gate = gate(&clock);
        let observer = Observer::new(gate.clone(), &LOG, None, Arc::new(clock.clone()));
        let heartbeats = Arc::new(Heartbeats::new(observer.started_at()));
        let now = Arc::new(NowService::new(observer.clone(), heartbeats, clock.clone()));
        let answer = || serde_json::from_slice::<Value>(&now.answer()).unwrap();
        let first = answer();
        assert_eq!((&first["step_ms"], &first["policies"]), (&json!(5000), &json!([])));
        assert_eq!(first["store"]["kind"], "memory");
        assert_eq!(first["store"]["state"], "ready");
        assert_eq!(first["gateways"][0]["this"], true);

        tokio::spawn(now.clone().run());
        tokio::task::yield_now().await;
        (0..4).for_each(|_| ask(&gate, &observer, 100));
        tokio::time::sleep(STEP * 2 + MAX_ANSWER_AGE).await;
        assert_eq!(answer(), first, "the clock stands still");
        assert!(std::ptr::eq(&*now.answer(), &*now.answer()), "and the bytes are shared");
        clock.advance(MAX_ANSWER_AGE);
        let next = answer();
        let [api, trial] = &next["policies"].as_array().unwrap()[..] else { panic!("{next}") };
        let idle = json!([0, 0]);
        assert_eq!((&api["policy"], &trial["policy"]), (&json!("api"), &json!("trial")));
        assert_eq!((&api["allowed"], &api["refused"]), (&json!([2, 0]), &json!([2, 0])));
        assert_eq!((&api["shadow"], &api["failed"]), (&idle, &idle));
        assert_eq!(api["candidate"], json!([1, 0]), "what the policy has denied is no news");
        assert_eq!(trial["shadow"], json!([3, 0]), "{next}");
        let p99_us = next["decision_time"]["p99_us"][0].as_f64().unwrap();
        assert!((100.0..=112.5).contains(&p99_us), "{p99_us}");
        assert_eq!(next["decision_time"]["p50_us"][1], Value::Null);
    }
}
