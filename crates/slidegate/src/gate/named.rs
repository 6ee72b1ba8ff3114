//! Decisions on charges that are named, not found by a request's facts.

use super::{Gate, Intent};
use crate::decision::Decision;
use crate::limit::store::Store;
use crate::policy::matching::{Matches, NamedCharge, NamedChargeError};

impl<S: Store> Gate<S> {
    /// Spends every one of these charges, or none.
    ///
    /// It is [`decide`](Self::decide) for whoever knows the accounts already. Bans and overrides hold,
    /// and so does all that a policy says of its quotas; whom it is for and who is exempt or blocked
    /// does not, because there is no request to ask it of.
    ///
    /// ```
    /// use slidegate::{Gate, MemoryStore, NamedCharge, Policies, Policy, Quota};
    ///
    /// # async fn send() -> Result<(), Box<dyn std::error::Error>> {
    /// let policies = Policies::builder()
    ///     .policy(Policy::new("tenant").quota(Quota::per_day(10_000)))
    ///     .policy(Policy::new("mailbox").quota(Quota::per_minute(20)))
    ///     .build()?;
    /// let gate = Gate::new(policies, MemoryStore::new());
    ///
    /// let charge = |policy, identity: &str| {
    ///     Ok::<_, slidegate::policy::IdentityError>(NamedCharge {
    ///         policy,
    ///         identity: identity.parse()?,
    ///         plan: None,
    ///         cost: None,
    ///     })
    /// };
    /// let charges = [charge("tenant", "x-tenant:acme")?, charge("mailbox", "user:42")?];
    /// assert!(gate.decide_named(&charges).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn decide_named(
        &self,
        charges: &[NamedCharge<'_>],
    ) -> Result<Decision, NamedChargeError> {
        self.run_named(charges, Intent::Spend).await
    }

    /// Tells what would be decided now, and spends nothing. Standings are as they are.
    pub async fn peek_named(
        &self,
        charges: &[NamedCharge<'_>],
    ) -> Result<Decision, NamedChargeError> {
        self.run_named(charges, Intent::Peek).await
    }

    async fn run_named(
        &self,
        charges: &[NamedCharge<'_>],
        intent: Intent,
    ) -> Result<Decision, NamedChargeError> {
        let rules = self.rules.load();
        let overrides = self.overrides_at_once(&rules);
        let mut matches = Matches::default();
        let mut decision = Decision::default();
        let resolution = rules.policies.resolve_named(charges, overrides, &mut matches)?;
        self.warn_of_unknown_plan(&matches, |policy| {
            let charge = charges.iter().find(|charge| charge.policy == &*policy.name)?;
            charge.plan.map(str::to_owned)
        });
        self.conclude(resolution, &matches, intent, &mut decision).await?;
        Ok(decision)
    }
}
