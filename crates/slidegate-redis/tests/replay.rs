//! What was admitted without Redis is replayed before Redis decides for the account again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use slidegate::limit::Receipt;
use slidegate::{OnStoreError, Quota, Store};
use slidegate_redis::{
    BreakerState, Layout, LeasedStore, RedisStore, RedisStoreBuilder, ResilientStore,
};
use slidegate_testbed::{FaultyNetwork, RedisServer};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{Payer, charges, cluster_url, on_redis_and_valkey, until};

const LAYOUTS: [Layout; 2] = [Layout::Packed, Layout::SortedSet];
const KEY: &str = "slidegate:{user:42}:api:min";

/// A slow machine is not what most of these tests are about.
fn patient(url: impl Into<String>) -> RedisStoreBuilder {
    RedisStore::builder(url).deadline(Duration::from_secs(5))
}

fn store(redis: RedisStoreBuilder) -> ResilientStore {
    ResilientStore::builder(redis.build().unwrap()).opens_after(2).build()
}

async fn spend(store: &impl Store, payer: &Payer) -> Receipt {
    store.spend(&payer.charge().into()).await.unwrap()
}

/// How many of so many requests are admitted, by Redis and without it.
async fn admitted(store: &impl Store, payer: &Payer, requests: usize) -> (usize, usize) {
    let (mut counted, mut local) = (0, 0);
    for _ in 0..requests {
        let receipt = spend(store, payer).await;
        counted += usize::from(receipt.spent && !receipt.degraded);
        local += usize::from(receipt.spent && receipt.degraded);
    }
    (counted, local)
}

async fn remaining(store: &impl Store, payer: &Payer) -> u32 {
    store.peek(&payer.charge().into()).await.unwrap().standings[0].remaining()
}

fn key_errors(store: &ResilientStore) -> u64 {
    store.stats().key_errors.iter().map(|error| error.count).sum()
}

#[test]
fn what_was_admitted_without_permission_is_replayed_when_it_is_granted() {
    on_redis_and_valkey(async |flavour| {
        for layout in LAYOUTS {
            let server = flavour.server().start();
            let grant = |keys: &str| {
                let rule = ["ACL", "SETUSER", "gate", "on", ">word", "+@all", "resetkeys", keys];
                server.command(&rule).expect_ok();
            };
            grant("~slidegate:*");
            let url = server.url().replace("redis://", "redis://gate:word@");
            let store = store(patient(url).layout(layout));
            let payer = Payer::user("42", Quota::per_hour(10));
            assert_eq!(admitted(&store, &payer, 2).await, (2, 0));

            grant("~other:*");
            assert_eq!(admitted(&store, &payer, 3).await, (0, 3));
            let stats = store.stats();
            assert_eq!((stats.breaker, stats.unmerged), (BreakerState::Closed, 1));
            assert_eq!(key_errors(&store), 3, "those of requests, not of replays");

            grant("~slidegate:*");
            assert_eq!(admitted(&store, &payer, 20).await, (5, 0), "ten in all");
            assert_eq!(
                remaining(&patient(server.url()).layout(layout).build().unwrap(), &payer).await,
                0
            );
            let stats = store.stats();
            assert_eq!((stats.merged_units, stats.unmerged, stats.unrecorded), (3, 0, 0));
            assert_eq!(key_errors(&store), 3);
        }
    });
}

#[test]
fn what_was_admitted_beside_a_key_of_another_type_is_replayed_when_the_key_is_gone() {
    on_redis_and_valkey(async |flavour| {
        for layout in LAYOUTS {
            let server = flavour.server().start();
            let store = store(patient(server.url()).layout(layout));
            let payer = Payer::user("42", Quota::per_minute(10));
            server.command(&["LPUSH", KEY, "not a ledger"]).integer();
            assert_eq!(admitted(&store, &payer, 4).await, (0, 4));
            // By now the background task has tried to replay them.
            sleep(Duration::from_millis(300)).await;
            let reading = store.read(payer.charge()).await.unwrap();
            assert!(reading.degraded && reading.ledgers[0].spent() == 4, "{reading:?}");

            server.command(&["DEL", KEY]).integer();
            let reading = store.read(payer.charge()).await.unwrap();
            assert!(!reading.degraded && reading.ledgers[0].spent() == 4, "{reading:?}");
            assert_eq!(admitted(&store, &payer, 20).await, (6, 0), "ten in all");
            assert_eq!((store.stats().merged_units, store.stats().unrecorded), (4, 0));
        }
    });
}

