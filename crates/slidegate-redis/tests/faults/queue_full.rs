//! Several processes' worth of stores, which spend from the same accounts.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slidegate::limit::{Charge, Receipt, SystemClock};
use slidegate::{Clock, Identity, OnStoreError, Quota, Store, StoreError, Timestamp};
use slidegate_redis::{BreakerState, RedisStore, ResilientStore};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::scenario::{Call, Outcome, Story};
use crate::support::Payer;

/// As many stores as there are gateways.
pub(crate) const STORES: usize = 4;

/// The longest that a store takes to notice that Redis is well: it looks every three seconds at
/// least, and on a busy machine a look or two may miss the deadline.
const HEALS_WITHIN: Duration = Duration::from_secs(60);

/// All faults at the same time are too much for a small machine, and one at a time takes too long.
/// A crowd takes less than a tenth of a processor.
static TURNS: Semaphore = Semaphore::const_new(4);

/// An account and how it is spent from.
pub(crate) struct Account {
    pub(crate) payer: Payer,
    pub(crate) action: OnStoreError,
    /// How many requests each store has under way at once.
    pub(crate) tasks: usize,
    pause: Duration,
}

impl Account {
    /// An account under a policy that is named after what happens without Redis.
    pub(crate) fn new(action: OnStoreError, user: &str, units: u32, window: Duration) -> Self {
        let quota = Quota::new(NonZeroU32::new(units).unwrap(), window).unwrap();
        let policy = action.to_string();
        let payer = Payer::new(&policy, Identity::user(user), &[quota]);
        Self { payer, action, tasks: 1, pause: Duration::from_millis(12) }
    }

    pub(crate) fn charge(&self) -> Charge<'_> {
        self.payer.charge().on_store_error(self.action)
    }

    pub(crate) fn quota(&self) -> Quota {
        self.payer.quotas.as_slice()[0]
    }
}

/// Which of [`accounts`] is which. The first three ask for more than they get.
pub(crate) const LOCAL: usize = 0;
pub(crate) const CROWDED: usize = 1;
pub(crate) const ALLOW: usize = 2;
/// Nothing of these leaves its window during a test, so that what Redis has can be counted.
pub(crate) const COUNTED: usize = 3;
pub(crate) const STRICT: usize = 4;

/// The accounts of one test, of which one of each kind.
pub(crate) fn accounts() -> Vec<Account> {
    use OnStoreError::{Allow, Deny, Local};
    let second = Duration::from_secs(1);
    let queue_full = Account::new(Local, "queue_full", 60, 3 * second);
    vec![
        Account::new(Local, "local", 40, 2 * second),
        Account { tasks: 3, ..queue_full },
        Account::new(Allow, "allow", 40, 2 * second),
        Account {
            pause: Duration::from_millis(20),
            ..Account::new(Local, "counted", 4000, 60 * second)
        },
        // More units than are kept to the millisecond.
        Account::new(Deny, "strict", 100_000, 60 * second),
    ]
}

/// Stores under load.
pub(crate) struct Crowd {
    pub(crate) stores: Vec<ResilientStore>,
    accounts: Arc<Vec<Account>>,
    calls: Arc<Mutex<Vec<Call>>>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    hiccup: JoinSet<Duration>,
    clock: SystemClock,
    _turn: SemaphorePermit<'static>,
}

/// Waits until a test may have the machine.
pub(crate) async fn turn() -> SemaphorePermit<'static> {
    TURNS.acquire().await.unwrap()
}

/// A store with the usual settings.
pub(crate) fn resilient(url: &str) -> ResilientStore {
    ResilientStore::new(RedisStore::builder(url).build().unwrap())
}

impl Crowd {
    /// Begins to spend.
    pub(crate) fn start(turn: SemaphorePermit<'static>, url: &str) -> Self {
        Self::start_with(turn, (0..STORES).map(|_| resilient(url)).collect(), accounts())
    }

    pub(crate) fn start_with(
        turn: SemaphorePermit<'static>,
        stores: Vec<ResilientStore>,
        accounts: Vec<Account>,
    ) -> Self {
        let mut crowd = Self {
            stores,
            accounts: Arc::new(accounts),
            calls: Arc::default(),
            stop: Arc::default(),
            tasks: JoinSet::new(),
            hiccup: JoinSet::new(),
            clock: SystemClock::new(),
            _turn: turn,
        };
        for store in 0..crowd.stores.len() {
            for account in 0..crowd.accounts.len() {
                for _ in 0..crowd.accounts[account].tasks {
                    crowd.tasks.spawn(crowd.spender(store, account));
                }
            }
        }
        let stop = crowd.stop.clone();
        crowd.hiccup.spawn(async move {
            let (nap, mut longest) = (Duration::from_millis(5), Duration::ZERO);
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                sleep(nap).await;
                longest = longest.max(began.elapsed() - nap);
            }
            longest
        });
        crowd
    }

    fn spender(&self, store: usize, account: usize) -> impl Future<Output = ()> + Send + 'static {
        let (accounts, calls) = (self.accounts.clone(), self.calls.clone());
        let (stop, spending) = (self.stop.clone(), self.stores[store].clone());
        async move {
            let spent = &accounts[account];
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                let outcome = spending.spend(&spent.charge().into()).await;
                let call =
                    Call { store, account, began, took: began.elapsed(), outcome: of(&outcome) };
                calls.lock().unwrap().push(call);
                sleep(spent.pause).await;
            }
        }
    }

    /// The time by which admissions are written down.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Goes on until Redis decides again for all stores and knows everything; returns when that was.
    pub(crate) async fn heal(&self) -> Timestamp {
        let began = Instant::now();
        while !self.stores.iter().all(is_well) {
            let states: Vec<_> = self.stores.iter().map(ResilientStore::stats).collect();
            assert!(began.elapsed() < HEALS_WITHIN, "still ill: {states:#?}");
            sleep(Duration::from_millis(5)).await;
        }
        self.now()
    }

    /// Ends the load. A task that panicked shows here.
    pub(crate) async fn stop(mut self) -> Story {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no call panics");
        }
        let hiccup = self.hiccup.join_next().await.unwrap().unwrap();
        // What the last calls left behind.
        self.heal().await;
        let calls = std::mem::take(&mut *self.calls.lock().unwrap());
        Story { accounts: self.accounts.clone(), calls, hiccup, stores: self.stores.clone() }
    }
}

fn is_well(store: &ResilientStore) -> bool {
    let stats = store.stats();
    stats.breaker == BreakerState::Closed && stats.unmerged == 0
}

fn of(outcome: &Result<Receipt, StoreError>) -> Outcome {
    match outcome {
        Ok(Receipt { spent: true, at, degraded, .. }) => {
            Outcome::Admitted { at: *at, degraded: *degraded }
        }
        Ok(Receipt { degraded, .. }) => Outcome::Denied { degraded: *degraded },
        Err(_) => Outcome::Refused,
    }
}
