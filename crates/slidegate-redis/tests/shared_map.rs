//! The map of entries and the log of events: what one process posts or appends, the others read,
//! for as long as it lasts.

use std::collections::HashSet;
use std::time::Duration;

use slidegate::{Policies, Policy, StoreError};
use slidegate_redis::{
    EventBatch, EventLog, EventLogError, KeyTemplate, Position, RedisStore, RedisStoreError,
    ResilientStore, SharedEntry, SharedMap, SharedMapError, SharedSnapshot,
};
use slidegate_testbed::{CommandCounts, FaultyNetwork, RedisCluster, RedisSentinels, RedisServer};

use crate::support::{cluster_url, sentinel_url, timed};

const AMPLE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const MILLISECOND: Duration = Duration::from_millis(1);
const KEY: &str = "slidegate:shared";

fn shared_map(url: impl Into<String>) -> SharedMap {
    RedisStore::builder(url).deadline(AMPLE).build().unwrap().shared_map()
}

async fn all(map: &SharedMap) -> SharedSnapshot {
    let mut reading = map.read(None).await.unwrap().expect("nothing was seen before");
    reading.entries.sort_by(|a, b| a.id.cmp(&b.id));
    reading
}

async fn texts(map: &SharedMap) -> Vec<(String, String)> {
    let entries = all(map).await.entries.into_iter();
    entries.map(|entry| (entry.id, entry.text)).collect()
}

fn pair(id: &str, text: &str) -> (String, String) {
    (id.to_owned(), text.to_owned())
}

#[tokio::test]
async fn what_one_posts_the_other_reads() {
    let (time, server) = timed();
    let (one, other) = (shared_map(server.url()), shared_map(server.url()));
    one.insert("b", "two\nlines, and spaces ", HOUR).await.unwrap();
    one.insert("a", "", MINUTE).await.unwrap();
    let now_ms = time.now_us() / 1000;
    let reading = all(&other).await;
    assert_eq!(reading.now_ms, now_ms);
    let entry = |id: &str, text: &str, until_ms| SharedEntry {
        id: id.to_owned(),
        text: text.to_owned(),
        until_ms,
    };
    let expected = [
        entry("a", "", now_ms + 60_000),
        entry("b", "two\nlines, and spaces ", now_ms + 3_600_000),
    ];
    assert_eq!(reading.entries, expected);

    assert_eq!(other.read(Some(reading.version)).await.unwrap(), None, "nothing is new");
    one.insert("a", "Ünal {x} \0", HOUR).await.unwrap();
    let newer = other.read(Some(reading.version)).await.unwrap().expect("it has changed");
    assert_ne!(newer.version, reading.version);
    assert_eq!(
        texts(&other).await,
        [pair("a", "Ünal {x} \0"), pair("b", "two\nlines, and spaces ")]
    );
    assert!(other.remove("b").await.unwrap());
    assert!(!other.remove("b").await.unwrap(), "it is gone");
    assert_eq!(texts(&one).await, [pair("a", "Ünal {x} \0")]);
    let newest = one.read(Some(newer.version)).await.unwrap().expect("it has changed");
    assert!(!one.remove("c").await.unwrap());
    assert_eq!(one.read(Some(newest.version)).await.unwrap(), None, "nothing was removed");
}

#[tokio::test]
async fn a_map_with_nothing_on_it_is_a_state_like_any_other() {
    let server = RedisServer::start();
    let map = shared_map(server.url());
    let empty = all(&map).await;
    assert_eq!(empty.entries, []);
    assert_eq!(map.read(Some(empty.version)).await.unwrap(), None);
    map.insert("a", "text", HOUR).await.unwrap();
    let posted = map.read(Some(empty.version)).await.unwrap().expect("it has changed");
    assert!(map.remove("a").await.unwrap());
    let again = map.read(Some(posted.version)).await.unwrap().expect("it has changed");
    assert_eq!(again.entries, []);
    assert_eq!(again.version, empty.version);
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0, "and it leaves no key behind");
}