/// Units that are taken ahead are spends like others, and wait for the replay too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lease_is_taken_before_the_replay() {
    let server = RedisServer::start();
    let store = LeasedStore::new(store(patient(server.url())));
    let payer = Payer::user("42", Quota::per_minute(400));
    let charges = payer.charge().leased(Some(Duration::from_secs(1))).into();
    server.command(&["LPUSH", KEY, "not a ledger"]).integer();
    let mut admitted = 0;
    for request in 0..2000 {
        if request == 100 {
            assert_eq!(admitted, 100);
            // By now the background task has tried to replay them.
            sleep(Duration::from_millis(300)).await;
            server.command(&["DEL", KEY]).integer();
        }
        admitted += u32::from(store.spend(&charges).await.unwrap().spent);
    }
    assert!(store.stats().decisions > 0, "there were leases");
    assert!((200..=400).contains(&admitted), "{admitted}");
}

/// The key is broken for as long as the store lives: no request waits for it, and others are decided
/// by Redis, through an outage too.
#[test]
fn one_account_that_cannot_be_replayed_is_the_only_one_without_redis() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().appendonly().start();
        let store = store(RedisStore::builder(server.url()));
        let (bad, good) =
            (Payer::user("42", Quota::per_minute(50)), Payer::user("43", Quota::per_minute(50)));
        server.command(&["LPUSH", KEY, "not a ledger"]).integer();
        assert_eq!(admitted(&store, &bad, 5).await, (0, 5));
        assert_eq!(admitted(&store, &good, 5).await, (5, 0));
        let mut both = charges([bad.charge(), good.charge()]);
        assert!(store.spend(&both).await.unwrap().degraded, "all or nothing");
        assert_eq!(remaining(&store, &good).await, 44, "its part is replayed");
        both = charges([bad.charge(), good.charge().on_store_error(OnStoreError::Deny)]);
        assert!(store.spend(&both).await.is_err());

        server.kill();
        while store.stats().breaker == BreakerState::Closed {
            spend(&store, &good).await;
        }
        server.restart();
        until("it closes", || store.stats().breaker == BreakerState::Closed).await;
        assert!(spend(&store, &bad).await.degraded);
        assert!(!spend(&store, &good).await.degraded);
        let stats = store.stats();
        assert_eq!((stats.unmerged, stats.unrecorded), (1, 0), "{stats:?}");
        assert_eq!(remaining(&store, &bad).await, 50 - 7);
        // An operator's reset ends it here.
        let _ = store.reset(&bad.charge().into()).await;
        assert_eq!((store.stats().unmerged, remaining(&store, &bad).await), (0, 50));
    });
}

/// The others go on, so the breaker is closed while the node is away and when it is back.
#[test]
fn a_cluster_gets_a_lost_node_back_and_admits_no_more_than_the_quota() {
    on_redis_and_valkey(async |flavour| {
        let options = flavour.cluster().without_replicas().line("cluster-require-full-coverage no");
        let cluster = options.line("appendonly yes").line("appendfsync always").start();
        let store =
            store(RedisStore::builder(cluster_url(&cluster)).deadline(Duration::from_millis(500)));
        let port =
            |user: &str| cluster.primary_of(cluster.slot_of(&format!("{{user:{user}}}"))).port();
        let users: Vec<String> = (0..100).map(|user| user.to_string()).collect();
        let lost_port = port(&users[0]);
        let there = users.iter().find(|user| port(user) != lost_port).unwrap();
        let lost: Vec<Payer> = users
            .iter()
            .filter(|user| port(user) == lost_port)
            .take(8)
            .map(|user| Payer::user(user, Quota::per_hour(10)))
            .collect();
        let there = Payer::user(there, Quota::per_hour(1000));
        for payer in &lost {
            assert_eq!(admitted(&store, payer, 4).await, (4, 0));
        }
        let node = cluster.nodes().iter().find(|node| node.port() == lost_port).unwrap();
        node.kill();
        for payer in &lost {
            assert_eq!(admitted(&store, payer, 3).await, (0, 3));
        }
        let began = Instant::now();
        while spend(&store, &there).await.degraded {
            assert!(began.elapsed() < Duration::from_secs(20), "the other nodes decide");
            sleep(Duration::from_millis(20)).await;
        }
        assert!(store.stats().unmerged >= lost.len());

        node.restart();
        cluster.wait_until_ok();
        let mut total = vec![7; lost.len()];
        let mut last = vec![None; lost.len()];
        while !last.iter().all(|receipt: &Option<Receipt>| {
            receipt.as_ref().is_some_and(|it| !it.degraded && !it.spent)
        }) {
            assert!(began.elapsed() < Duration::from_secs(60), "the node decides again");
            for (place, payer) in lost.iter().enumerate() {
                let receipt = spend(&store, payer).await;
                total[place] += usize::from(receipt.spent);
                last[place] = Some(receipt);
            }
        }
        assert_eq!(total, vec![10; lost.len()]);
    });
}

