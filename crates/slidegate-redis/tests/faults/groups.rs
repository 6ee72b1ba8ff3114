//! Servers that take each other's place: behind sentinels, and in a cluster.

use std::num::NonZeroU32;
use std::time::Duration;

use slidegate::limit::Quotas;
use slidegate::{OnStoreError, Quota, Timestamp};
use slidegate_testbed::{RedisCluster, RedisServer};
use tokio::time::{Instant, sleep};

use super::queue_full::{
    ALLOW, Account, COUNTED, CROWDED, Crowd, LOCAL, STORES, STRICT, accounts, resilient, turn,
};
use super::scenario::{Outage, Story};
use crate::support::{cluster_url, on_redis_and_valkey, sentinel_url};

const UNDER_WAY: i64 = STORES as i64;

/// Replication is asynchronous, so what the old primary counted in its last moments may be lost.
/// These are the moments: many times what a replica lags behind on one machine.
const LAG: Duration = Duration::from_millis(400);

/// What is promised when one primary takes another's place: each of them is exact, and together
/// they exceed a quota by what was not replicated.
fn is_exact_but_for_the_lag(story: &Story, account: usize, killed_us: u64) {
    let lag_us = u64::try_from(LAG.as_micros()).unwrap();
    story.redis_is_exact_between(account, 0..=killed_us);
    story.redis_is_exact_between(account, killed_us..=u64::MAX);
    let units = story.accounts[account].quota().units().get() as usize;
    let lost = story.counted_between(account, killed_us - lag_us..=killed_us);
    let most = story.most_counted_in_a_window(account);
    assert!(most <= units + lost, "{most} of {units}, with at most {lost} lost");
}

/// What the last moments before a kill may have lost, and calls under way may have added.
async fn is_counted_but_for_the_lag(story: &Story, url: &str, killed_us: u64) {
    let lag_us = u64::try_from(LAG.as_micros()).unwrap();
    for account in [COUNTED, STRICT] {
        let lost = story.counted_between(account, killed_us - lag_us..=killed_us);
        let lost = i64::try_from(lost).unwrap();
        story.redis_knows(url, account, -lost - UNDER_WAY..=UNDER_WAY).await;
    }
}

/// A primary was lost at one moment, and its successor was told everything by another.
async fn survived_a_failover(story: &Story, url: &str, lost_us: u64, replayed: Timestamp) {
    story.is_calm();
    for account in [LOCAL, CROWDED, ALLOW] {
        is_exact_but_for_the_lag(story, account, lost_us);
    }
    let lag_us = u64::try_from(LAG.as_micros()).unwrap();
    for account in [LOCAL, CROWDED] {
        story.redis_counts_the_outage_after(account, replayed, STORES);
        let lost = story.counted_between(account, lost_us - lag_us..=lost_us);
        story.redis_counts_the_outage_of_each_store(account, lost);
    }
    is_counted_but_for_the_lag(story, url, lost_us).await;
}

#[test]
fn sentinels_choose_another_primary() {
    on_redis_and_valkey(async |flavour| {
        let turn = turn().await;
        let sentinels = flavour.sentinels().start();
        let url = sentinel_url(&sentinels);
        let crowd = Crowd::start(turn, &url);
        sleep(Duration::from_millis(1200)).await;
        let old = sentinels.kill_primary();
        let killed_us = crowd.now().as_nanos() / 1000;
        sentinels.wait_for_failover();
        let replayed = crowd.heal().await;
        let healed = Instant::now();
        sleep(Duration::from_millis(1500)).await;
        // It comes back as a replica, and is not used.
        old.restart();
        sleep(Duration::from_millis(1500)).await;
        let story = crowd.stop().await;
        story.is_well_after(healed);
        survived_a_failover(&story, &url, killed_us, replayed).await;
    });
}

/// The old primary is not gone, only silent; when it wakes up it takes itself for the primary, until
/// a sentinel tells it otherwise. By then the stores have left it.
#[test]
fn sentinels_replace_a_silent_primary() {
    on_redis_and_valkey(async |flavour| {
        let turn = turn().await;
        let sentinels = flavour.sentinels().start();
        let url = sentinel_url(&sentinels);
        let crowd = Crowd::start(turn, &url);
        sleep(Duration::from_millis(1200)).await;
        let old = sentinels.primary();
        old.pause();
        let silent_us = crowd.now().as_nanos() / 1000;
        sentinels.wait_for_failover();
        let replayed = crowd.heal().await;
        let healed = Instant::now();
        sleep(Duration::from_millis(1000)).await;
        old.resume();
        sleep(Duration::from_millis(2000)).await;
        let story = crowd.stop().await;
        story.is_well_after(healed);
        survived_a_failover(&story, &url, silent_us, replayed).await;
    });
}

