//! A memory store survives a restart.

use std::time::Duration;

use crate::support::Payer;
use slidegate::limit::SnapshotError;
use slidegate::{Clock, ManualClock, MemoryStore, OnStoreError, Quota, Timestamp};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn store(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().capacity(100).clock(clock.clone()).build()
}

fn saved(store: &MemoryStore) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.save(&mut bytes).unwrap();
    bytes
}

fn spend(store: &MemoryStore, payer: &Payer) -> bool {
    store.spend_now(&payer.charges()).unwrap().spent
}

fn remaining(store: &MemoryStore, payer: &Payer) -> u32 {
    store.peek_now(&payer.charges()).unwrap().standings[0].remaining()
}

/// A store with two accounts, of which one has 30 spends of the last 30 seconds.
fn busy(clock: &ManualClock) -> (MemoryStore, Payer, Payer) {
    let store = store(clock);
    let (ann, bob) =
        (Payer::new("ann", Quota::per_minute(100)), Payer::new("bob", Quota::per_day(1_000_000)));
    for _ in 0..30 {
        assert!(spend(&store, &ann));
        assert!(spend(&store, &bob));
        clock.advance(SECOND);
    }
    (store, ann, bob)
}

#[test]
fn what_was_spent_is_remembered_and_ages_while_no_process_runs() {
    let clock = ManualClock::default();
    let (before, ann, bob) = busy(&clock);
    let bytes = saved(&before);
    for (down, left) in [(0, 70), (40, 81), (58, 99), (59, 100)] {
        let clock = ManualClock::new(clock.now() + down * SECOND);
        let after = store(&clock);
        after.restore(&*bytes).unwrap();
        assert_eq!(remaining(&after, &ann), left, "after {down} s");
        assert_eq!(remaining(&after, &bob), 999_970);
    }
    let late = ManualClock::new(clock.now() + 25 * 3600 * SECOND);
    assert_eq!(store(&late).restore(&*bytes).unwrap(), 0, "all of it is over");
}

#[test]
fn a_restored_store_decides_as_the_old_one_would() {
    let clock = ManualClock::default();
    let (before, ann, _) = busy(&clock);
    let after = store(&clock);
    assert_eq!(after.restore(&*saved(&before)).unwrap(), 2);
    for _ in 0..200 {
        let (old, new) =
            (before.spend_now(&ann.charges()).unwrap(), after.spend_now(&ann.charges()).unwrap());
        assert_eq!((old.spent, &old.standings), (new.spent, &new.standings));
        clock.advance(Duration::from_millis(377));
    }
}

/// A clock whose calendar is elsewhere than its count.
struct Skewed {
    count: ManualClock,
    calendar: ManualClock,
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        self.count.now()
    }

    fn wall(&self) -> Timestamp {
        self.calendar.now()
    }
}

#[test]
fn time_since_a_snapshot_comes_from_the_calendar_and_is_never_negative() {
    let clock = ManualClock::default();
    let (before, ann, _) = busy(&clock);
    let bytes = saved(&before);
    let calendar = clock.now();
    let left_after = |calendar: Timestamp| {
        let count = ManualClock::new(Timestamp::from_millis(5_000_000));
        let skewed = Skewed { count, calendar: ManualClock::new(calendar) };
        let after = MemoryStore::builder().clock(skewed).build();
        after.restore(&*bytes).unwrap();
        remaining(&after, &ann)
    };
    assert_eq!(left_after(calendar), 70);
    assert_eq!(left_after(calendar + 40 * SECOND), 81);
    let before_that = Timestamp::from_nanos(calendar.as_nanos() - 3_600_000_000_000);
    assert_eq!(left_after(before_that), 70, "a calendar set back frees nothing");
}

#[test]
fn a_step_back_right_after_a_restore_holds_nothing_longer_than_a_window() {
    let clock = ManualClock::default();
    let (before, ann, _) = busy(&clock);
    let after = store(&clock);
    after.restore(&*saved(&before)).unwrap();
    clock.set(clock.now() - 3600 * SECOND);
    assert_eq!(remaining(&after, &ann), 70, "a step back frees nothing");
    clock.advance(60 * SECOND);
    assert_eq!(remaining(&after, &ann), 100);
}

#[test]
fn an_account_in_store_and_snapshot_keeps_both_histories() {
    let clock = ManualClock::default();
    let (before, ann, _) = busy(&clock);
    let after = store(&clock);
    for _ in 0..5 {
        assert!(spend(&after, &ann));
    }
    after.restore(&*saved(&before)).unwrap();
    assert_eq!(remaining(&after, &ann), 65);
    clock.advance(30 * SECOND);
    assert_eq!(remaining(&after, &ann), 66, "the oldest of the saved ones has left");
    clock.advance(30 * SECOND);
    assert_eq!(remaining(&after, &ann), 100);
}

#[test]
fn a_restored_history_ends_a_remembered_denial() {
    let clock = ManualClock::default();
    let one = Payer::new("one", Quota::per_minute(1));
    let after = store(&clock);
    assert!(spend(&after, &one));
    assert!(!spend(&after, &one));
    let before = store(&clock);
    clock.advance(10 * SECOND);
    assert!(spend(&before, &one));
    after.restore(&*saved(&before)).unwrap();
    let denied = after.spend_now(&one.charges()).unwrap();
    assert_eq!(denied.standings[0].retry_after(), MINUTE, "the newer spend is known");
}

