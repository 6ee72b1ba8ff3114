//! Steps, answers and heartbeats on clocks that stand still.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use slidegate::{Facts, Gate, ManualClock, MemoryStore, Name, Policies, Policy, Quota, Timestamp};
use slidegate_redis::{RedisStore, SharedMap};
use slidegate_testbed::{ManualTime, RedisServer};

use super::sampler::{STEP, Sampler};
use super::{FRESH, Heartbeats, NowService};
use crate::any_store::{AnyStore, decide_now};
use crate::config::{LogConfig, LogFormat};
use crate::observe::{
    DurationCounts, ListenerKind, Observer, PolicyTotals, RequestOutcome, RequestTotals,
    UpstreamOutcome,
};

const LOG: LogConfig = LogConfig { format: LogFormat::Json, level: String::new(), access: false };

fn totals(policies: &[(&str, u64)]) -> Vec<(Name, PolicyTotals)> {
    let totals = |allowed| PolicyTotals { allowed, refused: allowed * 2, ..Default::default() };
    policies.iter().map(|(name, allowed)| (name.parse().unwrap(), totals(*allowed))).collect()
}

#[test]
fn steps_are_differences_and_the_oldest_make_way() {
    let mut sampler = Sampler::default();
    for step in 1..=200_u64 {
        sampler.step(
            RequestTotals::default(),
            &totals(&[("api", step * (step + 1) / 2)]),
            DurationCounts::default(),
        );
    }
    let [api] = &sampler.policies[..] else { panic!("one policy") };
    assert_eq!(api.allowed, (21..=200).collect::<Vec<u32>>());
    assert_eq!(api.refused, (21..=200).map(|count| count * 2).collect::<Vec<u32>>());
    assert_eq!(api.failed, [0; 180]);
    assert_eq!(sampler.decision_time.p99_us, [None; 180]);
}

#[test]
fn policies_that_stay_keep_their_steps_and_new_ones_get_as_many() {
    let mut sampler = Sampler::default();
    let mut step = |policies: &[(&str, u64)]| {
        sampler.step(RequestTotals::default(), &totals(policies), DurationCounts::default());
        let lists = sampler.policies.iter().map(|series| {
            (series.policy.clone(), series.allowed.iter().copied().collect::<Vec<u32>>())
        });
        lists.collect::<Vec<_>>()
    };
    let list = |policy: &str, allowed: &[u32]| (policy.to_owned(), allowed.to_vec());
    step(&[("api", 3), ("old", 1)]);
    assert_eq!(
        step(&[("new", 5), ("api", 4)]),
        [list("new", &[0, 5]), list("api", &[3, 1])],
        "in the order of the policies"
    );
    assert_eq!(step(&[("api", 2)]), [list("api", &[3, 1, 0])], "a counter that began anew");
    assert_eq!(step(&[("api", 9)]), [list("api", &[3, 1, 0, 7])]);
    assert_eq!(step(&[]), []);
    assert_eq!(step(&[("api", 9)]), [list("api", &[0, 0, 0, 0, 0, 9])]);
}

fn gate(clock: &ManualClock) -> Arc<Gate<AnyStore>> {
    let policies = Policies::builder()
        .policy(Policy::new("api").quota("2/h").candidate("1/h"))
        .policy(Policy::new("trial").quota(Quota::per_hour(1)).shadow());
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    Arc::new(Gate::with_local(policies.build().unwrap(), store().into(), store()))
}

/// A request that is decided within so many microseconds.
fn ask(gate: &Gate<AnyStore>, observer: &Observer, us: u64) {
    let facts = Facts::new(&Method::GET, "/").client([10, 0, 0, 1].into());
    let (decision, began) = (decide_now(gate, &facts), gate.now());
    observer.record(&RequestOutcome {
        listener: ListenerKind::Gateway,
        method: &Method::GET,
        path: "/",
        client: None,
        status: StatusCode::OK,
        decision: Some(&decision),
        upstream: UpstreamOutcome::NotCalled,
        began,
        asked: began,
        decided: Some(began + Duration::from_micros(us)),
        ended: began + Duration::from_micros(us),
    });
}

