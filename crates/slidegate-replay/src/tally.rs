//! What becomes of the requests under each policy.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use foldhash::fast::RandomState;
use slidegate::policy::{CheckedPlan, CheckedPolicy, MatchedPolicy, ResponseRule};
use slidegate::{Block, Decision, Identity, Name, PolicyStanding, Quota, Timestamp, Verdict};
use smallvec::SmallVec;

use crate::demand::{DemandWindow, Demanded, DemandedUnits};
use crate::described_response::DescribedResponse;
use crate::timeline::{IsRefused, WorstMinute};

/// The most identities that are counted one by one under a policy. Requests of others are counted, and
/// how many they are.
pub(crate) const MAX_IDENTITIES: usize = 5_000_000;
/// Parts of the picture of a window.
const DENSITY_PARTS: u64 = 60;

/// The requests that one policy counts.
#[derive(Debug)]
pub(crate) struct PolicyTally {
    pub(crate) policy: Name,
    pub(crate) shadow: bool,
    /// What a response changes about the cost.
    pub(crate) response: Option<Arc<ResponseRule>>,
    /// Empty if it uses plans.
    quotas: Vec<Quota>,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) minutes: WorstMinute,
    /// One for the policy's own quotas, or one for each plan that a request had.
    pub(crate) limits: Vec<LimitTally>,
    pub(crate) accounts: HashMap<Identity, AccountTally, RandomState>,
    /// Requests of identities for which there was no room.
    pub(crate) untracked: u64,
    /// Requests whose status the policy looks at, and the log does not have.
    pub(crate) without_status: u64,
    /// Requests whose cost the response says, and the log does not have.
    pub(crate) without_cost: u64,
}

/// The quotas of a policy, or of one of its plans.
#[derive(Debug)]
pub(crate) struct LimitTally {
    pub(crate) plan: Option<Name>,
    pub(crate) quotas: Vec<QuotaTally>,
}

#[derive(Debug)]
pub(crate) struct QuotaTally {
    pub(crate) quota: Quota,
    pub(crate) busiest: Option<BusiestWindow>,
}

/// The window in which an identity asked for more than any other in any window.
#[derive(Debug)]
pub(crate) struct BusiestWindow {
    pub(crate) identity: Identity,
    pub(crate) units: u64,
    /// When the last of the units was asked for.
    pub(crate) until: Timestamp,
    /// The units in each part of it, the oldest first. Empty until the window moves on.
    pub(crate) density: Vec<u64>,
}

/// The requests of one identity.
#[derive(Debug, Default)]
pub(crate) struct AccountTally {
    pub(crate) requests: u64,
    pub(crate) refusals: AccountRefusals,
    /// For each plan that it had, what it asked for.
    pub(crate) demands: SmallVec<[AccountDemand; 1]>,
}

#[derive(Debug)]
pub(crate) struct AccountDemand {
    /// Which of the policy's limits.
    pub(crate) limit: usize,
    /// One for each quota.
    pub(crate) windows: SmallVec<[DemandWindow; 1]>,
}

/// The refused requests of one identity under one policy.
#[derive(Debug, Default)]
pub(crate) struct AccountRefusals {
    /// Those that the policy refuses.
    pub(crate) own: u64,
    /// Those that other policies refuse and this one does not: for each other policy, how many.
    pub(crate) others: Vec<(String, u64)>,
}

/// Which policies refuse a request, seen from one that matches it.
#[derive(Debug)]
pub(crate) enum RefusedBy<'p> {
    None,
    /// The policy itself, perhaps among others; a shadow policy would refuse it.
    Own,
    /// Only others.
    Others(SmallVec<[&'p str; 2]>),
}

/// In place of a policy's name, for requests with an API key that was not issued: the setting that
/// refuses them before policies decide.
const UNKNOWN_KEYS: &str = "unknown_keys";

/// The policies that count a request.
pub(crate) type MatchedPolicies<'p> = SmallVec<[MatchedPolicy<'p>; 4]>;

