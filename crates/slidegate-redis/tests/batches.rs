//! Decisions that wait leave together: in few calls, each decided by itself, none harmed by another.

use std::time::Duration;

use slidegate::limit::Receipt;
use slidegate::{Identity, Quota, Store, StoreError};
use slidegate_redis::{KeyTemplate, Layout, RedisStore};
use slidegate_testbed::{CommandCounts, FaultyNetwork, RedisServer};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{Payer, charges, on_redis_and_valkey, until};

const AMPLE: Duration = Duration::from_secs(60);
/// What a store has under way in these tests, as in the benchmark.
const IN_FLIGHT: usize = 64;

fn store(url: &str, deadline: Duration) -> RedisStore {
    RedisStore::builder(url).deadline(deadline).build().unwrap()
}

type Outcome = Result<Receipt, StoreError>;

/// Spends of one unit by each of these users, all at once; their outcomes, in order.
async fn at_once(store: &RedisStore, users: &[&str], quota: Quota) -> Vec<Outcome> {
    let spend = |user: &&str| {
        let (store, payer) = (store.clone(), Payer::user(user, quota));
        tokio::spawn(async move { store.spend(&payer.charge().into()).await })
    };
    let tasks: Vec<_> = users.iter().map(spend).collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

async fn left(store: &RedisStore, user: &str, quota: Quota) -> u32 {
    let payer = Payer::user(user, quota);
    store.peek(&payer.charge().into()).await.unwrap().standings[0].remaining()
}

fn calls(server: &RedisServer) -> u64 {
    CommandCounts::of([server]).calls("evalsha")
}

/// Connects, so that what follows is decisions alone.
async fn connected(server: &RedisServer, deadline: Duration) -> RedisStore {
    let store = store(&server.url(), deadline);
    left(&store, "nobody", Quota::per_minute(1)).await;
    store
}

#[tokio::test]
async fn many_decisions_take_few_calls() {
    const DECISIONS: usize = 6_400;
    let server = RedisServer::start();
    let store = connected(&server, AMPLE).await;
    let before = CommandCounts::of([&server]);
    let mut workers = JoinSet::new();
    for worker in 0..IN_FLIGHT {
        let store = store.clone();
        workers.spawn(async move {
            for number in 0..DECISIONS / IN_FLIGHT {
                let user = format!("{}", (worker * 7 + number) % 100);
                let payer = Payer::user(&user, Quota::per_hour(100));
                assert!(store.spend(&payer.charge().into()).await.unwrap().spent);
            }
        });
    }
    workers.join_all().await;
    let seen = CommandCounts::of([&server]).since(&before);
    assert!(seen.calls("evalsha") <= DECISIONS as u64 / 8, "{} calls", seen.calls("evalsha"));
    assert_eq!(seen.calls("time"), seen.calls("evalsha"), "the clock is read once for each call");
}

/// A single request is sent at once, in a call as before.
#[tokio::test]
async fn decisions_one_at_a_time_are_a_call_each() {
    let server = RedisServer::start();
    let store = connected(&server, AMPLE).await;
    let before = calls(&server);
    for number in 0..50 {
        let user = number.to_string();
        let outcome = &at_once(&store, &[&user], Quota::per_minute(5)).await[0];
        assert!(outcome.as_ref().unwrap().spent);
    }
    assert_eq!(calls(&server), before + 50);
}

/// A request waits for others only while two calls are in flight.
#[tokio::test]
async fn a_second_decision_does_not_wait_for_the_first() {
    let server = RedisServer::start();
    let network = FaultyNetwork::in_front_of(&server);
    let store = store(&network.url(), AMPLE);
    left(&store, "nobody", Quota::per_minute(1)).await;
    server.pause();
    let mut tasks = Vec::new();
    for user in ["first", "second"] {
        let (store, sent) = (store.clone(), network.bytes_to_server());
        let spend = async move { at_once(&store, &[user], Quota::per_minute(5)).await };
        tasks.push(tokio::spawn(spend));
        until("it is sent", || network.bytes_to_server() > sent).await;
    }
    server.resume();
    for task in tasks {
        assert!(task.await.unwrap()[0].as_ref().unwrap().spent);
    }
}

/// Each of them is decided after the one before it.
#[tokio::test]
async fn one_account_can_be_in_a_call_several_times() {
    let server = RedisServer::start();
    let store = connected(&server, AMPLE).await;
    for quota in [Quota::per_hour(10), Quota::per_hour(5_000)] {
        let units = quota.units().get();
        if units > 10 {
            let payer = Payer::user("same", quota);
            assert!(store.spend(&payer.cost(units - 10).into()).await.unwrap().spent);
        }
        let outcomes = at_once(&store, &["same"; 32], quota).await;
        let receipts: Vec<Receipt> = outcomes.into_iter().map(Result::unwrap).collect();
        let mut remaining: Vec<u32> = Vec::new();
        for receipt in receipts.iter().filter(|receipt| receipt.spent) {
            remaining.push(receipt.standings[0].remaining());
        }
        assert_eq!(remaining, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0], "{quota}");
        assert!(
            receipts.iter().filter(|r| !r.spent).all(|r| !r.standings[0].retry_after().is_zero())
        );
        store.reset(&Payer::user("same", quota).charge().into()).await.unwrap();
    }
}

