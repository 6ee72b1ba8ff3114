//! What the server is doing now: decisions of the last fifteen minutes, the store, the gateways that
//! share it, and the configuration.

mod heartbeats;
mod meaning;
mod sampler;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use slidegate::{Clock, Timestamp};
use tokio::time::{sleep, timeout};

pub(crate) use self::heartbeats::Heartbeats;
use self::sampler::{STEP, Sampler};
use crate::admin::now::{NowView, ReloadView, StoreView};
use crate::calendar::Rfc3339;
use crate::observe::Observer;

/// Samples the decisions and keeps the answer to `GET /v1/now`, which is made at most once a second,
/// however many ask for it.
#[derive(Debug)]
pub(crate) struct NowService<C> {
    observer: Observer,
    heartbeats: Heartbeats,
    clock: C,
    sampler: Mutex<Sampler>,
    /// When it was made.
    answer: Mutex<Option<(Timestamp, Bytes)>>,
}

/// An answer of up to this age is given again.
const FRESH: Duration = Duration::from_secs(1);
/// Between two questions to the store how it is.
const STORE_PAUSE: Duration = Duration::from_secs(10);
/// How much longer the process may live for its heartbeat.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

impl<C: Clock> NowService<C> {
    pub(crate) fn new(observer: Observer, heartbeats: Heartbeats, clock: C) -> Self {
        let (sampler, answer) = (Mutex::default(), Mutex::default());
        Self { observer, heartbeats, clock, sampler, answer }
    }

    /// Samples and exchanges heartbeats for as long as the process lives.
    pub(crate) async fn run(self: Arc<Self>) {
        tokio::join!(
            self.sample_repeatedly(),
            self.heartbeats.run(&self.clock, &self.observer),
            self.observe_store()
        );
    }

    /// Tells the other gateways that this one goes. If that takes too long, its heartbeat expires.
    pub(crate) async fn leave(&self) {
        let _ = timeout(LEAVE_TIMEOUT, self.heartbeats.leave()).await;
    }

    /// The JSON of a [`NowView`].
    pub(crate) fn answer(&self) -> Bytes {
        let now = self.clock.now();
        let mut answer = self.answer.lock();
        match &*answer {
            Some((made, bytes)) if now.saturating_since(*made) < FRESH => bytes.clone(),
            _ => {
                let json = serde_json::to_vec(&self.view(now));
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
            sleep(STORE_PAUSE).await;
        }
    }

    fn sample(&self) {
        let (totals, times) = (self.observer.policy_totals(), self.observer.decision_times());
        self.sampler.lock().step(self.observer.request_totals(), &totals, times);
    }

    fn view(&self, now: Timestamp) -> NowView {
        let sampler = self.sampler.lock();
        NowView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: Rfc3339(self.clock.wall()),
            started: Rfc3339(self.observer.started_at()),
            reload: ReloadView::new(self.observer.reload_state()),
            store: StoreView::of(&self.observer),
            gateways: self.heartbeats.gateways(now),
            step_ms: STEP.as_millis() as u64,
            requests: sampler.requests.clone(),
            policies: sampler.policies.clone(),
            decision_time: sampler.decision_time.clone(),
        }
    }
}