#[tokio::test]
async fn a_entry_ends_to_the_millisecond_and_the_key_with_the_last() {
    let (time, server) = timed();
    let map = shared_map(server.url());
    map.insert("short", "", 5 * MILLISECOND).await.unwrap();
    map.insert("long", "", MINUTE).await.unwrap();
    map.insert("mid", "", Duration::from_micros(10_001)).await.unwrap();
    let seen = all(&map).await.version;
    time.advance(4 * MILLISECOND);
    assert_eq!(all(&map).await.entries.len(), 3);
    time.advance(MILLISECOND);
    assert_eq!(texts(&map).await, [pair("long", ""), pair("mid", "")]);
    assert_eq!(map.read(Some(seen)).await.unwrap(), None, "its readers knew that it would end");
    assert!(!map.remove("short").await.unwrap(), "it is over, so it is not there");
    assert_eq!(server.command(&["HLEN", KEY]).integer(), 3, "two, and what the map knows itself");
    time.advance(5 * MILLISECOND);
    assert_eq!(all(&map).await.entries.len(), 2, "rounded up to a millisecond");
    time.advance(MILLISECOND);
    map.insert("new", "", 5 * MILLISECOND).await.unwrap();
    assert_eq!(server.command(&["HLEN", KEY]).integer(), 3, "a post drops what has ended");
    let left_ms = server.command(&["PTTL", KEY]).integer();
    assert_eq!(left_ms, 60_000 - 11, "the key lasts as long as the longest entry");

    time.advance(MINUTE - 12 * MILLISECOND);
    assert_eq!(texts(&map).await, [pair("long", "")]);
    let seen = all(&map).await.version;
    time.advance(MILLISECOND);
    assert_eq!(all(&map).await.entries, []);
    // Redis lets a key live through its last millisecond.
    time.advance(MILLISECOND);
    let over = map.read(Some(seen)).await.unwrap().expect("the map is gone");
    assert_eq!(over.entries, []);
    assert_eq!(server.command(&["EXISTS", KEY]).integer(), 0);
}

#[tokio::test]
async fn a_shorter_entry_in_place_of_a_longer_one_ends_sooner() {
    let (time, server) = timed();
    let map = shared_map(server.url());
    map.insert("a", "long", HOUR).await.unwrap();
    map.insert("a", "short", MINUTE).await.unwrap();
    map.insert("b", "other", HOUR).await.unwrap();
    time.advance(MINUTE);
    assert_eq!(texts(&map).await, [pair("b", "other")]);
}

#[tokio::test]
async fn a_lost_map_is_noticed() {
    let server = RedisServer::start();
    let map = shared_map(server.url());
    map.insert("a", "text", HOUR).await.unwrap();
    let seen = all(&map).await.version;
    server.command(&["FLUSHALL"]).expect_ok();
    let lost = map.read(Some(seen)).await.unwrap().expect("it has changed");
    assert_eq!(lost.entries, []);
    assert_eq!(map.read(Some(lost.version)).await.unwrap(), None);

    // As many changes as before lead to another state.
    map.insert("a", "text", HOUR).await.unwrap();
    assert_ne!(all(&map).await.version, seen);

    // A restart without persistence loses the map and the scripts.
    let seen = all(&map).await.version;
    server.restart();
    let mut lost = map.read(Some(seen)).await;
    for _ in 0..100 {
        if lost.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        lost = map.read(Some(seen)).await;
    }
    assert_eq!(lost.unwrap().expect("it has changed").entries, []);
}

#[tokio::test]
async fn an_older_map_after_a_failover_is_noticed() {
    let server = RedisServer::start();
    let map = shared_map(server.url());
    map.insert("a", "old", HOUR).await.unwrap();
    let old = server.command(&["HGETALL", KEY]).array();
    let old: Vec<String> = old.into_iter().map(|reply| reply.text()).collect();
    map.insert("a", "new", HOUR).await.unwrap();
    let seen = all(&map).await.version;
    // What a replica would have that had not heard of the last change.
    let mut command = vec!["HSET", KEY];
    command.extend(old.iter().map(String::as_str));
    server.command(&command);
    let reading = map.read(Some(seen)).await.unwrap().expect("it has changed");
    assert_eq!(reading.entries[0].text, "old");
}

