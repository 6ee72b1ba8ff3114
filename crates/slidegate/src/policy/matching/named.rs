//! Charges that somebody names instead of leaving them to the policies.

use std::borrow::Cow;
use std::num::NonZeroU32;

use super::overridden::Tally;
use super::{CheckedPolicy, Limits, Match, Matches, Policies, Resolution};
use crate::limit::store::StoreError;
use crate::policy::identity::Identity;
use crate::policy::overrides::OverridesAt;
use crate::policy::source::Source;

/// A charge by name: whoever makes it knows the account and needs no request to find it.
#[derive(Debug, Clone, Copy)]
pub struct NamedCharge<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// Whose account it is. An address counts as the policy counts addresses, by its network.
    pub identity: Identity,
    /// The plan, for a policy that goes by plans; an unknown one is the default.
    pub plan: Option<&'a str>,
    /// The units to spend, else what the policy fixes, else one.
    pub cost: Option<NonZeroU32>,
}

/// Why named charges could not be decided.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamedChargeError {
    /// No policy in force has this name.
    #[error("there is no policy {0:?}")]
    UnknownPolicy(String),
    /// Two charges are under one policy, which counts one account of a request.
    #[error("two charges under policy {0:?}: a request has one account under each")]
    RepeatedPolicy(String),
    /// The store could not count.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Policies {
    pub(crate) fn resolve_named<'p>(
        &'p self,
        charges: &[NamedCharge<'_>],
        overrides: Option<OverridesAt<'_>>,
        matches: &mut Matches<'p>,
    ) -> Result<Resolution<'p>, NamedChargeError> {
        let mut tally = Tally::new(overrides);
        for (i, charge) in charges.iter().enumerate() {
            let named = || charge.policy.to_owned();
            if charges[..i].iter().any(|other| other.policy == charge.policy) {
                return Err(NamedChargeError::RepeatedPolicy(named()));
            }
            let policy = self.find(charge.policy);
            let policy = policy.ok_or_else(|| NamedChargeError::UnknownPolicy(named()))?;
            tally.look_around(&charge.identity);
            tally.add(self.match_named(policy, charge), matches);
        }
        Ok(tally.resolution())
    }

    pub(crate) fn match_named<'p>(
        &'p self,
        policy: &'p CheckedPolicy,
        charge: &NamedCharge<'_>,
    ) -> Match<'p> {
        let (quotas, plan, plan_unknown) = match &policy.limits {
            Limits::Quotas(quotas) => (quotas, None, false),
            Limits::Plans { default, .. } => {
                let plan = self.plan_named(charge.plan.unwrap_or_default().as_bytes());
                let (plan, plan_unknown) = plan.or_default(default);
                (&plan.quotas, Some(plan), plan_unknown)
            }
        };
        let cost = charge.cost.unwrap_or_else(|| policy.cost.of_request(None));
        Match {
            policy,
            identity: policy.account_of(charge.identity),
            quotas: Cow::Borrowed(quotas),
            plan,
            plan_unknown,
            cost,
        }
    }
}

impl CheckedPolicy {
    /// The identity as this policy would have read it, so that one account does not become two.
    pub(crate) fn account_of(&self, identity: Identity) -> Identity {
        let address = if identity.kind() == "ip" { identity.value().parse().ok() } else { None };
        let Some(address) = address else { return identity };
        let prefixes = self.sources.iter().find_map(|source| match source {
            Source::Ip(prefixes) => Some(*prefixes),
            _ => None,
        });
        Identity::ip(address, prefixes.unwrap_or_default())
    }
}
