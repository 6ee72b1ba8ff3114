//! The board of notices and the log of events: what one process posts or appends, the others read,
//! for as long as it lasts.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::HashSet;
use std::time::Duration;

use slidegate::StoreError;
use slidegate_redis::{
    Board, BoardError, EventBatch, EventLog, EventLogError, Failure, KeyTemplate, Notice, Position,
    Reading, RedisStore, ResilientStore,
};
use slidegate_testbed::{CommandCounts, FaultyNetwork, RedisCluster, RedisSentinels, RedisServer};
use support::{cluster_url, sentinel_url, timed};

const AMPLE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const MILLISECOND: Duration = Duration::from_millis(1);
const KEY: &str = "slidegate:board";

fn board(url: impl Into<String>) -> Board {
    RedisStore::builder(url).deadline(AMPLE).build().unwrap().board()
}

async fn all(board: &Board) -> Reading {
    let mut reading = board.read(None).await.unwrap().expect("nothing was seen before");
    reading.notices.sort_by(|a, b| a.id.cmp(&b.id));
    reading
}

async fn texts(board: &Board) -> Vec<(String, String)> {
    let notices = all(board).await.notices.into_iter();
    notices.map(|notice| (notice.id, notice.text)).collect()
}

fn pair(id: &str, text: &str) -> (String, String) {
    (id.to_owned(), text.to_owned())
}

#[tokio::test]
async fn what_one_posts_the_other_reads() {
    let (time, server) = timed();
    let (one, other) = (board(server.url()), board(server.url()));
    one.post("b", "two\nlines, and spaces ", HOUR).await.unwrap();
    one.post("a", "", MINUTE).await.unwrap();
    let now_ms = time.now_us() / 1000;
    let reading = all(&other).await;
    assert_eq!(reading.now_ms, now_ms);
    let notice = |id: &str, text: &str, until_ms| Notice {
        id: id.to_owned(),
        text: text.to_owned(),
        until_ms,
    };
    let expected = [
        notice("a", "", now_ms + 60_000),
        notice("b", "two\nlines, and spaces ", now_ms + 3_600_000),
    ];
    assert_eq!(reading.notices, expected);

    assert_eq!(other.read(Some(reading.version)).await.unwrap(), None, "nothing is new");
    one.post("a", "Ünal {x} \0", HOUR).await.unwrap();
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
async fn a_board_with_nothing_on_it_is_a_state_like_any_other() {
    let server = RedisServer::start();
    let board = board(server.url());
    let empty = all(&board).await;
    assert_eq!(empty.notices, []);
    assert_eq!(board.read(Some(empty.version)).await.unwrap(), None);
    board.post("a", "text", HOUR).await.unwrap();
    let posted = board.read(Some(empty.version)).await.unwrap().expect("it has changed");
    assert!(board.remove("a").await.unwrap());
    let again = board.read(Some(posted.version)).await.unwrap().expect("it has changed");
    assert_eq!(again.notices, []);
    assert_eq!(again.version, empty.version);
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0, "and it leaves no key behind");
}

