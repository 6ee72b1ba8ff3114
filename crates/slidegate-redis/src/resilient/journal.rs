//! Spends admitted without Redis, kept until they are replayed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use slidegate::limit::{Charge, Charges};
use slidegate::{Account, Timestamp};
use tokio::sync::watch;

use crate::error::RedisStoreError;
use crate::owned::OwnedCharge;

/// The spends of each account that Redis has not counted, with their times.
///
/// A call reaches Redis for an account only after all pages that the account had when the call began are
/// replayed. Pages are numbered in the order in which they are opened, so a call waits for at most two,
/// the sent one and the open one, however many are opened meanwhile: under constant traffic no account
/// is kept from Redis.
#[derive(Default)]
pub(crate) struct Journal {
    pages: Mutex<JournalPages>,
    /// The number of accounts with pages, readable without the lock.
    accounts: AtomicUsize,
}

#[derive(Default)]
struct JournalPages {
    accounts: HashMap<Account, AccountPages>,
    opened: u64,
}

#[derive(Default)]
struct AccountPages {
    /// Sent and not confirmed. It is not modified, so that Redis counts it once.
    sent: Option<JournalPage>,
    /// The page that new spends are appended to.
    open: Option<JournalPage>,
    /// The replay of the sent page, while there is one.
    replay: Option<PendingReplay>,
    /// Consecutive failed replays.
    failures: u32,
}

/// Spends of one account.
#[derive(Clone)]
pub(crate) struct JournalPage {
    /// Unique within a journal.
    pub(crate) number: u64,
    charge: OwnedCharge,
    /// Times and units, oldest first.
    spends: Vec<(Timestamp, u32)>,
}

/// The outcome of a replay, once there is one.
pub(crate) type PendingReplay = watch::Receiver<Option<Result<(), RedisStoreError>>>;
pub(crate) type ReplaySender = watch::Sender<Option<Result<(), RedisStoreError>>>;

/// Spends of more accounts than this are not recorded.
const MAX_ACCOUNTS: usize = 100_000;
/// The number of distinct stamps in a Redis ledger.
const MAX_SPENDS: usize = 4096;

impl Journal {
    /// Records a spend. Returns false if the journal is full.
    pub(crate) fn record(&self, charge: &Charge<'_>, at: Timestamp) -> bool {
        self.change(|pages| {
            let account = account_of(charge);
            if pages.accounts.len() >= MAX_ACCOUNTS && !pages.accounts.contains_key(&account) {
                return false;
            }
            pages.opened += 1;
            let (number, spends) = (pages.opened, Vec::new());
            let new = || JournalPage { number, charge: charge.into(), spends };
            let page = pages.accounts.entry(account).or_default().open.get_or_insert_with(new);
            if page.charge() != *charge {
                page.charge = charge.into();
            }
            page.spends.push((at, charge.cost().get()));
            if page.spends.len() > MAX_SPENDS {
                page.make_room(at);
            }
            true
        })
    }

    /// Whether the account has units recorded at this time that are not sent yet.
    pub(crate) fn has(&self, charge: &Charge<'_>, at: Timestamp) -> bool {
        if self.is_empty() {
            return false;
        }
        let pages = self.pages.lock();
        let open = pages.accounts.get(&account_of(charge)).and_then(|own| own.open.as_ref());
        open.is_some_and(|page| page.spends.iter().any(|spend| spend.0 == at))
    }

    /// Refunds units recorded at this time. Returns whether it found them.
    pub(crate) fn refund(&self, charge: &Charge<'_>, at: Timestamp) -> bool {
        self.change(|pages| {
            let account = account_of(charge);
            let Some(own) = pages.accounts.get_mut(&account) else { return false };
            let Some(page) = &mut own.open else { return false };
            let Some((_, units)) = page.spends.iter_mut().find(|spend| spend.0 == at) else {
                return false;
            };
            *units = units.saturating_sub(charge.cost().get());
            page.spends.retain(|(_, units)| *units > 0);
            own.open.take_if(|page| page.spends.is_empty());
            pages.drop_if_empty(&account);
            true
        })
    }

    /// Forgets what an account spent up to `at`. A page that was sent stays whole if it has anything
    /// later.
    pub(crate) fn forget_until(&self, charge: &Charge<'_>, at: Timestamp) {
        self.change(|pages| {
            let account = account_of(charge);
            let Some(own) = pages.accounts.get_mut(&account) else { return };
            if let Some(page) = &mut own.open {
                page.spends.retain(|spend| spend.0 > at);
            }
            own.drop_pages_if(|page| page.spends.iter().all(|spend| spend.0 <= at));
            pages.drop_if_empty(&account);
        });
    }

