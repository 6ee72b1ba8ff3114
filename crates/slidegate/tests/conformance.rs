//! The memory store passes the suite that every store must pass.

use std::time::Duration;

use crate::support::now;
use slidegate::conformance::{self, Harness};
use slidegate::{Clock, ManualClock, MemoryStore, Timestamp};

struct Memory {
    clock: ManualClock,
    capacity: usize,
}

impl Harness for Memory {
    type Store = MemoryStore;

    async fn store(&self) -> MemoryStore {
        MemoryStore::builder().capacity(self.capacity).clock(self.clock.clone()).build()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn step_back(&self, by: Duration) {
        let before = self.clock.now().as_nanos() - by.as_nanos() as u64;
        self.clock.set(Timestamp::from_nanos(before));
    }
}

#[test]
fn a_memory_store_conforms() {
    now(conformance::run(&Memory { clock: ManualClock::default(), capacity: 1_000_000 }));
}

#[test]
fn a_memory_store_of_one_shard_conforms() {
    now(conformance::run(&Memory { clock: ManualClock::default(), capacity: 100 }));
}
