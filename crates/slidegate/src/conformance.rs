//! What every store must do, written once: a store is done when it passes.
//!
//! ```
//! use std::time::Duration;
//!
//! use slidegate::conformance::{self, Harness};
//! use slidegate::{ManualClock, MemoryStore, Timestamp};
//!
//! struct Memory(ManualClock);
//!
//! impl Harness for Memory {
//!     type Store = MemoryStore;
//!
//!     async fn store(&self) -> MemoryStore {
//!         MemoryStore::builder().clock(self.0.clone()).build()
//!     }
//!
//!     async fn advance(&self, by: Duration) {
//!         self.0.advance(by);
//!     }
//!
//!     async fn step_back(&self, by: Duration) {
//!         use slidegate::Clock;
//!         self.0.set(Timestamp::from_nanos(self.0.now().as_nanos() - by.as_nanos() as u64));
//!     }
//! }
//!
//! # use std::task::{Context, Poll, Waker};
//! let memory = Memory(ManualClock::default());
//! let suite = std::pin::pin!(conformance::run(&memory)); // to be awaited
//! # let Poll::Ready(()) = suite.poll(&mut Context::from_waker(Waker::noop())) else { panic!() };
//! ```

use std::future::{Future, poll_fn};
use std::num::NonZeroU32;
use std::task::Poll;
use std::time::Duration;

use crate::identity::Identity;
use crate::limit::{
    Charge, Charges, LedgerEntry, Name, Once, Quota, Quotas, Receipt, Settled, Settlement, Spent,
    Standing, Store, Timestamp,
};

/// Makes stores for the suite and moves their clock.
pub trait Harness {
    /// The store under test.
    type Store: Store;

    /// A store without accounts. Its clock stands still but for the calls below; at first it
    /// shows a whole millisecond.
    fn store(&self) -> impl Future<Output = Self::Store>;

    /// Moves the clock of the stores on, by any number of nanoseconds or as finely as they go.
    fn advance(&self, by: Duration) -> impl Future<Output = ()>;

    /// Sets the clock of the stores back.
    fn step_back(&self, by: Duration) -> impl Future<Output = ()>;
}

/// Runs every check. Panics, in the check's name, if the store fails one.
pub async fn run(harness: &impl Harness) {
    window_slides(harness).await;
    boundary_burst_admits_once(harness).await;
    spends_of_one_instant_all_count(harness).await;
    part_of_a_millisecond_is_rounded_up(harness).await;
    large_quotas_keep_their_ticks(harness).await;
    costs_are_taken_whole(harness).await;
    all_quotas_must_allow(harness).await;
    all_charges_or_none(harness).await;
    denied_leaves_nothing(harness).await;
    counted_denials_keep_out(harness).await;
    counted_denials_are_recorded_whichever_charge_denied(harness).await;
    counted_denials_violate_only_what_had_no_room(harness).await;
    records_are_written_whether_they_fit_or_not(harness).await;
    records_close_an_account_for_a_window_at_most(harness).await;
    retry_after_is_true(harness).await;
    shadow_never_denies(harness).await;
    peek_spends_nothing(harness).await;
    read_has_what_is_spent(harness).await;
    read_has_what_is_counted_in_ticks_and_denials(harness).await;
    reset_forgets(harness).await;
    refund_gives_back(harness).await;
    settling_refunds_or_records_the_difference(harness).await;
    settling_under_a_name_is_done_once(harness).await;
    change_of_units_keeps_history(harness).await;
    change_of_units_across_ticks_keeps_history(harness).await;
    accounts_are_apart(harness).await;
    clock_stepping_back_does_no_harm(harness).await;
    concurrent_spends_admit_exactly_the_units(harness).await;
    concurrent_overlapping_charges_stay_whole(harness).await;
}

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// An account, and the quotas that it is charged by.
struct Payer {
    policy: Name,
    identity: Identity,
    quotas: Quotas,
}

impl Payer {
    fn new(policy: &str, quotas: &[Quota]) -> Self {
        Self {
            policy: policy.parse().expect("a good name"),
            identity: Identity::user("42"),
            quotas: Quotas::new(quotas.iter().copied()).expect("good quotas"),
        }
    }

