//! The memory store's bounds: what it forgets, what it never forgets, and what it does when full.

use std::time::Duration;

use crate::support::Payer;
use slidegate::{Clock, ManualClock, MemoryStore, OnStoreError, Quota, StoreError, Timestamp};

const MINUTE: Duration = Duration::from_secs(60);

fn store(clock: &ManualClock, capacity: usize) -> MemoryStore {
    MemoryStore::builder().capacity(capacity).clock(clock.clone()).build()
}

fn payers(range: std::ops::Range<usize>, quota: Quota) -> Vec<Payer> {
    range.map(|i| Payer::new(&format!("user-{i}"), quota)).collect()
}

fn spend(store: &MemoryStore, payer: &Payer) -> bool {
    store.spend_now(&payer.charges()).unwrap().spent
}

#[test]
fn accounts_that_are_over_make_room() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    for round in 0..50 {
        for payer in payers(round * 100..round * 100 + 100, Quota::per_minute(5)) {
            let receipt = store.spend_now(&payer.charges()).unwrap();
            assert!(receipt.spent);
        }
        clock.advance(MINUTE);
    }
    let stats = store.stats();
    assert!(stats.accounts <= 100);
    assert!(stats.swept >= 4000, "{stats:?}");
}

#[test]
fn idle_accounts_go_away_while_others_are_served() {
    let clock = ManualClock::default();
    let store = store(&clock, 10_000);
    payers(0..5_000, Quota::per_minute(5)).iter().for_each(|payer| assert!(spend(&store, payer)));
    assert_eq!(store.stats().accounts, 5_000);
    clock.advance(MINUTE);
    let regulars = payers(6_000..6_100, Quota::per_day(1_000_000));
    for _ in 0..2000 {
        regulars.iter().for_each(|payer| assert!(spend(&store, payer)));
    }
    assert_eq!(store.stats().accounts, 100, "no new account was needed to sweep the old ones");
}

#[test]
fn a_live_account_is_never_pushed_out() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    let regulars = payers(0..100, Quota::per_minute(1));
    regulars.iter().for_each(|payer| assert!(spend(&store, payer)));
    for newcomer in payers(1000..3000, Quota::per_minute(1)) {
        let _ = store.spend_now(&newcomer.charges()).unwrap();
    }
    assert!(regulars.iter().all(|payer| !spend(&store, payer)), "all of them are remembered");
    assert_eq!(store.stats().accounts, 100);
    assert!(store.stats().over_capacity >= 2000);
}

#[test]
fn a_full_store_does_what_the_policy_says() {
    let clock = ManualClock::default();
    let store = store(&clock, 10);
    payers(0..10, Quota::per_hour(1)).iter().for_each(|payer| assert!(spend(&store, payer)));
    let newcomers = payers(10..20, Quota::per_minute(3));
    let answers = |action| -> Vec<bool> {
        let ask = |payer: &Payer| {
            let receipt = store.spend_now(&payer.charge().on_store_error(action).into()).unwrap();
            assert!(receipt.degraded);
            receipt.spent
        };
        newcomers.iter().map(ask).collect()
    };
    assert_eq!(answers(OnStoreError::Allow), [true; 10]);
    let shared = answers(OnStoreError::Local);
    assert_eq!(shared.iter().filter(|spent| **spent).count(), 3, "newcomers share one account");
    let reading = store.read_now(newcomers[9].charge());
    assert!(reading.degraded && reading.ledgers[0].spent() == 3, "{reading:?}");
    let deny = newcomers[0].charge().on_store_error(OnStoreError::Deny);
    assert!(matches!(store.spend_now(&deny.into()), Err(StoreError::Full)));
    assert_eq!(store.stats().accounts, 10);
}

#[test]
fn a_denial_for_lack_of_room_takes_nothing() {
    let clock = ManualClock::default();
    let store = store(&clock, 1);
    let regular = Payer::new("regular", Quota::per_minute(5));
    assert!(spend(&store, &regular));
    let newcomer = Payer::new("newcomer", Quota::per_minute(5));
    let mut both = regular.charges();
    both.push(newcomer.charge().on_store_error(OnStoreError::Deny)).unwrap();
    assert!(store.spend_now(&both).is_err());
    assert_eq!(store.peek_now(&regular.charges()).unwrap().standings[0].remaining(), 4);
}

