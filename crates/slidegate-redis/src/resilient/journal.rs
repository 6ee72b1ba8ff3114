//! What was admitted without Redis, until Redis knows.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slidegate::limit::Charge;
use slidegate::{Account, Timestamp};

use crate::owned::OwnedCharge;

/// What each account spent while Redis was not asked, and when.
pub(crate) struct Journal(Mutex<JournalPages>);

#[derive(Default)]
struct JournalPages {
    open: HashMap<Account, JournalPage>,
    /// Being told to Redis. They stay as they are, so that each is told once.
    sent: VecDeque<Merge>,
    merges: u64,
}

/// What one account spent, oldest first.
#[derive(Clone)]
struct JournalPage {
    charge: OwnedCharge,
    runs: VecDeque<Spend>,
}

/// Units that were spent at one moment.
#[derive(Clone, Copy)]
struct Spend {
    at: Timestamp,
    units: u32,
}

/// Units to tell Redis of, by their age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AgedUnits {
    pub(crate) ago: Duration,
    pub(crate) units: u32,
}

/// A page on its way to Redis.
#[derive(Clone)]
pub(crate) struct Merge {
    pub(crate) number: u64,
    page: JournalPage,
}

/// More accounts than this are not written down.
const MOST_ACCOUNTS: usize = 100_000;
/// As many moments as a ledger in Redis tells apart.
const MOST_RUNS: usize = 4096;

impl Journal {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Writes down a spend; tells whether there was room.
    pub(crate) fn record(&self, charge: &Charge<'_>, at: Timestamp) -> bool {
        let mut pages = self.lock();
        let account = account_of(charge);
        if pages.open.len() >= MOST_ACCOUNTS && !pages.open.contains_key(&account) {
            return false;
        }
        let page = pages.open.entry(account).or_insert_with(|| JournalPage::new(charge));
        if page.charge != *charge {
            page.charge = charge.into();
        }
        page.push(Spend { at, units: charge.cost().get() });
        true
    }

    /// Takes back units that were written down for this moment; tells whether it found them.
    pub(crate) fn refund(&self, charge: &Charge<'_>, at: Timestamp) -> bool {
        let account = account_of(charge);
        let mut pages = self.lock();
        let Some(page) = pages.open.get_mut(&account) else { return false };
        let Some(spend) = page.runs.iter_mut().find(|spend| spend.at == at) else { return false };
        spend.units = spend.units.saturating_sub(charge.cost().get());
        page.runs.retain(|spend| spend.units > 0);
        if page.runs.is_empty() {
            pages.open.remove(&account);
        }
        true
    }

    /// Forgets an account.
    pub(crate) fn forget(&self, charge: &Charge<'_>) {
        self.forget_until(charge, Timestamp::from_nanos(u64::MAX));
    }

    /// Forgets what an account spent up to `at`. A page that is being told stays whole if it has
    /// anything later.
    pub(crate) fn forget_until(&self, charge: &Charge<'_>, at: Timestamp) {
        let account = account_of(charge);
        let mut pages = self.lock();
        if let Some(page) = pages.open.get_mut(&account) {
            page.runs.retain(|spend| spend.at > at);
            if page.runs.is_empty() {
                pages.open.remove(&account);
            }
        }
        pages.sent.retain(|merge| {
            let is_later = || merge.page.runs.iter().any(|spend| spend.at > at);
            account_of(&merge.charge()) != account || is_later()
        });
    }

    /// What to tell Redis next: what was sent and not confirmed, and a page of all that is new.
    pub(crate) fn to_send(&self) -> Vec<Merge> {
        let mut pages = self.lock();
        let open = std::mem::take(&mut pages.open);
        for page in open.into_values() {
            pages.merges += 1;
            let number = pages.merges;
            pages.sent.push_back(Merge { number, page });
        }
        pages.sent.iter().cloned().collect()
    }

    /// Strikes out what Redis has confirmed.
    pub(crate) fn confirm(&self, number: u64) {
        self.lock().sent.retain(|merge| merge.number != number);
    }

    /// Puts off what Redis could not be told, behind all else.
    pub(crate) fn put_off(&self, number: u64) {
        let mut pages = self.lock();
        if let Some(place) = pages.sent.iter().position(|merge| merge.number == number)
            && let Some(merge) = pages.sent.remove(place)
        {
            pages.sent.push_back(merge);
        }
    }

    /// Does something at a moment when nothing is written down; tells whether there was one.
    pub(crate) fn if_empty(&self, act: impl FnOnce()) -> bool {
        let pages = self.lock();
        let empty = pages.open.is_empty() && pages.sent.is_empty();
        if empty {
            act();
        }
        empty
    }

    /// How many accounts have something written down.
    pub(crate) fn accounts(&self) -> usize {
        let pages = self.lock();
        pages.open.len() + pages.sent.len()
    }

    fn lock(&self) -> MutexGuard<'_, JournalPages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn account_of(charge: &Charge<'_>) -> Account {
    Account { policy: charge.policy().clone(), identity: *charge.identity() }
}

impl JournalPage {
    fn new(charge: &Charge<'_>) -> Self {
        Self { charge: charge.into(), runs: VecDeque::new() }
    }

    fn push(&mut self, spend: Spend) {
        self.runs.push_back(spend);
        if self.runs.len() > MOST_RUNS {
            self.halve();
        }
    }

    /// Makes one of each two, with the later's moment: units are held longer, not shorter.
    fn halve(&mut self) {
        let mut halved = VecDeque::with_capacity(self.runs.len() / 2 + 1);
        while let Some(first) = self.runs.pop_front() {
            halved.push_back(match self.runs.pop_front() {
                Some(second) => {
                    Spend { at: second.at, units: first.units.saturating_add(second.units) }
                }
                None => first,
            });
        }
        self.runs = halved;
    }
}

impl Merge {
    pub(crate) fn charge(&self) -> Charge<'_> {
        self.page.charge.as_charge()
    }

    /// What is left of it in the account's windows, oldest first.
    pub(crate) fn runs(&self, now: Timestamp) -> Vec<AgedUnits> {
        let charge = self.page.charge.as_charge();
        let windows = charge.quotas().as_slice().iter().map(|quota| quota.window());
        let longest = windows.max().unwrap_or_default();
        let run =
            |spend: &Spend| AgedUnits { ago: now.saturating_since(spend.at), units: spend.units };
        self.page.runs.iter().map(run).filter(|run| run.ago < longest).collect()
    }

    pub(crate) fn units(&self) -> u64 {
        self.page.runs.iter().map(|spend| u64::from(spend.units)).sum()
    }
}
