//! What processes share: entries and events that one writes and the others read, for as long as they
//! last, and the members that are alive.

use std::collections::HashSet;
use std::time::Duration;

use slidegate::{Policies, Policy, StoreError};
use slidegate_redis::{
    KeyTemplate, RedisStore, RedisStoreError, ResilientStore, SharedChanges, SharedCursor,
    SharedEntry, SharedState, SharedStateError,
};
use slidegate_testbed::{CommandCounts, FaultyNetwork, RedisCluster, RedisSentinels, RedisServer};

use crate::support::{cluster_url, sentinel_url, timed};

const AMPLE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const MILLISECOND: Duration = Duration::from_millis(1);
const ENTRIES: &str = "slidegate:shared:{gateways}:entries";
const EVENTS: &str = "slidegate:shared:{gateways}:events";
const MEMBERS: &str = "slidegate:shared:{gateways}:members";
const SECRET: &str = "slidegate:shared:{gateways}:secret";

fn shared_state(url: impl Into<String>) -> SharedState {
    RedisStore::builder(url).deadline(AMPLE).build().unwrap().shared_state()
}

async fn read(state: &SharedState, known: &SharedCursor) -> SharedChanges {
    state.exchange(known, None).await.unwrap()
}

/// All that can be read.
async fn all(state: &SharedState) -> SharedChanges {
    let mut changes = read(state, &SharedCursor::default()).await;
    changes.entries.as_mut().unwrap().sort_by(|a, b| a.id.cmp(&b.id));
    changes
}

/// The entries, if they are new.
async fn news(state: &SharedState, known: &SharedCursor) -> Option<Vec<SharedEntry>> {
    read(state, known).await.entries
}

async fn entries(state: &SharedState) -> Vec<SharedEntry> {
    all(state).await.entries.unwrap()
}

async fn texts(state: &SharedState) -> Vec<(String, String)> {
    entries(state).await.into_iter().map(|entry| (entry.id, entry.text)).collect()
}

fn pair(id: &str, text: &str) -> (String, String) {
    (id.to_owned(), text.to_owned())
}

#[tokio::test]
async fn what_one_posts_the_other_reads() {
    let (time, server) = timed();
    let (one, other) = (shared_state(server.url()), shared_state(server.url()));
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
    assert_eq!(reading.entries.unwrap(), expected);

    assert_eq!(news(&other, &reading.cursor).await, None, "nothing is new");
    one.insert("a", "Ünal {x} \0", HOUR).await.unwrap();
    let newer = read(&other, &reading.cursor).await;
    assert!(newer.entries.is_some() && newer.cursor != reading.cursor);
    assert_eq!(
        texts(&other).await,
        [pair("a", "Ünal {x} \0"), pair("b", "two\nlines, and spaces ")]
    );
    assert!(other.remove("b").await.unwrap());
    assert!(!other.remove("b").await.unwrap(), "it is gone");
    assert_eq!(texts(&one).await, [pair("a", "Ünal {x} \0")]);
    let newest = read(&one, &newer.cursor).await;
    assert!(newest.entries.is_some(), "it has changed");
    assert!(!one.remove("c").await.unwrap());
    assert_eq!(news(&one, &newest.cursor).await, None, "nothing was removed");
}

#[tokio::test]
async fn a_map_with_nothing_on_it_is_a_state_like_any_other() {
    let server = RedisServer::start();
    let map = shared_state(server.url());
    let empty = all(&map).await;
    assert_eq!(empty.entries.unwrap(), []);
    assert_eq!(news(&map, &empty.cursor).await, None);
    map.insert("a", "text", HOUR).await.unwrap();
    let posted = read(&map, &empty.cursor).await;
    assert!(posted.entries.is_some(), "it has changed");
    assert!(map.remove("a").await.unwrap());
    let again = read(&map, &posted.cursor).await;
    assert_eq!(again.entries.unwrap(), []);
    assert_eq!(again.cursor, empty.cursor);
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0, "and it leaves no key behind");
}