#[tokio::test]
async fn every_call_is_one_round_trip() {
    let server = RedisServer::start();
    let map = shared_map(server.url());
    let reading = all(&map).await;
    let calls = async |what: &str, trips: u64| {
        let before = CommandCounts::of([&server]);
        match what {
            "post" => map.insert("a", "text", HOUR).await.unwrap(),
            "remove" => assert!(map.remove("a").await.unwrap()),
            _ => drop(map.read(Some(reading.version)).await.unwrap()),
        }
        let counts = CommandCounts::of([&server]).since(&before);
        let sent = counts.calls("eval") + counts.calls("evalsha") + counts.calls("script");
        assert_eq!((sent, counts.calls("time")), (trips, 1), "{what}");
    };
    for what in ["read", "post", "read", "post", "remove", "read"] {
        calls(what, 1).await;
    }
    server.command(&["SCRIPT", "FLUSH"]).expect_ok();
    calls("post", 1).await;
}

#[tokio::test]
async fn a_full_map_takes_no_more_until_one_ends_or_goes() {
    let (time, server) = timed();
    let map = shared_map(server.url());
    let lasting = |number: usize| if number == 7 { MINUTE } else { HOUR };
    for number in 0..SharedMap::MAX_ENTRIES {
        map.insert(&number.to_string(), "text", lasting(number)).await.unwrap();
    }
    let full = map.insert("more", "text", HOUR).await;
    assert!(matches!(full, Err(SharedMapError::Full)), "{full:?}");
    assert!(full.unwrap_err().to_string().contains("at most 10000"));
    assert_eq!(all(&map).await.entries.len(), SharedMap::MAX_ENTRIES);
    map.insert("9", "another text", HOUR).await.expect("it takes the place of one");
    time.advance(MINUTE);
    map.insert("more", "text", HOUR).await.expect("one has ended");
    assert!(map.insert("still more", "text", HOUR).await.is_err());
    assert!(map.remove("3").await.unwrap());
    map.insert("still more", "text", HOUR).await.expect("one has gone");
    assert_eq!(all(&map).await.entries.len(), SharedMap::MAX_ENTRIES);
}

