//! The gate's answer to a request.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::hold::{HeldCharge, Hold, SpentIn};
use crate::limit::{Name, Quotas, Receipt, Standing, Standings, Timestamp};
use crate::policy::matching::{Match, Matches};
use crate::policy::{CandidateStanding, CheckedPlan, Identity, ResponseRule};
use crate::verdict::{Block, Verdict};

/// Whether a request may pass, and where every quota that it touched stands. The default is that of
/// a request that matches no policy.
///
/// ```
/// use std::time::Duration;
///
/// use slidegate::{Facts, Gate, MemoryStore, Policies, Policy, Verdict};
///
/// let policies = Policies::builder().policy(Policy::new("api").quota("1/min")).build()?;
/// let gate = Gate::new(policies, MemoryStore::new());
/// let facts = Facts::new(&http::Method::GET, "/v1/reports").client("203.0.113.7".parse()?);
/// assert!(gate.decide_now(&facts)?.is_allowed());
///
/// let decision = gate.decide_now(&facts)?;
/// assert!(matches!(decision.verdict(), Verdict::Deny { .. }));
/// assert!(decision.retry_after() > Some(Duration::from_secs(59)));
/// let (policy, standing) = decision.tightest().expect("a policy took part");
/// assert_eq!((&*policy.policy, policy.identity.as_str()), ("api", "ip:203.0.113.7"));
/// assert_eq!(standing.remaining(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Debug, Clone, Default)]
pub struct Decision {
    pub(crate) verdict: Verdict,
    pub(crate) policies: Vec<PolicyStanding>,
    pub(crate) degraded: bool,
    pub(crate) recorded: bool,
    banned_by: Option<Name>,
}

/// How one policy took part in a decision.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PolicyStanding {
    /// The policy's name.
    pub policy: Name,
    /// Whose spending it counted.
    pub identity: Identity,
    /// The plan that the quotas came from.
    pub plan: Option<Arc<CheckedPlan>>,
    /// Whether `plan` is the policy's default because the request named one that does not exist.
    pub plan_unknown: bool,
    /// Whether the policy is a shadow policy, which refuses no requests.
    pub shadow: bool,
    /// Whether response headers tell of it. Shadow policies are never shown.
    pub in_headers: bool,
    /// How many units the request costs under it.
    pub cost: NonZeroU32,
    /// Whether they were [recorded](crate::Gate::record_named), so that nothing is refused if they did
    /// not fit.
    pub recorded: bool,
    /// Where each of its quotas stands.
    pub standings: Standings,
    /// Whether the quotas came with the [charge](crate::NamedCharge::quotas).
    pub caller_quotas: bool,
    /// Where each quota of its [candidate](crate::Policy::candidate) stands; empty if it has none.
    pub candidate: Vec<CandidateStanding>,
    /// What the response changes about the cost.
    pub(crate) response: Option<Arc<ResponseRule>>,
    /// None if nothing was spent.
    pub(crate) spent: Option<SpentIn>,
}

impl Decision {
    /// A decision under so many policies.
    pub(crate) fn with_capacity(policies: usize) -> Self {
        Self { policies: Vec::with_capacity(policies), ..Self::default() }
    }

    /// The refusal of a request that may not pass, whatever its quotas have left; if it is for a ban,
    /// for that of this policy.
    pub(crate) fn blocked(block: Block, banned_by: Option<Name>) -> Self {
        Self { verdict: Verdict::Block(block), banned_by, ..Self::default() }
    }

