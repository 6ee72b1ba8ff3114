//! How much a sick Redis is asked, and by how many at once.

use std::time::Duration;

use slidegate::{OnStoreError, Quota, Store};
use slidegate_redis::{BreakerState, KeyTemplate, RedisStore, ResilientStore};
use slidegate_testbed::{FaultyNetwork, RedisServer};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::queue_full::{resilient, turn};
use super::scenario::patient;
use crate::support::{Payer, on_redis_and_valkey, until};

/// Spends once from an account of its own, and tells how long that took.
async fn timed_spend(store: ResilientStore, user: usize) -> Duration {
    let payer = Payer::user(&user.to_string(), Quota::per_minute(10));
    let began = Instant::now();
    assert!(store.spend(&payer.charge().into()).await.unwrap().spent);
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_calls_wait_for_redis() {
    let _turn = turn().await;
    let server = RedisServer::start();
    let redis = RedisStore::builder(server.url()).deadline(Duration::from_millis(500));
    let store = ResilientStore::builder(redis.build().unwrap()).max_in_flight(4).opens_after(100);
    let store = store.build();
    timed_spend(store.clone(), 0).await;
    server.pause();
    let mut calls = JoinSet::new();
    (1..=64).for_each(|user| {
        calls.spawn(timed_spend(store.clone(), user));
    });
    let mut took = calls.join_all().await;
    took.sort_unstable();
    server.resume();
    assert!(took[59] < Duration::from_millis(250), "60 do not wait: {:?}", took[59]);
    assert!(took[60] >= Duration::from_millis(500), "4 do: {:?}", took[60]);
    let stats = store.stats();
    assert_eq!((stats.queue_full, stats.deadlines), (60, 4));
    assert_eq!(stats.breaker, BreakerState::Closed, "being queue_full is no failure");
    until("Redis knows all", || store.stats().unmerged == 0).await;
    let redis = patient(&server.url());
    for user in 0..=64 {
        let payer = Payer::user(&user.to_string(), Quota::per_minute(10));
        let mut left = 0;
        for _ in 0..100 {
            left = redis.peek(&payer.charge().into()).await.unwrap().standings[0].remaining();
            if left == 9 {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(left, 9, "each is counted once");
    }
}

/// Each store looks a few times, at moments of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_few_and_not_in_step() {
    let _turn = turn().await;
    let server = RedisServer::start();
    let networks: Vec<_> = (0..4).map(|_| FaultyNetwork::in_front_of(&server)).collect();
    let stores: Vec<_> = networks.iter().map(|network| resilient(&network.url())).collect();
    let payer = Payer::user("42", Quota::per_minute(1000));
    for store in &stores {
        assert!(store.spend(&payer.charge().into()).await.unwrap().spent);
    }
    networks.iter().for_each(FaultyNetwork::refuse);
    for store in &stores {
        while store.stats().breaker == BreakerState::Closed {
            store.spend(&payer.charge().into()).await.unwrap();
        }
    }
    let began = Instant::now();
    let mut seen: Vec<u64> = networks.iter().map(FaultyNetwork::connections).collect();
    let mut probes: Vec<Vec<Duration>> = vec![Vec::new(); 4];
    while began.elapsed() < Duration::from_secs(3) {
        for (place, network) in networks.iter().enumerate() {
            if network.connections() > seen[place] {
                seen[place] = network.connections();
                probes[place].push(began.elapsed());
            }
            assert!(stores[place].spend(&payer.charge().into()).await.unwrap().degraded);
        }
        sleep(Duration::from_millis(2)).await;
    }
    for own in &probes {
        assert!((3..=8).contains(&own.len()), "{probes:?}");
        assert!(own[2] - own[0] > Duration::from_millis(150), "they become rarer: {probes:?}");
    }
    let third: Vec<Duration> = probes.iter().map(|own| own[2]).collect();
    let apart = *third.iter().max().unwrap() - *third.iter().min().unwrap();
    assert!(apart > Duration::from_millis(15), "not in step: {probes:?}");
    networks.iter().for_each(FaultyNetwork::pass);
    until("all are well", || {
        stores.iter().all(|store| store.stats().breaker == BreakerState::Closed)
    })
    .await;
}

/// A user who may touch nothing but the template's keys can be told after an outage.
#[test]
fn a_user_limited_to_the_templates_keys_can_replay() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().appendonly().start();
        let acl = ["ACL", "SETUSER", "gate", "on", ">word", "~limit:*", "+@all", "-@dangerous"];
        server.command(&[&acl[..], &["+info"]].concat()).expect_ok();
        let url = server.url().replace("redis://", "redis://gate:word@");
        let template: KeyTemplate = "limit:{<kind>:<identity>}:<policy>:<window>".parse().unwrap();
        let redis = RedisStore::builder(url).key_template(template).build().unwrap();
        let store = ResilientStore::builder(redis).opens_after(1).build();
        let payer = Payer::user("42", Quota::per_minute(10));
        assert!(!store.spend(&payer.charge().into()).await.unwrap().degraded);
        server.pause();
        assert!(store.spend(&payer.charge().into()).await.unwrap().degraded);
        server.resume();
        until("it closes", || store.stats().breaker == BreakerState::Closed).await;
        until("Redis knows", || store.stats().unmerged == 0).await;
    });
}

/// A key that is not a ledger concerns its account only.
#[test]
fn one_account_that_cannot_be_counted_does_not_keep_others_from_redis() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().start();
        server.command(&["LPUSH", "slidegate:{user:bad}:api:min", "x"]);
        let store = resilient(&server.url());
        let (bad, good) =
            (Payer::user("bad", Quota::per_minute(50)), Payer::user("good", Quota::per_minute(50)));
        for _ in 0..20 {
            assert!(store.spend(&bad.charge().into()).await.unwrap().degraded);
        }
        until("others are counted", || store.stats().breaker == BreakerState::Closed).await;
        let counted = tokio::time::timeout(Duration::from_secs(5), async {
            while store.spend(&good.charge().into()).await.unwrap().degraded {
                sleep(Duration::from_millis(20)).await;
            }
        });
        counted.await.expect("Redis counts the good one");
    });
}

/// Nobody but those under `allow` and `deny` is there to notice that Redis is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_closes_when_there_is_nothing_to_replay() {
    let server = RedisServer::start();
    let store = resilient(&server.url());
    let payer = Payer::user("42", Quota::per_minute(1000));
    let actions = [OnStoreError::Allow, OnStoreError::Deny];
    for _ in 0..3 {
        server.pause();
        while store.stats().breaker == BreakerState::Closed {
            for action in actions {
                let _ = store.spend(&payer.charge().on_store_error(action).into()).await;
            }
        }
        server.resume();
        until("it closes", || store.stats().breaker == BreakerState::Closed).await;
    }
}

/// A replay takes as long as it needs; no request waits for it, and the deadline of calls does not apply to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_accounts_are_replayed_soon() {
    const ACCOUNTS: usize = 10_000;
    let _turn = turn().await;
    let server = RedisServer::start();
    let store = resilient(&server.url());
    timed_spend(store.clone(), 0).await;
    server.pause();
    while store.stats().breaker == BreakerState::Closed {
        timed_spend(store.clone(), 0).await;
    }
    for user in 1..=ACCOUNTS {
        timed_spend(store.clone(), user).await;
    }
    server.resume();
    let began = Instant::now();
    until("it closes", || store.stats().breaker == BreakerState::Closed).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    until("Redis knows", || store.stats().unmerged == 0).await;
}
