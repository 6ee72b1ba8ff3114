//! Sends the same traffic through both limiters and writes down what each of them answered.

use std::time::Duration;

use anyhow::Context;
use http::Method;
use slidegate::{
    Clock, Facts, Gate, ManualClock, MemoryStore, Policies, Policy, Source, Timestamp,
};

use super::fixed_window::FixedWindow;
use super::traffic::{Customer, PLANS};
use super::worst::worst;

/// The two that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limiter {
    FixedWindow,
    Slidegate,
}

impl Limiter {
    pub(super) const BOTH: [Self; 2] = [Self::FixedWindow, Self::Slidegate];

    /// What the reader calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "Fixed window",
            Self::Slidegate => "Slidegate",
        }
    }
}

/// A customer, and how both limiters answered.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) customer: Customer,
    pub(super) fixed_window: Answers,
    pub(super) slidegate: Answers,
}

/// One limiter's answers to one customer.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// When the requests that passed were sent, in order.
    pub(super) admitted: Vec<Duration>,
    pub(super) refused: usize,
    /// How long the first refused request was told to wait, by a limiter that tells.
    pub(super) first_wait: Option<Duration>,
}

impl Answers {
    /// How many were admitted in the worst 60 seconds.
    pub(super) fn worst(&self) -> usize {
        worst(&self.admitted)
    }

    fn admit(&mut self, at: Duration) {
        self.admitted.push(at);
    }

    fn refuse(&mut self, wait: Option<Duration>) {
        self.refused += 1;
        self.first_wait = self.first_wait.or(wait);
    }
}

/// Plays all requests of all customers in the order of time.
pub(super) fn play(customers: impl IntoIterator<Item = Customer>) -> anyhow::Result<Vec<Played>> {
    let mut everyone: Vec<Played> = customers.into_iter().map(Played::new).collect();
    let mut fixed_window = FixedWindow::default();
    let slidegate = Slidegate::new()?;
    for (at, who) in in_order(&everyone) {
        let played = &mut everyone[who];
        played.ask_fixed_window(&mut fixed_window, at);
        played.ask_slidegate(&slidegate, at)?;
    }
    Ok(everyone)
}

impl Played {
    /// How this limiter answered.
    pub(super) fn answers(&self, limiter: Limiter) -> &Answers {
        match limiter {
            Limiter::FixedWindow => &self.fixed_window,
            Limiter::Slidegate => &self.slidegate,
        }
    }

    /// Whether this limiter kept the customer within the quota, in any 60 seconds.
    pub(super) fn is_held(&self, limiter: Limiter) -> bool {
        self.answers(limiter).worst() <= self.customer.units()
    }

    fn new(customer: Customer) -> Self {
        Self { customer, fixed_window: Answers::default(), slidegate: Answers::default() }
    }

    fn ask_fixed_window(&mut self, fixed_window: &mut FixedWindow, at: Duration) {
        let units = self.customer.plan.per_minute.units();
        if fixed_window.admits(self.customer.name, units, at) {
            self.fixed_window.admit(at);
        } else {
            self.fixed_window.refuse(None);
        }
    }

    fn ask_slidegate(&mut self, slidegate: &Slidegate, at: Duration) -> anyhow::Result<()> {
        slidegate.clock.set(slidegate.start + at);
        let facts =
            Facts::new(&Method::GET, "/").user(self.customer.name).plan(self.customer.plan.name);
        let decision = slidegate.gate.decide_now(&facts).context("the store failed")?;
        if decision.is_allowed() {
            self.slidegate.admit(at);
        } else {
            self.slidegate.refuse(decision.retry_after());
        }
        Ok(())
    }
}

/// The gate on a clock that the story moves.
struct Slidegate {
    gate: Gate<MemoryStore>,
    clock: ManualClock,
    /// What the clock shows at 0:00.
    start: Timestamp,
}

impl Slidegate {
    fn new() -> anyhow::Result<Self> {
        let mut policies = Policies::builder()
            .policy(Policy::new("api").identity([Source::User]).plans(PLANS[0].name));
        for plan in PLANS {
            policies = policies.plan(slidegate::Plan::new(plan.name, plan.quotas()));
        }
        let policies = policies.build().context("the demo's policies are wrong")?;
        let clock = ManualClock::default();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Ok(Self { gate: Gate::new(policies, store), start: clock.now(), clock })
    }
}

/// When each request is sent, and whose it is: its customer's place in the list.
fn in_order(everyone: &[Played]) -> Vec<(Duration, usize)> {
    let mut requests: Vec<_> = everyone
        .iter()
        .enumerate()
        .flat_map(|(who, played)| played.customer.sends.iter().map(move |at| (*at, who)))
        .collect();
    requests.sort_unstable();
    requests
}