    /// Adds the receipt for the charges that `selects` picks. If they are spent for real, `spent` says
    /// where.
    pub(crate) fn add(
        &mut self,
        receipt: &Receipt,
        matches: &Matches<'_>,
        selects: impl Fn(&Match<'_>) -> bool,
        spent: Option<fn(Timestamp) -> SpentIn>,
    ) {
        let mut standings = receipt.standings.as_slice();
        let selected = matches.iter().filter(|matched| selects(matched));
        for (index, matched) in selected.enumerate() {
            let policy = matched.policy;
            let own = take_ledgers(&mut standings, matched);
            let is_spent = receipt.spent && !own.iter().any(Standing::is_violated);
            let is_written = is_spent || policy.count_denied || matches.records;
            let is_counted = spent.is_some() && is_written;
            if !receipt.spent && !policy.shadow {
                self.deny(own.iter().map(Standing::retry_after).max().unwrap_or_default());
            }
            self.policies.push(PolicyStanding {
                policy: policy.name.clone(),
                identity: matched.identity,
                plan: matched.plan.cloned(),
                plan_unknown: matched.unknown_plan.is_some(),
                shadow: policy.shadow,
                in_headers: policy.in_headers && !policy.shadow,
                cost: matched.cost,
                recorded: matches.records,
                standings: matched.standings(own),
                caller_quotas: matched.caller_quotas,
                candidate: matched.candidate_standings(own, is_counted),
                response: policy.response.clone(),
                spent: spent
                    .filter(|_| receipt.spent && !matches.records)
                    .map(|spent| spent(receipt.at_of(index))),
            });
        }
        self.degraded |= receipt.degraded;
    }

    /// Puts newer standings in place of those that were added first to what has become a denial.
    pub(crate) fn renew_first<'m, 'p: 'm>(
        &mut self,
        receipt: &Receipt,
        first: impl Iterator<Item = &'m Match<'p>>,
    ) {
        let mut standings = receipt.standings.as_slice();
        for (policy, matched) in self.policies.iter_mut().zip(first) {
            let own = policy.standings.iter_mut().zip(take_ledgers(&mut standings, matched));
            // What was spent first had room, whatever counting the denial has left of it.
            own.for_each(|(old, new)| {
                *old = if old.is_violated() { *new } else { new.with_room() }
            });
        }
        let enforced = self.policies.iter().filter(|policy| !policy.shadow);
        let longest = enforced.flat_map(|p| &p.standings).map(Standing::retry_after).max();
        self.deny(longest.unwrap_or_default());
    }

    /// How an account took part, if it did.
    pub(crate) fn of(&self, policy: &Name, identity: &Identity) -> Option<&PolicyStanding> {
        self.policies.iter().find(|own| own.policy == *policy && own.identity == *identity)
    }

    /// Two decisions about one request as one: the stricter verdict, and where all quotas stand.
    pub fn and(mut self, other: Self) -> Self {
        self.recorded = match (self.is_allowed(), other.is_allowed()) {
            (true, true) => self.recorded || other.recorded,
            (true, false) => other.recorded,
            (false, true) => self.recorded,
            (false, false) => self.recorded && other.recorded,
        };
        match (self.verdict, other.verdict) {
            (Verdict::Block(_), _) | (_, Verdict::Allow) => {}
            (_, Verdict::Deny { retry_after }) => self.deny(retry_after),
            (_, Verdict::Block(_)) => {
                (self.verdict, self.banned_by) = (other.verdict, other.banned_by);
            }
        }
        self.policies.extend(other.policies);
        self.degraded |= other.degraded;
        self
    }

    /// Makes it a denial, for at least this long.
    pub(crate) fn deny(&mut self, at_least: Duration) {
        let retry_after = self.retry_after().unwrap_or_default().max(at_least);
        self.verdict = Verdict::Deny { retry_after };
    }