#[test]
fn an_identity_that_spent_from_a_shared_account_does_not_start_afresh() {
    let clock = ManualClock::default();
    let store = store(&clock, 1);
    let regular = Payer::new("regular", Quota::per_minute(1));
    let newcomer = Payer::new("newcomer", Quota::per_hour(3));
    assert!(spend(&store, &regular));
    assert!(spend(&store, &newcomer), "from the shared account");
    assert!(spend(&store, &newcomer));
    clock.advance(MINUTE);
    let receipt = store.spend_now(&newcomer.charges()).unwrap();
    assert!(receipt.spent && !receipt.degraded, "there is room for an account now");
    assert_eq!(receipt.standings[0].remaining(), 0, "with what was spent before");
    assert!(!spend(&store, &newcomer));
    clock.advance(60 * MINUTE);
    assert!(spend(&store, &newcomer));
}

#[test]
fn peeking_makes_no_account() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    for payer in payers(0..50, Quota::per_minute(1)) {
        assert!(store.peek_now(&payer.charges()).unwrap().spent);
        assert_eq!(store.read_now(payer.charge()).ledgers[0].spent(), 0);
    }
    assert_eq!(store.stats().accounts, 0);
}

#[test]
fn a_denied_newcomer_makes_no_account() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    let narrow =
        Payer { policy: "narrow".parse().unwrap(), ..Payer::new("all", Quota::per_minute(1)) };
    assert!(spend(&store, &narrow));
    for payer in payers(0..50, Quota::per_minute(1)) {
        let mut both = payer.charges();
        both.push(narrow.charge()).unwrap();
        assert!(!store.spend_now(&both).unwrap().spent);
    }
    assert_eq!(store.stats().accounts, 1);
}

#[test]
fn one_account_cannot_be_charged_twice_at_once() {
    let payer = Payer::new("twice", Quota::per_minute(1));
    let mut charges = payer.charges();
    let error = charges.push(payer.charge()).unwrap_err().to_string();
    assert!(error.contains("api of user:twice"), "{error}");
}

#[test]
fn a_shadow_charge_that_finds_no_room_denies_nothing() {
    let clock = ManualClock::default();
    let store = store(&clock, 0);
    let payer = Payer::new("watched", Quota::per_minute(1));
    let charge = payer.charge().shadow(true).on_store_error(OnStoreError::Deny);
    assert!(store.spend_now(&charge.into()).unwrap().spent);
}

#[test]
fn a_denial_for_one_cost_is_forgotten_with_the_other() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    let payer = Payer::new("costs", Quota::per_minute(2));
    let two = payer.charge().with_cost(2.try_into().unwrap()).unwrap();
    assert!(store.spend_now(&two.into()).unwrap().spent);
    assert!(!spend(&store, &payer));
    assert!(!store.peek_now(&two.into()).unwrap().spent);
    store.reset_now(&payer.charges());
    assert!(store.peek_now(&two.into()).unwrap().spent);
    assert!(spend(&store, &payer));
}

#[test]
fn a_plan_with_fewer_units_does_not_wipe_the_history_of_one_with_more() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    let pro = Payer::new("customer", Quota::per_minute(600));
    let free = Payer::new("customer", Quota::per_minute(60));
    let mut admitted = 0;
    for _ in 0..5 {
        for _ in 0..700 {
            let charge = pro.charge().count_denied(true);
            admitted += u32::from(store.spend_now(&charge.into()).unwrap().spent);
        }
        let _ = store.spend_now(&free.charge().count_denied(true).into()).unwrap();
    }
    assert_eq!(admitted, 600);
}

#[test]
fn an_account_keeps_a_bounded_number_of_windows() {
    let clock = ManualClock::default();
    let store = store(&clock, 100);
    for seconds in 1..=300 {
        let quota = Quota::new(5.try_into().unwrap(), Duration::from_secs(1000 + seconds)).unwrap();
        assert!(spend(&store, &Payer::new("changing", quota)));
    }
    let mut bytes = Vec::new();
    store.save(&mut bytes).unwrap();
    let after = self::store(&clock, 100);
    assert_eq!(after.restore(&*bytes).unwrap(), 1);
}

