//! A resilient store passes the suite that every store must pass, with all that it keeps by itself.

use std::time::Duration;

use slidegate::conformance::{self, Harness};
use slidegate::{Clock, ManualClock, Timestamp};
use slidegate_redis::{RedisStore, ResilientStore};
use slidegate_testbed::{Flavour, ManualTime, RedisServer};

use crate::support::on_redis_and_valkey;

/// A server's clock and the stores', moved together.
struct Resilient {
    server: RedisServer,
    time: ManualTime,
    clock: ManualClock,
}

impl Resilient {
    fn new(flavour: Flavour) -> Self {
        let time = ManualTime::new();
        let server = flavour.server().time(&time).start();
        Self { server, time, clock: ManualClock::default() }
    }
}

impl Harness for Resilient {
    type Store = ResilientStore;

    async fn store(&self) -> ResilientStore {
        self.server.command(&["FLUSHALL"]).expect_ok();
        let past_ms = Duration::from_micros((1000 - self.time.now_us() % 1000) % 1000);
        self.advance(past_ms).await;
        let redis = RedisStore::builder(self.server.url()).deadline(Duration::from_secs(60));
        ResilientStore::builder(redis.build().unwrap()).clock(self.clock.clone()).build()
    }

    async fn advance(&self, by: Duration) {
        self.time.advance(by);
        self.clock.advance(by);
    }

    async fn step_back(&self, by: Duration) {
        self.time.step_back(by);
        let before = self.clock.now().as_nanos() - by.as_nanos() as u64;
        self.clock.set(Timestamp::from_nanos(before));
    }
}

#[test]
fn a_resilient_store_conforms() {
    on_redis_and_valkey(async |flavour| {
        conformance::run(&Resilient::new(flavour)).await;
    });
}
