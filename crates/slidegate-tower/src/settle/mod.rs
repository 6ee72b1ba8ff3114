//! Costs that are known from the response: what was held is settled when they are.

mod body;
mod json_member;
mod reader;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, Response, StatusCode, header};
use slidegate::policy::{CostSource, HeadCost, ResponseRule};
use slidegate::{Decision, Gate, HeldCharge, Hold, Store};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::body::BodyCost;
pub use self::body::SettlingBody;

/// What a request has cost, said by the application in the extensions of its response. It is for
/// policies whose cost comes from [`CostSource::Application`]; without it, what was held is the cost.
///
/// ```
/// use slidegate_tower::ResponseCost;
///
/// let mut response = http::Response::new("an answer of 1370 tokens");
/// response.extensions_mut().insert(ResponseCost(1370));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResponseCost(pub u32);

/// The request costs nothing, said by the application in the extensions of its response. It is for all
/// policies that look at the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NotCounted;

/// The response is not upstream's: that could not be reached, or did not answer. Said by a proxy in the
/// extensions of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unanswered;

/// What became of a charge that was held until the response was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettleOutcome {
    /// The hold was the cost.
    Unchanged,
    /// So many units were not used and are free again.
    Refunded(NonZeroU32),
    /// So many units above the hold were written down.
    Recorded(NonZeroU32),
    /// The cost could not be read, and the hold stays.
    Unread(UnreadReason),
    /// The store failed. What was to be refunded stays spent.
    Failed,
    /// Too many settlements were in flight, and the hold stays.
    Dropped,
}

/// Why a cost could not be read from a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnreadReason {
    /// The response does not say it.
    Missing,
    /// What it says is not a number of units, or the body is not what its type says.
    Malformed,
    /// The document is larger than what is read.
    TooLarge,
    /// The body is neither JSON nor a stream of events.
    ContentType,
    /// The body has an encoding other than gzip.
    Encoding,
    /// The response ended early, or its client left.
    Aborted,
}

impl UnreadReason {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Missing,
        Self::Malformed,
        Self::TooLarge,
        Self::ContentType,
        Self::Encoding,
        Self::Aborted,
    ];

    /// A word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::TooLarge => "too-large",
            Self::ContentType => "content-type",
            Self::Encoding => "encoding",
            Self::Aborted => "aborted",
        }
    }
}

/// Settlements in flight. Each lasts for a call to the store, so more are only in flight if the store
/// hangs.
const MAX_IN_FLIGHT: usize = 10_000;

/// How often the end of a process looks whether all are done.
const IDLE_POLL: Duration = Duration::from_millis(2);

/// A listener for what becomes of held charges.
type OnSettled = dyn Fn(&HeldCharge, SettleOutcome) + Send + Sync;

/// Settles holds in the background, so that no response waits for it.
pub(crate) struct Settler<S> {
    gate: Arc<Gate<S>>,
    in_flight: Arc<Semaphore>,
    on_settled: Arc<OnSettled>,
}

impl<S: Store> Settler<S> {
    pub(crate) fn new(gate: Arc<Gate<S>>) -> Self {
        let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        Self { gate, in_flight, on_settled: Arc::new(|_, _| {}) }
    }

    /// Calls this for each charge, whatever became of it.
    pub(crate) fn on_settled(
        self,
        listener: impl Fn(&HeldCharge, SettleOutcome) + Send + Sync + 'static,
    ) -> Self {
        Self { on_settled: Arc::new(listener), ..self }
    }

    /// Waits until no settlement is in flight.
    pub(crate) async fn idle(&self) {
        // To acquire all permits would keep new settlements from theirs.
        while self.in_flight.available_permits() < MAX_IN_FLIGHT {
            tokio::time::sleep(IDLE_POLL).await;
        }
    }
}

impl<S> Clone for Settler<S> {
    fn clone(&self) -> Self {
        let (gate, on_settled) = (self.gate.clone(), self.on_settled.clone());
        Self { gate, in_flight: self.in_flight.clone(), on_settled }
    }
}