#[test]
fn any_capacity_can_be_asked_for() {
    let clock = ManualClock::default();
    for capacity in [0, 1, 1 << 20, usize::MAX] {
        assert!(spend(&store(&clock, capacity), &Payer::new("one", Quota::per_minute(1))));
    }
}

#[test]
fn two_newcomers_of_one_policy_cannot_share_an_account_in_one_request() {
    let clock = ManualClock::default();
    let store = store(&clock, 1);
    assert!(spend(&store, &Payer::new("regular", Quota::per_minute(1))));
    let (ann, bob) =
        (Payer::new("ann", Quota::per_minute(3)), Payer::new("bob", Quota::per_minute(3)));
    let mut both = ann.charges();
    both.push(bob.charge()).unwrap();
    for _ in 0..5 {
        assert!(matches!(store.spend_now(&both), Err(StoreError::Full)));
    }
    let alone = (0..10).filter(|i| spend(&store, if i % 2 == 0 { &ann } else { &bob })).count();
    assert_eq!(alone, 3, "nothing was taken, and nothing is admitted twice");
}

#[test]
fn a_peek_after_a_step_back_ends_a_remembered_denial() {
    let clock = ManualClock::default();
    let start = clock.now();
    let store = store(&clock, 100);
    let payer = Payer::new("stepping", Quota::per_minute(3));
    let two = payer.charge().with_cost(2.try_into().unwrap()).unwrap();
    clock.set(start + Duration::from_secs(100));
    assert!(store.spend_now(&two.into()).unwrap().spent);
    assert!(!store.spend_now(&two.into()).unwrap().spent);
    clock.set(start + Duration::from_secs(50));
    assert!(store.peek_now(&payer.charges()).unwrap().spent);
    clock.set(start + Duration::from_millis(100_500));
    let denied = store.spend_now(&two.into()).unwrap();
    assert_eq!(denied.standings[0].retry_after(), Duration::from_millis(9_500));
}

#[test]
fn a_step_back_denies_for_no_longer_than_a_window_from_the_first_call_after_it() {
    let clock = ManualClock::default();
    let start = clock.now();
    let store = store(&clock, 100);
    let (ann, bob) =
        (Payer::new("ann", Quota::per_minute(1)), Payer::new("bob", Quota::per_minute(1)));
    clock.set(start + Duration::from_secs(100));
    assert!(spend(&store, &ann) && spend(&store, &bob));
    clock.set(start + Duration::from_secs(50));
    assert!(!spend(&store, &ann));
    clock.set(start + Duration::from_secs(80));
    let denied = store.spend_now(&bob.charges()).unwrap();
    assert_eq!(denied.standings[0].retry_after(), Duration::from_secs(30));
    clock.set(start + Duration::from_secs(110));
    assert!(spend(&store, &ann) && spend(&store, &bob));
}

#[test]
fn processors_that_disagree_by_a_hair_shorten_no_window() {
    const SECOND: u64 = 1_000_000_000;
    let at =
        |us: i64| Timestamp::from_nanos((1_000 * SECOND).checked_add_signed(us * 1000).unwrap());
    // The two accounts are in shards of their own only by chance, so many pairs are tried.
    for pair in 0..40 {
        let clock = ManualClock::new(at(40));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let ann = Payer::new(&format!("ann-{pair}"), Quota::per_second(2));
        let bob = Payer::new(&format!("bob-{pair}"), Quota::per_second(1));
        assert!(spend(&store, &ann), "ann's shard has seen the later reading");
        clock.set(at(-10));
        let mut both = ann.charges();
        both.push(bob.charge()).unwrap();
        let receipt = store.spend_now(&both).unwrap();
        assert_eq!((receipt.spent, receipt.at), (true, at(40)));
        clock.set(at(-5));
        assert!(!store.peek_now(&bob.charges()).unwrap().spent);
        clock.set(at(0) + Duration::from_secs(1));
        assert!(!store.peek_now(&bob.charges()).unwrap().spent, "not a window after its receipt");
        clock.set(at(1000) + Duration::from_secs(1));
        assert!(store.peek_now(&bob.charges()).unwrap().spent);
    }
}