    /// The yes or no.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether the request may pass.
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }

    /// How long to wait, if a quota denied the request or a ban is in force.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Deny { retry_after }
            | Verdict::Block(
                Block::Banned { retry_after }
                | Block::Suspended { retry_after }
                | Block::UncheckedCredentials { retry_after },
            ) => Some(retry_after),
            Verdict::Allow
            | Verdict::Block(
                Block::Listed
                | Block::UnknownKey
                | Block::KeysUnavailable
                | Block::InvalidToken
                | Block::CostAboveUnits,
            ) => None,
        }
    }

    /// Each policy that took part. None if the request was exempt, blocked, or no policy's.
    pub fn policies(&self) -> &[PolicyStanding] {
        &self.policies
    }

    /// Whether anything was spent that [`Gate::refund`](crate::Gate::refund) can take back.
    pub fn has_spent(&self) -> bool {
        self.policies.iter().any(|policy| policy.spent.is_some() && !policy.is_violated())
    }

    /// What the decision has spent. It is empty if the request was refused or exempt.
    pub fn hold(&self) -> Hold {
        Hold { charges: self.policies().iter().filter_map(PolicyStanding::held).collect() }
    }

    /// What the decision has spent under policies that look at the response. None if there is no such
    /// policy.
    pub fn response_hold(&self) -> Option<Hold> {
        let mut policies = self.policies().iter();
        if policies.all(|policy| policy.response.is_none()) {
            return None;
        }
        let mut hold = self.hold();
        hold.retain(|charge| charge.response.is_some());
        Some(hold).filter(|hold| !hold.is_empty())
    }

    /// Notes that a charge turned out to cost `units`, so that standings show what is left then.
    ///
    /// It is what follows from the decision alone. What others have spent since is not known here.
    pub fn note_cost(&mut self, charge: &HeldCharge, units: u32) {
        let is_own = |own: &&mut PolicyStanding| {
            own.policy == charge.policy && own.identity == charge.identity
        };
        let Some(own) = self.policies.iter_mut().find(is_own) else { return };
        let held = charge.units.get();
        for standing in &mut own.standings {
            let all = standing.quota().units().get();
            let left = standing.remaining().saturating_add(held).saturating_sub(units).min(all);
            let reset_after = if left == all { Default::default() } else { standing.reset_after() };
            *standing = standing.with_remaining(left).with_reset_after(reset_after);
        }
    }

    /// The policy whose ban the request was refused for: of several, the one that takes longest. If
    /// it is an operator's ban, the policy that the override names, and none if it is for all policies.
    pub fn banned_by(&self) -> Option<&Name> {
        self.banned_by.as_ref()
    }

    /// Whether it is about units that were [recorded](crate::Gate::record_named): a verdict that is not
    /// [`Verdict::Allow`] then says that they exceeded a quota, and refuses nothing by itself. Of several
    /// decisions [as one](Self::and), whether this is so of all that are not allowed.
    pub fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// Whether a store's trouble had a part in the decision.
    pub fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// The standing that binds the client most: of a denial the violated one that takes longest, else
    /// the one with the smallest part of its units left, and of equal parts that of the longer window.
    /// Shadow policies are not considered.
    pub fn tightest(&self) -> Option<(&PolicyStanding, &Standing)> {
        tightest(self.policies.iter().filter(|policy| !policy.shadow))
    }

    /// The [tightest](Self::tightest) standing among the policies that response headers tell of.
    /// None if there is no such policy, as when a local one denied before the others were asked.
    pub fn tightest_in_headers(&self) -> Option<(&PolicyStanding, &Standing)> {
        tightest(self.policies.iter().filter(|policy| policy.in_headers))
    }
}

/// Takes the standings of a match's ledgers off the front of those of a receipt.
fn take_ledgers<'s>(standings: &mut &'s [Standing], matched: &Match<'_>) -> &'s [Standing] {
    let ledgers = matched.ledger_quotas().as_slice().len();
    let (own, others) = standings.split_at(ledgers.min(standings.len()));
    *standings = others;
    own
}

fn tightest<'d>(
    policies: impl Iterator<Item = &'d PolicyStanding>,
) -> Option<(&'d PolicyStanding, &'d Standing)> {
    policies
        .flat_map(|policy| policy.standings.iter().map(move |standing| (policy, standing)))
        .min_by(|(_, a), (_, b)| {
            b.is_violated()
                .cmp(&a.is_violated())
                .then_with(|| b.retry_after_ns.cmp(&a.retry_after_ns))
                .then_with(|| a.cmp_part_left(b))
                .then_with(|| b.quota.window().cmp(&a.quota.window()))
        })
}

impl PolicyStanding {
    /// Whether the request did not fit this policy; of a shadow policy, whether it would have
    /// denied. A policy that counts denied requests and had room for this one is not violated.
    pub fn is_violated(&self) -> bool {
        self.standings.iter().any(Standing::is_violated)
    }

    /// What the response changes about the cost.
    pub fn response(&self) -> Option<&ResponseRule> {
        self.response.as_deref()
    }

    /// What it has spent, if it has.
    fn held(&self) -> Option<HeldCharge> {
        let spent = self.spent.filter(|_| !self.is_violated())?;
        Some(HeldCharge {
            policy: self.policy.clone(),
            identity: self.identity,
            quotas: Quotas::new(self.standings.iter().map(Standing::quota)).ok()?,
            caller_quotas: self.caller_quotas,
            units: self.cost,
            spent,
            response: self.response.clone(),
        })
    }

    /// Whether the candidate would have denied what the policy did not. Nothing denies what was
    /// recorded.
    pub fn is_denied_by_candidate(&self) -> bool {
        !self.recorded
            && !self.is_violated()
            && self.candidate.iter().any(|standing| standing.violated)
    }

    /// The standing that binds the client most, as [`Decision::tightest`] picks it, among the
    /// quotas of this policy.
    pub fn tightest(&self) -> Option<&Standing> {
        tightest(std::iter::once(self)).map(|(_, standing)| standing)
    }
}