#[test]
fn a_damaged_snapshot_is_an_error_and_changes_nothing() {
    let clock = ManualClock::default();
    let (before, ann, _) = busy(&clock);
    let bytes = saved(&before);
    let after = store(&clock);
    assert!(spend(&after, &ann));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        assert!(after.restore(&*damaged).is_err(), "byte {at} changed");
        assert!(after.restore(&bytes[..at]).is_err(), "cut at {at}");
    }
    let longer = [&bytes[..], b"x"].concat();
    assert!(matches!(after.restore(&*longer), Err(SnapshotError::Damaged(_))));
    assert_eq!(remaining(&after, &ann), 99);
    assert_eq!(after.stats().accounts, 1);
    assert!(after.restore(&*bytes).is_ok());
}

#[test]
fn errors_of_a_restore_say_what_is_wrong() {
    let clock = ManualClock::default();
    let (before, ..) = busy(&clock);
    let bytes = saved(&before);
    let message = |bytes: &[u8]| store(&clock).restore(bytes).unwrap_err().to_string();
    for foreign in [&b""[..], b"PK\x03\x04", b"[gateway]\nlisten = \"127.0.0.1:8080\"\n"] {
        assert!(message(foreign).contains("not a snapshot"), "{}", message(foreign));
    }
    let newer = [b"slidegate-snapshot 2\n", &bytes[21..]].concat();
    assert!(message(&newer).contains("does not know; it knows version 1"));
    assert!(message(&bytes[..bytes.len() / 2]).contains("it ends too early"));
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert!(message(&changed).contains("the checksum does not match"));

    let small = MemoryStore::builder().capacity(1).clock(clock.clone()).build();
    let error = small.restore(&*bytes).unwrap_err().to_string();
    assert!(error.contains("more accounts than the store has room for (1)"), "{error}");
    assert_eq!(small.stats().accounts, 0);
}

#[test]
fn a_reader_that_fails_is_reported_as_such() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("disk on fire"))
        }
    }
    let error = store(&ManualClock::default()).restore(Broken).unwrap_err();
    assert!(matches!(error, SnapshotError::Io(_)), "{error}");
}

#[test]
fn shared_accounts_of_a_full_store_are_saved_too() {
    let clock = ManualClock::default();
    let before = MemoryStore::builder().capacity(0).clock(clock.clone()).build();
    let payer = Payer::new("late", Quota::per_minute(2));
    let local = payer.charge().on_store_error(OnStoreError::Local);
    assert!(before.spend_now(&local.into()).unwrap().spent);
    let after = store(&clock);
    assert_eq!(after.restore(&*saved(&before)).unwrap(), 0);
    assert!(spend(&after, &payer));
    assert!(!spend(&after, &payer), "what it may have spent before the restart counts");
}

/// A store of ten accounts, and no room for another.
fn full(clock: &ManualClock, prefix: &str) -> MemoryStore {
    let store = MemoryStore::builder().capacity(10).clock(clock.clone()).build();
    for i in 0..10 {
        assert!(spend(&store, &Payer::new(&format!("{prefix}{i}"), Quota::per_minute(5))));
    }
    store
}

#[test]
fn a_snapshot_never_fills_a_store_beyond_its_capacity() {
    let clock = ManualClock::default();
    let (before, after) = (full(&clock, "a"), full(&clock, "b"));
    let refused = after.restore(&*saved(&before));
    assert!(matches!(refused, Err(SnapshotError::TooLarge { capacity: 10 })));
    assert_eq!(after.stats().accounts, 10);
    assert_eq!(before.restore(&*saved(&before)).unwrap(), 10, "the same accounts need no room");
}

#[test]
fn merged_histories_stay_within_a_ledgers_bound() {
    let clock = ManualClock::default();
    let (left, right) = (store(&clock), store(&clock));
    let payer = Payer::new("busy", Quota::per_minute(4096));
    for i in 0..8000 {
        let store = if i % 2 == 0 { &left } else { &right };
        assert!(spend(store, &payer));
        clock.advance(Duration::from_millis(1));
    }
    left.restore(&*saved(&right)).unwrap();
    assert_eq!(store(&clock).restore(&*saved(&left)).unwrap(), 1, "it can be saved again");
    assert!(!spend(&left, &payer));
    let raised = Payer::new("busy", Quota::per_minute(9000));
    assert_eq!(remaining(&left, &raised), 1000, "and no unit was lost");
}

#[test]
fn merging_with_what_has_half_left_makes_no_file_that_cannot_be_read() {
    let clock = ManualClock::default();
    let payer = Payer::new("ticks", "100000/40960ms".parse().unwrap());
    let (left, right) = (store(&clock), store(&clock));
    let fill = |store: &MemoryStore| {
        for _ in 0..4096 {
            assert!(spend(store, &payer));
            clock.advance(Duration::from_millis(10));
        }
    };
    fill(&left);
    clock.advance(Duration::from_millis(20_480));
    let mut half = Vec::new();
    fill(&right);
    right.save(&mut half).unwrap();
    left.restore(&*half).unwrap();
    assert_eq!(store(&clock).restore(&*saved(&left)).unwrap(), 1);
}

#[test]
fn what_is_over_takes_no_room_in_a_restore() {
    let clock = ManualClock::default();
    let old = full(&clock, "old");
    clock.advance(MINUTE);
    assert_eq!(old.restore(&*saved(&full(&clock, "new"))).unwrap(), 10);
    assert_eq!(old.stats().accounts, 10);
}
