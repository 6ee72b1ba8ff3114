//! Any text as a path, and any bytes as a snapshot.

use std::collections::VecDeque;
use std::time::Duration;

use sha2::{Digest, Sha256};
use slidegate::{Clock, ManualClock, MemoryStore, Quota, Timestamp};

use crate::paths::properties::{check_exemption, check_normal_form, check_readings, check_servers};
use crate::support::Payer;

#[test]
fn path() {
    slidegate_fuzz::check("path", |input| {
        let text = String::from_utf8_lossy(input);
        let path = text.lines().next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        check_readings(&path);
        check_servers(&path);
        check_normal_form(&path);
        check_exemption(&path);
    });
}

const CAPACITY: usize = 4;

fn store(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().capacity(CAPACITY).clock(clock.clone()).build()
}

/// The inputs have no checksum, or nothing but the checksum would ever be tested.
#[test]
fn snapshot() {
    slidegate_fuzz::check("snapshot", |content| {
        let clock = ManualClock::new(Timestamp::from_millis(1_700_000_000_000));
        let restored = store(&clock);
        assert!(restored.restore(content).is_err(), "the checksum is missing");
        let sealed = [content, &Sha256::digest(content)].concat();
        match restored.restore(&*sealed) {
            Ok(count) => assert!(restored.stats().accounts <= count.min(CAPACITY)),
            Err(_) => assert_eq!(restored.stats().accounts, 0, "an error changes nothing"),
        }
        check_copy(&restored, &clock);
        for (user, quota) in [("ann", "5/min"), ("ann", "3/s"), ("bob", "7/day")] {
            check_quota(&restored, &clock, user, quota.parse().unwrap());
        }
    });
}

/// What is saved anew is the same once more.
fn check_copy(restored: &MemoryStore, clock: &ManualClock) {
    let mut saved = Vec::new();
    restored.save(&mut saved).unwrap();
    let copy = store(clock);
    copy.restore(&*saved).unwrap();
    assert_eq!(copy.stats().accounts, restored.stats().accounts);
    for user in ["ann", "bob"] {
        let payer = Payer::new(user, Quota::per_minute(1000));
        let standings = [restored, &copy].map(|store| store.peek_now(&payer.charges()));
        let [before, after] = standings.map(|receipt| receipt.unwrap().standings[0].remaining());
        assert_eq!(before, after, "{user}");
    }
}

/// No window has more than the units, whatever was restored, and what was restored leaves at last.
fn check_quota(store: &MemoryStore, clock: &ManualClock, user: &str, quota: Quota) {
    let payer = Payer::new(user, quota);
    let step = quota.window() / 7;
    let mut spent = VecDeque::new();
    for _ in 0..20 {
        // A store that is full of other accounts has no room for this one.
        while store.spend_now(&payer.charges()).is_ok_and(|receipt| receipt.spent) {
            spent.push_back(clock.now());
            let window_ago = clock.now() - quota.window();
            while spent.front().is_some_and(|at| *at <= window_ago) {
                spent.pop_front();
            }
            assert!(spent.len() <= quota.units().get() as usize, "{user} {quota}");
        }
        clock.advance(step);
    }
    clock.advance(Duration::from_secs(366 * 24 * 3600));
    if let Ok(receipt) = store.peek_now(&payer.charges()) {
        assert_eq!(receipt.standings[0].remaining(), quota.units().get(), "{user} {quota}");
    }
}