    /// The same account under other quotas.
    fn with_quotas(&self, quotas: &[Quota]) -> Self {
        Self { policy: self.policy.clone(), identity: self.identity, ..Self::new("x", quotas) }
    }

    fn charge(&self) -> Charge<'_> {
        Charge::new(&self.policy, &self.identity, &self.quotas)
    }

    fn cost(&self, units: u32) -> Charge<'_> {
        let units = NonZeroU32::new(units).expect("a cost of at least one");
        self.charge().with_cost(units).expect("a cost that can be paid")
    }

    fn record(&self, units: u32) -> Charge<'_> {
        self.charge().record(NonZeroU32::new(units).expect("at least one"))
    }
}

fn charges<'a>(list: impl IntoIterator<Item = Charge<'a>>) -> Charges<'a> {
    let mut charges = Charges::new();
    list.into_iter().for_each(|charge| charges.push(charge).expect("different accounts"));
    charges
}

async fn spend(store: &impl Store, charge: Charge<'_>) -> Receipt {
    store.spend(&charge.into()).await.expect("the store answers")
}

async fn peek(store: &impl Store, charge: Charge<'_>) -> Receipt {
    store.peek(&charge.into()).await.expect("the store answers")
}

/// How long ago and how much was spent, in each ledger of a charge.
async fn ages(store: &impl Store, charge: Charge<'_>) -> Vec<Vec<(Duration, u32)>> {
    let reading = store.read(charge).await.expect("the store answers");
    let age = |entry: &LedgerEntry| (reading.at.saturating_since(entry.stamp), entry.units);
    reading.ledgers.iter().map(|ledger| ledger.entries.iter().map(age).collect()).collect()
}

/// How many of `requests` equal requests pass.
async fn admitted(store: &impl Store, charge: Charge<'_>, requests: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += usize::from(spend(store, charge).await.spent);
    }
    admitted
}

fn remaining(receipt: &Receipt) -> Vec<u32> {
    receipt.standings.iter().map(Standing::remaining).collect()
}

async fn window_slides(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("window", &[Quota::per_minute(2)]);
    assert_eq!(remaining(&spend(&store, payer.charge()).await), [1]);
    harness.advance(20 * SECOND).await;
    let second = spend(&store, payer.charge()).await;
    assert_eq!(remaining(&second), [0]);
    assert_eq!(second.standings[0].reset_after(), 40 * SECOND);
    harness.advance(40 * SECOND - MS).await;
    assert!(!spend(&store, payer.charge()).await.spent, "the first is still in the window");
    harness.advance(MS).await;
    assert!(spend(&store, payer.charge()).await.spent, "it is out exactly a window later");
    assert!(!spend(&store, payer.charge()).await.spent, "the second is still in");
    harness.advance(20 * SECOND).await;
    assert!(spend(&store, payer.charge()).await.spent);
}

async fn boundary_burst_admits_once(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("boundary", &[Quota::per_minute(100)]);
    assert_eq!(admitted(&store, payer.charge(), 100).await, 100);
    harness.advance(200 * MS).await;
    assert_eq!(admitted(&store, payer.charge(), 100).await, 0);
    harness.advance(MINUTE - 200 * MS).await;
    assert_eq!(admitted(&store, payer.charge(), 200).await, 100);
}

async fn spends_of_one_instant_all_count(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("instant", &[Quota::per_second(3)]);
    assert_eq!(admitted(&store, payer.charge(), 10).await, 3);
    harness.advance(SECOND).await;
    assert_eq!(admitted(&store, payer.charge(), 10).await, 3);
}

async fn part_of_a_millisecond_is_rounded_up(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("rounding", &[Quota::per_second(1)]);
    harness.advance(Duration::from_micros(300)).await;
    assert!(spend(&store, payer.charge()).await.spent);
    harness.advance(SECOND - Duration::from_micros(300)).await;
    assert!(!peek(&store, payer.charge()).await.spent, "a window has not passed");
    harness.advance(Duration::from_micros(300)).await;
    assert!(!peek(&store, payer.charge()).await.spent, "the stamp was rounded up");
    harness.advance(Duration::from_micros(700)).await;
    assert!(spend(&store, payer.charge()).await.spent, "and no further than a millisecond");
}

