//! What a crowd was told, checked by brute force against what it is promised.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use slidegate::{OnStoreError, Store, Timestamp};
use slidegate_redis::{RedisStore, ResilientStore};
use tokio::time::{Instant, sleep};

use super::queue_full::{Account, STORES};

/// The default, which the crowd's stores have.
const DEADLINE: Duration = Duration::from_millis(50);

/// What a call may take longer than its deadline: on two cores, with servers and other tests
/// beside it, a task may wait this long for its turn although it has been woken. What the whole
/// runtime was held up for comes on top, as measured.
const SLACK: Duration = Duration::from_millis(250);

/// How long the first failures take: a call that is under way and the next one.
const NOTICED: Duration = Duration::from_millis(300);

/// One request.
pub(crate) struct Call {
    pub(crate) store: usize,
    pub(crate) account: usize,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted { at: Timestamp, degraded: bool },
    Denied { degraded: bool },
    Refused,
}

/// All requests of a crowd.
pub(crate) struct Story {
    pub(crate) accounts: Arc<Vec<Account>>,
    pub(crate) calls: Vec<Call>,
    /// The longest that the runtime was held up.
    pub(crate) hiccup: Duration,
    /// Some may still have answers under way.
    pub(crate) stores: Vec<ResilientStore>,
}

/// An admitted request.
#[derive(Clone, Copy)]
pub(crate) struct Admission {
    at_us: u64,
    store: usize,
    degraded: bool,
}

/// A time in which no request can be counted.
#[derive(Clone, Copy)]
pub(crate) struct Outage {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

impl Story {
    /// What holds whatever happens: calls end in time and follow their policy, and no store admits
    /// more by itself than a quota, its own earlier admissions included.
    pub(crate) fn is_calm(&self) {
        self.ends_in_time();
        self.follows_policies();
        for account in 0..self.accounts.len() {
            self.stays_within_the_quota_in_each_store(account);
            self.stays_within_all_quotas(account);
        }
    }

    fn ends_in_time(&self) {
        let longest = self.calls.iter().map(|call| call.took).max().unwrap();
        let most = DEADLINE + SLACK + self.hiccup;
        assert!(longest <= most, "a call took {longest:?}, with hiccups of {:?}", self.hiccup);
    }

    fn follows_policies(&self) {
        for call in &self.calls {
            let action = self.accounts[call.account].action;
            let right = match call.outcome {
                Outcome::Admitted { degraded: false, .. } | Outcome::Denied { degraded: false } => {
                    true
                }
                Outcome::Admitted { .. } => action != OnStoreError::Deny,
                Outcome::Denied { .. } => action == OnStoreError::Local,
                Outcome::Refused => action == OnStoreError::Deny,
            };
            assert!(right, "{:?} under the policy {action}", call.outcome);
        }
    }

    /// While Redis was unreachable, no decision claims to be Redis's.
    pub(crate) fn is_degraded_in(&self, outage: Outage) {
        let from = outage.from + NOTICED;
        let within = |call: &&Call| call.began >= from && call.began + call.took <= outage.to;
        let mut seen = vec![0; self.accounts.len()];
        for call in self.calls.iter().filter(within) {
            let counted = matches!(call.outcome, Outcome::Admitted { degraded: false, .. });
            assert!(!counted, "admitted by a Redis that is not there");
            let action = self.accounts[call.account].action;
            let refused = call.outcome == Outcome::Refused;
            assert_eq!(refused, action == OnStoreError::Deny, "{:?}", call.outcome);
            seen[call.account] += 1;
        }
        assert!(seen.iter().all(|calls| *calls > 10), "there was load: {seen:?}");
    }

