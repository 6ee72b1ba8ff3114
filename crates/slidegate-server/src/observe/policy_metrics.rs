//! Metrics of what each policy has decided.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::iter::Sum;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use prometheus_client::metrics::counter::Counter;
use slidegate::policy::CheckedPolicy;
use slidegate::{Decision, Name, Policies, PolicyStanding, Standing, Timestamp};
use slidegate_tower::SettleOutcome;

use super::page::Page;

/// What one worker has decided under the policies in force. Labels are names of policies and plans in the configuration,
/// so clients cannot add series.
#[derive(Debug)]
pub(super) struct PolicyMetrics {
    policies: ArcSwap<Counters>,
    /// When the current period of the lowest standings began, in nanoseconds.
    period_began_ns: AtomicU64,
}

type Counters = HashMap<Name, PolicyCounters, RandomState>;

/// Clones count together.
#[derive(Debug, Clone, Default)]
struct PolicyCounters {
    /// For each plan of the policy; one without a name if the policy has no plans.
    plans: Vec<PlanCounters>,
    exceeded: Counter,
    shadow_denials: Counter,
    candidate_denials: Counter,
    banned: Counter,
    unknown_plans: Counter,
    /// If the policy looks at responses.
    response: Option<ResponseCounters>,
    lowest: Arc<LowestStanding>,
}

#[derive(Debug, Clone, Default)]
struct PlanCounters {
    plan: Option<Name>,
    allowed: Counter,
    denied: Counter,
    recorded: Counter,
    shadow_denied: Counter,
}

/// What a policy has decided since it is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PolicyTotals {
    /// With units that were already used, also beyond a quota.
    pub(crate) allowed: u64,
    /// Denials, and requests of identities that the policy has banned.
    pub(crate) denied_or_banned: u64,
    /// What it would have denied if it were not a shadow policy.
    pub(crate) shadow: u64,
    /// What its candidate quotas would have denied.
    pub(crate) candidate: u64,
    /// What the store could not count.
    pub(crate) failed: u64,
}

impl PolicyTotals {
    /// In the order of the fields.
    pub(crate) fn values(self) -> [u64; 5] {
        [self.allowed, self.denied_or_banned, self.shadow, self.candidate, self.failed]
    }
}

impl Sum for PolicyTotals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            allowed: sum.allowed + one.allowed,
            denied_or_banned: sum.denied_or_banned + one.denied_or_banned,
            shadow: sum.shadow + one.shadow,
            candidate: sum.candidate + one.candidate,
            failed: sum.failed + one.failed,
        })
    }
}

/// Long enough that two scrapes of any usual interval fall into it.
const PERIOD: Duration = Duration::from_secs(30);

impl PolicyMetrics {
    pub(super) fn new(policies: &Policies, now: Timestamp) -> Self {
        let metrics =
            Self { policies: ArcSwap::default(), period_began_ns: AtomicU64::new(now.as_nanos()) };
        metrics.follow(policies);
        metrics
    }

    /// Counts for these policies from now on. Those that were there already count on.
    pub(super) fn follow(&self, policies: &Policies) {
        let old = self.policies.load();
        let kept = |policy: &CheckedPolicy| {
            let old = old.get(&policy.name).cloned().unwrap_or_default();
            let plan_names = match policy.default_plan() {
                Some(_) => policies.plans().iter().map(|plan| Some(plan.name.clone())).collect(),
                None => vec![None],
            };
            let plans = plan_names.into_iter().map(|plan| {
                let known = old.plans.iter().find(|counters| counters.plan == plan).cloned();
                known.unwrap_or(PlanCounters { plan, ..PlanCounters::default() })
            });
            let response = policy.response.is_some().then(|| old.response.unwrap_or_default());
            PolicyCounters { plans: plans.collect(), response, ..old }
        };
        let new = policies.iter().map(|policy| (policy.name.clone(), kept(policy))).collect();
        self.policies.store(Arc::new(new));
    }

    pub(super) fn record(&self, decision: &Decision) {
        let policies = self.policies.load();
        for standing in decision.policies() {
            // A policy that a reload has just removed is not counted.
            if let Some(counters) = policies.get(&standing.policy) {
                counters.record(standing, decision);
            }
        }
        if let Some(counters) = decision.banned_by().and_then(|policy| policies.get(policy)) {
            counters.banned.inc();
        }
    }

