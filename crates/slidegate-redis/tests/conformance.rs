//! The store passes the suite that every store must pass: in both layouts, on one server, behind
//! sentinels, and in a cluster.

use std::time::Duration;

use slidegate::conformance::{self, Harness};
use slidegate_redis::{Layout, RedisStore, ScoreUnit};
use slidegate_testbed::{ManualTime, RedisCluster, RedisSentinels, RedisServer};

use crate::support::{cluster_url, sentinel_url};

/// Servers whose clock is moved by hand, and how to forget everything.
struct Redis<F: Fn()> {
    url: String,
    layout: Layout,
    unit: Option<ScoreUnit>,
    time: ManualTime,
    flush: F,
}

impl<F: Fn()> Harness for Redis<F> {
    type Store = RedisStore;

    async fn store(&self) -> RedisStore {
        (self.flush)();
        let past_ms = self.time.now_us() % 1000;
        self.time.advance(Duration::from_micros((1000 - past_ms) % 1000));
        // The suite spends a million units at once, which a sorted set takes a while for.
        let builder = RedisStore::builder(&self.url).deadline(Duration::from_secs(60));
        let builder = builder.layout(self.layout);
        self.unit.into_iter().fold(builder, |b, unit| b.score_unit(unit)).build().unwrap()
    }

    async fn advance(&self, by: Duration) {
        self.time.advance(by);
    }

    async fn step_back(&self, by: Duration) {
        self.time.step_back(by);
    }
}

async fn one_server_conforms(layout: Layout, unit: Option<ScoreUnit>) {
    let time = ManualTime::new();
    let server = RedisServer::options().time(&time).start();
    let flush = || server.command(&["FLUSHALL"]).expect_ok();
    conformance::run(&Redis { url: server.url(), layout, unit, time, flush }).await;
}

async fn behind_sentinels_conforms(layout: Layout) {
    let time = ManualTime::new();
    let sentinels = RedisSentinels::start_under(&time);
    let flush = || sentinels.primary().command(&["FLUSHALL"]).expect_ok();
    conformance::run(&Redis { url: sentinel_url(&sentinels), layout, unit: None, time, flush })
        .await;
}

async fn a_cluster_conforms(layout: Layout) {
    let time = ManualTime::new();
    let cluster = RedisCluster::options().without_replicas().time(&time).start();
    let flush = || cluster.nodes().iter().for_each(|node| node.command(&["FLUSHALL"]).expect_ok());
    conformance::run(&Redis { url: cluster_url(&cluster), layout, unit: None, time, flush }).await;
}

#[tokio::test]
async fn packed_on_one_server() {
    one_server_conforms(Layout::Packed, None).await;
}

#[tokio::test]
async fn sorted_set_on_one_server() {
    one_server_conforms(Layout::SortedSet, None).await;
}

#[tokio::test]
async fn sorted_set_in_units_that_are_rounded() {
    for unit in [ScoreUnit::Seconds, ScoreUnit::Nanoseconds] {
        one_server_conforms(Layout::SortedSet, Some(unit)).await;
    }
}

#[tokio::test]
async fn packed_behind_sentinels() {
    behind_sentinels_conforms(Layout::Packed).await;
}

#[tokio::test]
async fn sorted_set_behind_sentinels() {
    behind_sentinels_conforms(Layout::SortedSet).await;
}

#[tokio::test]
async fn packed_in_a_cluster() {
    a_cluster_conforms(Layout::Packed).await;
}

#[tokio::test]
async fn sorted_set_in_a_cluster() {
    a_cluster_conforms(Layout::SortedSet).await;
}
