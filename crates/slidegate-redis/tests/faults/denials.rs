//! DenialCache that are kept: what they spare Redis, and when they end.

use std::time::Duration;

use slidegate::limit::Receipt;
use slidegate::{Quota, Store};
use slidegate_redis::ResilientStore;
use slidegate_testbed::{CommandCounts, RedisServer};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::queue_full::turn;
use super::scenario::patient;
use crate::support::Payer;

/// A store that a slow machine does not matter to.
fn store(server: &RedisServer) -> ResilientStore {
    ResilientStore::new(patient(&server.url()))
}

async fn spend(store: &ResilientStore, charge: slidegate::limit::Charge<'_>) -> Receipt {
    let receipt = store.spend(&charge.into()).await.unwrap();
    assert!(!receipt.degraded, "Redis is well");
    receipt
}

/// Spends all that an account has.
async fn exhaust(store: &ResilientStore, payer: &Payer) {
    while spend(store, payer.charge()).await.spent {}
}

/// Has so many tasks ask for what is used up, for a while; counts requests and calls of Redis.
async fn hammer(server: &RedisServer, store: &ResilientStore, tasks: usize) -> (u64, u64) {
    let before = CommandCounts::of([server]);
    let began = Instant::now();
    let mut under_way = JoinSet::new();
    for _ in 0..tasks {
        let store = store.clone();
        under_way.spawn(async move {
            let payer = Payer::user("42", Quota::per_minute(5));
            let mut denied = 0;
            while began.elapsed() < Duration::from_millis(2300) {
                assert!(!spend(&store, payer.charge()).await.spent);
                denied += 1;
                tokio::task::yield_now().await;
            }
            denied
        });
    }
    let denied = under_way.join_all().await.into_iter().sum();
    (denied, CommandCounts::of([server]).since(&before).calls("evalsha"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hammers_costs_one_call_a_second() {
    let server = RedisServer::start();
    let store = store(&server);
    exhaust(&store, &Payer::user("42", Quota::per_minute(5))).await;
    // When a denial ends, all who come before its successor ask for themselves.
    for tasks in [1, 4] {
        let (denied, calls) = hammer(&server, &store, tasks).await;
        assert!(calls <= 3 * tasks as u64, "{calls} calls for {denied} requests");
        assert!(denied > 1000, "{denied} requests");
    }
}

#[tokio::test]
async fn a_cached_denial_holds_for_its_cost_and_not_for_less() {
    let server = RedisServer::start();
    let store = store(&server);
    let payer = Payer::user("42", Quota::per_minute(10));
    assert!(spend(&store, payer.cost(8)).await.spent);
    assert!(!spend(&store, payer.cost(5)).await.spent);
    let before = CommandCounts::of([&server]);
    assert!(!spend(&store, payer.cost(5)).await.spent);
    assert_eq!(CommandCounts::of([&server]).since(&before).calls("evalsha"), 0, "kept");
    assert!(spend(&store, payer.cost(2)).await.spent, "a smaller one fits");
    assert!(!spend(&store, payer.cost(1)).await.spent);
}

#[tokio::test]
async fn a_denial_that_counts_is_counted_each_time() {
    let server = RedisServer::start();
    let store = store(&server);
    let payer = Payer::user("42", Quota::per_minute(3));
    let charge = payer.charge().count_denied(true);
    for _ in 0..3 {
        assert!(spend(&store, charge).await.spent);
    }
    let before = CommandCounts::of([&server]);
    for _ in 0..20 {
        assert!(!spend(&store, charge).await.spent);
    }
    assert_eq!(CommandCounts::of([&server]).since(&before).calls("evalsha"), 20);
    assert_eq!(store.stats().cached, 0);
}

#[tokio::test]
async fn a_reset_ends_denials_here_at_once_and_elsewhere_within_a_second() {
    let server = RedisServer::start();
    let (here, elsewhere) = (store(&server), store(&server));
    let payer = Payer::user("42", Quota::per_minute(3));
    exhaust(&here, &payer).await;
    here.reset(&payer.charge().into()).await.unwrap();
    assert!(spend(&here, payer.charge()).await.spent, "at once");
    exhaust(&here, &payer).await;
    assert!(!spend(&elsewhere, payer.charge()).await.spent);
    let began = Instant::now();
    here.reset(&payer.charge().into()).await.unwrap();
    while !spend(&elsewhere, payer.charge()).await.spent {
        sleep(Duration::from_millis(1)).await;
    }
    let took = began.elapsed();
    assert!(took < Duration::from_millis(1250), "{took:?}");
}

#[tokio::test]
async fn a_policy_that_changes_is_not_answered_from_before() {
    let server = RedisServer::start();
    let store = store(&server);
    exhaust(&store, &Payer::user("42", Quota::per_minute(3))).await;
    let raised = Payer::user("42", Quota::per_minute(4));
    assert!(spend(&store, raised.charge()).await.spent, "raised by one");
    assert!(!spend(&store, raised.charge()).await.spent, "and by no more");
}

/// Some find no room. They are denied all the same, by Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_thousand_denied_take_bounded_room() {
    const IDENTITIES: usize = 200_000;
    const TASKS: usize = 256;
    const MAX_KEPT: usize = 65_536;
    let _turn = turn().await;
    let server = RedisServer::start();
    let store = store(&server);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let store = store.clone();
        tasks.spawn(async move {
            let mut most = 0;
            for user in (task..IDENTITIES).step_by(TASKS) {
                let payer = Payer::user(&user.to_string(), Quota::per_minute(1));
                assert!(spend(&store, payer.charge()).await.spent);
                if user % 1000 == 0 {
                    most = most.max(store.stats().cached);
                }
            }
            most
        });
    }
    let most = tasks.join_all().await.into_iter().max().unwrap().max(store.stats().cached);
    assert!(most > 1000 && most <= MAX_KEPT, "{most} are kept");
    for user in (0..IDENTITIES).step_by(10_000) {
        let payer = Payer::user(&user.to_string(), Quota::per_minute(1));
        let began_again = spend(&store, payer.charge()).await.spent;
        assert!(!began_again, "kept or not, it is denied");
    }
}
