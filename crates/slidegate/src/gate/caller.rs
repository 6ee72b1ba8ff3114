//! Where a caller stands under every policy that counts it, whatever it asks for.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::Gate;
use crate::decision::Decision;
use crate::limit::memory::Commit;
use crate::limit::{Account, AccountReading, LedgerReading, Name, Quota, Quotas, Timestamp};
use crate::limit::{Store, StoreError};
use crate::policy::matching::Match;
use crate::policy::{CheckedPlan, Cost, Facts, Identity, Scope};

/// Where a caller stands, whatever it asks for: what [`Gate::standing`] finds.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallerStanding {
    /// Every request of the caller is refused like this.
    Refused(Decision),
    /// No request of the caller is counted.
    Exempt,
    /// Requests of the caller are counted.
    Counted {
        /// Its accounts under the policies that response headers tell of, in order.
        accounts: Vec<CallerAccount>,
        /// Those under the others, which are not for the caller to see, but refuse it all the same.
        hidden: Vec<CallerAccount>,
        /// The policies that refuse it now because it was denied too often or an operator banned it.
        bans: Vec<CallerBan>,
    },
}

/// A caller's account under one policy.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CallerAccount {
    /// The policy's name.
    pub policy: Name,
    /// Whose account it is.
    pub identity: Identity,
    /// The plan that the quotas come from.
    pub plan: Option<Arc<CheckedPlan>>,
    /// The quotas in force, with the units that are granted.
    pub quotas: Quotas,
    /// The ledger of each quota. Its window is longer than the quota's if the policy's units are leased.
    pub reading: AccountReading,
    /// How much longer the policy refuses the caller.
    pub banned: Option<Duration>,
    /// What a request costs under the policy.
    pub cost: Cost,
    /// Whether the policy counts every request of the caller, and not only those of some methods or paths.
    pub counts_every_request: bool,
}

/// A ban of a caller under one policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerBan {
    /// The policy's name.
    pub policy: Name,
    /// How long until it has ended.
    pub retry_after: Duration,
}

impl<S: Store> Gate<S> {
    /// Tells where a caller stands under each policy for requests that counts it, and spends nothing.
    /// Only the caller's identities matter: policies are found whatever their methods and paths are.
    /// Accounts under policies that response headers do not tell of are apart, and shadow policies are
    /// left out.
    ///
    /// An error means that an account could not be read. There are no numbers of another store then,
    /// whatever [`on_store_error`](crate::OnStoreError) says. One call to the store is made for each
    /// policy.
    ///
    /// ```
    /// use std::num::NonZeroU32;
    ///
    /// use slidegate::{CallerStanding, Facts, Gate, MemoryStore, Policies, Policy};
    ///
    /// # async fn standing() -> Result<(), Box<dyn std::error::Error>> {
    /// let login = Policy::new("login").path("/login").quota("5/min");
    /// let gate = Gate::new(Policies::builder().policy(login).build()?, MemoryStore::new());
    ///
    /// let caller = Facts::new(&http::Method::GET, "/rate-limits").client("203.0.113.7".parse()?);
    /// if let CallerStanding::Counted { accounts, .. } = gate.standing(&caller).await? {
    ///     assert_eq!(accounts[0].reading.ledgers[0].remaining(), 5);
    ///     let three = NonZeroU32::new(3).unwrap();
    ///     assert_eq!(accounts[0].passes_at(three), Some(accounts[0].reading.at));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn standing(&self, facts: &Facts<'_>) -> Result<CallerStanding, StoreError> {
        let active = self.active.load();
        let overrides = self.overrides_now(&active);
        let facts = &self.dated(&active, facts);
        let admits = self.admits(&active.policies, facts, Commit::Nothing);
        let mut matches = active.policies.resolve_caller(facts, overrides, admits);
        // Apart from what holds for every request: a ban under one policy says nothing of others.
        let counted = std::mem::take(&mut matches.list);
        if matches.exempt && matches.banned.is_none() {
            return Ok(CallerStanding::Exempt);
        }
        if let Some(refusal) = self.decide_uncharged(&matches) {
            return Ok(CallerStanding::Refused(refusal));
        }
        let (mut accounts, mut hidden, mut bans) = (Vec::new(), Vec::new(), Vec::new());
        for matched in counted.iter().filter(|matched| !matched.policy.shadow) {
            let policy = matched.policy;
            let suspended = overrides.and_then(|all| all.under(policy, &matched.identity).banned);
            let banned = self.own_ban(matched).max(suspended);
            if let Some(retry_after) = banned {
                bans.push(CallerBan { policy: policy.name.clone(), retry_after });
            }
            let reading = self.read_account(matched).await?;
            let list = if policy.in_headers { &mut accounts } else { &mut hidden };
            list.push(CallerAccount::new(matched, reading, banned));
        }
        Ok(CallerStanding::Counted { accounts, hidden, bans })
    }

    /// How much longer the policy bans the account for denials.
    fn own_ban(&self, matched: &Match<'_>) -> Option<Duration> {
        matched.policy.ban?;
        let policy = matched.policy.name.clone();
        self.bans.retry_after(&Account { policy, identity: matched.identity })
    }

    /// Reads an account where it is counted, and nowhere else.
    async fn read_account(&self, matched: &Match<'_>) -> Result<AccountReading, StoreError> {
        let reading = match matched.policy.scope {
            Scope::Local => self.local.read_now(matched.charge()),
            Scope::Shared => self.store.read(matched.charge()).await?,
        };
        match reading.degraded {
            true => Err(StoreError::Unavailable("the account cannot be read now".into())),
            false => Ok(reading),
        }
    }
}

impl CallerAccount {
    fn new(matched: &Match<'_>, mut reading: AccountReading, banned: Option<Duration>) -> Self {
        // Without those of windows that only the candidate has.
        reading.ledgers.truncate(matched.quotas.as_slice().len());
        let policy = matched.policy;
        Self {
            policy: policy.name.clone(),
            identity: matched.identity,
            plan: matched.plan.cloned(),
            quotas: matched.quotas.clone().into_owned(),
            reading,
            banned,
            cost: policy.cost,
            counts_every_request: policy.methods.is_empty() && policy.paths().is_empty(),
        }
    }

    /// Each quota with its ledger.
    pub fn ledgers(&self) -> impl Iterator<Item = (Quota, &LedgerReading)> {
        self.quotas.as_slice().iter().copied().zip(&self.reading.ledgers)
    }

    /// The instant on the store's clock from which so many units more pass under this policy if
    /// nothing else is spent: that of the reading if they do already. None if a quota has fewer units.
    pub fn passes_at(&self, units: NonZeroU32) -> Option<Timestamp> {
        let now = self.reading.at;
        let after_ban = now + self.banned.unwrap_or_default();
        self.reading.ledgers.iter().try_fold(after_ban, |latest, ledger| {
            ledger.fits_at(units, now).map(|at| at.max(latest))
        })
    }
}