#[tokio::test]
async fn a_notice_ends_to_the_millisecond_and_the_key_with_the_last() {
    let (time, server) = timed();
    let board = board(server.url());
    board.post("short", "", 5 * MILLISECOND).await.unwrap();
    board.post("long", "", MINUTE).await.unwrap();
    board.post("mid", "", Duration::from_micros(10_001)).await.unwrap();
    let seen = all(&board).await.version;
    time.advance(4 * MILLISECOND);
    assert_eq!(all(&board).await.notices.len(), 3);
    time.advance(MILLISECOND);
    assert_eq!(texts(&board).await, [pair("long", ""), pair("mid", "")]);
    assert_eq!(board.read(Some(seen)).await.unwrap(), None, "its readers knew that it would end");
    assert!(!board.remove("short").await.unwrap(), "it is over, so it is not there");
    assert_eq!(server.command(&["HLEN", KEY]).integer(), 3, "two, and what the board knows itself");
    time.advance(5 * MILLISECOND);
    assert_eq!(all(&board).await.notices.len(), 2, "rounded up to a millisecond");
    time.advance(MILLISECOND);
    board.post("new", "", 5 * MILLISECOND).await.unwrap();
    assert_eq!(server.command(&["HLEN", KEY]).integer(), 3, "a post drops what has ended");
    let left_ms = server.command(&["PTTL", KEY]).integer();
    assert_eq!(left_ms, 60_000 - 11, "the key lasts as long as the longest notice");

    time.advance(MINUTE - 12 * MILLISECOND);
    assert_eq!(texts(&board).await, [pair("long", "")]);
    let seen = all(&board).await.version;
    time.advance(MILLISECOND);
    assert_eq!(all(&board).await.notices, []);
    // Redis lets a key live through its last millisecond.
    time.advance(MILLISECOND);
    let over = board.read(Some(seen)).await.unwrap().expect("the board is gone");
    assert_eq!(over.notices, []);
    assert_eq!(server.command(&["EXISTS", KEY]).integer(), 0);
}

#[tokio::test]
async fn a_shorter_notice_in_place_of_a_longer_one_ends_sooner() {
    let (time, server) = timed();
    let board = board(server.url());
    board.post("a", "long", HOUR).await.unwrap();
    board.post("a", "short", MINUTE).await.unwrap();
    board.post("b", "other", HOUR).await.unwrap();
    time.advance(MINUTE);
    assert_eq!(texts(&board).await, [pair("b", "other")]);
}

#[tokio::test]
async fn a_lost_board_is_noticed() {
    let server = RedisServer::start();
    let board = board(server.url());
    board.post("a", "text", HOUR).await.unwrap();
    let seen = all(&board).await.version;
    server.command(&["FLUSHALL"]).expect_ok();
    let lost = board.read(Some(seen)).await.unwrap().expect("it has changed");
    assert_eq!(lost.notices, []);
    assert_eq!(board.read(Some(lost.version)).await.unwrap(), None);

    // As many changes as before lead to another state.
    board.post("a", "text", HOUR).await.unwrap();
    assert_ne!(all(&board).await.version, seen);

    // A restart without persistence loses the board and the scripts.
    let seen = all(&board).await.version;
    server.restart();
    let mut lost = board.read(Some(seen)).await;
    for _ in 0..100 {
        if lost.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        lost = board.read(Some(seen)).await;
    }
    assert_eq!(lost.unwrap().expect("it has changed").notices, []);
}

#[tokio::test]
async fn an_older_board_after_a_failover_is_noticed() {
    let server = RedisServer::start();
    let board = board(server.url());
    board.post("a", "old", HOUR).await.unwrap();
    let old = server.command(&["HGETALL", KEY]).array();
    let old: Vec<String> = old.into_iter().map(|reply| reply.text()).collect();
    board.post("a", "new", HOUR).await.unwrap();
    let seen = all(&board).await.version;
    // What a replica would have that had not heard of the last change.
    let mut command = vec!["HSET", KEY];
    command.extend(old.iter().map(String::as_str));
    server.command(&command);
    let reading = board.read(Some(seen)).await.unwrap().expect("it has changed");
    assert_eq!(reading.notices[0].text, "old");
}