    /// After it has healed, things are as before.
    pub(crate) fn is_well_after(&self, healed: Instant) {
        let after: Vec<&Call> = self.calls.iter().filter(|call| call.began > healed).collect();
        let degraded = |call: &&&Call| {
            matches!(
                call.outcome,
                Outcome::Refused
                    | Outcome::Admitted { degraded: true, .. }
                    | Outcome::Denied { degraded: true }
            )
        };
        let (ill, all) = (after.iter().filter(degraded).count(), after.len());
        // A busy machine misses some deadlines, even enough to open a breaker for a moment.
        assert!(all > 100 && ill * 2 <= all, "{ill} of {all} were decided without Redis");
        let mut took: Vec<Duration> = after.iter().map(|call| call.took).collect();
        took.sort_unstable();
        assert!(took[all / 2] < DEADLINE / 2, "the median is {:?}", took[all / 2]);
    }

    /// Redis admitted no more than the quota in any window, if it kept what it knew. It is the
    /// server's own time that is compared, so this is exact.
    pub(crate) fn redis_is_exact(&self, account: usize) {
        self.redis_is_exact_between(account, 0..=u64::MAX);
    }

    /// The same for windows that lie within some microseconds since the epoch.
    pub(crate) fn redis_is_exact_between(&self, account: usize, within_us: RangeInclusive<u64>) {
        let (units, window_us) = self.quota(account);
        let counted: Vec<u64> = self
            .admissions(account)
            .iter()
            .filter(|it| !it.degraded && within_us.contains(&it.at_us))
            .map(|it| it.at_us)
            .collect();
        for pair in counted.windows(units + 1) {
            let apart_us = pair[units] - pair[0];
            assert!(apart_us >= window_us, "{} in {apart_us} us", units + 1);
        }
    }

    /// The most that Redis admitted in a window.
    pub(crate) fn most_counted_in_a_window(&self, account: usize) -> usize {
        let (_, window_us) = self.quota(account);
        let counted: Vec<u64> =
            self.admissions(account).iter().filter(|it| !it.degraded).map(|it| it.at_us).collect();
        let in_window = |from: &u64| {
            counted.iter().filter(|at| (*from..*from + window_us).contains(*at)).count()
        };
        counted.iter().map(in_window).max().unwrap_or(0)
    }

    /// Once Redis had been told, it counted all that was admitted without it: whatever it admits
    /// then fits the window, those of the outage included, but for `lost` of each task that a
    /// server's end took with it.
    pub(crate) fn redis_counts_the_outage_after(
        &self,
        account: usize,
        replayed: Timestamp,
        lost: usize,
    ) {
        let (units, window_us) = self.quota(account);
        let replayed_us = replayed.as_nanos() / 1000;
        let known: Vec<Admission> = self
            .admissions(account)
            .into_iter()
            .filter(|it| !it.degraded || it.at_us <= replayed_us)
            .collect();
        for (place, it) in known.iter().enumerate().filter(|(_, it)| it.at_us > replayed_us) {
            let before = known[..=place].iter().rev();
            let in_window = before.take_while(|other| it.at_us - other.at_us < window_us).count();
            let most = units + lost * self.accounts[account].tasks;
            assert!(in_window <= most, "Redis admitted the {in_window}th of {units}");
        }
    }

    /// Whatever a store admits by itself fits its own window. Where it has several calls under way,
    /// Redis may have admitted the others without the store knowing it yet.
    fn stays_within_the_quota_in_each_store(&self, account: usize) {
        if self.accounts[account].action == OnStoreError::Local {
            self.fits_the_window_of_each_store(account, 0, |it| it.degraded);
        }
    }

    /// Whatever Redis admits fits the window of the store that asked, all that the store admitted
    /// without Redis included: Redis was told before it was asked. The servers may have lost some.
    pub(crate) fn redis_counts_the_outage_of_each_store(&self, account: usize, lost: usize) {
        self.fits_the_window_of_each_store(account, lost, |it| !it.degraded);
    }

