//! What there is to say about a request that was refused.

use std::time::Duration;

use http::StatusCode;
use slidegate::policy::CheckedPlan;
use slidegate::{Decision, Name, PolicyStanding, Standing, StoreError};

use crate::headers::write_name;
use crate::refusal::reason::Reason;
use crate::seconds;

/// A request that was refused, and all there is to say about it.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    reason: Reason,
    decision: Option<&'a Decision>,
}

/// When to try again after a store's error: its breaker will have probed by then.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

impl<'a> Refused<'a> {
    /// What was refused; `None` if the request may pass.
    pub fn of(outcome: &'a Result<Decision, StoreError>) -> Option<Self> {
        Self::of_decision(outcome.as_ref().ok())
    }

    /// The same, with no decision if the store could not count.
    pub(crate) fn of_decision(decision: Option<&'a Decision>) -> Option<Self> {
        Some(Self { reason: Reason::of(decision)?, decision })
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The status that says so.
    pub fn status(&self) -> StatusCode {
        self.reason.wording().status
    }

    /// The gate's decision; `None` if the store could not count.
    pub fn decision(&self) -> Option<&'a Decision> {
        self.decision
    }

    /// How long to wait, if waiting helps. Not before the effective window of any violated quota
    /// has ended.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.reason {
            Reason::StoreUnavailable => Some(STORE_RETRY_AFTER),
            Reason::CostAboveUnits | Reason::Blocked => None,
            Reason::QuotaExceeded | Reason::Banned | Reason::Suspended => {
                let own = self.decision?.retry_after()?;
                let windows = self.violated().map(|(_, standing)| seconds::reset(standing));
                windows.chain([own]).max()
            }
        }
    }

    /// How long to wait in whole seconds, rounded up and at least one, if waiting helps.
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after().map(|after| seconds::ceil(after).max(1))
    }

    /// How long to wait in milliseconds, rounded up, if waiting helps.
    pub(super) fn retry_after_ms(&self) -> Option<u64> {
        let whole = |after: Duration| after.as_nanos().div_ceil(1_000_000);
        self.retry_after().map(|after| u64::try_from(whole(after)).unwrap_or(u64::MAX))
    }

    /// The decision, and in it the standing that binds the client most.
    pub(crate) fn tightest(&self) -> Option<(&'a Decision, &'a Standing)> {
        let decision = self.decision?;
        let (_, standing) = decision.tightest()?;
        Some((decision, standing))
    }

    /// The policy that binds the client most.
    pub fn policy(&self) -> Option<&'a PolicyStanding> {
        Some(self.decision?.tightest()?.0)
    }

    /// The policy whose ban is in force, or that an operator has banned the client under.
    pub fn banned_by(&self) -> Option<&'a Name> {
        self.decision?.banned_by()
    }

    /// The name of the policy that refused the request: by its ban, or because it binds the client
    /// most.
    pub(super) fn policy_name(&self) -> Option<&'a str> {
        let name = self.banned_by().or_else(|| self.policy().map(PolicyStanding::policy));
        name.map(|name| &**name)
    }

    /// The units of the violated quota that binds the client most. None if only policies were
    /// violated that are kept out of the headers: their quotas are not told here either.
    pub fn limit(&self) -> Option<u32> {
        Some(self.violated_in_headers()?.1.quota().units().get())
    }

    /// The plan that the same quota came from.
    pub fn plan(&self) -> Option<&'a CheckedPlan> {
        self.violated_in_headers()?.0.plan()
    }

    fn violated_in_headers(&self) -> Option<(&'a PolicyStanding, &'a Standing)> {
        self.decision?.tightest_in_headers().filter(|(policy, _)| policy.is_violated())
    }

    /// The plan's name.
    pub(super) fn plan_name(&self) -> Option<&'a str> {
        self.plan().map(|plan| &**plan.name())
    }

    /// Where a customer of the plan can get more.
    pub(super) fn upgrade_url(&self) -> Option<&'a str> {
        self.plan()?.upgrade_url()
    }

    /// The names of the violated quotas, as `RateLimit-Policy` has them; of a ban, the name of its
    /// policy.
    pub fn violated_policies(&self) -> Vec<String> {
        let name = |(policy, standing)| {
            let mut name = Vec::new();
            write_name(&mut name, policy, standing, 1);
            String::from_utf8(name).expect("names are ASCII")
        };
        let banned_by = self.banned_by().filter(|_| self.reason == Reason::Banned);
        let banned_by = banned_by.map(Name::to_string);
        self.violated().map(name).chain(banned_by).collect()
    }

    /// One or two sentences for people.
    pub fn message(&self) -> String {
        self.message_with("Try again in")
    }

    /// The message, with these words before the seconds to wait.
    pub(super) fn message_with(&self, retry: &str) -> String {
        let message = self.reason.wording().message;
        match self.retry_after_s() {
            None => message.to_owned(),
            Some(1) => format!("{message} {retry} 1 second."),
            Some(after_s) => format!("{message} {retry} {after_s} seconds."),
        }
    }

    fn violated(&self) -> impl Iterator<Item = (&'a PolicyStanding, &'a Standing)> + use<'a> {
        let policies = self.decision.map_or(&[][..], Decision::policies).iter();
        policies.filter(|policy| !policy.is_shadow()).flat_map(|policy| {
            let standings = policy.standings().iter();
            let violated = standings.filter(|standing| standing.is_violated());
            violated.map(move |standing| (policy, standing))
        })
    }
}