async fn large_quotas_keep_their_ticks(harness: &impl Harness) {
    let store = harness.store().await;
    let quota = Quota::per_day(1_000_000);
    let payer = Payer::new("large", &[quota]);
    harness.advance(MS).await;
    assert!(spend(&store, payer.cost(999_999)).await.spent);
    assert!(!spend(&store, payer.cost(2)).await.spent);
    assert!(spend(&store, payer.charge()).await.spent);
    harness.advance(DAY - MS).await;
    assert!(!spend(&store, payer.charge()).await.spent, "never sooner than the window");
    harness.advance(quota.tick() + MS).await;
    assert!(spend(&store, payer.cost(1_000_000)).await.spent, "at most a tick later");
}

async fn costs_are_taken_whole(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("cost", &[Quota::per_minute(10)]);
    assert_eq!(remaining(&spend(&store, payer.cost(7)).await), [3]);
    assert!(!spend(&store, payer.cost(4)).await.spent);
    assert_eq!(remaining(&spend(&store, payer.cost(3)).await), [0]);
    harness.advance(MINUTE).await;
    assert_eq!(remaining(&spend(&store, payer.cost(10)).await), [0]);
}

async fn all_quotas_must_allow(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("quotas", &[Quota::per_minute(3), Quota::per_day(5)]);
    assert_eq!(admitted(&store, payer.charge(), 5).await, 3);
    let denied = spend(&store, payer.charge()).await;
    assert_eq!(remaining(&denied), [0, 2], "the day is not charged for what the minute denied");
    assert_eq!(denied.standings[1].retry_after(), Duration::ZERO);
    harness.advance(MINUTE).await;
    assert_eq!(admitted(&store, payer.charge(), 5).await, 2);
    let denied = spend(&store, payer.charge()).await;
    assert_eq!(remaining(&denied), [1, 0]);
    assert_eq!(denied.standings[1].retry_after(), DAY - MINUTE);
}

async fn all_charges_or_none(harness: &impl Harness) {
    let store = harness.store().await;
    let wide = Payer::new("wide", &[Quota::per_minute(100)]);
    let narrow = Payer::new("narrow", &[Quota::per_minute(2)]);
    for order in [[&wide, &narrow], [&narrow, &wide]] {
        let both = charges(order.map(Payer::charge));
        let receipt = store.spend(&both).await.expect("the store answers");
        assert!(receipt.spent);
        assert_eq!(receipt.standings.len(), 2);
        assert_eq!(receipt.standings[0].quota(), order[0].quotas.as_slice()[0], "in order");
    }
    let both = charges([wide.charge(), narrow.charge()]);
    let denied = store.spend(&both).await.expect("the store answers");
    assert!(!denied.spent);
    assert_eq!(remaining(&denied), [98, 0]);
    assert_eq!(remaining(&peek(&store, wide.charge()).await), [98], "nothing was taken");
}

async fn denied_leaves_nothing(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("denied", &[Quota::per_minute(1)]);
    assert!(spend(&store, payer.charge()).await.spent);
    for _ in 0..59 {
        harness.advance(SECOND).await;
        assert!(!spend(&store, payer.charge()).await.spent);
    }
    harness.advance(SECOND).await;
    assert!(spend(&store, payer.charge()).await.spent, "hammering has not put it off");
}

async fn counted_denials_keep_out(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("hammering", &[Quota::per_minute(2)]);
    let counted = payer.charge().count_denied(true);
    assert_eq!(admitted(&store, counted, 2).await, 2);
    for _ in 0..100 {
        harness.advance(SECOND).await;
        let denied = spend(&store, counted).await;
        assert!(!denied.spent, "a client that keeps sending stays denied");
        assert_eq!(remaining(&denied), [0]);
    }
    let last = spend(&store, counted).await;
    assert_eq!(last.standings[0].retry_after(), MINUTE, "the denial itself counts");
    harness.advance(MINUTE).await;
    assert!(spend(&store, counted).await.spent, "and is let in after keeping quiet");
}

async fn counted_denials_are_recorded_whichever_charge_denied(harness: &impl Harness) {
    let store = harness.store().await;
    let counting = Payer::new("counting", &[Quota::per_minute(10)]);
    let narrow = Payer::new("narrow", &[Quota::per_minute(1)]);
    let both = charges([counting.charge().count_denied(true), narrow.charge()]);
    for _ in 0..4 {
        store.spend(&both).await.expect("the store answers");
    }
    assert_eq!(remaining(&peek(&store, counting.charge()).await), [6]);
    assert_eq!(remaining(&peek(&store, narrow.charge()).await), [0]);
}