#[tokio::test]
async fn a_entry_ends_to_the_millisecond_and_the_key_with_the_last() {
    let (time, server) = timed();
    let map = shared_state(server.url());
    map.insert("short", "", 5 * MILLISECOND).await.unwrap();
    map.insert("long", "", MINUTE).await.unwrap();
    map.insert("mid", "", Duration::from_micros(10_001)).await.unwrap();
    let seen = all(&map).await.cursor;
    time.advance(4 * MILLISECOND);
    assert_eq!(entries(&map).await.len(), 3);
    time.advance(MILLISECOND);
    assert_eq!(texts(&map).await, [pair("long", ""), pair("mid", "")]);
    assert_eq!(news(&map, &seen).await, None, "its readers knew that it would end");
    assert!(!map.remove("short").await.unwrap(), "it is over, so it is not there");
    assert_eq!(
        server.command(&["HLEN", ENTRIES]).integer(),
        3,
        "two, and what the map knows itself"
    );
    time.advance(5 * MILLISECOND);
    assert_eq!(entries(&map).await.len(), 2, "rounded up to a millisecond");
    time.advance(MILLISECOND);
    map.insert("new", "", 5 * MILLISECOND).await.unwrap();
    assert_eq!(server.command(&["HLEN", ENTRIES]).integer(), 3, "a post drops what has ended");
    let left_ms = server.command(&["PTTL", ENTRIES]).integer();
    assert_eq!(left_ms, 60_000 - 11, "the key lasts as long as the longest entry");

    time.advance(MINUTE - 12 * MILLISECOND);
    assert_eq!(texts(&map).await, [pair("long", "")]);
    let seen = all(&map).await.cursor;
    time.advance(MILLISECOND);
    assert_eq!(entries(&map).await, []);
    // Redis lets a key live through its last millisecond.
    time.advance(MILLISECOND);
    assert_eq!(news(&map, &seen).await.expect("the map is gone"), []);
    assert_eq!(server.command(&["EXISTS", ENTRIES]).integer(), 0);
}

#[tokio::test]
async fn a_shorter_entry_in_place_of_a_longer_one_ends_sooner() {
    let (time, server) = timed();
    let map = shared_state(server.url());
    map.insert("a", "long", HOUR).await.unwrap();
    map.insert("a", "short", MINUTE).await.unwrap();
    map.insert("b", "other", HOUR).await.unwrap();
    time.advance(MINUTE);
    assert_eq!(texts(&map).await, [pair("b", "other")]);
}

#[tokio::test]
async fn a_lost_map_is_noticed() {
    let server = RedisServer::start();
    let map = shared_state(server.url());
    map.insert("a", "text", HOUR).await.unwrap();
    let seen = all(&map).await.cursor;
    server.command(&["FLUSHALL"]).expect_ok();
    let lost = read(&map, &seen).await;
    assert_eq!(lost.entries.expect("it has changed"), []);
    assert_eq!(news(&map, &lost.cursor).await, None);

    // As many changes as before lead to another state.
    map.insert("a", "text", HOUR).await.unwrap();
    assert_ne!(all(&map).await.cursor, seen);

    // A restart without persistence loses the map and the scripts.
    let seen = all(&map).await.cursor;
    server.restart();
    let mut lost = map.exchange(&seen, None).await;
    for _ in 0..100 {
        if lost.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        lost = map.exchange(&seen, None).await;
    }
    assert_eq!(lost.unwrap().entries.expect("it has changed"), []);
}

#[tokio::test]
async fn an_older_map_after_a_failover_is_noticed() {
    let server = RedisServer::start();
    let map = shared_state(server.url());
    map.insert("a", "old", HOUR).await.unwrap();
    let old = server.command(&["HGETALL", ENTRIES]).array();
    let old: Vec<String> = old.into_iter().map(|reply| reply.text()).collect();
    map.insert("a", "new", HOUR).await.unwrap();
    let seen = all(&map).await.cursor;
    // What a replica would have that had not heard of the last change.
    let mut command = vec!["HSET", ENTRIES];
    command.extend(old.iter().map(String::as_str));
    server.command(&command);
    assert_eq!(news(&map, &seen).await.expect("it has changed")[0].text, "old");
}

