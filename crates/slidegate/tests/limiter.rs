//! The limiter of one quota: exact for every key, truthful when it denies, bounded.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use slidegate::{Clock, Limiter, ManualClock, Quota};

const SECOND: Duration = Duration::from_secs(1);

fn limiter(quota: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::new(quota.parse().unwrap()).clock(clock.clone()), clock)
}

fn units(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

#[test]
fn each_key_has_the_whole_quota() {
    let (limiter, clock) = limiter("3/min");
    for key in ["ann", "bob", "", "a key with spaces", "ключ", &"long".repeat(1000)] {
        let left: Vec<u32> = (0..3).map(|_| limiter.check(key).unwrap().remaining()).collect();
        assert_eq!(left, [2, 1, 0], "{key:?}");
        assert!(limiter.check(key).is_err(), "{key:?}");
    }
    clock.advance(60 * SECOND);
    assert_eq!(limiter.check("ann").unwrap().remaining(), 2);
}

#[test]
fn a_denial_says_when_to_come_back_and_takes_nothing() {
    let (limiter, clock) = limiter("2/min");
    assert!(limiter.check("ann").is_ok());
    clock.advance(10 * SECOND);
    assert!(limiter.check("ann").is_ok());
    assert_eq!(limiter.retry_after("ann"), 50 * SECOND);
    let denied = limiter.check("ann").unwrap_err();
    assert_eq!(denied.retry_after(), Some(50 * SECOND));
    assert_eq!(denied.to_string(), "more than 2/min: retry in 50 s");
    clock.advance(Duration::from_millis(49_450));
    let denied = limiter.check("ann").unwrap_err();
    assert_eq!(denied.to_string(), "more than 2/min: retry in 0.6 s", "rounded up, never down");
    clock.advance(Duration::from_millis(549));
    assert!(limiter.check("ann").is_err());
    clock.advance(Duration::from_millis(1));
    assert_eq!(limiter.retry_after("ann"), Duration::ZERO);
    assert!(limiter.check("ann").is_ok());
}

#[test]
fn several_units_are_taken_whole_or_not_at_all() {
    let (limiter, _) = limiter("10/min");
    assert_eq!(limiter.check_n("ann", units(7)).unwrap().remaining(), 3);
    assert!(limiter.check_n("ann", units(4)).is_err());
    assert_eq!(limiter.check_n("ann", units(3)).unwrap().remaining(), 0);
    let never = limiter.check_n("bob", units(11)).unwrap_err();
    assert_eq!(never.retry_after(), None);
    assert_eq!(never.to_string(), "11 units are more than 10/min ever allows");
    assert_eq!(limiter.peek("bob").remaining(), 10);
}

#[test]
fn peeking_spends_nothing_and_a_reset_forgets() {
    let (limiter, _) = limiter("1/min");
    assert_eq!(limiter.peek("ann").remaining(), 1);
    assert!(limiter.check("ann").is_ok());
    assert_eq!(limiter.peek("ann").remaining(), 0);
    assert!(!limiter.peek("ann").retry_after().is_zero());
    limiter.reset("ann");
    assert!(limiter.check("ann").is_ok());
    assert_eq!(limiter.quota(), Quota::per_minute(1));
}

#[test]
fn keys_that_find_no_room_share_one_quota() {
    let clock = ManualClock::default();
    let limiter = Limiter::new(Quota::per_minute(3)).capacity(10).clock(clock.clone());
    for i in 0..10 {
        assert!(limiter.check(&format!("regular-{i}")).is_ok());
    }
    let admitted = (0..1000).filter(|i| limiter.check(&format!("new-{i}")).is_ok()).count();
    assert_eq!(admitted, 3);
    assert_eq!(limiter.peek("regular-0").remaining(), 2, "no account was evicted");
    clock.advance(60 * SECOND);
    assert_eq!(limiter.check("new-1").unwrap().remaining(), 2, "there is room again");
}

#[test]
fn threads_admit_exactly_the_quota() {
    let limiter = Arc::new(Limiter::new(Quota::per_day(1000)));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let limiter = limiter.clone();
            thread::spawn(move || (0..500).filter(|_| limiter.check("shared").is_ok()).count())
        })
        .collect();
    let admitted: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(admitted, 1000);
}

proptest! {
    /// Whatever the traffic, what is admitted is what a list of all spends admits, and a denial is
    /// for as long as that list says.
    #[test]
    fn a_limiter_admits_what_a_list_of_all_spends_admits(
        (quota, window_ms) in (1..8u32, 5..400u64),
        steps in prop::collection::vec((0..3usize, 1..5u32, 0..200u64), 1..200),
    ) {
        let clock = ManualClock::default();
        let quota = Quota::new(units(quota), Duration::from_millis(window_ms)).unwrap();
        let limiter = Limiter::new(quota).clock(clock.clone());
        let mut spends: Vec<(usize, u64, u32)> = Vec::new();
        for (key, cost, pause_ms) in steps {
            clock.advance(Duration::from_millis(pause_ms));
            let now = clock.now().as_millis();
            let used = |at: u64| -> u32 {
                let live = |s: &&(usize, u64, u32)| s.0 == key && s.1 + window_ms > at;
                spends.iter().filter(live).map(|s| s.2).sum()
            };
            let fits = |at: u64| used(at) + cost <= quota.units().get();
            match limiter.check_n(&key.to_string(), units(cost)) {
                Ok(standing) => {
                    prop_assert!(fits(now));
                    prop_assert_eq!(standing.remaining(), quota.units().get() - used(now) - cost);
                    spends.push((key, now, cost));
                }
                Err(denied) => {
                    let first = (now + 1..=now + window_ms).find(|at| fits(*at));
                    prop_assert!(!fits(now));
                    let promised = denied.retry_after().map(|wait| now + wait.as_millis() as u64);
                    prop_assert_eq!(promised, first.filter(|_| cost <= quota.units().get()));
                }
            }
        }
    }
}