async fn counted_denials_violate_only_what_had_no_room(harness: &impl Harness) {
    let store = harness.store().await;
    // Several identities, so that a store that spreads accounts has them on either side.
    for user in ["a", "b", "c", "d"] {
        let identity = Identity::user(user);
        let roomy = Payer { identity, ..Payer::new("roomy", &[Quota::per_minute(2)]) };
        let narrow = Payer::new(user, &[Quota::per_minute(1)]);
        let both = charges([roomy.charge().count_denied(true), narrow.charge()]);
        let receipts =
            [store.spend(&both).await, store.spend(&both).await, store.spend(&both).await];
        let [first, second, third] = receipts.map(|receipt| receipt.expect("the store answers"));
        let violated = |receipt: &Receipt| -> Vec<bool> {
            receipt.standings.iter().map(Standing::is_violated).collect()
        };
        assert!(first.spent && !second.spent && !third.spent);
        assert_eq!(violated(&first), [false, false]);
        assert_eq!(violated(&second), [false, true], "it had room for what it counted");
        assert_eq!(second.standings[0].retry_after(), MINUTE, "and has none for the next");
        assert_eq!(violated(&third), [true, true]);
        assert!(peek(&store, roomy.charge()).await.standings[0].is_violated());
    }
    let windows = Payer::new("windows", &[Quota::per_minute(1), Quota::per_hour(2)]);
    let counted = windows.charge().count_denied(true);
    assert!(spend(&store, counted).await.spent);
    let denied = spend(&store, counted).await;
    assert!(denied.standings[0].is_violated(), "a minute's worth is spent");
    assert!(!denied.standings[1].is_violated(), "an hour's worth was not");
    for _ in 0..5 {
        harness.advance(20 * SECOND).await;
        assert!(!spend(&store, counted).await.spent, "each takes the place of the oldest");
    }
    assert_eq!(remaining(&peek(&store, counted).await), [0, 1], "the hour counts no denial");
    harness.advance(MINUTE).await;
    assert!(spend(&store, counted).await.spent, "a minute's pause is enough");
}

async fn records_are_written_whether_they_fit_or_not(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("record", &[Quota::per_minute(10), Quota::per_hour(100)]);
    let fitting = spend(&store, payer.record(7)).await;
    assert!(fitting.spent, "it fitted");
    assert_eq!(remaining(&fitting), [3, 93]);
    harness.advance(10 * SECOND).await;
    let beyond = spend(&store, payer.record(6)).await;
    assert!(!beyond.spent, "it did not fit the minute");
    assert_eq!(remaining(&beyond), [0, 87], "and is written into both windows");
    assert_eq!(
        [&beyond.standings[0], &beyond.standings[1]].map(Standing::is_violated),
        [true, false]
    );
    let open = peek(&store, payer.charge()).await;
    assert_eq!(open.standings[0].retry_after(), 50 * SECOND, "four of the seven have to leave");
    harness.advance(50 * SECOND - MS).await;
    assert!(!spend(&store, payer.charge()).await.spent);
    harness.advance(MS).await;
    assert_eq!(admitted(&store, payer.charge(), 9).await, 4, "the newest six are left");
    let room = Payer::new("room", &[Quota::per_minute(5)]);
    let both = charges([payer.record(1), room.record(2)]);
    let mixed = store.spend(&both).await.expect("the store answers");
    assert!(!mixed.spent);
    assert_eq!(remaining(&mixed)[2], 3, "one that fits is written, too");
    let plain = Payer::new("plain", &[Quota::per_minute(5)]);
    let denied = charges([payer.record(1), plain.charge()]);
    assert!(!store.spend(&denied).await.expect("the store answers").spent);
    assert_eq!(remaining(&peek(&store, plain.charge()).await), [5], "others are all or nothing");
}