impl<S> fmt::Debug for Settler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settler").finish_non_exhaustive()
    }
}

/// A [`Settler`] of any store.
pub(crate) trait Settle: Send + Sync {
    /// Settles the charges at these costs, in their order.
    fn settle(&self, hold: Hold, costs: SmallVec<[u32; 1]>);

    /// Reports what became of a charge.
    fn report(&self, charge: &HeldCharge, outcome: SettleOutcome);
}

impl<S: Store> Settle for Settler<S> {
    fn settle(&self, hold: Hold, costs: SmallVec<[u32; 1]>) {
        let Ok(permit) = self.in_flight.clone().try_acquire_owned() else {
            let dropped = |charge| self.report(charge, SettleOutcome::Dropped);
            return hold.charges.iter().for_each(dropped);
        };
        let runtime = Handle::try_current();
        if runtime.is_err() && !S::NEVER_WAITS {
            let dropped = |charge| self.report(charge, SettleOutcome::Dropped);
            return hold.charges.iter().for_each(dropped);
        }
        let (gate, on_settled) = (self.gate.clone(), self.on_settled.clone());
        let mut settling = Box::pin(async move {
            let cost_of = |charge: &HeldCharge| {
                let index = hold.charges.iter().position(|own| own == charge);
                index.map_or(charge.units.get(), |index| costs[index])
            };
            let is_settled = gate.settle(&hold, cost_of, None).await;
            for charge in &hold.charges {
                on_settled(charge, outcome_of(charge, cost_of(charge), is_settled.is_ok()));
            }
            if let Err(error) = is_settled {
                tracing::debug!(%error, "a hold was not settled");
            }
            drop(permit);
        });
        // A store that does not wait is done at once; for others there is a task.
        let is_waiting = settling.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if is_waiting == Poll::Pending
            && let Ok(runtime) = runtime
        {
            runtime.spawn(settling);
        }
    }

    fn report(&self, charge: &HeldCharge, outcome: SettleOutcome) {
        (self.on_settled)(charge, outcome);
    }
}

fn outcome_of(charge: &HeldCharge, cost: u32, is_settled: bool) -> SettleOutcome {
    let held = charge.units.get();
    match (NonZeroU32::new(held.saturating_sub(cost)), NonZeroU32::new(cost.saturating_sub(held))) {
        (None, None) => SettleOutcome::Unchanged,
        _ if !is_settled => SettleOutcome::Failed,
        (Some(unused), _) => SettleOutcome::Refunded(unused),
        (None, Some(more)) => SettleOutcome::Recorded(more),
    }
}

/// The cost of a request that may pass, until its response is known:
/// [`RequestLimiter::await_response`](crate::RequestLimiter::await_response).
///
/// If it is dropped before there is a response, the client has left: it pays what was held, unless the
/// policy refunds the status 499.
pub struct PendingCost {
    /// Taken when the response is known.
    hold: Hold,
    settler: Arc<dyn Settle>,
}

impl PendingCost {
    pub(crate) fn new<S: Store>(decision: &Decision, settler: &Settler<S>) -> Option<Self> {
        let hold = decision.response_hold()?;
        Some(Self { hold, settler: Arc::new(settler.clone()) })
    }

    /// Limits what upstream may send to what can be read, if the cost is read from the body: no
    /// encodings but gzip, and the whole document. Else a client could have the cost hidden.
    pub fn restrict(&self, request: &mut HeaderMap) {
        let mut rules = self.hold.charges.iter().filter_map(|charge| charge.response.as_ref());
        if !rules.any(|rule| matches!(rule.cost, Some(CostSource::Json(_)))) {
            return;
        }
        request.remove(header::RANGE);
        let takes_gzip = |value: &header::HeaderValue| {
            let codings = value.to_str().unwrap_or_default().split(',');
            codings.map(str::trim).any(|coding| {
                let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
                let is_refused = weight.trim().trim_start_matches("q=").parse() == Ok(0.0);
                name.trim().eq_ignore_ascii_case("gzip") && !is_refused
            })
        };
        let mut accepted = request.get_all(header::ACCEPT_ENCODING).iter();
        let readable = if accepted.any(takes_gzip) { "gzip" } else { "identity" };
        request.insert(header::ACCEPT_ENCODING, header::HeaderValue::from_static(readable));
    }