#[tokio::test]
async fn every_call_is_one_round_trip_if_the_server_knows_the_script() {
    let server = RedisServer::start();
    let map = shared_state(server.url());
    let reading = all(&map).await;
    let beat = Some(("me", HOUR));
    let calls = async |what: &str, trips: u64| {
        let before = CommandCounts::of([&server]);
        match what {
            "post" => map.insert("a", "text", HOUR).await.unwrap(),
            "remove" => assert!(map.remove("a").await.unwrap()),
            "beat" => drop(map.exchange(&reading.cursor, beat).await.unwrap()),
            _ => drop(read(&map, &reading.cursor).await),
        }
        let counts = CommandCounts::of([&server]).since(&before);
        let sent = counts.calls("eval") + counts.calls("evalsha") + counts.calls("script");
        assert_eq!((sent, counts.calls("time")), (trips, 1), "{what}");
    };
    for what in ["read", "post", "read", "beat", "post", "remove", "read"] {
        calls(what, 1).await;
    }
    server.command(&["SCRIPT", "FLUSH"]).expect_ok();
    calls("post", 2).await;
    calls("read", 1).await;
}

#[tokio::test]
async fn a_full_map_takes_no_more_until_one_ends_or_goes() {
    let (time, server) = timed();
    let map = shared_state(server.url());
    let lasting = |number: usize| if number == 7 { MINUTE } else { HOUR };
    for number in 0..SharedState::MAX_ENTRIES {
        map.insert(&number.to_string(), "text", lasting(number)).await.unwrap();
    }
    let full = map.insert("more", "text", HOUR).await;
    assert!(matches!(full, Err(SharedStateError::Full)), "{full:?}");
    assert!(full.unwrap_err().to_string().contains("at most 10000"));
    assert_eq!(entries(&map).await.len(), SharedState::MAX_ENTRIES);
    map.insert("9", "another text", HOUR).await.expect("it takes the place of one");
    time.advance(MINUTE);
    map.insert("more", "text", HOUR).await.expect("one has ended");
    assert!(map.insert("still more", "text", HOUR).await.is_err());
    assert!(map.remove("3").await.unwrap());
    map.insert("still more", "text", HOUR).await.expect("one has gone");
    assert_eq!(entries(&map).await.len(), SharedState::MAX_ENTRIES);
}