    pub(super) fn record_response_cost(&self, policy: &Name, outcome: SettleOutcome) {
        let policies = self.policies.load();
        if let Some(response) = policies.get(policy).and_then(|own| own.response.as_ref()) {
            response.record(outcome);
        }
    }

    /// What a policy has decided at all workers, but for what the store could not count.
    pub(super) fn totals(workers: &[&Self], policy: &Name) -> PolicyTotals {
        let counters = workers.iter().map(|worker| worker.policies.load());
        counters.filter_map(|policies| policies.get(policy).map(PolicyCounters::totals)).sum()
    }

    /// Writes what all workers have decided.
    pub(super) fn encode(workers: &[&Self], page: &mut Page<'_>) -> fmt::Result {
        let workers: Vec<Arc<Counters>> =
            workers.iter().map(|worker| worker.policies.load_full()).collect();
        // Every worker has the same policies, but for the moment of a reload.
        let mut names: Vec<&Name> = workers.first().iter().flat_map(|first| first.keys()).collect();
        names.sort_unstable();
        let policies: Vec<(&str, Vec<&PolicyCounters>)> = names
            .into_iter()
            .map(|name| (&**name, workers.iter().filter_map(|worker| worker.get(name)).collect()))
            .collect();
        let each = |counter: fn(&PolicyCounters) -> &Counter| {
            policies.iter().map(move |(policy, workers)| {
                let count: u64 = workers.iter().map(|worker| counter(worker).get()).sum();
                ([("policy", *policy)], count)
            })
        };
        page.counters(
            "slidegate_policy_decisions",
            "Decisions of each policy, by plan (empty if the policy has none) and verdict: allow, \
             deny (a quota is used up), recorded (units that were already used exceeded a quota; \
             nothing was refused), shadow-deny (a shadow policy), block (the policy has banned the \
             identity; its plan is not looked up).",
            policies.iter().flat_map(|(policy, workers)| verdicts(policy, workers)),
        )?;
        page.counters(
            "rate_limit_exceeded",
            "Requests denied because a quota of the policy was used up. A request that several \
             policies deny counts for each.",
            each(|policy| &policy.exceeded),
        )?;
        page.counters(
            "slidegate_shadow_denials",
            "Requests that the shadow policy would have denied.",
            each(|policy| &policy.shadow_denials),
        )?;
        page.counters(
            "slidegate_candidate_denials",
            "Requests that the policy had room for and its candidate would have denied.",
            each(|policy| &policy.candidate_denials),
        )?;
        page.counters(
            "slidegate_banned_requests",
            "Requests refused without asking a store, because the policy has banned their identity.",
            each(|policy| &policy.banned),
        )?;
        page.counters(
            "slidegate_unknown_plans",
            "Requests that named a plan that does not exist and were counted under the policy's \
             default plan.",
            each(|policy| &policy.unknown_plans),
        )?;
        let of_responses = |workers: &[&PolicyCounters]| -> Vec<ResponseCounters> {
            workers.iter().filter_map(|worker| worker.response.clone()).collect()
        };
        page.counters(
            "slidegate_response_costs",
            "Charges whose cost depends on the response, by outcome: held (the hold was the cost), \
             refunded, recorded (units above the hold), failed (the store failed), dropped (too many \
             at once), or why the cost could not be read and the hold stays (missing, malformed, \
             too-large, content-type, encoding, aborted).",
            policies.iter().flat_map(|(policy, workers)| {
                let counters = of_responses(workers);
                RESPONSE_OUTCOMES.iter().enumerate().filter_map(move |(index, outcome)| {
                    let counts = counters.iter().map(|one| one.outcomes[index].get());
                    let labels = [("policy", *policy), ("outcome", *outcome)];
                    (!counters.is_empty()).then(|| (labels, counts.sum()))
                })
            }),
        )?;
        page.counters(
            "slidegate_response_units",
            "Units by which costs that depend on the response differ from what was held: refunded or \
             recorded.",
            policies.iter().flat_map(|(policy, workers)| {
                let counters = of_responses(workers);
                ["refunded", "recorded"].into_iter().enumerate().filter_map(move |(index, kind)| {
                    let counts = counters.iter().map(|one| one.units[index].get());
                    let labels = [("policy", *policy), ("kind", kind)];
                    (!counters.is_empty()).then(|| (labels, counts.sum()))
                })
            }),
        )?;
        let lowest: Vec<_> = policies
            .iter()
            .filter_map(|(policy, workers)| {
                let lowest = workers.iter().filter_map(|worker| worker.lowest.get());
                // The longest wait of those with the least remaining.
                let lowest = lowest.min_by_key(|(remaining, wait)| (*remaining, Reverse(*wait)))?;
                Some(([("policy", *policy)], lowest))
            })
            .collect();
        page.gauges(
            "rate_limit_remaining",
            "The fewest units that any identity had left under the policy after a decision of the \
             last 30 to 60 seconds (since the scrape before last, if that is longer). Absent if \
             there was none.",
            lowest.iter().map(|(policy, (remaining, _))| (*policy, f64::from(*remaining))),
        )?;
        page.gauges(
            "rate_limit_reset_seconds",
            "How long that identity then had to wait for its first spent unit; of several with as \
             few left, the longest.",
            lowest.iter().map(|(policy, (_, reset))| (*policy, reset.as_secs_f64())),
        )
    }

