//! One charge of a call, from where it is counted to where its quotas stand.

use arrayvec::ArrayVec;

use super::Commit;
use super::account::AccountEntry;
use super::shard::Slot;
use crate::identity::Identity;
use crate::identity::MAX_IDENTITY_LEN;
use crate::limit::charge::OnDenial;
use crate::limit::name::MAX_NAME_LEN;
use crate::limit::{Charge, Name, OnStoreError, Quota, Standing, Standings, Timestamp};

/// The key of an account: its policy's name, a space, and its identity. Neither has a space.
pub(super) type AccountKey = ArrayVec<u8, { MAX_NAME_LEN + 1 + MAX_IDENTITY_LEN }>;

pub(super) fn account_key(charge: &Charge<'_>) -> AccountKey {
    key_of(charge.policy(), charge.identity())
}

pub(super) fn key_of(policy: &Name, identity: &Identity) -> AccountKey {
    let parts = [policy.as_bytes(), b" ", identity.as_str().as_bytes()];
    let mut key = AccountKey::new();
    for part in parts {
        key.try_extend_from_slice(part).expect("names and identities have a greatest length");
    }
    key
}

/// A charge, and where it is counted.
pub(super) struct PlannedCharge<'a> {
    pub(super) key: &'a [u8],
    /// The key of the shared account for newcomers that find no room.
    pub(super) policy: &'a str,
    pub(super) quotas: &'a [Quota],
    pub(super) cost: u32,
    pub(super) on_denial: OnDenial,
    pub(super) shadow: bool,
    pub(super) on_store_error: OnStoreError,
    pub(super) hash: u64,
    /// Which of the locks taken is its shard's.
    pub(super) lock: usize,
    pub(super) slot: Slot,
    /// Whether every quota has room for it.
    pub(super) fits: bool,
    pub(super) will_spend: bool,
}

impl<'a> PlannedCharge<'a> {
    pub(super) fn new(key: &'a [u8], hash: u64, quotas: &'a [Quota], cost: u32) -> Self {
        Self {
            key,
            policy: "",
            quotas,
            cost,
            on_denial: OnDenial::Forget,
            shadow: false,
            on_store_error: OnStoreError::Local,
            hash,
            lock: 0,
            slot: Slot::New,
            fits: true,
            will_spend: true,
        }
    }

    pub(super) fn of(charge: &Charge<'a>, key: &'a AccountKey, hash: u64) -> Self {
        Self {
            policy: charge.policy(),
            on_denial: charge.on_denial(),
            shadow: charge.is_shadow(),
            on_store_error: charge.store_error_action(),
            ..Self::new(key, hash, charge.quotas().as_slice(), charge.cost().get())
        }
    }

    /// Whether the request is allowed as far as this charge goes, by what the account has spent.
    #[inline]
    pub(super) fn plan(&mut self, account: Option<&mut AccountEntry>, now: Timestamp) -> bool {
        if let Some(account) = account {
            for quota in self.quotas {
                let Some(ledger) = account.ledger_mut(*quota) else { continue };
                ledger.expire_in_order(now);
                self.fits &= ledger.admits(*quota, self.cost);
            }
        }
        if self.on_denial == OnDenial::Record {
            self.fits &= self.quotas.iter().all(|quota| self.cost <= quota.units().get());
        }
        self.will_spend = self.fits;
        self.will_spend || self.shadow
    }

    /// What is left to do with the account: not every charge leaves something behind when it is denied.
    pub(super) fn to_commit(&self, commit: Commit) -> Commit {
        let is_written = self.will_spend || self.on_denial != OnDenial::Forget;
        if is_written { commit } else { Commit::Nothing }
    }

    /// Writes what is spent, or denied and to be written all the same, and adds where each of the
    /// quotas stands.
    ///
    /// A denial that this charge has caused is counted where there was no room: a client that
    /// exceeds its minute does not use up its day.
    #[inline]
    pub(super) fn write(
        &self,
        mut account: Option<&mut AccountEntry>,
        commit: Commit,
        now: Timestamp,
        standings: &mut Standings,
    ) {
        for &quota in self.quotas {
            let ledger = account.as_deref_mut().and_then(|account| match commit {
                Commit::Spend => Some(account.ledger_or_new(quota, now)),
                Commit::Nothing => account.ledger_mut(quota),
            });
            let cost = self.cost_in(quota);
            standings.push(match ledger {
                None => Standing::untouched(quota),
                Some(ledger) if self.will_spend => {
                    if commit == Commit::Spend {
                        ledger.spend(quota, cost, now);
                    }
                    ledger.standing(quota, now)
                }
                Some(ledger) => {
                    let had_room = ledger.admits(quota, self.cost);
                    let is_counted = match self.on_denial {
                        OnDenial::Forget => false,
                        OnDenial::Count => self.fits || !had_room,
                        OnDenial::Record => true,
                    };
                    if commit == Commit::Spend && is_counted {
                        ledger.record(quota, cost, now);
                    }
                    let standing = ledger.standing_for(quota, cost, now);
                    if had_room { standing.with_room() } else { standing }
                }
            });
        }
    }

    /// The units that it takes from a quota: only of a recorded cost the quota may have fewer.
    #[inline]
    fn cost_in(&self, quota: Quota) -> u32 {
        self.cost.min(quota.units().get())
    }
}