#[tokio::test(start_paused = true)]
async fn the_answer_has_a_step_every_five_seconds_and_is_made_once_a_second() {
    let clock = ManualClock::default();
    let gate = gate(&clock);
    let observer = Observer::new(gate.clone(), &LOG, None, Arc::new(clock.clone()));
    let heartbeats = Heartbeats::new(None, observer.started_at());
    let now = Arc::new(NowService::new(observer.clone(), heartbeats, clock.clone()));
    let answer = || serde_json::from_slice::<Value>(&now.answer()).unwrap();
    let first = answer();
    assert_eq!((&first["step_ms"], &first["policies"]), (&json!(5000), &json!([])));
    assert_eq!(first["store"]["kind"], "memory");
    assert_eq!(first["store"]["state"], "ready");
    assert_eq!(first["gateways"][0]["this"], true);

    tokio::spawn(now.clone().run());
    tokio::task::yield_now().await;
    (0..4).for_each(|_| ask(&gate, &observer, 100));
    tokio::time::sleep(STEP * 2 + FRESH).await;
    assert_eq!(answer(), first, "the clock stands still");
    assert!(std::ptr::eq(&*now.answer(), &*now.answer()), "and the bytes are shared");
    clock.advance(FRESH);
    let next = answer();
    let [api, trial] = &next["policies"].as_array().unwrap()[..] else { panic!("{next}") };
    let idle = json!([0, 0]);
    assert_eq!((&api["policy"], &trial["policy"]), (&json!("api"), &json!("trial")));
    assert_eq!((&api["allowed"], &api["refused"]), (&json!([2, 0]), &json!([2, 0])));
    assert_eq!((&api["shadow"], &api["failed"]), (&idle, &idle));
    assert_eq!(api["candidate"], json!([1, 0]), "what the policy has denied is no news");
    assert_eq!(trial["shadow"], json!([3, 0]), "{next}");
    let p99_us = next["decision_time"]["p99_us"][0].as_f64().unwrap();
    assert!((100.0..=112.5).contains(&p99_us), "{p99_us}");
    assert_eq!(next["decision_time"]["p50_us"][1], Value::Null);
}

fn gateway_map(redis: &RedisServer) -> SharedMap {
    let store = RedisStore::builder(redis.url()).deadline(Duration::from_secs(2)).build();
    store.unwrap().shared_map_named(&"gateways".parse().unwrap())
}

#[tokio::test]
async fn gateways_on_one_redis_see_each_other_until_one_leaves_or_is_silent() {
    let time = ManualTime::new();
    let redis = RedisServer::options().time(&time).start();
    let map = gateway_map(&redis);
    let now = Timestamp::from_millis(7_000_000);
    let gateways = [(); 3].map(|()| Heartbeats::new(Some(map.clone()), now));
    let exchange = async || {
        for gateway in &gateways {
            gateway.exchange(now).await;
        }
    };
    let counts = |now| gateways.each_ref().map(|gateway| gateway.gateways(now).len());
    exchange().await;
    assert_eq!(counts(now), [1, 2, 3], "in the order of their first heartbeats");
    time.advance(Duration::from_secs(2));
    exchange().await;
    assert_eq!(counts(now), [3, 3, 3]);
    let [this, other, _] = &gateways[0].gateways(now)[..] else { panic!("three") };
    assert!(this.this && !other.this && this.name.contains(':'), "{this:?}");
    assert_eq!(
        (&other.name, &other.version, other.started),
        (&this.name, &this.version, this.started)
    );
    assert!(other.seen_ms.abs_diff(2000) < 100, "{other:?}");

    gateways[2].leave().await;
    exchange().await;
    assert_eq!(counts(now)[..2], [2, 2], "it has left, and writes no heartbeat any more");
    time.advance(Duration::from_secs(7));
    gateways[0].exchange(now).await;
    assert_eq!(counts(now)[0], 1, "the other has been silent");
    assert_eq!(counts(now)[1], 2);
    assert_eq!(counts(now + Duration::from_secs(7))[1], 1, "it forgets by itself what it has read");
    time.advance(Duration::from_secs(7));
    assert_eq!(redis.command(&["KEYS", "*gateways*"]).array().len(), 0, "and Redis does too");
}
