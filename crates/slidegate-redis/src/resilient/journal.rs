//! What was admitted without Redis, until it has been replayed.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use slidegate::limit::Charge;
use slidegate::{Account, Timestamp};

use crate::owned::OwnedCharge;

/// What each account spent while Redis was not asked, and when.
#[derive(Default)]
pub(crate) struct Journal(Mutex<JournalPages>);

#[derive(Default)]
struct JournalPages {
    open: HashMap<Account, JournalPage>,
    /// Being replayed. They stay as they are, so that each is counted once.
    sent: Vec<JournalPage>,
    opened: u64,
}

/// What one account spent.
#[derive(Clone)]
pub(crate) struct JournalPage {
    /// No two pages of a journal have the same.
    pub(crate) number: u64,
    charge: OwnedCharge,
    /// Times and units, oldest first.
    spends: Vec<(Timestamp, u32)>,
}

/// Spends of more accounts than this are not recorded.
const MAX_ACCOUNTS: usize = 100_000;
/// As many times as a ledger in Redis tells apart.
const MAX_SPENDS: usize = 4096;

impl Journal {
    /// Records a spend. Returns whether there was room.
    pub(crate) fn record(&self, charge: &Charge<'_>, at: Timestamp) -> bool {
        let mut pages = self.0.lock();
        let account = account_of(charge);
        if pages.open.len() >= MAX_ACCOUNTS && !pages.open.contains_key(&account) {
            return false;
        }
        pages.opened += 1;
        let (number, spends) = (pages.opened, Vec::new());
        let new = || JournalPage { number, charge: charge.into(), spends };
        let page = pages.open.entry(account).or_insert_with(new);
        if page.charge() != *charge {
            page.charge = charge.into();
        }
        page.spends.push((at, charge.cost().get()));
        if page.spends.len() > MAX_SPENDS {
            page.halve();
        }
        true
    }

    /// Takes back units that were recorded for this time. Returns whether it found them.
    pub(crate) fn refund(&self, charge: &Charge<'_>, at: Timestamp) -> bool {
        let account = account_of(charge);
        let mut pages = self.0.lock();
        let Some(page) = pages.open.get_mut(&account) else { return false };
        let Some((_, units)) = page.spends.iter_mut().find(|spend| spend.0 == at) else {
            return false;
        };
        *units = units.saturating_sub(charge.cost().get());
        page.spends.retain(|(_, units)| *units > 0);
        if page.spends.is_empty() {
            pages.open.remove(&account);
        }
        true
    }

    /// Forgets what an account spent up to `at`. A page that is being replayed stays whole if it has
    /// anything later.
    pub(crate) fn forget_until(&self, charge: &Charge<'_>, at: Timestamp) {
        let account = account_of(charge);
        let mut pages = self.0.lock();
        if let Some(page) = pages.open.get_mut(&account) {
            page.spends.retain(|spend| spend.0 > at);
            if page.spends.is_empty() {
                pages.open.remove(&account);
            }
        }
        pages.sent.retain(|page| {
            let is_later = || page.spends.iter().any(|spend| spend.0 > at);
            account_of(&page.charge()) != account || is_later()
        });
    }

    /// What to replay next: what was sent and not confirmed, and all that is new.
    pub(crate) fn to_send(&self) -> Vec<JournalPage> {
        let mut pages = self.0.lock();
        let open = std::mem::take(&mut pages.open);
        pages.sent.extend(open.into_values());
        pages.sent.clone()
    }

    /// Removes a page that Redis has confirmed.
    pub(crate) fn confirm(&self, number: u64) {
        self.0.lock().sent.retain(|page| page.number != number);
    }

    /// Puts a page that could not be replayed behind all others.
    pub(crate) fn put_off(&self, number: u64) {
        self.0.lock().sent.sort_by_key(|page| page.number == number);
    }

    /// Calls `act` if nothing is recorded, while nothing can be. Returns whether it did.
    pub(crate) fn if_empty(&self, act: impl FnOnce()) -> bool {
        let pages = self.0.lock();
        let empty = pages.open.is_empty() && pages.sent.is_empty();
        if empty {
            act();
        }
        empty
    }

    /// How many accounts have something recorded.
    pub(crate) fn accounts(&self) -> usize {
        let pages = self.0.lock();
        pages.open.len() + pages.sent.len()
    }
}

fn account_of(charge: &Charge<'_>) -> Account {
    Account { policy: charge.policy().clone(), identity: *charge.identity() }
}

impl JournalPage {
    pub(crate) fn charge(&self) -> Charge<'_> {
        self.charge.as_charge()
    }

    /// How long ago units were spent that are left in the account's windows, oldest first.
    pub(crate) fn live(&self, now: Timestamp) -> Vec<(Duration, u32)> {
        let charge = self.charge();
        let windows = charge.quotas().as_slice().iter().map(|quota| quota.window());
        let longest = windows.max().unwrap_or_default();
        let aged = self.spends.iter().map(|(at, units)| (now.saturating_since(*at), *units));
        aged.filter(|(ago, _)| *ago < longest).collect()
    }

    pub(crate) fn units(&self) -> u64 {
        self.spends.iter().map(|(_, units)| u64::from(*units)).sum()
    }

    /// Makes one of each two, with the later's time: units are held longer, not shorter.
    fn halve(&mut self) {
        let join = |first: (Timestamp, u32), second: (Timestamp, u32)| {
            (second.0, first.1.saturating_add(second.1))
        };
        let pairs = self.spends.chunks(2);
        self.spends = pairs.filter_map(|pair| pair.iter().copied().reduce(join)).collect();
    }
}
