//! Many threads at once: exactly the units are admitted, and nothing locks up.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::support::Payer;
use http::Method;
use slidegate::limit::Charges;
use slidegate::{Facts, Gate, ManualClock, MemoryStore, Policies, Policy, Quota, Source};

const THREADS: usize = 8;

/// Fails the test if `work` does not come to an end.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, waiting) = channel();
    let worker = thread::spawn(move || {
        work();
        done.send(()).expect("the test waits");
    });
    if waiting.recv_timeout(Duration::from_secs(120)).is_err() && !worker.is_finished() {
        panic!("the threads wait for each other");
    }
    worker.join().expect("no thread panics");
}

/// Runs `work` on all threads at once, with each thread's number.
fn on_threads(work: impl Fn(usize) + Sync) {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for i in 0..THREADS {
            let (work, barrier) = (&work, &barrier);
            scope.spawn(move || {
                barrier.wait();
                work(i);
            });
        }
    });
}

fn frozen_store(capacity: usize) -> MemoryStore {
    MemoryStore::builder().capacity(capacity).clock(ManualClock::default()).build()
}

fn remaining(store: &MemoryStore, payer: &Payer) -> u32 {
    store.peek_now(&payer.charges()).expect("an answer").standings[0].remaining()
}

#[test]
fn one_account_admits_exactly_its_units() {
    in_time(|| {
        for units in [1, 7, 1000, 20_000] {
            let store = frozen_store(1000);
            let payer = Payer::new("one", Quota::per_minute(units));
            let admitted = AtomicUsize::new(0);
            on_threads(|_| {
                for _ in 0..units {
                    let spent = store.spend_now(&payer.charges()).unwrap().spent;
                    admitted.fetch_add(usize::from(spent), Ordering::Relaxed);
                }
            });
            assert_eq!(admitted.into_inner(), units as usize);
        }
    });
}

#[test]
fn one_account_admits_exactly_its_units_on_the_system_clock() {
    in_time(|| {
        let store = MemoryStore::new();
        let payer = Payer::new("one", Quota::per_hour(50_000));
        let admitted = AtomicUsize::new(0);
        on_threads(|_| {
            for _ in 0..20_000 {
                let spent = store.spend_now(&payer.charges()).unwrap().spent;
                admitted.fetch_add(usize::from(spent), Ordering::Relaxed);
            }
        });
        assert_eq!(admitted.into_inner(), 50_000);
    });
}

#[test]
fn overlapping_sets_of_accounts_stay_whole_and_never_deadlock() {
    in_time(|| {
        let store = frozen_store(100_000);
        let payers: Vec<Payer> =
            (0..12).map(|i| Payer::new(&format!("p{i}"), Quota::per_minute(3000))).collect();
        let taken: Vec<AtomicUsize> = payers.iter().map(|_| AtomicUsize::new(0)).collect();
        on_threads(|thread| {
            for round in 0..4000 {
                // Three different accounts, in every order that threads can come up with.
                let picks =
                    [round, round * 5 + thread + 1, round * 7 + thread * 3 + 2].map(|n| n % 12);
                let mut charges = Charges::new();
                let distinct = picks.iter().all(|i| charges.push(payers[*i].charge()).is_ok());
                if distinct && store.spend_now(&charges).unwrap().spent {
                    picks.iter().for_each(|i| {
                        taken[*i].fetch_add(1, Ordering::Relaxed);
                    });
                }
            }
        });
        for (payer, taken) in payers.iter().zip(taken) {
            assert_eq!(3000 - remaining(&store, payer) as usize, taken.into_inner());
        }
    });
}

#[test]
fn sweeps_snapshots_and_new_accounts_do_not_disturb_an_account() {
    in_time(|| {
        let clock = ManualClock::default();
        let store = MemoryStore::builder().capacity(4000).clock(clock.clone()).build();
        let payer = Payer::new("steady", Quota::per_day(30_000));
        let admitted = AtomicUsize::new(0);
        on_threads(|thread| match thread {
            0 => (0..200).for_each(|_| store.save(std::io::sink()).unwrap()),
            1 => (0..20_000).for_each(|i| {
                let brief = Payer::new(&format!("brief-{i}"), Quota::per_second(1));
                store.spend_now(&brief.charges()).unwrap();
                clock.advance(Duration::from_millis(1));
            }),
            _ => (0..10_000).for_each(|_| {
                let spent = store.spend_now(&payer.charges()).unwrap().spent;
                admitted.fetch_add(usize::from(spent), Ordering::Relaxed);
            }),
        });
        assert_eq!(admitted.into_inner(), 30_000);
        assert!(store.stats().swept > 10_000, "{:?}", store.stats());
    });
}

#[test]
fn a_reset_is_never_answered_with_an_old_denial() {
    in_time(|| {
        let store = frozen_store(1000);
        let payer = Payer::new("reset", Quota::per_minute(3));
        let over = AtomicBool::new(false);
        on_threads(|thread| {
            let _ends = (thread == 0).then(|| SetAtEnd(&over));
            if thread > 0 {
                while !over.load(Ordering::Relaxed) {
                    store.peek_now(&payer.charges()).unwrap();
                }
                return;
            }
            for _ in 0..20_000 {
                for _ in 0..3 {
                    assert!(store.spend_now(&payer.charges()).unwrap().spent);
                }
                assert!(!store.spend_now(&payer.charges()).unwrap().spent);
                assert!(!store.peek_now(&payer.charges()).unwrap().spent);
                store.reset_now(&payer.charges());
            }
        });
    });
}