async fn records_close_an_account_for_a_window_at_most(harness: &impl Harness) {
    let store = harness.store().await;
    let sizes = [(1000, 1), (5000, 15), (1, 1)];
    for (units, tick_ms) in sizes {
        let payer = Payer::new(&format!("above-{units}"), &[Quota::per_minute(units)]);
        for _ in 0..3 {
            let above = spend(&store, payer.record(5 * units)).await;
            assert!(!above.spent, "more than there is");
            assert_eq!(remaining(&above), [0]);
        }
        let closed = peek(&store, payer.charge()).await.standings[0].retry_after();
        let tick = tick_ms * MS;
        assert!(MINUTE <= closed && closed < MINUTE + tick, "{closed:?} for {units}");
        let counted: u32 =
            ages(&store, payer.charge()).await[0].iter().map(|(_, units)| units).sum();
        assert_eq!(counted, units, "no more than can matter");
        harness.advance(closed - MS).await;
        assert!(!peek(&store, payer.charge()).await.spent);
        harness.advance(MS).await;
        assert!(spend(&store, payer.cost(units)).await.spent, "all is free again");
    }
}

async fn retry_after_is_true(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("retry", &[Quota::per_minute(10)]);
    for cost in [4, 3, 3] {
        assert!(spend(&store, payer.cost(cost)).await.spent);
        harness.advance(5 * SECOND).await;
    }
    for (cost, seconds) in [(1, 45), (4, 45), (5, 50), (7, 50), (8, 55), (10, 55)] {
        let denied = peek(&store, payer.cost(cost)).await;
        assert_eq!(denied.standings[0].retry_after(), seconds * SECOND, "for a cost of {cost}");
        assert_eq!(denied.standings[0].reset_after(), 45 * SECOND);
    }
    harness.advance(50 * SECOND - MS).await;
    assert!(!peek(&store, payer.cost(5)).await.spent);
    harness.advance(MS).await;
    assert!(spend(&store, payer.cost(5)).await.spent);
}

async fn shadow_never_denies(harness: &impl Harness) {
    let store = harness.store().await;
    let watched = Payer::new("watched", &[Quota::per_minute(1)]);
    let real = Payer::new("real", &[Quota::per_minute(3)]);
    let both = charges([watched.charge().shadow(true), real.charge()]);
    let mut receipts = Vec::new();
    for _ in 0..4 {
        receipts.push(store.spend(&both).await.expect("the store answers"));
    }
    let spent: Vec<bool> = receipts.iter().map(|receipt| receipt.spent).collect();
    assert_eq!(spent, [true, true, true, false]);
    assert_eq!(receipts[0].standings[0].retry_after(), Duration::ZERO);
    assert_eq!(receipts[1].standings[0].retry_after(), MINUTE, "it would have denied");
    assert_eq!(remaining(&receipts[2]), [0, 0]);
}

async fn peek_spends_nothing(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("peek", &[Quota::per_minute(2)]);
    for _ in 0..5 {
        let untouched = peek(&store, payer.charge()).await;
        assert!(untouched.spent, "it would be spent");
        assert_eq!(remaining(&untouched), [2]);
        assert_eq!(untouched.standings[0].reset_after(), Duration::ZERO);
    }
    assert_eq!(admitted(&store, payer.charge(), 3).await, 2);
    let full = peek(&store, payer.charge()).await;
    assert!(!full.spent);
    assert_eq!(full.standings[0].retry_after(), MINUTE);
}

async fn read_has_what_is_spent(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("read", &[Quota::per_minute(10), Quota::per_day(20)]);
    let raised = payer.with_quotas(&[Quota::per_minute(50), Quota::per_day(90)]);
    assert_eq!(ages(&store, payer.charge()).await, [[], []]);
    assert!(spend(&store, payer.cost(3)).await.spent);
    harness.advance(20 * SECOND).await;
    let second = spend(&store, payer.charge()).await;
    assert_eq!(admitted(&store, payer.cost(2), 5).await, 3);
    harness.advance(30 * SECOND).await;
    assert!(!spend(&store, payer.charge()).await.spent, "a denied request leaves no entry");
    let reading = store.read(payer.charge()).await.expect("the store answers");
    assert_eq!(reading.at.saturating_since(second.at), 30 * SECOND);
    assert!(!reading.degraded);
    assert_eq!(reading.ledgers[1].quota, Quota::per_day(20), "in order");
    let both = [(50 * SECOND, 3), (30 * SECOND, 7)];
    for charge in [payer.charge(), raised.charge(), payer.charge()] {
        assert_eq!(ages(&store, charge).await, [both, both], "whatever the units are");
    }
    assert_eq!(remaining(&peek(&store, payer.charge()).await), [0, 10], "nothing was spent");
    store.refund(&payer.cost(5).into(), Spent::At(second.at)).await.expect("the store answers");
    harness.advance(10 * SECOND).await;
    let left = [vec![(40 * SECOND, 2)], vec![(MINUTE, 3), (40 * SECOND, 2)]];
    assert_eq!(ages(&store, payer.charge()).await, left, "a minute later the first has left it");
    let ahead = Payer::new("read-ahead", &[Quota::per_minute(10)]);
    assert!(spend(&store, ahead.cost(2)).await.spent);
    harness.step_back(30 * SECOND).await;
    assert_eq!(
        ages(&store, ahead.charge()).await,
        [[(Duration::ZERO, 2)]],
        "none is in the future"
    );
}