    /// Whether the journal is empty. Does not lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.accounts() == 0
    }

    /// The number of accounts with recorded spends.
    pub(crate) fn accounts(&self) -> usize {
        self.accounts.load(Ordering::Acquire)
    }

    /// Those accounts of the charges that have pages, each with the number of its newest page.
    pub(crate) fn pages_of(&self, charges: &Charges<'_>, now: Timestamp) -> Vec<(Account, u64)> {
        self.change(|pages| {
            let accounts = charges.as_slice().iter().map(account_of);
            let newest = |account: Account| {
                let own = pages.accounts.get_mut(&account)?;
                own.drop_pages_if(|page| page.is_over(now));
                let newest = own.newest();
                pages.drop_if_empty(&account);
                newest.map(|newest| (account, newest))
            };
            accounts.filter_map(newest).collect()
        })
    }

    /// All accounts that have pages, each with the number of its newest page. Those whose replay has
    /// failed come last.
    pub(crate) fn all_pages(&self, now: Timestamp) -> Vec<(Account, u64)> {
        self.change(|pages| {
            pages.accounts.retain(|_, own| {
                own.drop_pages_if(|page| page.is_over(now));
                own.newest().is_some()
            });
            let mut all: Vec<(&Account, &AccountPages)> = pages.accounts.iter().collect();
            all.sort_by_key(|(_, own)| own.failures);
            let newest = |(account, own): (&Account, &AccountPages)| {
                own.newest().map(|newest| (account.clone(), newest))
            };
            all.into_iter().filter_map(newest).collect()
        })
    }

    /// The replay of an account's oldest page, unless that page is newer than `last`. Calls `begin`
    /// if no replay is running.
    pub(crate) fn replay(
        &self,
        account: &Account,
        last: u64,
        begin: impl FnOnce(JournalPage, ReplaySender),
    ) -> Option<PendingReplay> {
        let mut pages = self.pages.lock();
        let own = pages.accounts.get_mut(account)?;
        if own.sent.is_none() {
            own.sent = own.open.take_if(|page| page.number <= last);
        }
        let page = own.sent.as_ref().filter(|page| page.number <= last)?;
        // A replay ends with the runtime that it was spawned on.
        if let Some(replay) = own.replay.as_ref().filter(|replay| replay.has_changed().is_ok()) {
            return Some(replay.clone());
        }
        let (sender, replay) = watch::channel(None);
        begin(page.clone(), sender);
        own.replay = Some(replay.clone());
        Some(replay)
    }

    /// Ends the replay of a page, and removes the page if Redis has counted it.
    pub(crate) fn end_replay(&self, page: &JournalPage, has_it: bool) {
        self.change(|pages| {
            let account = account_of(&page.charge());
            let Some(own) = pages.accounts.get_mut(&account) else { return };
            if own.sent.as_ref().is_none_or(|sent| sent.number != page.number) {
                return;
            }
            own.replay = None;
            if has_it {
                (own.sent, own.failures) = (None, 0);
            } else {
                own.failures = own.failures.saturating_add(1);
            }
            pages.drop_if_empty(&account);
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut JournalPages) -> T) -> T {
        let mut pages = self.pages.lock();
        let output = change(&mut pages);
        self.accounts.store(pages.accounts.len(), Ordering::Release);
        output
    }
}

impl JournalPages {
    fn drop_if_empty(&mut self, account: &Account) {
        if self.accounts.get(account).is_some_and(|own| own.newest().is_none()) {
            self.accounts.remove(account);
        }
    }
}

impl AccountPages {
    fn newest(&self) -> Option<u64> {
        self.open.as_ref().or(self.sent.as_ref()).map(|page| page.number)
    }

    fn drop_pages_if(&mut self, is_over: impl Fn(&JournalPage) -> bool) {
        self.open.take_if(|page| is_over(page));
        if self.sent.take_if(|page| is_over(page)).is_some() {
            self.replay = None;
        }
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
        let longest = self.longest_window();
        let aged = self.spends.iter().map(|(at, units)| (now.saturating_since(*at), *units));
        aged.filter(|(ago, _)| *ago < longest).collect()
    }

    /// Whether all of it has left the account's windows.
    fn is_over(&self, now: Timestamp) -> bool {
        let longest = self.longest_window();
        self.spends.iter().all(|(at, _)| now.saturating_since(*at) >= longest)
    }

    fn longest_window(&self) -> Duration {
        let windows = self.charge.quotas.as_slice().iter().map(|quota| quota.window());
        windows.max().unwrap_or_default()
    }

    pub(crate) fn units(&self) -> u64 {
        self.spends.iter().map(|(_, units)| u64::from(*units)).sum()
    }

