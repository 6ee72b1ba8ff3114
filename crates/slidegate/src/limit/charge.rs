//! What one request would spend, and from which accounts.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use smallvec::SmallVec;

use crate::identity::{Identity, ParseError};
use crate::limit::{Name, Quota, Quotas};

/// One account that a request would spend from: an identity's under a policy, with all its quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge<'a> {
    policy: &'a Name,
    identity: &'a Identity,
    quotas: &'a Quotas,
    cost: NonZeroU32,
    on_denial: OnDenial,
    shadow: bool,
    on_store_error: OnStoreError,
    lease: Option<Duration>,
}

/// What a charge leaves behind if the request is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnDenial {
    /// Nothing.
    #[default]
    Forget,
    /// Its cost, in the windows that had no room for it; in all of them if another charge was denied.
    Count,
    /// Its cost, in all windows.
    Record,
}

impl<'a> Charge<'a> {
    /// A charge of one unit.
    pub fn new(policy: &'a Name, identity: &'a Identity, quotas: &'a Quotas) -> Self {
        Self {
            policy,
            identity,
            quotas,
            cost: NonZeroU32::MIN,
            on_denial: OnDenial::Forget,
            shadow: false,
            on_store_error: OnStoreError::Local,
            lease: None,
        }
    }

    /// Sets the cost, which no quota may be too small for: it could never be paid.
    pub fn with_cost(self, cost: NonZeroU32) -> Result<Self, CostError> {
        let units = self.quotas.fewest_units();
        if cost > units { Err(CostError { cost, units }) } else { Ok(Self { cost, ..self }) }
    }

    /// Counts the request even if it is denied.
    #[must_use]
    pub fn count_denied(self, count_denied: bool) -> Self {
        let on_denial = if count_denied { OnDenial::Count } else { OnDenial::Forget };
        Self { on_denial, ..self }
    }

    /// Writes these units down whether they fit or not, because they are already used: a cost that is
    /// known only from the response. The receipt says whether they fitted.
    ///
    /// Only the newest units matter to an admission, as many as the quota has. So units that do not fit
    /// push out the oldest ones, of a cost above a quota only the quota's units are kept, and the
    /// account is closed for at most one window.
    #[must_use]
    pub fn record(self, cost: NonZeroU32) -> Self {
        Self { cost, on_denial: OnDenial::Record, ..self }
    }

    /// Counts the charge where it fits, but denies nothing for it.
    #[must_use]
    pub fn shadow(self, shadow: bool) -> Self {
        Self { shadow, ..self }
    }

    /// What to do when the charge cannot be counted.
    #[must_use]
    pub fn on_store_error(self, on_store_error: OnStoreError) -> Self {
        Self { on_store_error, ..self }
    }

    /// Lets a store that [leases](crate::Store::leases) take units of it ahead, and use each up to
    /// this long after it was taken. The quotas' windows have to be longer by as much.
    #[must_use]
    pub fn leased(self, lease: Option<Duration>) -> Self {
        Self { lease, ..self }
    }

    /// The policy's name.
    pub fn policy(&self) -> &'a Name {
        self.policy
    }

    /// Whose account it is.
    pub fn identity(&self) -> &'a Identity {
        self.identity
    }

    /// All of which must allow it.
    pub fn quotas(&self) -> &'a Quotas {
        self.quotas
    }

    /// How many units it takes from each.
    pub fn cost(&self) -> NonZeroU32 {
        self.cost
    }

    /// How many units it takes from a quota. Only a [recorded](Self::record) cost can be above the
    /// quota's units.
    pub fn cost_in(&self, quota: Quota) -> NonZeroU32 {
        self.cost.min(quota.units())
    }

    /// What it leaves behind if the request is denied.
    pub fn on_denial(&self) -> OnDenial {
        self.on_denial
    }

    /// Whether it never denies.
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// What to do when it cannot be counted.
    pub fn store_error_action(&self) -> OnStoreError {
        self.on_store_error
    }

    /// How long a prefetched unit may be used, if units may be prefetched.
    pub fn lease(&self) -> Option<Duration> {
        self.lease
    }

    fn same_account(&self, other: &Self) -> bool {
        self.policy == other.policy && self.identity == other.identity
    }
}

/// Everything that one request would spend: charges to accounts that are all different.
#[derive(Debug, Clone, Default)]
pub struct Charges<'a>(SmallVec<[Charge<'a>; 2]>);

impl<'a> Charges<'a> {
    /// No charges.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a charge to an account that is not charged yet.
    pub fn push(&mut self, charge: Charge<'a>) -> Result<(), DuplicateAccount> {
        if self.0.iter().any(|c| c.same_account(&charge)) {
            return Err(DuplicateAccount {
                account: Account { policy: charge.policy.clone(), identity: *charge.identity },
            });
        }
        self.0.push(charge);
        Ok(())
    }

    /// Charges to accounts that are known to be different.
    pub(crate) fn of_accounts(charges: impl Iterator<Item = Charge<'a>>) -> Self {
        Self(charges.collect())
    }

    /// Whether the request is to be refused if the charges cannot be counted.
    pub(crate) fn deny_on_store_error(&self) -> bool {
        self.0.iter().any(|c| c.on_store_error == OnStoreError::Deny && !c.shadow)
    }

    /// The charges, in the order they came.
    pub fn as_slice(&self) -> &[Charge<'a>] {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> From<Charge<'a>> for Charges<'a> {
    fn from(charge: Charge<'a>) -> Self {
        let mut charges = SmallVec::new();
        charges.push(charge);
        Self(charges)
    }
}

/// The name of an account: a policy, and an identity that spends under it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Account {
    /// The policy.
    pub policy: Name,
    /// Whose account it is. An address counts as the policy counts addresses, by its network.
    pub identity: Identity,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.policy, self.identity)
    }
}

/// A cost that a quota could never allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a cost of {cost} can never be paid from a quota of {units} units")]
pub struct CostError {
    cost: NonZeroU32,
    units: NonZeroU32,
}

/// Two charges to one account, which belong in one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two charges to one account ({account}): make it one charge with the cost of both")]
pub struct DuplicateAccount {
    account: Account,
}

/// What happens to a policy's requests when the store cannot count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnStoreError {
    /// This process's own limiter decides. In a memory store that is full, those who found no room
    /// share the policy's account for such, one in each shard.
    #[default]
    Local,
    /// The request passes uncounted.
    Allow,
    /// The request is refused as unavailable; it is never called "too many".
    Deny,
}

impl fmt::Display for OnStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
        })
    }
}

impl FromStr for OnStoreError {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "local" => Ok(Self::Local),
            "allow" => Ok(Self::Allow),
            "deny" => Ok(Self::Deny),
            _ => {
                let expected = "an action on a store's error: expected local, allow or deny";
                // As other limiters call it.
                let meant = match text.to_ascii_lowercase().replace('_', "-").as_str() {
                    "allow" | "open" | "fail-open" | "pass" | "ignore" => Some("allow"),
                    "deny" | "closed" | "close" | "fail-closed" | "fail-close" | "refuse" => {
                        Some("deny")
                    }
                    "local" | "memory" | "in-memory" | "fallback" => Some("local"),
                    _ => None,
                };
                Err(ParseError::new(text, expected).meant(meant))
            }
        }
    }
}