/// Requests of several charges and windows, some in shadow and some that count denials, beside
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_all_kinds_share_calls() {
    let server = RedisServer::start();
    let store = connected(&server, AMPLE).await;
    let mut tasks = JoinSet::new();
    for number in 0..256 {
        let store = store.clone();
        tasks.spawn(async move {
            let windows = [Quota::per_minute(40), Quota::per_day(5_000)];
            let api = Payer::new("api", Identity::user("together"), &windows);
            let tenant = Payer::new("tenant", Identity::user("shadow"), &[Quota::per_hour(7)]);
            let strict = Payer::new("strict", Identity::user("strict"), &[Quota::per_hour(9)]);
            match number % 4 {
                0 => store.spend(&charges([strict.charge().count_denied(true)])).await,
                1 => store.spend(&charges([tenant.charge(), api.charge()])).await,
                _ => store.spend(&charges([api.charge(), tenant.charge().shadow(true)])).await,
            }
            .map(|receipt| (number % 4, receipt.spent))
            .unwrap()
        });
    }
    let spent = tasks.join_all().await;
    let count = |kinds: &[i32]| spent.iter().filter(|(k, s)| *s && kinds.contains(k)).count();
    assert_eq!(count(&[0]), 9);
    assert!(count(&[1]) <= 7);
    assert_eq!(count(&[1, 2, 3]), 40, "none too few, none too many");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_share_accounts_admit_exactly_the_units() {
    let server = RedisServer::start();
    let mut tasks = JoinSet::new();
    for name in 0..4 {
        let store = connected(&server, AMPLE).await;
        for number in 0..300 {
            let store = store.clone();
            tasks.spawn(async move {
                let user = (name + number) % 3;
                let payer = Payer::user(&user.to_string(), Quota::per_hour(101));
                (user, store.spend(&payer.charge().into()).await.unwrap().spent)
            });
        }
    }
    let spent = tasks.join_all().await;
    for user in 0..3 {
        assert_eq!(spent.iter().filter(|(own, spent)| *own == user && *spent).count(), 101);
    }
}

#[test]
fn a_key_of_another_type_fails_only_its_own_requests() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().start();
        server.command(&["LPUSH", "slidegate:{user:list}:api:min", "x"]);
        server.command(&["SET", "slidegate:{user:text}:api:min", "short"]);
        let store = connected(&server, AMPLE).await;
        let before = calls(&server);
        let users = ["a", "list", "b", "text", "c", "list", "a"];
        let outcomes = at_once(&store, &users, Quota::per_minute(5)).await;
        assert!(calls(&server) - before < users.len() as u64, "some went together");
        for (user, outcome) in users.iter().zip(&outcomes) {
            match *user {
                "list" | "text" => {
                    let StoreError::Unavailable(cause) = outcome.as_ref().unwrap_err() else {
                        panic!("{outcome:?}");
                    };
                    let alone = &at_once(&store, &[user], Quota::per_minute(5)).await[0];
                    let StoreError::Unavailable(alone) = alone.as_ref().unwrap_err() else {
                        panic!("{alone:?}");
                    };
                    let code = |text: String| text.split([':', ' ']).next().map(str::to_owned);
                    assert_eq!(code(cause.to_string()), code(alone.to_string()));
                    assert_eq!(cause.to_string().contains("WRONGTYPE"), *user == "list", "{cause}");
                }
                _ => assert!(outcome.as_ref().unwrap().spent, "{user}"),
            }
        }
        for (user, expected) in [("a", 3), ("b", 4), ("c", 4)] {
            assert_eq!(left(&store, user, Quota::per_minute(5)).await, expected);
        }
    });
}