/// Sets a flag when dropped, by a panic too.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn denials_of_many_accounts_are_never_mixed_up() {
    in_time(|| {
        let store = frozen_store(100_000);
        // Each has its own number of units, so an answer of another account would show.
        let payers: Vec<Payer> = (1..=2000)
            .map(|units| {
                Payer::new(&format!("a-rather-long-name-of-user-{units}"), Quota::per_minute(units))
            })
            .collect();
        on_threads(|thread| {
            for round in 0..40_000 {
                let units = (round * 31 + thread * 257) % 2000 + 1;
                let receipt = store.spend_now(&payers[units - 1].charges()).unwrap();
                assert_eq!(receipt.standings[0].quota().units().get() as usize, units);
                let denied = !receipt.standings[0].retry_after().is_zero();
                assert_eq!(denied, !receipt.spent);
                assert!(receipt.spent || receipt.standings[0].remaining() == 0);
            }
        });
    });
}

#[test]
fn replacing_policies_loses_and_doubles_nothing() {
    in_time(|| {
        let policies = |units| {
            let api = Policy::new("api").identity([Source::User]).quota(Quota::per_minute(units));
            let other =
                Policy::new("other").identity([Source::Everyone]).quota(Quota::per_day(1_000_000));
            Policies::builder().policy(api).policy(other).build().unwrap()
        };
        let gate = Gate::new(policies(5000), frozen_store(1000));
        let admitted = AtomicUsize::new(0);
        on_threads(|thread| {
            if thread == 0 {
                // Other units for a moment would be other promises; the rules stay, their copies change.
                (0..500).for_each(|_| gate.replace_policies(policies(5000)));
                return;
            }
            for _ in 0..2000 {
                let facts = Facts::new(&Method::GET, "/").user("42");
                let allowed = gate.decide_now(&facts).unwrap().is_allowed();
                admitted.fetch_add(usize::from(allowed), Ordering::Relaxed);
            }
        });
        assert_eq!(admitted.into_inner(), 5000);
    });
}

#[test]
fn refunds_and_spends_balance() {
    in_time(|| {
        let store = frozen_store(1000);
        let payer = Payer::new("balance", Quota::per_minute(100));
        let kept = AtomicUsize::new(0);
        on_threads(|thread| {
            for round in 0..5000 {
                let receipt = store.spend_now(&payer.charges()).unwrap();
                if !receipt.spent {
                    continue;
                }
                if (round + thread) % 50 == 0 {
                    kept.fetch_add(1, Ordering::Relaxed);
                } else {
                    store.refund_now(&payer.charges(), slidegate::limit::Spent::At(receipt.at));
                }
            }
        });
        assert_eq!(100 - remaining(&store, &payer) as usize, kept.into_inner());
    });
}

#[test]
fn restores_at_the_same_time_keep_within_the_capacity() {
    in_time(|| {
        let full = |prefix: &str| {
            let store = frozen_store(1000);
            for i in 0..1000 {
                let payer = Payer::new(&format!("{prefix}{i}"), Quota::per_minute(5));
                store.spend_now(&payer.charges()).expect("room");
            }
            let mut bytes = Vec::new();
            store.save(&mut bytes).expect("a vector takes it");
            bytes
        };
        let snapshots: Vec<Vec<u8>> = (0..THREADS).map(|i| full(&format!("t{i}-"))).collect();
        let store = frozen_store(1000);
        let payer = Payer::new("spender", Quota::per_minute(100));
        on_threads(|thread| match thread {
            0 => (0..2000).for_each(|_| drop(store.spend_now(&payer.charges()))),
            _ => drop(store.restore(&*snapshots[thread])),
        });
        assert!(store.stats().accounts <= 1000, "{:?}", store.stats());
        store.save(std::io::sink()).expect("it is whole");
    });
}

#[test]
fn each_reset_is_worth_its_units_and_no_more() {
    in_time(|| {
        let store = frozen_store(1000);
        let payer = Payer::new("reset", Quota::per_minute(100));
        let (admitted, resets) = (AtomicUsize::new(0), 50);
        on_threads(|thread| {
            if thread == 0 {
                (0..resets).for_each(|_| store.reset_now(&payer.charges()));
                return;
            }
            for _ in 0..2000 {
                let spent = store.spend_now(&payer.charges()).unwrap().spent;
                admitted.fetch_add(usize::from(spent), Ordering::Relaxed);
            }
        });
        let before = admitted.into_inner();
        assert!((100..=100 * (resets + 1)).contains(&before), "{before}");
        store.reset_now(&payer.charges());
        let after = (0..500).filter(|_| store.spend_now(&payer.charges()).unwrap().spent).count();
        assert_eq!(after, 100);
    });
}

#[test]
fn units_that_change_under_way_end_in_the_units_that_stay() {
    in_time(|| {
        let policies = |units| {
            let api = Policy::new("api").identity([Source::User]).quota(Quota::per_minute(units));
            Policies::builder().policy(api).build().unwrap()
        };
        let gate = Gate::new(policies(5000), frozen_store(1000));
        let admitted = AtomicUsize::new(0);
        let ask = |times: usize| {
            for _ in 0..times {
                let facts = Facts::new(&Method::GET, "/").user("42");
                let allowed = gate.decide_now(&facts).unwrap().is_allowed();
                admitted.fetch_add(usize::from(allowed), Ordering::Relaxed);
            }
        };
        on_threads(|thread| match thread {
            0 => [3000, 5000].iter().cycle().take(500).for_each(|units| {
                gate.replace_policies(policies(*units));
            }),
            _ => ask(600),
        });
        gate.replace_policies(policies(5000));
        ask(6000);
        assert_eq!(admitted.into_inner(), 5000, "nothing was lost or counted twice");
    });
}