async fn read_has_what_is_counted_in_ticks_and_denials(harness: &impl Harness) {
    let store = harness.store().await;
    let quota = Quota::per_minute(10_000);
    let large = Payer::new("read-large", &[quota]);
    for cost in [4000, 1, 5000] {
        assert!(spend(&store, large.cost(cost)).await.spent);
        harness.advance(7 * MS).await;
    }
    let reading = store.read(large.charge()).await.expect("the store answers");
    let [ledger] = &reading.ledgers[..] else { panic!("one ledger: {reading:?}") };
    assert_eq!(ledger.spent(), 9001);
    let (tick, at) = (quota.tick(), reading.at);
    let instants = [at - 21 * MS, at - 14 * MS, at - 7 * MS];
    for entry in &ledger.entries {
        let is_near = |spent: &Timestamp| entry.stamp >= *spent && entry.stamp < *spent + tick;
        assert!(instants.iter().any(is_near), "at most a tick later: {reading:?}");
    }
    assert!(ledger.entries.is_sorted_by(|one, next| one.stamp < next.stamp), "{reading:?}");

    let payer = Payer::new("read-denied", &[Quota::per_minute(2)]);
    let counted = payer.charge().count_denied(true);
    for _ in 0..4 {
        spend(&store, counted).await;
        harness.advance(SECOND).await;
    }
    let newest = [(2 * SECOND, 1), (SECOND, 1)];
    assert_eq!(ages(&store, counted).await, [newest], "each takes the place of the oldest");
}

async fn reset_forgets(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("reset", &[Quota::per_minute(2), Quota::per_day(2)]);
    let other = Payer::new("kept", &[Quota::per_minute(2)]);
    assert_eq!(admitted(&store, payer.charge(), 3).await, 2);
    assert_eq!(admitted(&store, other.charge(), 1).await, 1);
    store.reset(&payer.charge().into()).await.expect("the store answers");
    assert_eq!(remaining(&peek(&store, payer.charge()).await), [2, 2]);
    assert_eq!(remaining(&peek(&store, other.charge()).await), [1]);
    assert_eq!(admitted(&store, payer.charge(), 3).await, 2);
    let unknown = Payer::new("unknown", &[Quota::per_minute(2)]);
    store.reset(&unknown.charge().into()).await.expect("nothing to forget is no error");
}

async fn refund_gives_back(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("refund", &[Quota::per_minute(5)]);
    let first = spend(&store, payer.cost(2)).await;
    harness.advance(10 * SECOND).await;
    let second = spend(&store, payer.cost(3)).await;
    assert_eq!(remaining(&second), [0]);
    store.refund(&payer.cost(2).into(), Spent::At(first.at)).await.expect("the store answers");
    let after = peek(&store, payer.charge()).await;
    assert_eq!(remaining(&after), [2]);
    assert_eq!(after.standings[0].reset_after(), MINUTE, "the first is gone, the second is not");
    store.refund(&payer.cost(2).into(), Spent::At(first.at)).await.expect("the store answers");
    assert_eq!(remaining(&peek(&store, payer.charge()).await), [2], "it cannot be given twice");
    store.refund(&payer.charge().into(), Spent::Newest).await.expect("the store answers");
    assert_eq!(remaining(&peek(&store, payer.charge()).await), [3]);
    store.refund(&payer.cost(5).into(), Spent::Newest).await.expect("the store answers");
    assert_eq!(remaining(&peek(&store, payer.charge()).await), [5], "no more than was spent");
}

