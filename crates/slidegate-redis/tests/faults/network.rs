//! A network that swallows everything, or breaks connections halfway through a reply.

use std::time::Duration;

use slidegate_testbed::FaultyNetwork;
use tokio::time::{Instant, sleep};

use super::queue_full::{ALLOW, COUNTED, CROWDED, Crowd, LOCAL, STORES, STRICT, turn};
use super::scenario::Outage;
use crate::support::on_redis_and_valkey;

const UNDER_WAY: i64 = STORES as i64;

#[test]
fn decisions_survive_a_blackholed_address() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().start();
        let network = FaultyNetwork::in_front_of(&server);
        let crowd = Crowd::start(turn().await, &network.url());
        sleep(Duration::from_millis(1200)).await;
        network.blackhole();
        let from = Instant::now();
        sleep(Duration::from_millis(2500)).await;
        let to = Instant::now();
        network.pass();
        let replayed = crowd.heal().await;
        let healed = Instant::now();
        sleep(Duration::from_millis(2300)).await;
        let story = crowd.stop().await;
        story.is_calm();
        story.is_degraded_in(Outage { from, to });
        story.is_well_after(healed);
        for account in [LOCAL, CROWDED, ALLOW] {
            story.redis_is_exact(account);
        }
        for account in [LOCAL, CROWDED] {
            story.redis_counts_the_outage_after(account, replayed, 0);
        }
        // An answer that was swallowed cannot be taken back: counted and decided otherwise.
        story.redis_knows(&server.url(), COUNTED, 0..=UNDER_WAY).await;
        story.redis_knows(&server.url(), STRICT, 0..=UNDER_WAY).await;
    });
}

/// The address is a blackhole from the start: no request waits for it, and it is found later.
#[test]
fn decisions_survive_an_address_blackholed_from_the_start() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().start();
        let network = FaultyNetwork::in_front_of(&server);
        network.blackhole();
        let crowd = Crowd::start(turn().await, &network.url());
        let from = Instant::now();
        sleep(Duration::from_millis(1500)).await;
        let to = Instant::now();
        network.pass();
        let replayed = crowd.heal().await;
        let healed = Instant::now();
        sleep(Duration::from_millis(2300)).await;
        let story = crowd.stop().await;
        story.is_calm();
        story.is_degraded_in(Outage { from, to });
        story.is_well_after(healed);
        for account in [LOCAL, CROWDED] {
            story.redis_is_exact(account);
            story.redis_counts_the_outage_after(account, replayed, 0);
        }
        story.redis_knows(&server.url(), COUNTED, 0..=0).await;
        story.redis_knows(&server.url(), STRICT, 0..=0).await;
    });
}

/// Again and again a connection breaks within a reply: one by one, so that Redis is never gone.
#[test]
fn decisions_survive_resets_in_the_middle_of_a_reply() {
    on_redis_and_valkey(async |flavour| {
        const CUTS: i64 = 8;
        let server = flavour.server().start();
        let network = FaultyNetwork::in_front_of(&server);
        let crowd = Crowd::start(turn().await, &network.url());
        sleep(Duration::from_millis(700)).await;
        for bytes in 1..=CUTS {
            network.cut_next_reply(usize::try_from(bytes).unwrap());
            sleep(Duration::from_millis(250)).await;
        }
        let replayed = crowd.heal().await;
        let healed = Instant::now();
        sleep(Duration::from_millis(2300)).await;
        let story = crowd.stop().await;
        story.is_calm();
        story.is_well_after(healed);
        for account in [LOCAL, CROWDED, ALLOW] {
            story.redis_is_exact(account);
        }
        for account in [LOCAL, CROWDED] {
            story.redis_counts_the_outage_after(account, replayed, 0);
        }
        let broken: u64 = story.stores.iter().map(|store| store.stats().errors).sum();
        assert!(broken >= 4, "connections broke");
        // Each cut leaves at most one call of an account unknown, for each store has one at a time.
        story.redis_knows(&server.url(), COUNTED, 0..=CUTS).await;
        story.redis_knows(&server.url(), STRICT, 0..=CUTS).await;
    });
}