fn slot(cluster: &RedisCluster, account: &Account) -> u16 {
    cluster.slot_of(&format!("{{user:{}}}", account.payer.identity.value()))
}

/// First a slot with its keys moves while it is in use, which loses and repeats nothing; then the
/// node that serves an account is killed, and its replica takes over.
#[test]
fn a_cluster_moves_a_slot_and_loses_a_node() {
    on_redis_and_valkey(async |flavour| {
        let turn = turn().await;
        let cluster = flavour.cluster().start();
        let url = cluster_url(&cluster);
        let stores = (0..STORES).map(|_| resilient(&url)).collect();
        let mut accounts = accounts();
        // Two ledgers, which are not moved at the same moment.
        let day = Quota::per_day(1_000_000);
        let minute = Quota::new(NonZeroU32::new(4000).unwrap(), Duration::from_secs(60)).unwrap();
        accounts[COUNTED].payer.quotas = Quotas::new([minute, day]).unwrap();
        assert_eq!(accounts[COUNTED].action, OnStoreError::Local);
        let moving = slot(&cluster, &accounts[COUNTED]);
        let crowd = Crowd::start_with(turn, stores, accounts);
        sleep(Duration::from_millis(1200)).await;

        let from = cluster.primary_of(moving).port();
        let to = cluster.nodes()[..3].iter().find(|node| node.port() != from).unwrap();
        let migration = cluster.begin_migration(moving, to);
        sleep(Duration::from_millis(300)).await;
        migration.move_keys();
        sleep(Duration::from_millis(300)).await;
        migration.finish();
        crowd.heal().await;
        sleep(Duration::from_millis(500)).await;

        let old = cluster.kill_primary_of(moving);
        let killed_us = crowd.now().as_nanos() / 1000;
        cluster.wait_for_failover(moving);
        let replayed = crowd.heal().await;
        let healed = Instant::now();
        sleep(Duration::from_millis(1500)).await;
        old.restart();
        sleep(Duration::from_millis(1500)).await;
        let story = crowd.stop().await;
        story.is_well_after(healed);
        survived_a_failover(&story, &url, killed_us, replayed).await;
    });
}

/// A slot that moves is not a fault: everything is counted once.
#[test]
fn a_cluster_moves_slots_to_and_fro() {
    on_redis_and_valkey(async |flavour| {
        let turn = turn().await;
        let cluster = flavour.cluster().without_replicas().start();
        let url = cluster_url(&cluster);
        let crowd = Crowd::start(turn, &url);
        sleep(Duration::from_millis(800)).await;
        let slots: Vec<u16> = accounts().iter().map(|account| slot(&cluster, account)).collect();
        for round in 0..3 {
            for slot in &slots {
                let from = cluster.primary_of(*slot).port();
                let others = cluster.nodes().iter().filter(|node| node.port() != from);
                let to = others.cycle().nth(round).unwrap();
                cluster.migrate_slot(*slot, to);
                sleep(Duration::from_millis(60)).await;
            }
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
            story.redis_counts_the_outage_of_each_store(account, 0);
        }
        story.redis_knows(&url, COUNTED, 0..=0).await;
        story.redis_knows(&url, STRICT, 0..=0).await;
    });
}

/// All nodes are gone at once, and come back with what they knew.
#[test]
fn a_whole_cluster_is_killed_and_restarted() {
    on_redis_and_valkey(async |flavour| {
        let turn = turn().await;
        let options = flavour.cluster().without_replicas();
        let cluster = options.line("appendonly yes").line("appendfsync always").start();
        let url = cluster_url(&cluster);
        let crowd = Crowd::start(turn, &url);
        sleep(Duration::from_millis(1200)).await;
        cluster.nodes().iter().for_each(RedisServer::kill);
        let from = Instant::now();
        sleep(Duration::from_millis(1500)).await;
        let to = Instant::now();
        cluster.nodes().iter().for_each(RedisServer::restart);
        cluster.wait_until_ok();
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
            story.redis_counts_the_outage_of_each_store(account, 0);
        }
        story.redis_knows(&url, COUNTED, 0..=UNDER_WAY).await;
        story.redis_knows(&url, STRICT, 0..=UNDER_WAY).await;
    });
}
