//! One charge of a call, from where it is counted to where its quotas stand.

use std::hash::{BuildHasher, Hash, Hasher};

use compact_str::CompactString;
use foldhash::fast::RandomState;

use super::Commit;
use super::account::AccountEntry;
use super::shard::Slot;
use crate::limit::charge::OnDenial;
use crate::limit::{Charge, OnStoreError, Quota, Standing, Standings, Timestamp};

/// The key of an account: the names of its policy and its identity, which have no spaces. The key of a
/// [`Limiter`](crate::Limiter)'s account has no policy and may have spaces.
///
/// Both parts are hashed and compared where they are. Copied into one text first, they would take longer
/// than the rest of a look-up: the processor has to finish the small writes before a larger read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AccountKey<'a> {
    /// Empty for an account of a `Limiter`.
    pub(super) policy: &'a str,
    identity: &'a str,
}

impl<'a> AccountKey<'a> {
    pub(super) fn new(policy: &'a str, identity: &'a str) -> Self {
        Self { policy, identity }
    }

    /// The account of a charge.
    pub(super) fn of(charge: &Charge<'a>) -> Self {
        Self { policy: charge.policy(), identity: charge.identity().as_str() }
    }

    /// The key that [`to_text`](Self::to_text) has written.
    pub(super) fn parse(text: &'a str) -> Self {
        let (policy, identity) = text.split_once(' ').unwrap_or(("", text));
        Self { policy, identity }
    }

    /// The policy's name, a space, and the identity.
    pub(super) fn to_text(self) -> CompactString {
        let mut text = CompactString::with_capacity(self.policy.len() + 1 + self.identity.len());
        [self.policy, " ", self.identity].into_iter().for_each(|part| text.push_str(part));
        text
    }

    /// Whether [`to_text`](Self::to_text) would be this text. An empty name is not compared: `memcmp`
    /// would take 80 ns, because the processor reads ahead at its address, which is not mapped.
    #[inline]
    pub(super) fn is_text(self, text: &str) -> bool {
        let (text, policy, identity) =
            (text.as_bytes(), self.policy.as_bytes(), self.identity.as_bytes());
        text.len() == policy.len() + 1 + identity.len()
            && text[policy.len() + 1..] == *identity
            && text[policy.len()] == b' '
            && (policy.is_empty() || text[..policy.len()] == *policy)
    }

    #[inline]
    pub(super) fn hash(self, state: &RandomState) -> u64 {
        let mut hasher = state.build_hasher();
        if !self.policy.is_empty() {
            hasher.write(self.policy.as_bytes());
        }
        // With its length: without it, similar texts that are written alone get similar hashes.
        self.identity.as_bytes().hash(&mut hasher);
        hasher.finish()
    }
}

/// A charge, and where it is counted.
pub(super) struct PlannedCharge<'a> {
    /// Newcomers that find no room share the account of its policy.
    pub(super) key: AccountKey<'a>,
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
    pub(super) fn new(key: AccountKey<'a>, hash: u64, quotas: &'a [Quota], cost: u32) -> Self {
        Self {
            key,
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

    pub(super) fn of(charge: &Charge<'a>, state: &RandomState) -> Self {
        let key = AccountKey::of(charge);
        let hash = key.hash(state);
        Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_by_its_text_and_by_no_other() {
        let keys = [("api", "user:42"), ("", "user:42"), ("", "api user:42"), ("", ""), ("", " ")];
        let keys = keys.map(|(policy, identity)| AccountKey::new(policy, identity));
        let state = RandomState::default();
        for key in keys {
            let text = key.to_text();
            let read = AccountKey::parse(&text);
            assert_eq!(read, key);
            assert_eq!(read.hash(&state), key.hash(&state));
            for other in keys {
                assert_eq!(other.is_text(&text), other == key, "{other:?} {text:?}");
            }
        }
    }
}