async fn settling_refunds_or_records_the_difference(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("settle", &[Quota::per_minute(10), Quota::per_hour(50)]);
    let settle = async |held: Charge<'_>, at, units| {
        let settlement = Settlement { at, units, once: None };
        let settled = store.settle(&held.into(), settlement).await.expect("the store answers");
        assert_eq!(settled, Settled::Now);
    };
    let first = spend(&store, payer.cost(4)).await;
    harness.advance(10 * SECOND).await;
    let second = spend(&store, payer.cost(4)).await;
    harness.advance(10 * SECOND).await;
    settle(payer.cost(4), first.at, 1).await;
    assert_eq!(remaining(&peek(&store, payer.charge()).await), [5, 45]);
    let minute = [(20 * SECOND, 1), (10 * SECOND, 4)];
    assert_eq!(ages(&store, payer.charge()).await[0], minute, "at the instant of the hold");
    settle(payer.cost(4), second.at, 4).await;
    assert_eq!(remaining(&peek(&store, payer.charge()).await), [5, 45], "the hold was right");
    settle(payer.cost(4), second.at, 30).await;
    let overrun = peek(&store, payer.charge()).await;
    assert_eq!(remaining(&overrun), [0, 19], "26 more, beyond the quota");
    assert_eq!(overrun.standings[0].retry_after(), MINUTE, "recorded now");
    let third = Payer::new("settle-to-nothing", &[Quota::per_minute(10)]);
    let held = spend(&store, third.cost(10)).await;
    settle(third.cost(10), held.at, 0).await;
    assert_eq!(remaining(&peek(&store, third.charge()).await), [10]);
    let held = spend(&store, third.cost(2)).await;
    harness.advance(MINUTE).await;
    assert!(spend(&store, third.cost(3)).await.spent);
    settle(third.cost(2), held.at, 0).await;
    assert_eq!(remaining(&peek(&store, third.charge()).await), [7], "it had left its window");
    settle(third.cost(2), held.at, 6).await;
    assert_eq!(
        remaining(&peek(&store, third.charge()).await),
        [3],
        "what was used counts late, too"
    );
}

async fn settling_under_a_name_is_done_once(harness: &impl Harness) {
    let store = harness.store().await;
    let payers = ["once", "once-too"].map(|name| Payer::new(name, &[Quota::per_minute(20)]));
    let held = charges(payers.iter().map(|payer| payer.cost(5)));
    let at = store.spend(&held).await.expect("the store answers").at;
    let settle = async |id, units| {
        let once = Some(Once { id, within: MINUTE });
        let settlement = Settlement { at, units, once };
        store.settle(&held, settlement).await.expect("the store answers")
    };
    let left = async || {
        let mut left = Vec::new();
        for payer in &payers {
            left.extend(remaining(&peek(&store, payer.charge()).await));
        }
        left
    };
    assert_eq!(settle("one", 2).await, Settled::Now);
    assert_eq!(left().await, [18, 18]);
    for units in [0, 2, 9] {
        assert_eq!(settle("one", units).await, Settled::Before);
        assert_eq!(left().await, [18, 18]);
    }
    assert_eq!(settle("two", 9).await, Settled::Now, "another name");
    assert_eq!(left().await, [14, 14]);
    let all = together((0..50).map(|_| settle("three", 8))).await;
    assert_eq!(all.iter().filter(|settled| **settled == Settled::Now).count(), 1);
    assert_eq!(left().await, [11, 11]);
}

async fn change_of_units_keeps_history(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("change", &[Quota::per_minute(10)]);
    let raised = payer.with_quotas(&[Quota::per_minute(15)]);
    let lowered = payer.with_quotas(&[Quota::per_minute(4)]);
    assert_eq!(admitted(&store, payer.charge(), 20).await, 10);
    harness.advance(SECOND).await;
    assert_eq!(admitted(&store, raised.charge(), 20).await, 5, "room at once");
    let denied = spend(&store, lowered.charge()).await;
    assert_eq!(remaining(&denied), [0]);
    assert_eq!(denied.standings[0].retry_after(), MINUTE, "until the window drains");
    harness.advance(MINUTE - SECOND).await;
    assert!(!spend(&store, lowered.charge()).await.spent, "five are left, four may be");
    harness.advance(SECOND).await;
    assert_eq!(admitted(&store, lowered.charge(), 20).await, 4);
}