#[tokio::test]
async fn what_cannot_be_posted_is_refused_by_name() {
    let server = RedisServer::start();
    let map = shared_state(server.url());
    let long = "x".repeat(129);
    let text = "y".repeat(1025);
    for (id, text, lasting, part) in [
        ("", "text", HOUR, "id = \"\": expected 1 to 128 bytes"),
        (&*long, "text", HOUR, "expected 1 to 128 bytes"),
        ("a", &*text, HOUR, "a text of 1025 bytes: expected at most 1024"),
        ("a", "text", Duration::ZERO, "live of 0ns: expected more than no time"),
        ("a", "text", SharedState::MAX_TTL + MILLISECOND, "at most 366 days"),
        ("a", "text", Duration::MAX, "at most 366 days"),
    ] {
        let error = map.insert(id, text, lasting).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(map.remove("").await.is_err(), "which is where the version is");
    map.insert(&long[1..], &text[1..], SharedState::MAX_TTL).await.unwrap();
    map.insert("a", "text", Duration::from_nanos(1)).await.unwrap();
    assert!(server.command(&["PTTL", ENTRIES]).integer() > 365 * 86_400_000);
}

#[tokio::test]
async fn many_at_once_lose_nothing() {
    let server = RedisServer::start();
    let states: Vec<SharedState> = (0..4).map(|_| shared_state(server.url())).collect();
    let mut tasks = Vec::new();
    for (number, map) in states.iter().enumerate() {
        let map = map.clone();
        tasks.push(tokio::spawn(async move {
            let mut seen = SharedCursor::default();
            for i in 0..50 {
                map.insert(&format!("{number}-{i}"), "text", HOUR).await.unwrap();
                if i % 2 == 1 {
                    assert!(map.remove(&format!("{number}-{i}")).await.unwrap());
                }
                let changes = read(&map, &seen).await;
                if let Some(entries) = changes.entries {
                    let own = format!("{number}-{}", i - i % 2);
                    assert!(entries.iter().any(|entry| entry.id == own));
                }
                seen = changes.cursor;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let ids: HashSet<String> = entries(&states[0]).await.into_iter().map(|n| n.id).collect();
    let expected = (0..4).flat_map(|n| (0..50).step_by(2).map(move |i| format!("{n}-{i}")));
    assert_eq!(ids, expected.collect::<HashSet<_>>());
}

#[tokio::test]
async fn a_key_that_is_no_map_is_an_error_and_stays_as_it_is() {
    let server = RedisServer::start();
    server.command(&["SET", ENTRIES, "mine"]).expect_ok();
    let map = shared_state(server.url());
    for error in [
        map.insert("a", "text", HOUR).await.unwrap_err(),
        map.remove("a").await.unwrap_err(),
        map.exchange(&SharedCursor::default(), None).await.unwrap_err(),
    ] {
        let SharedStateError::Store(StoreError::Unavailable(cause)) = &error else {
            panic!("{error}")
        };
        let failure = cause.downcast_ref::<RedisStoreError>().unwrap().to_string();
        assert!(failure.contains("WRONGTYPE"), "{failure}");
    }
    assert_eq!(server.command(&["GET", ENTRIES]).text(), "mine");
}

#[tokio::test]
async fn a_hash_written_by_another_program_does_no_harm() {
    let server = RedisServer::start();
    server.command(&["HSET", ENTRIES, "", "what is this", "theirs", "no entry", "b", "12"]);
    let map = shared_state(server.url());
    assert_eq!(texts(&map).await, []);
    map.insert("a", "text", HOUR).await.unwrap();
    assert_eq!(texts(&map).await, [pair("a", "text")]);
    assert_eq!(server.command(&["HLEN", ENTRIES]).integer(), 2, "what is no entry has ended");
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_error_and_no_wait() {
    let server = RedisServer::start();
    let network = FaultyNetwork::in_front_of(&server);
    let store = RedisStore::builder(network.url()).deadline(Duration::from_millis(50));
    let map = store.build().unwrap().shared_state();
    let patient = async |what| {
        let error = tokio::time::timeout(AMPLE, what).await.expect("it does not hang");
        match error {
            Err(SharedStateError::Store(_)) => {}
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
    let mut reading = map.exchange(&SharedCursor::default(), None).await;
    for _ in 0..300 {
        if reading.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        reading = map.exchange(&SharedCursor::default(), None).await;
    }
    assert_eq!(reading.unwrap().entries.unwrap().len(), 1);
}

#[tokio::test]
async fn keys_of_the_shared_state_are_under_the_permission_for_ledgers() {
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

        let state = store.shared_state();
        state.insert("a", "entry", HOUR).await.unwrap();
        append(&state, &[("event", HOUR)]).await;
        let changes = state.exchange(&SharedCursor::default(), Some(("me", HOUR))).await.unwrap();
        assert_eq!(changes.entries.as_ref().unwrap()[0].text, "entry");
        assert_eq!(said(&changes), ["event"]);
        assert_eq!(changes.members.unwrap(), [], "no other member");
        assert!(state.leave().await.unwrap());
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
    let shop = with("shop:{<identity>}:<policy>").shared_state();
    let shop_too = ResilientStore::new(with("shop:{<kind>}<identity>")).redis().shared_state();
    let bank = with("bank:<identity>").shared_state();
    shop.insert("a", "of the shop", HOUR).await.unwrap();
    bank.insert("a", "of the bank", HOUR).await.unwrap();
    assert_eq!(texts(&shop_too).await, [pair("a", "of the shop")]);
    assert_eq!(texts(&bank).await, [pair("a", "of the bank")]);
    assert_eq!(texts(&shared_state(server.url())).await, []);
    assert_eq!(
        server
            .command(&["EXISTS", "shop:shared:{gateways}:entries", "bank:{shared}:entries"])
            .integer(),
        2
    );
}

#[tokio::test]
async fn in_a_cluster() {
    let cluster = RedisCluster::options().without_replicas().start();
    let (one, other) = (shared_state(cluster_url(&cluster)), shared_state(cluster_url(&cluster)));
    one.insert("a", "text", HOUR).await.unwrap();
    let reading = all(&other).await;
    assert_eq!(reading.entries.as_ref().unwrap()[0].text, "text");
    assert_eq!(news(&other, &reading.cursor).await, None);
    assert!(other.remove("a").await.unwrap());
    assert_eq!(news(&one, &reading.cursor).await.expect("it has changed"), []);
    append(&one, &[("event", HOUR)]).await;
    let changes = other.exchange(&reading.cursor, Some(("other", HOUR))).await.unwrap();
    assert_eq!(said(&changes), ["event"]);
    assert_eq!(changes.members.unwrap(), []);
}

#[tokio::test]
async fn behind_sentinels() {
    let sentinels = RedisSentinels::start();
    let map = shared_state(sentinel_url(&sentinels));
    map.insert("a", "text", HOUR).await.unwrap();
    assert_eq!(texts(&map).await, [pair("a", "text")]);
}

async fn append(log: &SharedState, events: &[(&str, Duration)]) {
    log.append(events.iter().copied()).await.unwrap();
}

fn said(batch: &SharedChanges) -> Vec<&str> {
    batch.events.iter().map(|event| &*event.text).collect()
}

#[tokio::test]
async fn events_are_read_in_order_and_each_once() {
    let (time, server) = timed();
    let (one, other) = (shared_state(server.url()), shared_state(server.url()));
    let empty = all(&other).await;
    assert_eq!((said(&empty), empty.restarted), (vec![], false));
    append(&one, &[("b\nB", MINUTE), ("a \u{fc}", HOUR)]).await;
    let now_ms = time.now_us() / 1000;
    let first = read(&other, &empty.cursor).await;
    assert_eq!(said(&first), ["b\nB", "a \u{fc}"]);
    assert_eq!((first.now_ms, first.restarted), (now_ms, false));
    let ends: Vec<u64> = first.events.iter().map(|event| event.until_ms).collect();
    assert_eq!(ends, [now_ms + 60_000, now_ms + 3_600_000]);
    append(&other, &[("c", MINUTE)]).await;
    assert_eq!(said(&read(&one, &first.cursor).await), ["c"]);
    let second = read(&other, &first.cursor).await;
    assert_eq!(said(&second), ["c"]);
    assert_eq!(said(&read(&other, &second.cursor).await), [""; 0]);
    assert_eq!(said(&all(&shared_state(server.url())).await), ["b\nB", "a \u{fc}", "c"]);
    append(&one, &[]).await;
}

#[tokio::test]
async fn a_log_lasts_as_long_as_its_longest_event() {
    let (time, server) = timed();
    let log = shared_state(server.url());
    append(&log, &[("nothing to go with", Duration::ZERO)]).await;
    assert_eq!(server.command(&["EXISTS", EVENTS]).integer(), 0);
    append(&log, &[("long", MINUTE), ("short", MILLISECOND)]).await;
    append(&log, &[("with them", Duration::ZERO)]).await;
    assert_eq!(server.command(&["PTTL", EVENTS]).integer(), 60_000);
    time.advance(MINUTE - MILLISECOND);
    assert_eq!(said(&all(&log).await), ["long", "short", "with them"]);
    time.advance(2 * MILLISECOND);
    assert_eq!(said(&all(&log).await), [""; 0]);
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
}

#[tokio::test]
async fn a_full_log_forgets_the_oldest_and_many_events_take_several_readings() {
    let server = RedisServer::start();
    let log = shared_state(server.url());
    let count = SharedState::MAX_EVENTS + 3;
    let texts: Vec<String> = (0..count).map(|i| i.to_string()).collect();
    for texts in texts.chunks(SharedState::MAX_BATCH) {
        log.append(texts.iter().map(|text| (&**text, HOUR))).await.unwrap();
    }
    assert_eq!(server.command(&["XLEN", EVENTS]).integer(), SharedState::MAX_EVENTS as i64);
    let before = CommandCounts::of([&server]);
    let batch = all(&log).await;
    let trips = CommandCounts::of([&server]).since(&before).calls("evalsha");
    assert_eq!(trips as usize, SharedState::MAX_EVENTS / SharedState::MAX_BATCH + 1);
    assert_eq!(said(&batch)[..], texts[3..]);
    assert_eq!(said(&read(&log, &batch.cursor).await), [""; 0]);
}

#[tokio::test]
async fn a_log_that_was_lost_is_read_from_the_beginning() {
    let (time, server) = timed();
    let log = shared_state(server.url());
    append(&log, &[("a", HOUR), ("b", HOUR)]).await;
    let seen = all(&log).await.cursor;
    server.command(&["FLUSHALL"]).expect_ok();
    let lost = read(&log, &seen).await;
    assert_eq!((said(&lost), lost.restarted), (vec![], true));
    let next = read(&log, &lost.cursor).await;
    assert!(!next.restarted, "it is reported once");
    append(&log, &[("c", HOUR)]).await;
    assert_eq!(said(&read(&log, &lost.cursor).await), ["c"]);

    // Others may have appended something before it is noticed, by whatever clock.
    for by in [SECOND, Duration::ZERO] {
        append(&log, &[("d", HOUR)]).await;
        let seen = all(&log).await.cursor;
        server.command(&["FLUSHALL"]).expect_ok();
        time.advance(by);
        append(&log, &[("e", HOUR)]).await;
        let other = read(&log, &seen).await;
        assert_eq!((said(&other), other.restarted), (vec!["e"], true));
        let seen = read(&log, &other.cursor).await;
        assert!(!seen.restarted && seen.events.is_empty());
    }
    let seen = all(&log).await.cursor;
    server.command(&["FLUSHALL"]).expect_ok();
    time.step_back(SECOND / 2);
    append(&log, &[("f", HOUR)]).await;
    let behind = read(&log, &seen).await;
    assert_eq!((said(&behind), behind.restarted), (vec!["f"], true));
}

#[tokio::test]
async fn an_older_log_after_a_failover_is_noticed() {
    let server = RedisServer::start();
    let log = shared_state(server.url());
    append(&log, &[("a", HOUR)]).await;
    append(&log, &[("b", HOUR)]).await;
    let seen = all(&log).await.cursor;
    let newest = server.command(&["XREVRANGE", EVENTS, "+", "-", "COUNT", "1"]).array();
    let id = newest.into_iter().next().unwrap().array().into_iter().next().unwrap().text();
    // What a replica would have that had not heard of the last event.
    server.command(&["XDEL", EVENTS, &id]);
    let older = read(&log, &seen).await;
    assert_eq!((said(&older), older.restarted), (vec!["a"], true));
}

#[tokio::test]
async fn events_that_do_not_fit_are_refused() {
    let server = RedisServer::start();
    let log = shared_state(server.url());
    let long = "x".repeat(SharedState::MAX_TEXT_BYTES + 1);
    let error = log.append([(&*long, HOUR)]).await.unwrap_err();
    assert!(matches!(error, SharedStateError::Text(1025)), "{error}");
    let error = log.append([("x", SharedState::MAX_TTL + MILLISECOND)]).await.unwrap_err();
    assert!(matches!(error, SharedStateError::Lasting(_)), "{error}");
    let error = log.append(vec![("x", HOUR); SharedState::MAX_BATCH + 1]).await.unwrap_err();
    assert!(matches!(error, SharedStateError::Batch(501)), "{error}");
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
    server.command(&["SET", EVENTS, "something else"]).expect_ok();
    let wrong = log.exchange(&SharedCursor::default(), None).await.unwrap_err();
    assert!(matches!(wrong, SharedStateError::Store(StoreError::Unavailable(_))), "{wrong}");
}

#[tokio::test]
async fn a_shared_state_needs_only_the_documented_permissions() {
    let server = RedisServer::start();
    let mut user = vec!["ACL", "SETUSER", "gate", "on", ">secret", "~slidegate:*"];
    user.extend(["+eval", "+@hash", "+pexpireat", "+pttl", "+xadd", "+xread", "+xrevrange"]);
    // What every connection or ledger needs.
    user.extend(["+evalsha", "+script|load", "+time", "+set", "+getrange", "+del", "+pexpire"]);
    server.command(&user).expect_ok();
    let state = shared_state(server.url().replace("redis://", "redis://gate:secret@"));
    state.insert("a", "text", HOUR).await.unwrap();
    append(&state, &[("a", HOUR)]).await;
    let batch = state.exchange(&SharedCursor::default(), Some(("me", HOUR))).await.unwrap();
    assert_eq!(said(&batch), ["a"]);
    assert_eq!(said(&read(&state, &batch.cursor).await), [""; 0]);
    assert_eq!(texts(&state).await, [pair("a", "text")]);
    assert!(state.remove("a").await.unwrap() && state.leave().await.unwrap());
}

#[tokio::test]
async fn members_are_those_whose_heartbeats_have_not_expired() {
    let (time, server) = timed();
    let (one, other) = (shared_state(server.url()), shared_state(server.url()));
    let nothing = all(&one).await.cursor;
    let beat = async |state: &SharedState, text| {
        let changes = state.exchange(&nothing, Some((text, MINUTE))).await.unwrap();
        assert_eq!(changes.entries, None, "heartbeats change no version");
        let members = changes.members.expect("a heartbeat was sent").into_iter();
        members.map(|member| (member.text, member.until_ms - changes.now_ms)).collect::<Vec<_>>()
    };
    assert_eq!(beat(&one, "one").await, []);
    time.advance(SECOND);
    assert_eq!(beat(&other, "other").await, [("one".to_owned(), 59_000)]);
    assert_eq!(beat(&one.clone(), "again").await, [("other".to_owned(), 60_000)], "itself");
    assert_eq!(read(&one, &nothing).await.members, None, "no heartbeat was sent");
    assert!(other.leave().await.unwrap() && !other.leave().await.unwrap());
    assert_eq!(beat(&one, "one").await, []);
    assert_eq!(beat(&other, "other").await.len(), 1);
    time.advance(MINUTE - SECOND);
    assert_eq!(beat(&other, "other").await.len(), 1);
    time.advance(SECOND);
    assert_eq!(beat(&other, "other").await, [], "one is silent");
    time.advance(MINUTE + SECOND);
    assert_eq!(server.command(&["EXISTS", MEMBERS]).integer(), 0);
}

#[tokio::test]
async fn all_members_have_the_secret_of_the_first() {
    let (time, server) = timed();
    let (one, other) = (shared_state(server.url()), shared_state(server.url()));
    let secret = async |state: &SharedState| {
        let beat = state.exchange(&SharedCursor::default(), Some(("me", MINUTE))).await.unwrap();
        beat.secret.expect("a heartbeat was sent").as_str().to_owned()
    };
    assert_eq!(all(&one).await.secret, None, "no heartbeat was sent");
    let (first, second) = tokio::join!(secret(&one), secret(&other));
    assert_eq!((&first, first.len()), (&second, 64));
    assert_eq!(server.command(&["GET", SECRET]).text(), first);
    assert_ne!(secret(&shared_state(RedisServer::start().url())).await, first);

    server.command(&["FLUSHALL"]).expect_ok();
    assert_eq!(secret(&other).await, first, "a member writes it again");
    assert_eq!(secret(&shared_state(server.url())).await, first);
    time.advance(SharedState::SECRET_TTL - SECOND);
    assert_eq!(secret(&shared_state(server.url())).await, first, "and lasts from then");
    time.advance(SharedState::SECRET_TTL + SECOND);
    assert_eq!(server.command(&["EXISTS", SECRET]).integer(), 0);
    assert_ne!(secret(&shared_state(server.url())).await, first);

    let changes = one.exchange(&SharedCursor::default(), Some(("me", MINUTE))).await.unwrap();
    let shown = format!("{one:?} {changes:?}");
    assert!(!shown.contains(changes.secret.unwrap().as_str()), "{shown}");
}