/// DenialCache need no memory and are still told; what was not counted is not said to be.
#[test]
fn out_of_memory_fails_only_decisions_that_need_memory() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().start();
        let store = connected(&server, AMPLE).await;
        let quota = Quota::per_hour(2);
        for _ in 0..2 {
            assert!(at_once(&store, &["full"], quota).await[0].as_ref().unwrap().spent);
        }
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).expect_ok();
        let users = ["a", "full", "b", "full", "c", "full"];
        let outcomes = at_once(&store, &users, quota).await;
        server.command(&["CONFIG", "SET", "maxmemory", "0"]).expect_ok();
        for (user, outcome) in users.iter().zip(outcomes) {
            match (*user, outcome) {
                ("full", Ok(receipt)) => assert!(!receipt.spent),
                (_, Err(StoreError::Unavailable(cause))) => {
                    assert!(cause.to_string().contains("OOM"), "{cause}");
                }
                (_, outcome) => panic!("{user}: {outcome:?}"),
            }
        }
        for user in ["a", "b", "c"] {
            assert_eq!(left(&store, user, quota).await, 2);
        }
    });
}

/// The server looks at the keys of a call before it runs the script.
#[test]
fn a_key_without_permission_fails_only_its_own_requests() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().start();
        let acl = ["ACL", "SETUSER", "gate", "on", ">word", "~slidegate:*", "+@all"];
        server.command(&acl).expect_ok();
        let url = server.url().replace("redis://", "redis://gate:word@");
        let elsewhere: KeyTemplate = "elsewhere:<identity>".parse().unwrap();
        let builder = RedisStore::builder(url).deadline(AMPLE);
        let store = builder.key_template_of("other".parse().unwrap(), elsewhere).build().unwrap();
        let mut tasks = JoinSet::new();
        for number in 0..40 {
            let store = store.clone();
            tasks.spawn(async move {
                let policy = if number % 10 == 0 { "other" } else { "api" };
                let payer = Payer::new(policy, Identity::user("42"), &[Quota::per_minute(100)]);
                (policy, store.spend(&payer.charge().into()).await)
            });
        }
        for (policy, outcome) in tasks.join_all().await {
            assert_eq!(outcome.is_ok(), policy == "api", "{outcome:?}");
        }
        assert_eq!(left(&store, "42", Quota::per_minute(100)).await, 64);
    });
}

/// A server of a cluster, asked as if it were alone, takes keys of one slot at a time.
#[test]
fn a_server_that_wants_keys_of_one_slot_gets_them() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().line("cluster-enabled yes").start();
        let slots: Vec<String> = (0..16384).map(|slot| slot.to_string()).collect();
        let mut add = vec!["CLUSTER", "ADDSLOTS"];
        add.extend(slots.iter().map(String::as_str));
        server.command(&add).expect_ok();
        until("it is well", || server.command(&["CLUSTER", "INFO"]).text().contains("state:ok"))
            .await;
        let store = connected(&server, AMPLE).await;
        for _ in 0..3 {
            for outcome in at_once(&store, &["a", "b", "c", "d", "e"], Quota::per_hour(3)).await {
                assert!(outcome.unwrap().spent);
            }
        }
        for outcome in at_once(&store, &["a", "b", "c", "d", "e"], Quota::per_hour(3)).await {
            assert!(!outcome.unwrap().spent, "none was counted twice, none not at all");
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_fails_every_waiting_decision() {
    let server = RedisServer::start();
    let network = FaultyNetwork::in_front_of(&server);
    let store = store(&network.url(), AMPLE);
    let quota = Quota::per_hour(1_000);
    left(&store, "nobody", quota).await;
    network.cut_next_reply(3);
    let began = Instant::now();
    let outcomes = at_once(&store, &["lost"; 50], quota).await;
    // Far below the deadline: what was waiting failed with the connection.
    assert!(began.elapsed() < AMPLE / 6, "{:?}", began.elapsed());
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert!(failed > 0);
    for outcome in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(matches!(outcome, StoreError::Unavailable(_)), "{outcome}");
    }
    // What failed may have been counted; what did not was.
    let used = 1_000 - left(&store, "lost", quota).await as usize;
    assert!((50 - failed..=50).contains(&used), "{used} of 50, {failed} failed");
    assert!(at_once(&store, &["lost"], quota).await[0].is_ok(), "it goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_fails_every_waiting_decision() {
    let server = RedisServer::start();
    let store = connected(&server, AMPLE).await;
    server.kill();
    let began = Instant::now();
    let outcomes = at_once(&store, &["gone"; 100], Quota::per_hour(5)).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(StoreError::Unavailable(_)))));
    // Far below the deadline: nothing waited for it.
    assert!(began.elapsed() < AMPLE / 6, "{:?}", began.elapsed());
}