/// Requests for one account never cease. Those without Redis are replayed, and it decides again soon.
#[test]
fn a_busy_account_gets_back_to_redis_and_is_admitted_its_quota() {
    const QUOTA: u32 = 3000;
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().appendonly().start();
        server.kill();
        let store = store(patient(server.url()));
        let payer = Arc::new(Payer::user("42", Quota::per_hour(QUOTA)));
        assert_eq!(admitted(&store, &payer, 100).await, (0, 100));
        let counts: Arc<[AtomicUsize; 4]> = Arc::default();
        let mut tasks = JoinSet::new();
        for _ in 0..16 {
            let (store, payer, counts) = (store.clone(), payer.clone(), counts.clone());
            tasks.spawn(async move {
                // Until it is denied by Redis, and some more.
                let mut denied = 0;
                while denied < 20 {
                    let receipt = spend(&store, &payer).await;
                    let kind = 2 * usize::from(receipt.spent) + usize::from(receipt.degraded);
                    counts[kind].fetch_add(1, Ordering::Relaxed);
                    denied += usize::from(!receipt.spent && !receipt.degraded);
                    sleep(Duration::from_millis(4)).await;
                }
            });
        }
        sleep(Duration::from_millis(100)).await;
        server.restart();
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let count = |kind: usize| counts[kind].load(Ordering::Relaxed);
        let (by_redis, local) = (count(2), count(3) + 100);
        assert_eq!(by_redis + local, QUOTA as usize, "{by_redis} and {local} without Redis");
        assert!(by_redis > 500, "it decides again: {by_redis}");
        assert_eq!(store.stats().unmerged, 0);
        assert_eq!(store.stats().merged_units, local as u64);
    });
}

/// A replay and the call after it have one deadline together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_replays_first_ends_by_its_deadline() {
    let server = RedisServer::start();
    let network = FaultyNetwork::in_front_of(&server);
    let deadline = Duration::from_millis(800);
    let redis = RedisStore::builder(network.url()).deadline(deadline).build().unwrap();
    let store = ResilientStore::builder(redis).opens_after(1000).build();
    let payer = Payer::user("42", Quota::per_hour(1000));
    assert!(!spend(&store, &payer).await.degraded);
    for (delay_ms, what) in [(350, "the call after the replay"), (2000, "the replay")] {
        // Without an answer in time it is counted here, and there is something to replay.
        network.delay(deadline);
        assert!(spend(&store, &payer).await.degraded);
        network.delay(Duration::from_millis(delay_ms));
        let mut calls = JoinSet::new();
        for _ in 0..50 {
            let store = store.clone();
            calls.spawn(async move {
                let began = Instant::now();
                spend(&store, &Payer::user("42", Quota::per_hour(1000))).await;
                began.elapsed()
            });
        }
        let longest = calls.join_all().await.into_iter().max().unwrap();
        assert!(longest < deadline + Duration::from_millis(250), "{what}: {longest:?}");
        network.pass();
        until("it is well", || store.stats().unmerged == 0).await;
    }
    assert!(!spend(&store, &payer).await.degraded);
}
