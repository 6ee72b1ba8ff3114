//! A look at one account.

use std::num::NonZeroU32;

use super::{AccountError, Gate};
use crate::inspection::Inspection;
use crate::limit::charge::{Account, Charge, Charges};
use crate::limit::clock::Timestamp;
use crate::limit::store::{Receipt, Store, StoreError};
use crate::policy::matching::{Match, NamedCharge, Policies};
use crate::policy::{OnStoreError, Scope};

impl<S: Store> Gate<S> {
    /// Tells where an account stands now, and spends nothing.
    ///
    /// The plan is for a policy that goes by plans: without one it is the API key's, else the
    /// default, which an unknown one is too.
    pub async fn inspect(
        &self,
        account: &Account,
        plan: Option<&str>,
    ) -> Result<Inspection, AccountError> {
        let rules = self.rules.load();
        let mut matched = match_account(&rules.policies, account, plan)?;
        let now = self.now();
        let overrides = rules.overrides.at(now);
        let own = overrides.everywhere(&matched.identity);
        let own = own.and(overrides.under(matched.policy, &matched.identity));
        let effect = own.and(overrides.around(&account.identity));
        matched.raise(effect.granted);
        let receipt = self.look(&matched).await?;
        let rest = |until: Timestamp| until.saturating_since(now);
        let begun = matched.policy.ban.and_then(|_| {
            self.bans.retry_after(&matched.policy.name, &matched.identity, || self.now())
        });
        Ok(Inspection {
            standings: receipt.standings.to_vec(),
            banned: begun.max(effect.banned_until.map(rest)),
            exempt: effect.exempt_until.map(rest),
            granted: effect.granted,
            degraded: receipt.degraded,
            plan: matched.plan.map(|plan| plan.name().clone()),
        })
    }

    /// Whether a [`reset`](Self::reset) of the account would change nothing: no units are spent in
    /// any window that the policy counts, under whichever plan, the policy has not banned it, and no
    /// denial counts towards a ban.
    pub async fn is_untouched(&self, account: &Account) -> Result<bool, AccountError> {
        let rules = self.rules.load();
        let (policy, identity) = Self::policy_of(&rules.policies, account)?;
        let quotas = Self::quotas_of(&rules.policies, policy);
        let charges = Charges::from(Charge::new(&policy.name, &identity, &quotas));
        let is_unspent = |receipt: &Receipt| {
            let mut standings = receipt.standings.iter();
            standings.all(|standing| standing.remaining() >= standing.quota().units().get())
        };
        if self.bans.has_record(&policy.name, &identity, || self.now())
            || !is_unspent(&self.local.peek_now(&charges)?)
        {
            return Ok(false);
        }
        match policy.scope {
            Scope::Local => Ok(true),
            Scope::Shared => Ok(is_unspent(&self.store.peek(&charges).await?)),
        }
    }

    /// Asks the store that has the account, or the gate's own if that store cannot tell and the
    /// policy would have it decide.
    async fn look(&self, matched: &Match<'_>) -> Result<Receipt, StoreError> {
        let charges = Charges::from(matched.charge());
        if matched.policy.scope == Scope::Local {
            return self.local.peek_now(&charges);
        }
        match self.store.peek(&charges).await {
            Err(_) if matched.policy.on_store_error == OnStoreError::Local => {
                Ok(Receipt { degraded: true, ..self.local.peek_now(&charges)? })
            }
            answer => answer,
        }
    }
}

/// The account's policy, as it would count a request of one unit.
fn match_account<'p>(
    policies: &'p Policies,
    account: &Account,
    plan: Option<&str>,
) -> Result<Match<'p>, AccountError> {
    let policy = policies.find(&account.policy);
    let policy = policy.ok_or_else(|| AccountError::UnknownPolicy(account.policy.to_string()))?;
    let of_key = policies.api_keys.get(&account.identity).map(|key| &**key.plan.name());
    let charge = NamedCharge {
        policy: &account.policy,
        identity: account.identity,
        plan: plan.or(of_key),
        cost: Some(NonZeroU32::MIN),
    };
    Ok(policies.match_named(policy, &charge))
}