/// Those who are still waiting are not sent any more, and those who were sent are taken back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_decision_waits_beyond_the_deadline_for_a_stopped_server() {
    let deadline = Duration::from_millis(300);
    let server = RedisServer::start();
    let store = connected(&server, deadline).await;
    let quota = Quota::per_hour(1_000);
    server.pause();
    let mut tasks = JoinSet::new();
    for number in 0..100_u64 {
        let store = store.clone();
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_millis(number)).await;
            let began = Instant::now();
            let payer = Payer::user("stopped", quota);
            let outcome = store.spend(&payer.charge().into()).await;
            assert!(matches!(outcome, Err(StoreError::Deadline(_))), "{outcome:?}");
            began.elapsed()
        });
    }
    let took = tasks.join_all().await;
    let longest = took.iter().max().unwrap();
    assert!(*longest < deadline + Duration::from_millis(200), "{longest:?}");
    server.resume();
    let patient = connected(&server, AMPLE).await;
    let began = Instant::now();
    while left(&patient, "stopped", quota).await < 1_000 {
        assert!(began.elapsed() < Duration::from_secs(15), "all is taken back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(at_once(&store, &["stopped"], quota).await[0].as_ref().unwrap().spent, "it goes on");
}

/// A call on a connection that is dead may never be back, and the next may have another connection.
#[tokio::test]
async fn late_calls_delay_no_other_decision() {
    let server = RedisServer::start();
    let network = FaultyNetwork::in_front_of(&server);
    let store = store(&network.url(), Duration::from_millis(100));
    left(&store, "nobody", Quota::per_minute(1)).await;
    server.pause();
    for _ in 0..5 {
        let sent = network.bytes_to_server();
        let outcome = &at_once(&store, &["late"], Quota::per_minute(9)).await[0];
        assert!(matches!(outcome, Err(StoreError::Deadline(_))), "{outcome:?}");
        until("it is sent", || network.bytes_to_server() > sent).await;
    }
    server.resume();
}

/// A request that is dropped while it waits is not sent, and delays no other.
#[tokio::test]
async fn a_caller_that_goes_away_harms_no_other() {
    let server = RedisServer::start();
    let store = connected(&server, AMPLE).await;
    let quota = Quota::per_hour(1_000);
    server.pause();
    let spend = |user: &'static str| {
        let store = store.clone();
        tokio::spawn(async move { store.spend(&Payer::user(user, quota).charge().into()).await })
    };
    // As many calls as are made before anybody waits.
    let ahead = [settled(spend("ahead")).await, settled(spend("ahead")).await];
    let mut staying = Vec::new();
    for _ in 0..10 {
        let leaves = settled(spend("leaves")).await;
        staying.push(settled(spend("stays")).await);
        leaves.abort();
        assert!(leaves.await.is_err());
    }
    server.resume();
    for task in ahead.into_iter().chain(staying) {
        assert!(task.await.unwrap().unwrap().spent);
    }
    assert_eq!(left(&store, "stays", quota).await, 990);
    assert_eq!(left(&store, "leaves", quota).await, 1_000);
}

/// Lets a task come as far as it can.
async fn settled<T>(task: T) -> T {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    task
}

/// Requests with more ledgers than a call may have are calls of their own.
#[tokio::test]
async fn large_requests_are_decided_too() {
    let server = RedisServer::start();
    let store = connected(&server, AMPLE).await;
    let payers: Vec<Payer> = (0..70)
        .map(|number| {
            Payer::new(&format!("p{number}"), Identity::user("42"), &[Quota::per_minute(20)])
        })
        .collect();
    let large = charges(payers.iter().map(Payer::charge));
    let half = charges(payers[..40].iter().map(Payer::charge));
    for _ in 0..5 {
        let (a, b, c) = tokio::join!(store.spend(&large), store.spend(&half), store.spend(&half));
        assert!(a.unwrap().spent && b.unwrap().spent && c.unwrap().spent);
    }
    let left = store.peek(&large).await.unwrap();
    assert!(left.standings[..40].iter().all(|standing| standing.remaining() == 5));
    assert!(left.standings[40..].iter().all(|standing| standing.remaining() == 15));
}

/// Members have names that no other has, also within a call.
#[tokio::test]
async fn decisions_on_sorted_sets_share_calls_too() {
    let server = RedisServer::start();
    let builder = RedisStore::builder(server.url()).layout(Layout::SortedSet);
    let store = builder.deadline(AMPLE).build().unwrap();
    let quota = Quota::per_minute(100);
    assert_eq!(left(&store, "set", quota).await, 100);
    let before = calls(&server);
    for outcome in at_once(&store, &["set"; 40], quota).await {
        assert!(outcome.unwrap().spent);
    }
    assert!(calls(&server) - before < 40, "some went together");
    assert_eq!(left(&store, "set", quota).await, 60, "each is a member of its own");
}
