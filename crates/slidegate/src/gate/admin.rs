//! What an operator can do to accounts, bans and overrides.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::{ActivePolicies, Gate};
use crate::limit::{
    Account, AccountReading, Charge, Charges, Name, Quotas, Receipt, Standing, Store, StoreError,
};
use crate::policy::CandidateStanding;
use crate::policy::matching::Match;
use crate::policy::overrides::OverrideEffect;
use crate::policy::{
    AccountError, ActiveBan, Ban, BanStats, CheckedPolicy, NamedCharge, OnStoreError, Overrides,
    Policies, Scope,
};

/// The operator's calls on a [`Gate`], from [`Gate::admin`].
///
/// ```
/// use slidegate::{Account, Gate, MemoryStore, Policies, Policy};
///
/// # async fn operate() -> Result<(), Box<dyn std::error::Error>> {
/// let policies = Policies::builder().policy(Policy::new("api").quota("60/min")).build()?;
/// let gate = Gate::new(policies, MemoryStore::new());
///
/// let account = Account { policy: "api".parse()?, identity: "ip:203.0.113.7".parse()? };
/// let inspection = gate.admin().inspect(&account, None).await?;
/// println!("{} left", inspection.standings[0].remaining());
/// gate.admin().reset(&account).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Admin<'g, S> {
    pub(crate) gate: &'g Gate<S>,
}

/// Where an account stands now, and what holds for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Where each quota in force stands, for a request that costs one unit. The quotas have the
    /// units that are granted.
    pub standings: Vec<Standing>,
    /// How much longer the account is banned, by itself or by an operator, whichever is longer.
    pub banned: Option<Duration>,
    /// How much longer an operator has exempted it.
    pub exempt: Option<Duration>,
    /// How many units of each quota in force an operator has granted.
    pub granted: Vec<u32>,
    /// Whether a store's trouble had a part in the standings.
    pub degraded: bool,
    /// The plan that the quotas come from.
    pub plan: Option<Name>,
    /// Where each quota of the policy's candidate stands, for a request that costs one unit.
    pub candidate: Vec<CandidateStanding>,
}

