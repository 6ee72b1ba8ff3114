//! A store on the simulated Redis passes the suite that stores on real ones pass.

use std::sync::Arc;
use std::time::Duration;

use slidegate::conformance::{self, Harness};
use slidegate::{Clock, ManualClock, Timestamp};
use slidegate_redis::RedisStore;
use slidegate_simulation::{Network, RoundTripTime, SimulatedRedis};

/// A server whose clock is moved by hand.
struct Simulated {
    redis: SimulatedRedis,
    network: Arc<Network>,
    time: ManualClock,
}

impl Harness for Simulated {
    type Store = RedisStore;

    async fn store(&self) -> RedisStore {
        self.redis.flush();
        let past_ms = self.time.now().as_nanos() % 1_000_000;
        self.time.advance(Duration::from_nanos((1_000_000 - past_ms) % 1_000_000));
        let network = self.network.clone();
        RedisStore::builder("redis://simulated")
            .connector(move || network.clone().connect())
            .deadline(Duration::from_secs(300))
            .build()
            .unwrap()
    }

    async fn advance(&self, by: Duration) {
        self.time.advance(by);
    }

    async fn step_back(&self, by: Duration) {
        self.time.set(Timestamp::from_nanos(self.time.now().as_nanos() - by.as_nanos() as u64));
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_on_the_simulated_redis_conforms() {
    let time = ManualClock::default();
    time.set(Timestamp::from_millis(1_000_000_000));
    let redis = SimulatedRedis::new(time.clone());
    let network = Network::new(redis.clone(), RoundTripTime::NEAR);
    conformance::run(&Simulated { redis, network, time }).await;
}