    /// Begins a new period of the lowest standings if the current one is over.
    pub(super) fn turn_if_due(&self, now: Timestamp) {
        let (order, now_ns) = (Ordering::Relaxed, now.as_nanos());
        let began_ns = self.period_began_ns.load(order);
        let is_due = Duration::from_nanos(now_ns.saturating_sub(began_ns)) >= PERIOD;
        let began = &self.period_began_ns;
        if is_due && began.compare_exchange(began_ns, now_ns, order, order).is_ok() {
            self.policies.load().values().for_each(|counters| counters.lowest.turn());
        }
    }
}

impl PolicyCounters {
    fn record(&self, policy: &PolicyStanding, decision: &Decision) {
        if let Some(tightest) = policy.standings.iter().min_by_key(|s| s.remaining()) {
            self.lowest.record(tightest);
        }
        if policy.plan_unknown {
            self.unknown_plans.inc();
        }
        if policy.is_denied_by_candidate() {
            self.candidate_denials.inc();
        }
        let plan = policy.plan.as_ref().map(|plan| &plan.name);
        let by_plan = self.plans.iter().find(|counters| counters.plan.as_ref() == plan);
        let (of_policy, of_plan) = match policy.is_violated() {
            true if policy.recorded => (None, by_plan.map(|plan| &plan.recorded)),
            true if policy.shadow => {
                (Some(&self.shadow_denials), by_plan.map(|plan| &plan.shadow_denied))
            }
            true if !decision.is_allowed() => {
                (Some(&self.exceeded), by_plan.map(|plan| &plan.denied))
            }
            _ => (None, by_plan.map(|plan| &plan.allowed)),
        };
        of_policy.into_iter().chain(of_plan).for_each(|counter| {
            counter.inc();
        });
    }

    fn totals(&self) -> PolicyTotals {
        PolicyTotals {
            allowed: self.plans.iter().map(|plan| plan.allowed.get() + plan.recorded.get()).sum(),
            denied_or_banned: self.exceeded.get() + self.banned.get(),
            shadow: self.shadow_denials.get(),
            candidate: self.candidate_denials.get(),
            ..PolicyTotals::default()
        }
    }

    /// By plan and verdict.
    fn verdicts(&self) -> impl Iterator<Item = (&str, &'static str, &Counter)> {
        let by_plan = self.plans.iter().flat_map(|counters| {
            let plan = counters.plan.as_deref().unwrap_or("");
            [
                (plan, "allow", &counters.allowed),
                (plan, "deny", &counters.denied),
                (plan, "recorded", &counters.recorded),
                (plan, "shadow-deny", &counters.shadow_denied),
            ]
        });
        by_plan.chain([("", "block", &self.banned)])
    }
}

/// What became of charges whose cost depends on the response.
#[derive(Debug, Clone, Default)]
struct ResponseCounters {
    /// In the order of [`RESPONSE_OUTCOMES`].
    outcomes: [Counter; RESPONSE_OUTCOMES.len()],
    /// Refunded and recorded.
    units: [Counter; 2],
}

const RESPONSE_OUTCOMES: [&str; 11] = [
    "held",
    "refunded",
    "recorded",
    "failed",
    "dropped",
    "missing",
    "malformed",
    "too-large",
    "content-type",
    "encoding",
    "aborted",
];

