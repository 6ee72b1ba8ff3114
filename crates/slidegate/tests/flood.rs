//! A flood of identities stays within bounds, measured by a counting allocator.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::alloc::System;
use std::time::Duration;

use cap::Cap;
use slidegate::limit::Charge;
use slidegate::{Identity, ManualClock, MemoryStore, Quota};
use support::Payer;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const CAPACITY: usize = 200_000;
/// What an account with one spend may take, and what there is besides accounts.
const BYTES_PER_ACCOUNT: usize = 200;
const BYTES_BESIDES: usize = 4 << 20;

fn flood(store: &MemoryStore, template: &Payer, from: u64, count: u64) {
    let mut name = String::new();
    for i in from..from + count {
        name.clear();
        std::fmt::Write::write_fmt(&mut name, format_args!("{i:x}")).unwrap();
        let identity = Identity::user(&name);
        let charge = Charge::new(&template.policy, &identity, &template.quotas);
        store.spend_now(&charge.into()).unwrap();
    }
}

#[test]
fn ten_million_identities_stay_within_the_bound_and_real_accounts_keep_their_history() {
    let clock = ManualClock::default();
    let before = ALLOCATOR.allocated();
    let store = MemoryStore::builder().capacity(CAPACITY).clock(clock.clone()).build();
    let regulars: Vec<Payer> =
        (0..1000).map(|i| Payer::new(&format!("regular-{i}"), Quota::per_hour(5))).collect();
    for payer in &regulars {
        for _ in 0..3 {
            assert!(store.spend_now(&payer.charges()).unwrap().spent);
        }
    }
    let stranger = Payer::new("stranger", Quota::per_hour(5));
    let bound = CAPACITY * BYTES_PER_ACCOUNT + BYTES_BESIDES;
    for tenth in 0..10 {
        flood(&store, &stranger, tenth * 1_000_000, 1_000_000);
        let used = ALLOCATOR.allocated() - before;
        assert!(used <= bound, "{used} bytes after {} million, bound {bound}", tenth + 1);
    }
    let stats = store.stats();
    assert!(stats.accounts <= CAPACITY, "{stats:?}");
    assert!(stats.over_capacity >= 10_000_000 - CAPACITY as u64, "{stats:?}");
    for payer in &regulars {
        let standing = store.peek_now(&payer.charges()).unwrap().standings[0];
        assert_eq!(standing.remaining(), 2, "no account was evicted");
    }

    clock.advance(Duration::from_secs(3600));
    flood(&store, &stranger, 0, 10_000);
    clock.advance(Duration::from_secs(3600));
    for _ in 0..1000 {
        regulars.iter().for_each(|payer| drop(store.spend_now(&payer.charges()).unwrap()));
        clock.advance(Duration::from_secs(60));
    }
    let used = ALLOCATOR.allocated() - before;
    assert!(used < bound / 2, "{used} bytes are left after the flood, bound {bound}");
}