#[tokio::test]
async fn what_cannot_be_posted_is_refused_by_name() {
    let server = RedisServer::start();
    let map = shared_map(server.url());
    let long = "x".repeat(129);
    let text = "y".repeat(1025);
    for (id, text, lasting, part) in [
        ("", "text", HOUR, "id = \"\": expected 1 to 128 bytes"),
        (&*long, "text", HOUR, "expected 1 to 128 bytes"),
        ("a", &*text, HOUR, "a text of 1025 bytes: expected at most 1024"),
        ("a", "text", Duration::ZERO, "lasts 0ns: expected more than no time"),
        ("a", "text", SharedMap::LONGEST + MILLISECOND, "at most 366 days"),
        ("a", "text", Duration::MAX, "at most 366 days"),
    ] {
        let error = map.insert(id, text, lasting).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(map.remove("").await.is_err(), "which is where the version is");
    map.insert(&long[1..], &text[1..], SharedMap::LONGEST).await.unwrap();
    map.insert("a", "text", Duration::from_nanos(1)).await.unwrap();
    assert!(server.command(&["PTTL", KEY]).integer() > 365 * 86_400_000);
}

#[tokio::test]
async fn many_at_once_lose_nothing() {
    let server = RedisServer::start();
    let boards: Vec<SharedMap> = (0..4).map(|_| shared_map(server.url())).collect();
    let mut tasks = Vec::new();
    for (number, map) in boards.iter().enumerate() {
        let map = map.clone();
        tasks.push(tokio::spawn(async move {
            let mut seen = None;
            for i in 0..50 {
                map.insert(&format!("{number}-{i}"), "text", HOUR).await.unwrap();
                if i % 2 == 1 {
                    assert!(map.remove(&format!("{number}-{i}")).await.unwrap());
                }
                if let Some(reading) = map.read(seen).await.unwrap() {
                    let own = format!("{number}-{}", i - i % 2);
                    assert!(reading.entries.iter().any(|entry| entry.id == own));
                    seen = Some(reading.version);
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let ids: HashSet<String> = all(&boards[0]).await.entries.into_iter().map(|n| n.id).collect();
    let expected = (0..4).flat_map(|n| (0..50).step_by(2).map(move |i| format!("{n}-{i}")));
    assert_eq!(ids, expected.collect::<HashSet<_>>());
}

#[tokio::test]
async fn a_key_that_is_no_map_is_an_error_and_stays_as_it_is() {
    let server = RedisServer::start();
    server.command(&["SET", KEY, "mine"]).expect_ok();
    let map = shared_map(server.url());
    for error in [
        map.insert("a", "text", HOUR).await.unwrap_err(),
        map.remove("a").await.unwrap_err(),
        map.read(None).await.unwrap_err(),
    ] {
        let SharedMapError::Store(StoreError::Unavailable(cause)) = &error else {
            panic!("{error}")
        };
        let failure = cause.downcast_ref::<RedisStoreError>().unwrap().to_string();
        assert!(failure.contains("WRONGTYPE"), "{failure}");
    }
    assert_eq!(server.command(&["GET", KEY]).text(), "mine");
}

#[tokio::test]
async fn a_hash_that_somebody_else_wrote_does_no_harm() {
    let server = RedisServer::start();
    server.command(&["HSET", KEY, "", "what is this", "theirs", "no entry", "b", "12"]);
    let map = shared_map(server.url());
    assert_eq!(texts(&map).await, []);
    map.insert("a", "text", HOUR).await.unwrap();
    assert_eq!(texts(&map).await, [pair("a", "text")]);
    assert_eq!(server.command(&["HLEN", KEY]).integer(), 2, "what is no entry has ended");
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_error_and_no_wait() {
    let server = RedisServer::start();
    let network = FaultyNetwork::in_front_of(&server);
    let store = RedisStore::builder(network.url()).deadline(Duration::from_millis(50));
    let map = store.build().unwrap().shared_map();
    let patient = async |what| {
        let error = tokio::time::timeout(AMPLE, what).await.expect("it does not hang");
        match error {
            Err(SharedMapError::Store(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    network.blackhole();
    patient(map.insert("a", "text", HOUR)).await;
    patient(map.insert("a", "text", HOUR)).await;
    network.refuse();
    patient(map.insert("a", "text", HOUR)).await;
    network.pass();
    for _ in 0..300 {
        if map.insert("a", "text", HOUR).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut reading = map.read(None).await;
    for _ in 0..300 {
        if reading.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        reading = map.read(None).await;
    }
    assert_eq!(reading.unwrap().unwrap().entries.len(), 1);
}

#[tokio::test]
async fn maps_of_other_names_are_apart_and_under_the_same_permission() {
    let server = RedisServer::start();
    let policies = Policies::builder().policy(Policy::new("api").quota("9/min")).build().unwrap();
    for template in ["slidegate:{<identity>}:<policy>", "shop:<kind>:<identity>"] {
        let template: KeyTemplate = template.parse().unwrap();
        let url = server.url().replace("redis://", "redis://gate:secret@");
        let store = RedisStore::builder(url).key_template(template).deadline(AMPLE);
        let store = store.build().unwrap();
        let mut user: Vec<String> =
            ["ACL", "SETUSER", "gate", "reset", "on", ">secret", "+@all"].map(str::to_owned).into();
        user.extend(store.key_patterns(&policies).iter().map(|pattern| format!("~{pattern}")));
        server.command(&user.iter().map(String::as_str).collect::<Vec<_>>()).expect_ok();

        let named = |name: &str| store.shared_map_named(&name.parse().unwrap());
        let (gateways, events) = (named("gateways"), named("events"));
        gateways.insert("a", "of gateways", HOUR).await.unwrap();
        events.insert("b", "no event", HOUR).await.unwrap();
        store.shared_map().insert("c", "first", HOUR).await.unwrap();
        store.event_log().append([("event", HOUR)]).await.unwrap();
        assert_eq!(texts(&gateways).await, [pair("a", "of gateways")]);
        assert_eq!(texts(&events).await, [pair("b", "no event")]);
        assert_eq!(texts(&store.shared_map()).await, [pair("c", "first")]);
        assert_eq!(texts(&named("gateways")).await.len(), 1, "the same for all of that name");
    }
}

#[tokio::test]
async fn templates_that_begin_alike_share_a_map() {
    let server = RedisServer::start();
    let with = |template: &str| {
        let template: KeyTemplate = template.parse().unwrap();
        let store = RedisStore::builder(server.url()).key_template(template).deadline(AMPLE);
        store.build().unwrap()
    };
    let shop = with("shop:{<identity>}:<policy>").shared_map();
    let shop_too = ResilientStore::new(with("shop:{<kind>}<identity>")).redis().shared_map();
    let bank = with("bank:<identity>").shared_map();
    shop.insert("a", "of the shop", HOUR).await.unwrap();
    bank.insert("a", "of the bank", HOUR).await.unwrap();
    assert_eq!(texts(&shop_too).await, [pair("a", "of the shop")]);
    assert_eq!(texts(&bank).await, [pair("a", "of the bank")]);
    assert_eq!(texts(&shared_map(server.url())).await, []);
    assert_eq!(server.command(&["EXISTS", "shop:shared", "bank:{shared}"]).integer(), 2);
}

#[tokio::test]
async fn in_a_cluster() {
    let cluster = RedisCluster::options().without_replicas().start();
    let (one, other) = (shared_map(cluster_url(&cluster)), shared_map(cluster_url(&cluster)));
    one.insert("a", "text", HOUR).await.unwrap();
    let reading = all(&other).await;
    assert_eq!(reading.entries[0].text, "text");
    assert_eq!(other.read(Some(reading.version)).await.unwrap(), None);
    assert!(other.remove("a").await.unwrap());
    let emptied = one.read(Some(reading.version)).await.unwrap().expect("it has changed");
    assert_eq!(emptied.entries, []);
}

#[tokio::test]
async fn behind_sentinels() {
    let sentinels = RedisSentinels::start();
    let map = shared_map(sentinel_url(&sentinels));
    map.insert("a", "text", HOUR).await.unwrap();
    assert_eq!(texts(&map).await, [pair("a", "text")]);
}

#[tokio::test]
async fn with_no_more_permissions_than_are_written_down() {
    let server = RedisServer::start();
    let permissions =
        ["+evalsha", "+script|load", "+time", "+eval", "+@hash", "+del", "+pexpireat"];
    let mut user = vec!["ACL", "SETUSER", "gate", "on", ">secret", "~slidegate:*"];
    user.extend(permissions);
    server.command(&user).expect_ok();
    let map = shared_map(server.url().replace("redis://", "redis://gate:secret@"));
    map.insert("a", "text", HOUR).await.unwrap();
    assert_eq!(texts(&map).await, [pair("a", "text")]);
    assert!(map.remove("a").await.unwrap());
}

const LOG: &str = "slidegate:shared:events";

fn log(url: impl Into<String>) -> EventLog {
    RedisStore::builder(url).deadline(AMPLE).build().unwrap().event_log()
}

async fn append(log: &EventLog, events: &[(&str, Duration)]) {
    log.append(events.iter().copied()).await.unwrap();
}

async fn read(log: &EventLog, after: Option<&Position>) -> EventBatch {
    log.read(after).await.unwrap()
}

fn said(batch: &EventBatch) -> Vec<&str> {
    batch.events.iter().map(|event| &*event.text).collect()
}

#[tokio::test]
async fn events_are_read_in_order_and_each_once() {
    let (time, server) = timed();
    let (one, other) = (log(server.url()), log(server.url()));
    let empty = read(&other, None).await;
    assert_eq!((said(&empty), empty.restarted), (vec![], false));
    append(&one, &[("b\nB", MINUTE), ("a \u{fc}", HOUR)]).await;
    let now_ms = time.now_us() / 1000;
    let first = read(&other, Some(&empty.position)).await;
    assert_eq!(said(&first), ["b\nB", "a \u{fc}"]);
    assert_eq!((first.now_ms, first.restarted), (now_ms, false));
    let ends: Vec<u64> = first.events.iter().map(|event| event.until_ms).collect();
    assert_eq!(ends, [now_ms + 60_000, now_ms + 3_600_000]);
    append(&other, &[("c", MINUTE)]).await;
    assert_eq!(said(&read(&one, Some(&first.position)).await), ["c"]);
    let second = read(&other, Some(&first.position)).await;
    assert_eq!(said(&second), ["c"]);
    assert_eq!(said(&read(&other, Some(&second.position)).await), [""; 0]);
    assert_eq!(said(&read(&log(server.url()), None).await), ["b\nB", "a \u{fc}", "c"]);
    append(&one, &[]).await;
}

#[tokio::test]
async fn a_log_lasts_as_long_as_its_longest_event() {
    let (time, server) = timed();
    let log = log(server.url());
    append(&log, &[("nothing to go with", Duration::ZERO)]).await;
    assert_eq!(server.command(&["EXISTS", LOG]).integer(), 0);
    append(&log, &[("long", MINUTE), ("short", MILLISECOND)]).await;
    append(&log, &[("with them", Duration::ZERO)]).await;
    assert_eq!(server.command(&["PTTL", LOG]).integer(), 60_000);
    time.advance(MINUTE - MILLISECOND);
    assert_eq!(said(&read(&log, None).await), ["long", "short", "with them"]);
    time.advance(2 * MILLISECOND);
    assert_eq!(said(&read(&log, None).await), [""; 0]);
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
}

#[tokio::test]
async fn a_full_log_forgets_the_oldest_and_many_events_take_several_readings() {
    let server = RedisServer::start();
    let log = log(server.url());
    let count = EventLog::MAX_EVENTS + 3;
    let texts: Vec<String> = (0..count).map(|i| i.to_string()).collect();
    for texts in texts.chunks(EventLog::MAX_BATCH) {
        log.append(texts.iter().map(|text| (&**text, HOUR))).await.unwrap();
    }
    assert_eq!(server.command(&["XLEN", LOG]).integer(), EventLog::MAX_EVENTS as i64);
    let (mut found, mut position) = (Vec::new(), None);
    loop {
        let batch = read(&log, position.as_ref()).await;
        assert!(batch.events.len() <= EventLog::MAX_BATCH);
        if batch.events.is_empty() {
            break;
        }
        found.extend(batch.events.into_iter().map(|event| event.text));
        position = Some(batch.position);
    }
    assert_eq!(found[..], texts[3..]);
}

#[tokio::test]
async fn a_log_that_was_lost_is_read_from_the_beginning() {
    let (time, server) = timed();
    let log = log(server.url());
    append(&log, &[("a", HOUR), ("b", HOUR)]).await;
    let seen = read(&log, None).await.position;
    server.command(&["FLUSHALL"]).expect_ok();
    let lost = read(&log, Some(&seen)).await;
    assert_eq!((said(&lost), lost.restarted), (vec![], true));
    let next = read(&log, Some(&lost.position)).await;
    assert!(!next.restarted, "it is told once");
    append(&log, &[("c", HOUR)]).await;
    assert_eq!(said(&read(&log, Some(&lost.position)).await), ["c"]);

    // Others may have appended something before it is noticed, by whatever clock.
    for by in [SECOND, Duration::ZERO] {
        append(&log, &[("d", HOUR)]).await;
        let seen = read(&log, None).await.position;
        server.command(&["FLUSHALL"]).expect_ok();
        time.advance(by);
        append(&log, &[("e", HOUR)]).await;
        let other = read(&log, Some(&seen)).await;
        assert_eq!((said(&other), other.restarted), (vec!["e"], true));
        let seen = read(&log, Some(&other.position)).await;
        assert!(!seen.restarted && seen.events.is_empty());
    }
    let seen = read(&log, None).await.position;
    server.command(&["FLUSHALL"]).expect_ok();
    time.step_back(SECOND / 2);
    append(&log, &[("f", HOUR)]).await;
    let behind = read(&log, Some(&seen)).await;
    assert_eq!((said(&behind), behind.restarted), (vec!["f"], true));
}

#[tokio::test]
async fn an_older_log_after_a_failover_is_noticed() {
    let server = RedisServer::start();
    let log = log(server.url());
    append(&log, &[("a", HOUR)]).await;
    append(&log, &[("b", HOUR)]).await;
    let seen = read(&log, None).await.position;
    let newest = server.command(&["XREVRANGE", LOG, "+", "-", "COUNT", "1"]).array();
    let id = newest.into_iter().next().unwrap().array().into_iter().next().unwrap().text();
    // What a replica would have that had not heard of the last event.
    server.command(&["XDEL", LOG, &id]);
    let older = read(&log, Some(&seen)).await;
    assert_eq!((said(&older), older.restarted), (vec!["a"], true));
}

#[tokio::test]
async fn events_that_do_not_fit_are_refused() {
    let server = RedisServer::start();
    let log = log(server.url());
    let long = "x".repeat(EventLog::MAX_TEXT_BYTES + 1);
    let error = log.append([(&*long, HOUR)]).await.unwrap_err();
    assert!(matches!(error, EventLogError::Text(1025)), "{error}");
    let error = log.append([("x", EventLog::LONGEST + MILLISECOND)]).await.unwrap_err();
    assert!(matches!(error, EventLogError::Lasting(_)), "{error}");
    let error = log.append(vec![("x", HOUR); EventLog::MAX_BATCH + 1]).await.unwrap_err();
    assert!(matches!(error, EventLogError::Batch(501)), "{error}");
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
    server.command(&["SET", LOG, "something else"]).expect_ok();
    let wrong = log.read(None).await.unwrap_err();
    assert!(matches!(wrong, EventLogError::Store(StoreError::Unavailable(_))), "{wrong}");
}

#[tokio::test]
async fn a_log_is_shared_in_a_cluster_too() {
    let cluster = RedisCluster::options().without_replicas().start();
    let (one, other) = (log(cluster_url(&cluster)), log(cluster_url(&cluster)));
    append(&one, &[("a", HOUR)]).await;
    assert_eq!(said(&read(&other, None).await), ["a"]);
}

#[tokio::test]
async fn a_log_needs_no_more_permissions_than_are_written_down() {
    let server = RedisServer::start();
    let mut user = vec!["ACL", "SETUSER", "gate", "on", ">secret", "~slidegate:*"];
    user.extend(["+eval", "+time", "+pttl", "+pexpire", "+xadd", "+xread", "+xrevrange"]);
    // What every connection needs.
    user.extend(["+evalsha", "+script|load"]);
    server.command(&user).expect_ok();
    let log = log(server.url().replace("redis://", "redis://gate:secret@"));
    append(&log, &[("a", HOUR)]).await;
    let batch = read(&log, None).await;
    assert_eq!(said(&batch), ["a"]);
    assert_eq!(said(&read(&log, Some(&batch.position)).await), [""; 0]);
}