    /// Settles what the head of the response tells, and notes it in the decision. What is left is read
    /// from the body.
    pub(crate) fn on_response<B>(
        mut self,
        response: &mut Response<B>,
        mut decision: Option<&mut Decision>,
    ) -> Option<BodyCost> {
        let (mut known, mut costs) = (Hold::default(), SmallVec::new());
        let mut in_body = Hold::default();
        for charge in std::mem::take(&mut self.hold).charges {
            match head_cost(&charge, response) {
                HeadCost::Held => self.settler.report(&charge, SettleOutcome::Unchanged),
                HeadCost::Missing => {
                    self.settler.report(&charge, SettleOutcome::Unread(UnreadReason::Missing));
                }
                HeadCost::Malformed => {
                    self.settler.report(&charge, SettleOutcome::Unread(UnreadReason::Malformed));
                }
                HeadCost::Units(units) => {
                    if let Some(decision) = &mut decision {
                        decision.note_cost(&charge, units);
                    }
                    known.charges.push(charge);
                    costs.push(units);
                }
                HeadCost::InBody => in_body.charges.push(charge),
            }
        }
        if !known.is_empty() {
            self.settler.settle(known, costs);
        }
        let settler = &self.settler;
        (!in_body.is_empty()).then(|| BodyCost::new(in_body, settler.clone(), response.headers()))
    }

    /// Settles a request that the service has failed to answer.
    pub(crate) fn on_failure(self) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response.extensions_mut().insert(Unanswered);
        self.on_response(&mut response, None);
    }
}

/// Removes headers with costs, which are not for clients: also those of policies that have spent
/// nothing.
pub(crate) fn remove_cost_headers(decision: &Decision, headers: &mut HeaderMap) {
    for policy in decision.policies() {
        if let Some(ResponseRule { cost: Some(CostSource::Header(name)), .. }) = policy.response() {
            headers.remove(name);
        }
    }
}

impl Drop for PendingCost {
    /// The client has left before there was a response.
    fn drop(&mut self) {
        let (mut refunded, mut costs) = (Hold::default(), SmallVec::new());
        for charge in std::mem::take(&mut self.hold).charges {
            match charge.response.as_ref().map(|rule| rule.cost_of_abort()) {
                Some(HeadCost::Units(units)) => {
                    refunded.charges.push(charge);
                    costs.push(units);
                }
                _ => self.settler.report(&charge, SettleOutcome::Unread(UnreadReason::Aborted)),
            }
        }
        if !refunded.is_empty() {
            self.settler.settle(refunded, costs);
        }
    }
}

impl fmt::Debug for PendingCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCost").field("hold", &self.hold).finish_non_exhaustive()
    }
}

/// What the head of a response says about a charge, with what the application says.
fn head_cost<B>(charge: &HeldCharge, response: &Response<B>) -> HeadCost {
    let Some(rule) = &charge.response else { return HeadCost::Held };
    let extensions = response.extensions();
    if extensions.get::<NotCounted>().is_some() {
        return HeadCost::Units(0);
    }
    if extensions.get::<Unanswered>().is_some() {
        return rule.cost_of_failure(response.status());
    }
    match (rule.cost_of_head(response.status(), response.headers()), extensions.get()) {
        (HeadCost::Held, Some(ResponseCost(units)))
            if rule.cost == Some(CostSource::Application) =>
        {
            HeadCost::Units(*units)
        }
        (cost, _) => cost,
    }
}