/// What a policy has to do with a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedRequest<'a> {
    pub(crate) policy: &'a Name,
    pub(crate) identity: &'a Identity,
    pub(crate) plan: Option<&'a CheckedPlan>,
    /// What is held until the response.
    pub(crate) cost: NonZeroU32,
}

impl<'a> From<&'a MatchedPolicy<'_>> for CountedRequest<'a> {
    fn from(matched: &'a MatchedPolicy<'_>) -> Self {
        let MatchedPolicy { policy, identity, plan, cost, .. } = matched;
        Self { policy: &policy.name, identity, plan: *plan, cost: *cost }
    }
}

impl<'a> From<&'a PolicyStanding> for CountedRequest<'a> {
    fn from(standing: &'a PolicyStanding) -> Self {
        let PolicyStanding { policy, identity, plan, cost, .. } = standing;
        Self { policy, identity, plan: plan.as_deref(), cost: *cost }
    }
}

impl PolicyTally {
    pub(crate) fn new(policy: &CheckedPolicy) -> Self {
        Self {
            policy: policy.name.clone(),
            shadow: policy.shadow,
            response: policy.response.clone(),
            quotas: policy.quotas().to_vec(),
            requests: 0,
            refused: 0,
            minutes: WorstMinute::default(),
            limits: Vec::new(),
            accounts: HashMap::default(),
            untracked: 0,
            without_status: 0,
            without_cost: 0,
        }
    }

    /// Counts a request.
    pub(crate) fn add(
        &mut self,
        request: &CountedRequest<'_>,
        at: Timestamp,
        response: &DescribedResponse,
        refused_by: &RefusedBy<'_>,
    ) {
        let is_refused = matches!(refused_by, RefusedBy::Own);
        self.requests += 1;
        self.refused += u64::from(is_refused);
        self.minutes.add(at, is_refused.into());
        if let Some(rule) = &self.response {
            self.without_status += u64::from(response.lacks_status(rule));
            self.without_cost += u64::from(response.lacks_cost(rule));
        }
        let demanded = DemandedUnits::new(self.response.as_deref(), request.cost, response);
        let limit = self.limit(request);
        let has_room = self.accounts.len() < MAX_IDENTITIES;
        if !has_room && !self.accounts.contains_key(request.identity) {
            self.untracked += 1;
            return;
        }
        let account = self.accounts.entry(*request.identity).or_default();
        account.requests += 1;
        account.refusals.add(refused_by);
        let quotas = &mut self.limits[limit].quotas;
        let windows = account.windows(limit, quotas);
        for (window, quota) in windows.iter_mut().zip(quotas) {
            quota.add(window, *request.identity, at, demanded);
        }
    }

    /// The limits that apply to the request.
    fn limit(&mut self, request: &CountedRequest<'_>) -> usize {
        let plan = request.plan.map(|plan| &plan.name);
        let found = self.limits.iter().position(|limit| limit.plan.as_ref() == plan);
        found.unwrap_or_else(|| {
            let quotas = request.plan.map_or(&self.quotas[..], |plan| plan.quotas.as_slice());
            let quotas = quotas.iter().map(|quota| QuotaTally { quota: *quota, busiest: None });
            self.limits.push(LimitTally { plan: plan.cloned(), quotas: quotas.collect() });
            self.limits.len() - 1
        })
    }

    /// Draws the windows that have not moved on since they were the busiest.
    pub(crate) fn finish(&mut self) {
        for (index, limit) in self.limits.iter_mut().enumerate() {
            for (position, quota) in limit.quotas.iter_mut().enumerate() {
                let Some(busiest) = &mut quota.busiest else { continue };
                let account = self.accounts.get(&busiest.identity);
                let mut demands = account.into_iter().flat_map(|account| &account.demands);
                if let Some(demand) = demands.find(|demand| demand.limit == index)
                    && busiest.density.is_empty()
                {
                    let window = &demand.windows[position];
                    busiest.density = window.density(quota.quota, busiest.until, DENSITY_PARTS);
                }
            }
        }
    }
}