async fn change_of_units_across_ticks_keeps_history(harness: &impl Harness) {
    let store = harness.store().await;
    let small = Payer::new("ticks", &[Quota::per_minute(4000)]);
    let large = small.with_quotas(&[Quota::per_minute(10_000)]);
    harness.advance(MS).await;
    assert!(spend(&store, small.cost(3000)).await.spent);
    assert!(spend(&store, large.cost(7000)).await.spent);
    assert!(!spend(&store, large.charge()).await.spent);
    assert!(!spend(&store, small.charge()).await.spent);
    harness.advance(MINUTE - MS).await;
    assert!(!spend(&store, large.charge()).await.spent, "never sooner than the window");
    harness.advance(Quota::per_minute(10_000).tick() + MS).await;
    assert!(spend(&store, small.cost(4000)).await.spent, "at most a tick later");
}

async fn accounts_are_apart(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("apart", &[Quota::per_minute(1)]);
    let namesake = Payer::new("apart-too", &[Quota::per_minute(1)]);
    let neighbour =
        Payer { identity: Identity::user("43"), ..Payer::new("apart", &[Quota::per_minute(1)]) };
    for payer in [&payer, &namesake, &neighbour] {
        assert_eq!(admitted(&store, payer.charge(), 2).await, 1);
    }
}

async fn clock_stepping_back_does_no_harm(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("clock", &[Quota::per_minute(3)]);
    harness.advance(3600 * SECOND).await;
    assert_eq!(admitted(&store, payer.charge(), 5).await, 3);
    harness.step_back(1800 * SECOND).await;
    assert_eq!(admitted(&store, payer.charge(), 5).await, 0, "nothing is admitted twice");
    let denied = peek(&store, payer.charge()).await;
    assert!(denied.standings[0].retry_after() <= MINUTE, "and no request waits for the clock");
    harness.advance(MINUTE).await;
    assert_eq!(admitted(&store, payer.charge(), 5).await, 3);
}

async fn concurrent_spends_admit_exactly_the_units(harness: &impl Harness) {
    let store = harness.store().await;
    let payer = Payer::new("concurrent", &[Quota::per_minute(50), Quota::per_day(1000)]);
    let one = Charges::from(payer.charge());
    let receipts = together((0..200).map(|_| store.spend(&one))).await;
    let spent = receipts.into_iter().filter(|r| r.as_ref().expect("an answer").spent).count();
    assert_eq!(spent, 50);
}

async fn concurrent_overlapping_charges_stay_whole(harness: &impl Harness) {
    let store = harness.store().await;
    let payers = ["a", "b", "c"].map(|name| Payer::new(name, &[Quota::per_minute(60)]));
    let pair = |i: usize| charges([payers[i % 3].charge(), payers[(i + 1) % 3].charge()]);
    let pairs: Vec<Charges<'_>> = (0..300).map(pair).collect();
    let receipts = together(pairs.iter().map(|pair| store.spend(pair))).await;
    let spent: Vec<bool> =
        receipts.into_iter().map(|receipt| receipt.expect("an answer").spent).collect();
    let of_pair = |i: usize| spent.iter().skip(i).step_by(3).filter(|spent| **spent).count();
    let taken = [0, 1, 2].map(|i| of_pair(i) + of_pair((i + 2) % 3));
    // How the requests are mixed is the store's affair, and so is how many there was room for.
    for (payer, taken) in payers.iter().zip(taken) {
        assert_eq!(remaining(&peek(&store, payer.charge()).await), [60 - taken as u32]);
    }
    let full = taken.iter().filter(|&&taken| taken == 60).count();
    assert!(full >= 2, "no pair of accounts has room left: {taken:?}");
}

/// Drives all futures at once, as far as they let it; their outputs are in their order.
async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut tasks: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in tasks.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        let are_done = tasks.iter().all(|(_, output)| output.is_some());
        if are_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    tasks.into_iter().filter_map(|(_, output)| output).collect()
}
