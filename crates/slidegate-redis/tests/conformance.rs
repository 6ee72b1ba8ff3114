//! The store passes the suite that every store must pass: in both layouts, on one server, behind
//! sentinels, and in a cluster, of Redis and of Valkey.

use std::time::Duration;

use slidegate::conformance::{self, Harness};
use slidegate_redis::{Layout, RedisStore, ScoreUnit};
use slidegate_testbed::{Flavour, ManualTime};

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
        let builder = RedisStore::builder(&self.url).deadline(Duration::from_secs(300));
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

async fn one_server_conforms(flavour: Flavour, layout: Layout, unit: Option<ScoreUnit>) {
    let time = ManualTime::new();
    let server = flavour.server().time(&time).start();
    let flush = || server.command(&["FLUSHALL"]).expect_ok();
    conformance::run(&Redis { url: server.url(), layout, unit, time, flush }).await;
}

async fn behind_sentinels_conforms(flavour: Flavour, layout: Layout) {
    let time = ManualTime::new();
    let sentinels = flavour.sentinels().time(&time).start();
    let flush = || sentinels.primary().command(&["FLUSHALL"]).expect_ok();
    conformance::run(&Redis { url: sentinel_url(&sentinels), layout, unit: None, time, flush })
        .await;
}

async fn a_cluster_conforms(flavour: Flavour, layout: Layout) {
    let time = ManualTime::new();
    let cluster = flavour.cluster().without_replicas().time(&time).start();
    let flush = || cluster.nodes().iter().for_each(|node| node.command(&["FLUSHALL"]).expect_ok());
    conformance::run(&Redis { url: cluster_url(&cluster), layout, unit: None, time, flush }).await;
}

#[tokio::test]
async fn a_packed_store_on_one_server_conforms() {
    for flavour in Flavour::BOTH {
        one_server_conforms(flavour, Layout::Packed, None).await;
    }
}

#[tokio::test]
async fn a_sorted_set_store_on_one_server_conforms() {
    for flavour in Flavour::BOTH {
        one_server_conforms(flavour, Layout::SortedSet, None).await;
    }
}

/// On Redis alone: it is the script that rounds.
#[tokio::test]
async fn a_sorted_set_store_of_rounded_units_conforms() {
    for unit in [ScoreUnit::Seconds, ScoreUnit::Nanoseconds] {
        one_server_conforms(Flavour::Redis, Layout::SortedSet, Some(unit)).await;
    }
}

#[tokio::test]
async fn a_packed_store_behind_sentinels_conforms() {
    for flavour in Flavour::BOTH {
        behind_sentinels_conforms(flavour, Layout::Packed).await;
    }
}

#[tokio::test]
async fn a_sorted_set_store_behind_sentinels_conforms() {
    for flavour in Flavour::BOTH {
        behind_sentinels_conforms(flavour, Layout::SortedSet).await;
    }
}

#[tokio::test]
async fn a_packed_store_in_a_cluster_conforms() {
    for flavour in Flavour::BOTH {
        a_cluster_conforms(flavour, Layout::Packed).await;
    }
}

#[tokio::test]
async fn a_sorted_set_store_in_a_cluster_conforms() {
    for flavour in Flavour::BOTH {
        a_cluster_conforms(flavour, Layout::SortedSet).await;
    }
}
