//! One charge of a call, from where it is counted to where its quotas stand.

use arrayvec::ArrayVec;
use smallvec::SmallVec;

use super::account::AccountEntry;
use super::shard::Slot;
use crate::limit::name::MAX_NAME_LEN;
use crate::limit::{Charge, Quota, Standing, Standings, Timestamp};
use crate::policy::OnStoreError;
use crate::policy::identity::MAX_IDENTITY_LEN;

/// The key of an account: its policy's name, a space, and its identity. Neither has a space.
pub(super) type AccountKey = ArrayVec<u8, { MAX_NAME_LEN + 1 + MAX_IDENTITY_LEN }>;

pub(super) fn account_key(charge: &Charge<'_>) -> AccountKey {
    let parts = [charge.policy().as_bytes(), b" ", charge.identity().as_str().as_bytes()];
    let mut key = AccountKey::new();
    for part in parts {
        key.try_extend_from_slice(part).expect("names and identities have a greatest length");
    }
    key
}

/// A charge, and where it is counted.
pub(crate) struct PlannedCharge<'a> {
    pub(super) key: &'a [u8],
    /// The key of the shared account for newcomers that find no room.
    pub(super) policy: &'a str,
    pub(super) quotas: &'a [Quota],
    pub(super) cost: u32,
    pub(super) counts_denied: bool,
    pub(super) shadow: bool,
    pub(super) on_store_error: OnStoreError,
    pub(super) hash: u64,
    /// Which of the locks taken is its shard's.
    pub(super) lock: usize,
    pub(super) slot: Slot,
    pub(super) will_spend: bool,
    /// Of a denied request that is counted: which of its quotas had room for it before.
    had_room: SmallVec<[bool; 2]>,
}

impl<'a> PlannedCharge<'a> {
    pub(super) fn new(key: &'a [u8], hash: u64, quotas: &'a [Quota], cost: u32) -> Self {
        Self {
            key,
            policy: "",
            quotas,
            cost,
            counts_denied: false,
            shadow: false,
            on_store_error: OnStoreError::Local,
            hash,
            lock: 0,
            slot: Slot::New,
            will_spend: true,
            had_room: SmallVec::new(),
        }
    }

    pub(super) fn of(charge: &Charge<'a>, key: &'a AccountKey, hash: u64) -> Self {
        Self {
            policy: charge.policy(),
            counts_denied: charge.counts_denied(),
            shadow: charge.is_shadow(),
            on_store_error: charge.store_error_action(),
            ..Self::new(key, hash, charge.quotas().as_slice(), charge.cost().get())
        }
    }

    /// Whether it fits all its quotas, by what the account has spent.
    #[inline]
    pub(super) fn fits(&self, account: Option<&AccountEntry>) -> bool {
        let Some(account) = account else { return true };
        let fits =
            |quota| account.ledger(quota).is_none_or(|ledger| ledger.admits(quota, self.cost));
        self.quotas.iter().all(|quota| fits(*quota))
    }

    /// Records what is spent, or denied and to be counted all the same.
    #[inline]
    pub(super) fn write(&mut self, account: &mut AccountEntry, now: Timestamp) {
        if !self.will_spend && !self.counts_denied {
            return;
        }
        for quota in self.quotas {
            let ledger = account.ledger_or_new(*quota);
            if self.will_spend {
                ledger.spend(*quota, self.cost, now);
            } else {
                self.had_room.push(ledger.admits(*quota, self.cost));
                ledger.spend_denied(*quota, self.cost, now);
            }
        }
    }

    /// Adds where each of its quotas stands.
    #[inline]
    pub(super) fn report(
        &self,
        account: Option<&AccountEntry>,
        now: Timestamp,
        standings: &mut Standings,
    ) {
        for (i, &quota) in self.quotas.iter().enumerate() {
            let standing = match account.and_then(|account| account.ledger(quota)) {
                None => Standing::untouched(quota),
                Some(ledger) if self.will_spend => ledger.standing(quota, now),
                Some(ledger) => {
                    let standing = ledger.standing_for(quota, self.cost, now);
                    let had_room = self.had_room.get(i) == Some(&true);
                    if had_room { standing.with_room() } else { standing }
                }
            };
            standings.push(standing);
        }
    }
}
