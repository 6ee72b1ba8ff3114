//! What each policy has done.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use slidegate::{Decision, Name, PolicyStanding};

use super::exposition::{Label, Page};
use super::min_remaining::MinRemaining;
use super::per_thread::{PerThread, count_own};

/// The numbers of the policies in force. Only their names become labels, so there are never more
/// series than the operator has written policies.
#[derive(Debug)]
pub(super) struct PolicyMeters(ArcSwap<Meters>);

type Meters = HashMap<Name, Arc<PerThread<Meter>>, RandomState>;

/// What one policy has done, in one thread.
#[derive(Debug, Default)]
struct Meter {
    exceeded: AtomicU64,
    shadow_denials: AtomicU64,
    banned: AtomicU64,
    unknown_plans: AtomicU64,
    min_remaining: MinRemaining,
}

impl PolicyMeters {
    pub(super) fn new<'n>(names: impl Iterator<Item = &'n Name>) -> Self {
        Self(ArcSwap::from_pointee(names.map(|name| (name.clone(), Arc::default())).collect()))
    }

    /// Counts for these policies from now on. Those that were there already count on.
    pub(super) fn follow<'n>(&self, names: impl Iterator<Item = &'n Name>) {
        let old = self.0.load();
        let kept = |name: &Name| old.get(name).cloned().unwrap_or_default();
        self.0.store(Arc::new(names.map(|name| (name.clone(), kept(name))).collect()));
    }

    #[inline]
    pub(super) fn count(&self, decision: &Decision) {
        let meters = self.0.load();
        for policy in decision.policies() {
            // A policy that a reload has just taken away has nowhere to be counted.
            if let Some(meter) = meters.get(policy.policy()) {
                meter.own().count(policy, decision);
            }
        }
        if let Some(meter) = decision.banned_by().and_then(|policy| meters.get(policy)) {
            count_own(&meter.own().banned);
        }
    }

    /// Begins a new period of the minimum standings.
    pub(super) fn turn(&self) {
        self.0
            .load()
            .values()
            .flat_map(|meter| meter.iter())
            .for_each(|own| own.min_remaining.turn());
    }

    pub(super) fn expose(&self, page: &mut Page<'_>) -> fmt::Result {
        let meters = self.0.load();
        let mut meters: Vec<_> = meters.iter().collect();
        meters.sort_unstable_by_key(|(name, _)| *name);
        let counters = |counter: fn(&Meter) -> &AtomicU64| {
            meters.iter().map(move |(name, meter)| (label(name), meter.sum(counter)))
        };
        page.counters(
            "rate_limit_exceeded",
            "Requests denied because a quota of the policy was used up. A request that several \
             policies deny counts for each.",
            counters(|own| &own.exceeded),
        )?;
        page.counters(
            "slidegate_shadow_denials",
            "Requests that the shadow policy would have denied.",
            counters(|own| &own.shadow_denials),
        )?;
        page.counters(
            "slidegate_banned_requests",
            "Requests refused without asking a store, because the policy has banned their \
             identity.",
            counters(|own| &own.banned),
        )?;
        page.counters(
            "slidegate_unknown_plans",
            "Requests that named a plan that does not exist and were counted under the policy's \
             default plan.",
            counters(|own| &own.unknown_plans),
        )?;
        let min_remaining: Vec<(_, (u32, Duration))> = meters
            .iter()
            .filter_map(|(name, meter)| {
                Some((label(name), MinRemaining::of(meter, |own| &own.min_remaining)?))
            })
            .collect();
        page.gauges(
            "rate_limit_remaining",
            "The fewest units that any identity had left under the policy after a decision of the \
             last 30 to 60 seconds (since the scrape before last, if that is longer). Absent if \
             there was none.",
            min_remaining.iter().map(|(policy, (remaining, _))| (*policy, f64::from(*remaining))),
        )?;
        page.gauges(
            "rate_limit_reset_seconds",
            "How long that identity then had to wait for its first spent unit; of several with as \
             few left, the longest.",
            min_remaining.iter().map(|(policy, (_, reset))| (*policy, reset.as_secs_f64())),
        )
    }
}

impl Meter {
    #[inline]
    fn count(&self, policy: &PolicyStanding, decision: &Decision) {
        let tightest = policy.standings().iter().min_by_key(|standing| standing.remaining());
        if let Some(standing) = tightest {
            self.min_remaining.record(standing);
        }
        if policy.is_plan_unknown() {
            count_own(&self.unknown_plans);
        }
        if !policy.is_violated() {
            return;
        }
        if policy.is_shadow() {
            count_own(&self.shadow_denials);
        } else if !decision.is_allowed() {
            count_own(&self.exceeded);
        }
    }
}

fn label(policy: &Name) -> [Label<'_>; 1] {
    [("policy", policy)]
}