    fn fits_the_window_of_each_store(
        &self,
        account: usize,
        lost: usize,
        selects: impl Fn(&Admission) -> bool,
    ) {
        let (units, window_us) = self.quota(account);
        let most = units + self.accounts[account].tasks - 1 + lost;
        let all = self.admissions(account);
        for store in 0..STORES {
            let own: Vec<&Admission> = all.iter().filter(|it| it.store == store).collect();
            for (place, it) in own.iter().enumerate().filter(|(_, it)| selects(it)) {
                // The clocks of the store and of Redis are the same, to less than this.
                let window_us = window_us - 2000;
                let before = own[..=place].iter().rev();
                let in_window = before.take_while(|other| it.at_us - other.at_us < window_us);
                let in_window = in_window.count();
                assert!(in_window <= most, "store {store} admitted the {in_window}th of {units}");
            }
        }
    }

    /// All together admit no more than as many quotas as there are stores.
    fn stays_within_all_quotas(&self, account: usize) {
        if self.accounts[account].action != OnStoreError::Local {
            return;
        }
        let (units, window_us) = self.quota(account);
        let all = self.admissions(account);
        let most = STORES * (units + self.accounts[account].tasks - 1);
        for pair in all.windows(most + 1) {
            let apart_us = pair[most].at_us - pair[0].at_us;
            assert!(apart_us >= window_us, "{} in {apart_us} us", most + 1);
        }
    }

    /// Redis has counted what was admitted, and nothing else, up to so many more or fewer.
    pub(crate) async fn redis_knows(&self, url: &str, account: usize, off_by: RangeInclusive<i64>) {
        let redis = patient(url);
        let counts =
            |it: &&Admission| !it.degraded || self.accounts[account].action == OnStoreError::Local;
        let admitted = self.admissions(account).iter().filter(counts).count();
        let began = Instant::now();
        loop {
            let off =
                used(&redis, &self.accounts[account]).await - i64::try_from(admitted).unwrap();
            if off_by.contains(&off) {
                return;
            }
            let stats: Vec<_> = self.stores.iter().map(ResilientStore::stats).collect();
            let patience = Duration::from_secs(5);
            assert!(
                began.elapsed() < patience,
                "Redis has {off} more than {admitted} of account {account}: {stats:#?}"
            );
            // Late answers are still being taken back.
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn admissions(&self, account: usize) -> Vec<Admission> {
        let admission = |call: &Call| match call.outcome {
            Outcome::Admitted { at, degraded } => {
                Some(Admission { at_us: at.as_nanos() / 1000, store: call.store, degraded })
            }
            _ => None,
        };
        let of_account = self.calls.iter().filter(|call| call.account == account);
        let mut all: Vec<Admission> = of_account.filter_map(admission).collect();
        all.sort_by_key(|it| it.at_us);
        all
    }

    /// How many requests were admitted in some microseconds since the epoch, with and without Redis.
    pub(crate) fn admitted_between(&self, account: usize, within_us: RangeInclusive<u64>) -> usize {
        let all = self.admissions(account);
        all.iter().filter(|it| within_us.contains(&it.at_us)).count()
    }

    /// How many requests Redis admitted in some microseconds since the epoch.
    pub(crate) fn counted_between(&self, account: usize, within_us: RangeInclusive<u64>) -> usize {
        let all = self.admissions(account);
        all.iter().filter(|it| !it.degraded && within_us.contains(&it.at_us)).count()
    }

    fn quota(&self, account: usize) -> (usize, u64) {
        let quota = self.accounts[account].quota();
        (quota.units().get() as usize, u64::try_from(quota.window().as_micros()).unwrap())
    }
}

/// A store that a slow machine does not matter to.
pub(crate) fn patient(url: &str) -> RedisStore {
    RedisStore::builder(url).deadline(Duration::from_secs(5)).build().unwrap()
}

/// What Redis has of an account.
pub(crate) async fn used(redis: &RedisStore, account: &Account) -> i64 {
    let standing = redis.peek(&account.charge().into()).await.unwrap().standings[0];
    i64::from(standing.quota().units().get()) - i64::from(standing.remaining())
}