impl<S: Store> Admin<'_, S> {
    /// Tells where an account stands now, and spends nothing.
    ///
    /// `plan` applies to a policy that uses plans. Without it, the API key's plan is used, else the
    /// default. An unknown plan counts as the default.
    pub async fn inspect(
        &self,
        account: &Account,
        plan: Option<&str>,
    ) -> Result<Inspection, AccountError> {
        self.inspect_by(account, plan, None).await
    }

    /// [`inspect`](Self::inspect) by the quotas that the account was last seen with, because its
    /// charges bring them. They have the units that are granted already.
    pub async fn inspect_by(
        &self,
        account: &Account,
        plan: Option<&str>,
        quotas: Option<&Quotas>,
    ) -> Result<Inspection, AccountError> {
        let active = self.gate.active.load();
        let (matched, effect, granted) = self.matched(&active.policies, account, plan, quotas)?;
        let policy = matched.policy;
        let receipt = self.look(policy, &matched.charge().into()).await?;
        let counted = Account { policy: policy.name.clone(), identity: matched.identity };
        let begun = self.gate.bans.retry_after(&counted);
        Ok(Inspection {
            candidate: matched.candidate_standings(&receipt.standings, false),
            standings: matched.standings(&receipt.standings).into_vec(),
            banned: begun.filter(|_| policy.ban.is_some()).max(effect.banned),
            exempt: effect.exempt,
            granted,
            degraded: receipt.degraded,
            plan: matched.plan.map(|plan| plan.name.clone()),
        })
    }

    /// Reads what an account has spent in the windows of its quotas, and spends nothing. The quotas
    /// are those that [`inspect`](Self::inspect) has.
    pub async fn read(
        &self,
        account: &Account,
        plan: Option<&str>,
    ) -> Result<AccountReading, AccountError> {
        self.read_by(account, plan, None).await
    }

    /// [`read`](Self::read) by the quotas that the account was last seen with, as
    /// [`inspect_by`](Self::inspect_by) has them.
    pub async fn read_by(
        &self,
        account: &Account,
        plan: Option<&str>,
        quotas: Option<&Quotas>,
    ) -> Result<AccountReading, AccountError> {
        self.reading(&self.gate.policies(), account, plan, quotas).await
    }

    /// [`read`](Self::read) as if these policies were in force, with the overrides that are. A
    /// ledger that they would begin anew has nothing in it.
    pub async fn read_under(
        &self,
        policies: &Policies,
        account: &Account,
        plan: Option<&str>,
    ) -> Result<AccountReading, AccountError> {
        self.reading(policies, account, plan, None).await
    }

    async fn reading(
        &self,
        policies: &Policies,
        account: &Account,
        plan: Option<&str>,
        quotas: Option<&Quotas>,
    ) -> Result<AccountReading, AccountError> {
        let (matched, ..) = self.matched(policies, account, plan, quotas)?;
        let (policy, charge) = (matched.policy, matched.charge());
        let mut reading = match policy.scope {
            Scope::Local => self.gate.local.read_now(charge),
            Scope::Shared => match self.gate.store.read(charge).await {
                Err(_) if policy.on_store_error == OnStoreError::Local => {
                    AccountReading { degraded: true, ..self.gate.local.read_now(charge) }
                }
                answer => answer?,
            },
        };
        // Without those of windows that only the candidate has.
        reading.ledgers.truncate(matched.quotas.as_slice().len());
        Ok(reading)
    }

    /// How a request of one unit is charged to the account now, what overrides do to it, and how
    /// many units they grant to each quota.
    fn matched<'p>(
        &self,
        policies: &'p Policies,
        account: &'p Account,
        plan: Option<&'p str>,
        quotas: Option<&'p Quotas>,
    ) -> Result<(Match<'p>, OverrideEffect, Vec<u32>), AccountError> {
        let policy = policies.find(&account.policy)?;
        let charge = NamedCharge {
            policy: &account.policy,
            identity: account.identity,
            plan,
            cost: Some(NonZeroU32::MIN),
            quotas,
        };
        let active = self.gate.active.load();
        let mut matched = policies.match_named(policy, &charge, self.gate.calendar(policies));
        let overrides = active.overrides.at(self.gate.now());
        let own = overrides.everywhere(&matched.identity);
        let own = own.and(overrides.under(policy, &matched.identity));
        let effect = own.and(overrides.around(&account.identity));
        let grants = overrides.grants(&policy.name, &matched.identity);
        if quotas.is_none() {
            matched.raise(grants);
        }
        let quotas = matched.quotas.as_slice().iter();
        let granted = quotas.map(|quota| grants.units(quota.window())).collect();
        Ok((matched, effect, granted))
    }

    /// Peeks in the store that has the account, or in the gate's own if that store cannot tell and
    /// the policy would have it decide.
    async fn look(
        &self,
        policy: &CheckedPolicy,
        charges: &Charges<'_>,
    ) -> Result<Receipt, StoreError> {
        if policy.scope == Scope::Local {
            return self.gate.local.peek_now(charges);
        }
        match self.gate.store.peek(charges).await {
            Err(_) if policy.on_store_error == OnStoreError::Local => {
                Ok(Receipt { degraded: true, ..self.gate.local.peek_now(charges)? })
            }
            answer => answer,
        }
    }

    /// Whether a [`reset`](Self::reset) of the account would change nothing: no units are spent in
    /// any window that the policy counts, under whichever plan, the policy has not banned it, and no
    /// denial counts towards a ban.
    pub async fn is_untouched(&self, account: &Account) -> Result<bool, AccountError> {
        let active = self.gate.active.load();
        let (policy, account) = resolve(&active.policies, account)?;
        let windows = self.gate.windows_of(policy, &account.identity);
        let charges = charges(&account, &windows);
        let is_unspent = |receipt: &Receipt| {
            let mut standings = receipt.standings.iter();
            standings.all(|standing| standing.remaining() >= standing.quota().units().get())
        };
        if self.gate.bans.has_record(&account) || !is_unspent(&self.gate.local.peek_now(&charges)?)
        {
            return Ok(false);
        }
        match policy.scope {
            Scope::Local => Ok(true),
            Scope::Shared => Ok(is_unspent(&self.gate.store.peek(&charges).await?)),
        }
    }

    /// Takes back the newest units of an account: in each window as many as there are, up to `units`
    /// and to the units in force, with those that are granted.
    pub async fn refund_units(
        &self,
        account: &Account,
        units: NonZeroU32,
    ) -> Result<(), AccountError> {
        let active = self.gate.active.load();
        let (policy, Account { identity, .. }) = resolve(&active.policies, account)?;
        let overrides = active.overrides.at(self.gate.now());
        let grants = overrides.grants(&policy.name, &identity);
        let quotas = policy.window_quotas(&identity).raised(|window| grants.units(window));
        let ledgers = policy.consistency.ledgers(&quotas);
        let ledgers = self.gate.caller_windows.beside(policy, ledgers);
        Ok(self.gate.refund_newest(policy, &identity, &ledgers, units).await?)
    }

    /// Forgets everything that an account has spent, and lifts its ban. Spends that were counted in
    /// the shared account of a full store stay, because they have no identity.
    pub async fn reset(&self, account: &Account) -> Result<(), AccountError> {
        let active = self.gate.active.load();
        let (policy, account) = resolve(&active.policies, account)?;
        let windows = self.gate.windows_of(policy, &account.identity);
        let charges = charges(&account, &windows);
        self.gate.bans.forget(&account);
        // The gate's own store may have spends of a shared policy too, from when the store failed.
        self.gate.local.reset_now(&charges);
        match policy.scope {
            Scope::Local => Ok(()),
            Scope::Shared => Ok(self.gate.store.reset(&charges).await?),
        }
    }

    /// Does here what is left to do of a [`reset`](Self::reset) that another gate on the same store
    /// did `ago` ago: lifts the account's ban, and forgets what only this process knows of it.
    /// The store keeps what was spent since, at any gate.
    pub fn forget(&self, account: &Account, ago: Duration) -> Result<(), AccountError> {
        let active = self.gate.active.load();
        let (policy, account) = resolve(&active.policies, account)?;
        let windows = self.gate.windows_of(policy, &account.identity);
        let charges = charges(&account, &windows);
        self.gate.bans.forget(&account);
        match policy.scope {
            // An account of this gate alone, which is reset now.
            Scope::Local => self.gate.local.reset_now(&charges),
            Scope::Shared => {
                self.gate.local.reset_as_of(&charges, self.gate.now() - ago);
                self.gate.store.forget(&charges, ago);
            }
        }
        Ok(())
    }

    /// Bans an account for this long from now on, in place of a ban that it may have. Only a policy
    /// with a [`Ban`](crate::Ban) can ban.
    pub fn ban(&self, account: &Account, length: Duration) -> Result<(), AccountError> {
        let active = self.gate.active.load();
        let (policy, account) = resolve(&active.policies, account)?;
        let ban = ban_of(policy)?.lasting(length);
        Ok(self.gate.bans.begin(&account, ban)?)
    }

    /// Puts a ban in force that another gate has begun, or this one before a restart. A ban that is
    /// in force here and lasts as long stays as it is.
    pub fn adopt_ban(&self, ban: &ActiveBan) -> Result<(), AccountError> {
        let active = self.gate.active.load();
        let (policy, account) = resolve(&active.policies, &ban.account)?;
        let ban = ActiveBan { account, ..*ban };
        Ok(self.gate.bans.adopt(&ban, ban_of(policy)?)?)
    }

    /// Lifts the ban of an account, if it has one, and forgets the denials that were counted.
    pub fn lift_ban(&self, account: &Account) {
        if let Ok((_, account)) = resolve(&self.gate.active.load().policies, account) {
            self.gate.bans.forget(&account);
        }
    }

    /// All bans in force that denials began, here or at a gate that shared them, or that were begun
    /// by hand. An operator's [overrides](Self::overrides) are not among them.
    pub fn active_bans(&self) -> Vec<ActiveBan> {
        self.gate.bans.active(&self.gate.active.load().policies.banning())
    }

    /// How many bans there were, and what room there is for more.
    pub fn ban_stats(&self) -> BanStats {
        self.gate.bans.stats()
    }

    /// How many decisions under each policy in force its store could not count, because it failed or
    /// was full: they went by [`on_store_error`](crate::OnStoreError). Policies without any are left
    /// out. A request that several policies are for counts for each of those that were charged in the
    /// call that failed.
    pub fn uncounted(&self) -> HashMap<Name, u64> {
        self.gate.uncounted.counts()
    }

    /// The overrides that were last put in force, expired ones among them.
    pub fn overrides(&self) -> Arc<Overrides> {
        Arc::clone(&self.gate.active.load().overrides)
    }

    /// Puts other overrides in force, in place of all that were.
    pub fn replace_overrides(&self, overrides: Overrides) {
        let overrides = Arc::new(overrides);
        self.gate.active.rcu(|active| ActivePolicies {
            policies: Arc::clone(&active.policies),
            overrides: Arc::clone(&overrides),
        });
    }
}

/// The policy of an account, and the account as this policy counts it: an address by its network.
fn resolve<'p>(
    policies: &'p Policies,
    account: &Account,
) -> Result<(&'p CheckedPolicy, Account), AccountError> {
    let policy = policies.find(&account.policy)?;
    let identity = policy.account_of(account.identity);
    Ok((policy, Account { policy: policy.name.clone(), identity }))
}

/// A charge to an account in every window that its policy may have counted it in.
fn charges<'a>(account: &'a Account, windows: &'a Quotas) -> Charges<'a> {
    Charge::new(&account.policy, &account.identity, windows).into()
}

fn ban_of(policy: &CheckedPolicy) -> Result<Ban, AccountError> {
    policy.ban.ok_or_else(|| AccountError::NoBan(policy.name.to_string()))
}