#[tokio::test]
async fn every_call_is_one_round_trip() {
    let server = RedisServer::start();
    let board = board(server.url());
    let reading = all(&board).await;
    let calls = async |what: &str, trips: u64| {
        let before = CommandCounts::of([&server]);
        match what {
            "post" => board.post("a", "text", HOUR).await.unwrap(),
            "remove" => assert!(board.remove("a").await.unwrap()),
            _ => drop(board.read(Some(reading.version)).await.unwrap()),
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
async fn a_full_board_takes_no_more_until_one_ends_or_goes() {
    let (time, server) = timed();
    let board = board(server.url());
    let lasting = |number: usize| if number == 7 { MINUTE } else { HOUR };
    for number in 0..Board::MOST {
        board.post(&number.to_string(), "text", lasting(number)).await.unwrap();
    }
    let full = board.post("more", "text", HOUR).await;
    assert!(matches!(full, Err(BoardError::Full)), "{full:?}");
    assert!(full.unwrap_err().to_string().contains("at most 10000"));
    assert_eq!(all(&board).await.notices.len(), Board::MOST);
    board.post("9", "another text", HOUR).await.expect("it takes the place of one");
    time.advance(MINUTE);
    board.post("more", "text", HOUR).await.expect("one has ended");
    assert!(board.post("still more", "text", HOUR).await.is_err());
    assert!(board.remove("3").await.unwrap());
    board.post("still more", "text", HOUR).await.expect("one has gone");
    assert_eq!(all(&board).await.notices.len(), Board::MOST);
}

#[tokio::test]
async fn what_cannot_be_posted_is_refused_by_name() {
    let server = RedisServer::start();
    let board = board(server.url());
    let long = "x".repeat(129);
    let text = "y".repeat(1025);
    for (id, text, lasting, part) in [
        ("", "text", HOUR, "id = \"\": expected 1 to 128 bytes"),
        (&*long, "text", HOUR, "expected 1 to 128 bytes"),
        ("a", &*text, HOUR, "a text of 1025 bytes: expected at most 1024"),
        ("a", "text", Duration::ZERO, "lasts 0ns: expected more than no time"),
        ("a", "text", Board::LONGEST + MILLISECOND, "at most 366 days"),
        ("a", "text", Duration::MAX, "at most 366 days"),
    ] {
        let error = board.post(id, text, lasting).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(board.remove("").await.is_err(), "which is where the version is");
    board.post(&long[1..], &text[1..], Board::LONGEST).await.unwrap();
    board.post("a", "text", Duration::from_nanos(1)).await.unwrap();
    assert!(server.command(&["PTTL", KEY]).integer() > 365 * 86_400_000);
}

#[tokio::test]
async fn many_at_once_lose_nothing() {
    let server = RedisServer::start();
    let boards: Vec<Board> = (0..4).map(|_| board(server.url())).collect();
    let mut tasks = Vec::new();
    for (number, board) in boards.iter().enumerate() {
        let board = board.clone();
        tasks.push(tokio::spawn(async move {
            let mut seen = None;
            for i in 0..50 {
                board.post(&format!("{number}-{i}"), "text", HOUR).await.unwrap();
                if i % 2 == 1 {
                    assert!(board.remove(&format!("{number}-{i}")).await.unwrap());
                }
                if let Some(reading) = board.read(seen).await.unwrap() {
                    let own = format!("{number}-{}", i - i % 2);
                    assert!(reading.notices.iter().any(|notice| notice.id == own));
                    seen = Some(reading.version);
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let ids: HashSet<String> = all(&boards[0]).await.notices.into_iter().map(|n| n.id).collect();
    let expected = (0..4).flat_map(|n| (0..50).step_by(2).map(move |i| format!("{n}-{i}")));
    assert_eq!(ids, expected.collect::<HashSet<_>>());
}

#[tokio::test]
async fn a_key_that_is_no_board_is_an_error_and_stays_as_it_is() {
    let server = RedisServer::start();
    server.command(&["SET", KEY, "mine"]).expect_ok();
    let board = board(server.url());
    for error in [
        board.post("a", "text", HOUR).await.unwrap_err(),
        board.remove("a").await.unwrap_err(),
        board.read(None).await.unwrap_err(),
    ] {
        let BoardError::Store(StoreError::Unavailable(cause)) = &error else { panic!("{error}") };
        let failure = cause.downcast_ref::<Failure>().unwrap().to_string();
        assert!(failure.contains("WRONGTYPE"), "{failure}");
    }
    assert_eq!(server.command(&["GET", KEY]).text(), "mine");
}

#[tokio::test]
async fn a_hash_that_somebody_else_wrote_does_no_harm() {
    let server = RedisServer::start();
    server.command(&["HSET", KEY, "", "what is this", "theirs", "no notice", "b", "12"]);
    let board = board(server.url());
    assert_eq!(texts(&board).await, []);
    board.post("a", "text", HOUR).await.unwrap();
    assert_eq!(texts(&board).await, [pair("a", "text")]);
    assert_eq!(server.command(&["HLEN", KEY]).integer(), 2, "what is no notice has ended");
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_error_and_no_wait() {
    let server = RedisServer::start();
    let network = FaultyNetwork::in_front_of(&server);
    let store = RedisStore::builder(network.url()).deadline(Duration::from_millis(50));
    let board = store.build().unwrap().board();
    let patient = async |what| {
        let error = tokio::time::timeout(AMPLE, what).await.expect("it does not hang");
        match error {
            Err(BoardError::Store(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    network.blackhole();
    patient(board.post("a", "text", HOUR)).await;
    patient(board.post("a", "text", HOUR)).await;
    network.refuse();
    patient(board.post("a", "text", HOUR)).await;
    network.pass();
    for _ in 0..300 {
        if board.post("a", "text", HOUR).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut reading = board.read(None).await;
    for _ in 0..300 {
        if reading.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        reading = board.read(None).await;
    }
    assert_eq!(reading.unwrap().unwrap().notices.len(), 1);
}

#[tokio::test]
async fn templates_that_begin_alike_share_a_board() {
    let server = RedisServer::start();
    let with = |template: &str| {
        let template: KeyTemplate = template.parse().unwrap();
        let store = RedisStore::builder(server.url()).key_template(template).deadline(AMPLE);
        store.build().unwrap()
    };
    let shop = with("shop:{<identity>}:<policy>").board();
    let shop_too = ResilientStore::new(with("shop:{<kind>}<identity>")).redis().board();
    let bank = with("bank:<identity>").board();
    shop.post("a", "of the shop", HOUR).await.unwrap();
    bank.post("a", "of the bank", HOUR).await.unwrap();
    assert_eq!(texts(&shop_too).await, [pair("a", "of the shop")]);
    assert_eq!(texts(&bank).await, [pair("a", "of the bank")]);
    assert_eq!(texts(&board(server.url())).await, []);
    assert_eq!(server.command(&["EXISTS", "shop:board", "bank:{board}"]).integer(), 2);
}

#[tokio::test]
async fn in_a_cluster() {
    let cluster = RedisCluster::options().without_replicas().start();
    let (one, other) = (board(cluster_url(&cluster)), board(cluster_url(&cluster)));
    one.post("a", "text", HOUR).await.unwrap();
    let reading = all(&other).await;
    assert_eq!(reading.notices[0].text, "text");
    assert_eq!(other.read(Some(reading.version)).await.unwrap(), None);
    assert!(other.remove("a").await.unwrap());
    let emptied = one.read(Some(reading.version)).await.unwrap().expect("it has changed");
    assert_eq!(emptied.notices, []);
}

#[tokio::test]
async fn behind_sentinels() {
    let sentinels = RedisSentinels::start();
    let board = board(sentinel_url(&sentinels));
    board.post("a", "text", HOUR).await.unwrap();
    assert_eq!(texts(&board).await, [pair("a", "text")]);
}

#[tokio::test]
async fn with_no_more_permissions_than_are_written_down() {
    let server = RedisServer::start();
    let permissions =
        ["+evalsha", "+script|load", "+time", "+eval", "+@hash", "+del", "+pexpireat"];
    let mut user = vec!["ACL", "SETUSER", "gate", "on", ">secret", "~slidegate:*"];
    user.extend(permissions);
    server.command(&user).expect_ok();
    let board = board(server.url().replace("redis://", "redis://gate:secret@"));
    board.post("a", "text", HOUR).await.unwrap();
    assert_eq!(texts(&board).await, [pair("a", "text")]);
    assert!(board.remove("a").await.unwrap());
}

const LOG: &str = "slidegate:board:events";

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