    /// Removes spends that have left the account's windows. If there are none, merges neighbouring
    /// pairs under the later time: units are held longer, never shorter.
    fn make_room(&mut self, now: Timestamp) {
        let longest = self.longest_window();
        self.spends.retain(|(at, _)| now.saturating_since(*at) < longest);
        if self.spends.len() <= MAX_SPENDS {
            return;
        }
        let join = |first: (Timestamp, u32), second: (Timestamp, u32)| {
            (second.0, first.1.saturating_add(second.1))
        };
        let pairs = self.spends.chunks(2);
        self.spends = pairs.filter_map(|pair| pair.iter().copied().reduce(join)).collect();
    }
}

#[cfg(test)]
mod tests {
    use slidegate::limit::Quotas;
    use slidegate::{Identity, Name, Quota};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// A journal, and one account with its charge.
    struct World {
        journal: Journal,
        policy: Name,
        identity: Identity,
        quotas: Quotas,
    }

    impl World {
        fn new() -> Self {
            let (policy, identity) = ("api".parse().unwrap(), Identity::everyone());
            let quotas = Quotas::from(Quota::per_minute(10));
            Self { journal: Journal::default(), policy, identity, quotas }
        }

        fn charge(&self) -> Charge<'_> {
            Charge::new(&self.policy, &self.identity, &self.quotas)
        }

        fn record(&self, at_ms: u64) {
            assert!(self.journal.record(&self.charge(), Timestamp::from_millis(at_ms)));
        }

        fn newest(&self, now_ms: u64) -> Option<u64> {
            let charges = self.charge().into();
            let pages = self.journal.pages_of(&charges, Timestamp::from_millis(now_ms));
            pages.first().map(|(_, newest)| *newest)
        }

        /// The page whose replay begins, if one does, and its outcome.
        fn replay(
            &self,
            last: u64,
        ) -> (Option<(JournalPage, ReplaySender)>, Option<PendingReplay>) {
            let mut begun = None;
            let account = account_of(&self.charge());
            let pending = self.journal.replay(&account, last, |page, sender| {
                begun = Some((page, sender));
            });
            (begun, pending)
        }
    }

    #[test]
    fn calls_share_a_replay_and_wait_for_earlier_pages_only() {
        let world = World::new();
        world.record(1);
        let first = world.newest(1).unwrap();
        let (begun, _) = world.replay(first);
        let (page, _sender) = begun.unwrap();
        let (begun, pending) = world.replay(first);
        assert!(begun.is_none() && pending.is_some(), "it is under way");

        world.record(2);
        let second = world.newest(2).unwrap();
        world.journal.end_replay(&page, true);
        assert!(world.replay(first).1.is_none(), "what came later is not waited for");
        let (page, _sender) = world.replay(second).0.unwrap();
        assert_eq!((page.number, page.units()), (second, 1));
        world.journal.end_replay(&page, true);
        assert!(world.journal.is_empty());
    }

    #[test]
    fn a_page_that_failed_is_sent_again_as_it_was() {
        let world = World::new();
        world.record(1);
        let (page, _sender) = world.replay(u64::MAX).0.unwrap();
        world.record(2);
        world.journal.end_replay(&page, false);
        let (again, sender) = world.replay(u64::MAX).0.unwrap();
        assert_eq!((again.number, again.units()), (page.number, 1));
        drop(sender);
        assert!(world.replay(u64::MAX).0.is_some(), "that task went with its runtime");
    }

    #[test]
    fn pages_that_have_left_their_windows_are_dropped() {
        let world = World::new();
        world.record(1000);
        let (page, _sender) = world.replay(u64::MAX).0.unwrap();
        world.record(2000);
        assert!(world.newest(61_999).is_some());
        assert_eq!(world.newest(62_000), None);
        assert!(world.journal.is_empty());
        // The replay that was under way ends.
        world.journal.end_replay(&page, false);
        assert!(world.journal.is_empty());

        world.record(1000);
        assert_eq!(world.journal.all_pages(Timestamp::from_millis(60_999)).len(), 1);
        assert_eq!(world.journal.all_pages(Timestamp::from_millis(61_000)), []);
        assert!(world.journal.is_empty());
    }

    #[test]
    fn a_full_page_forgets_first_what_has_left_its_window() {
        let world = World::new();
        for at_ms in 0..MAX_SPENDS as u64 {
            world.record(at_ms);
        }
        let minute_ms = MINUTE.as_millis() as u64;
        world.record(minute_ms + 9);
        let (page, _sender) = world.replay(u64::MAX).0.unwrap();
        assert_eq!(page.units(), MAX_SPENDS as u64 + 1 - 10);
        assert_eq!(page.live(Timestamp::from_millis(minute_ms + 9)).len(), page.spends.len());
    }
}