impl ResponseCounters {
    fn record(&self, outcome: SettleOutcome) {
        let name = match outcome {
            SettleOutcome::Unchanged => "held",
            SettleOutcome::Refunded(units) => {
                self.units[0].inc_by(units.get().into());
                "refunded"
            }
            SettleOutcome::Recorded(units) => {
                self.units[1].inc_by(units.get().into());
                "recorded"
            }
            SettleOutcome::Unread(reason) => reason.as_str(),
            SettleOutcome::Dropped => "dropped",
            _ => "failed",
        };
        if let Some(index) = RESPONSE_OUTCOMES.iter().position(|outcome| *outcome == name) {
            self.outcomes[index].inc();
        }
    }
}

/// What a policy has decided at all workers, by plan and verdict.
fn verdicts<'p>(
    policy: &'p str,
    workers: &[&'p PolicyCounters],
) -> Vec<([(&'static str, &'p str); 3], u64)> {
    let Some((first, others)) = workers.split_first() else { return Vec::new() };
    let with_labels = first.verdicts().map(|(plan, verdict, counter)| {
        ([("policy", policy), ("plan", plan), ("verdict", verdict)], counter.get())
    });
    let mut sums: Vec<_> = with_labels.collect();
    for (plan, verdict, counter) in others.iter().flat_map(|other| other.verdicts()) {
        let labels = [("policy", policy), ("plan", plan), ("verdict", verdict)];
        // During a reload, one worker may have a plan that another does not have yet.
        match sums.iter_mut().find(|(other, _)| *other == labels) {
            Some((_, sum)) => *sum += counter.get(),
            None => sums.push((labels, counter.get())),
        }
    }
    sums
}

/// The account that was nearest to its quota, in the current period and in the one before.
///
/// A standing is packed into one number, so that the lowest is found without a lock: what remains,
/// and below it how far the reset is from the longest possible. Of those with as much remaining, the
/// one that waits longest is the lowest.
#[derive(Debug)]
struct LowestStanding {
    current: AtomicU64,
    previous: AtomicU64,
}

/// No standing was recorded.
const NO_STANDING: u64 = u64::MAX;
/// Resets are kept in hundredths of a second: 32 bits have room for the longest window.
const TICK_MS: u64 = 10;

impl Default for LowestStanding {
    fn default() -> Self {
        Self { current: AtomicU64::new(NO_STANDING), previous: AtomicU64::new(NO_STANDING) }
    }
}

impl LowestStanding {
    fn record(&self, standing: &Standing) {
        let reset_ns = standing.reset_after().as_nanos();
        let ticks = u32::try_from(reset_ns.div_ceil(u128::from(TICK_MS) * 1_000_000));
        let until_longest = u32::MAX - ticks.unwrap_or(u32::MAX);
        let packed = u64::from(standing.remaining()) << 32 | u64::from(until_longest);
        // Nearly always there was a lower one.
        if packed < self.current.load(Ordering::Relaxed) {
            self.current.fetch_min(packed, Ordering::Relaxed);
        }
    }

    /// What remained for the lowest of both periods, and how long until its reset.
    fn get(&self) -> Option<(u32, Duration)> {
        let (current, previous) = (&self.current, &self.previous);
        let packed = current.load(Ordering::Relaxed).min(previous.load(Ordering::Relaxed));
        let ticks = u32::MAX - packed as u32;
        (packed != NO_STANDING)
            .then(|| ((packed >> 32) as u32, Duration::from_millis(TICK_MS * u64::from(ticks))))
    }

    /// Forgets the period before and begins a new one.
    fn turn(&self) {
        self.previous.store(self.current.swap(NO_STANDING, Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use slidegate::Quota;

    use super::*;

    #[test]
    fn lowest_standing_has_the_least_remaining_and_then_the_longest_wait() {
        let lowest = LowestStanding::default();
        assert_eq!(lowest.get(), None);
        let year_ms = 366 * 24 * 3600 * 1000;
        for (remaining, reset_ms, expected) in [
            (7, 500, (7, 500)),
            (9, 900, (7, 500)),
            (0, 300, (0, 300)),
            (0, 1201, (0, 1210)),
            (0, year_ms, (0, year_ms)),
        ] {
            let untouched = Standing::untouched(Quota::per_day(1000)).with_remaining(remaining);
            lowest.record(&untouched.with_reset_after(Duration::from_millis(reset_ms)));
            let (remaining, reset_ms) = expected;
            assert_eq!(lowest.get(), Some((remaining, Duration::from_millis(reset_ms))));
        }
        lowest.turn();
        assert!(lowest.get().is_some());
        lowest.turn();
        assert_eq!(lowest.get(), None, "it is forgotten after two periods");
    }
}