impl AccountTally {
    fn windows(&mut self, limit: usize, quotas: &[QuotaTally]) -> &mut [DemandWindow] {
        let found = self.demands.iter().position(|demand| demand.limit == limit);
        let index = found.unwrap_or_else(|| {
            let windows = quotas.iter().map(|own| DemandWindow::new(own.quota)).collect();
            self.demands.push(AccountDemand { limit, windows });
            self.demands.len() - 1
        });
        &mut self.demands[index].windows
    }
}

impl AccountRefusals {
    pub(crate) fn add(&mut self, refused_by: &RefusedBy<'_>) {
        match refused_by {
            RefusedBy::None => {}
            RefusedBy::Own => self.own += 1,
            RefusedBy::Others(names) => names.iter().for_each(|name| self.add_other(name)),
        }
    }

    fn add_other(&mut self, name: &str) {
        match self.others.iter_mut().find(|(other, _)| other == name) {
            Some((_, requests)) => *requests += 1,
            None => self.others.push((name.to_owned(), 1)),
        }
    }
}

impl<'p> RefusedBy<'p> {
    /// Of all policies that match a request, those that refuse it, seen from one of them with these
    /// quotas.
    pub(crate) fn new(
        decision: &Decision,
        matched: &MatchedPolicies<'p>,
        own: &MatchedPolicy<'_>,
        quotas: &[Quota],
    ) -> Self {
        if is_refused_by(decision, own, quotas) == IsRefused::Yes {
            return Self::Own;
        }
        if decision.is_allowed() {
            return Self::None;
        }
        let others = matched.iter().filter(|other| {
            other.policy.name != own.policy.name
                && !other.policy.shadow
                && is_refused_by(decision, other, other.quotas.as_slice()) == IsRefused::Yes
        });
        let mut names: SmallVec<_> = others.map(|other| &*other.policy.name).collect();
        if decision.verdict() == Verdict::Block(Block::UnknownKey) {
            names.push(UNKNOWN_KEYS);
        }
        Self::Others(names)
    }
}

impl QuotaTally {
    fn add(
        &mut self,
        window: &mut DemandWindow,
        identity: Identity,
        at: Timestamp,
        demanded: DemandedUnits,
    ) {
        // No request has left the window since it was the busiest, so it is still all there.
        if let Some(busiest) = &mut self.busiest
            && busiest.density.is_empty()
            && busiest.identity == identity
            && window.is_due(at)
        {
            busiest.density = window.density(self.quota, busiest.until, DENSITY_PARTS);
        }
        let demanded = window.add(self.quota, at, demanded);
        let most = self.busiest.as_ref().map_or(0, |busiest| busiest.units);
        if demanded == Demanded::Most && window.busiest() > most {
            let (units, density) = (window.busiest(), Vec::new());
            self.busiest = Some(BusiestWindow { identity, units, until: at, density });
        }
    }
}

/// Whether it is this policy, or among others this one, that a request is refused for; of a shadow
/// policy, whether it would be.
pub(crate) fn is_refused_by(
    decision: &Decision,
    matched: &MatchedPolicy<'_>,
    quotas: &[Quota],
) -> IsRefused {
    let policy = matched.policy;
    let is_violated = || {
        let mut standings = decision.policies().iter();
        let own =
            standings.find(|own| own.policy == policy.name && own.identity == matched.identity);
        own.is_some_and(|own| own.is_violated())
    };
    let is_too_costly = || quotas.iter().any(|quota| matched.cost > quota.units());
    IsRefused::from(match decision.verdict() {
        Verdict::Allow => policy.shadow && (is_violated() || is_too_costly()),
        Verdict::Block(Block::Banned { .. }) => decision.banned_by() == Some(&policy.name),
        Verdict::Block(Block::CostAboveUnits) => !policy.shadow && is_too_costly(),
        Verdict::Block(_) => false,
        _ => is_violated(),
    })
}
