//! What is in the table is what is known.

use std::thread;
use std::time::Instant;

use slidegate::limit::{ManualClock, Quota, Quotas};
use slidegate::{Clock, Timestamp};
use slidegate_customers::{KeyAnswer, KnownKey, PostgresConfig};
use slidegate_testbed::{Database, wait_until};

use crate::reader::{HOUR, Reader, SERVER, config, digest, expire, insert, known, ms, table_of};

#[test]
fn a_key_comes_changes_and_goes_with_its_row() {
    let database = table_of(&SERVER, 3);
    let reader = Reader::loaded(PostgresConfig { full: ms(200), ..config(database.url()) });
    assert_eq!(reader.keys(), 3);
    assert_eq!(reader.find("k2"), known("c2"));
    assert_eq!(reader.find(" k2 "), known("c2"), "white space is not part of a key");
    assert_eq!(reader.find("k4"), KeyAnswer::Unknown);

    insert(&database, "k4", "c4");
    reader.wait_for("k4", &known("c4"));
    let k4 = digest("k4");
    database.sql(&format!(
        "update api_keys set plan = null, quotas = '600/min, 10000/day', \
         expires_at = '2099-01-01 00:00:00.7+00', changed_at = clock_timestamp() where digest = {k4}"
    ));
    let with_quotas = KnownKey {
        customer: Some("c4".into()),
        plan: None,
        quotas: Quotas::new([Quota::per_minute(600), Quota::per_day(10_000)]).ok(),
        expires: Some(Timestamp::from_millis(4_070_908_800_000)),
    };
    reader.wait_for("k4", &KeyAnswer::Known(with_quotas));

    database.sql(&format!("delete from api_keys where digest = {k4}"));
    reader.wait_for("k4", &KeyAnswer::Unknown);
    assert_eq!(reader.keys(), 3);
    assert_eq!(reader.find("k1"), known("c1"));
    assert_eq!(reader.log(), "");
}

#[test]
fn a_rotated_key_has_the_same_customer() {
    let database = table_of(&SERVER, 1);
    let reader = Reader::loaded(config(database.url()));
    insert(&database, "k1-rotated", "c1");
    reader.wait_for("k1-rotated", &known("c1"));
    assert_eq!(reader.find("k1"), known("c1"), "both count until the old one is revoked");
    expire(&database, "k1");
    reader.wait_for("k1", &KeyAnswer::Unknown);
    assert_eq!(reader.find("k1-rotated"), known("c1"));
}

#[test]
fn a_key_ends_at_its_second_without_the_database() {
    let database = table_of(&SERVER, 1);
    database.sql("update api_keys set expires_at = '2026-01-01 01:00:00.9+00'");
    let clock = ManualClock::default();
    assert_eq!(clock.now(), Timestamp::from_millis(1_767_225_600_000), "2026 begins");
    let config = PostgresConfig { poll: HOUR, ..config(database.url()) };
    let reader = Reader::start_with_clock(config, clock.clone());
    wait_until("the first load", || reader.find("k2") == KeyAnswer::Unknown);
    clock.advance(HOUR - ms(1));
    assert!(matches!(reader.find("k1"), KeyAnswer::Known(_)));
    clock.advance(ms(1));
    assert_eq!(reader.find("k1"), KeyAnswer::Unknown);
}

/// The manual clock stands at the beginning of 2026, so the database's is ahead.
#[test]
fn minus_infinity_revokes_a_key_whatever_the_clocks_say() {
    let database = table_of(&SERVER, 2);
    let reader = Reader::start_with_clock(config(database.url()), ManualClock::default());
    wait_until("the first load", || reader.find("k3") == KeyAnswer::Unknown);
    expire(&database, "k1");
    wait_until("the change", || {
        matches!(reader.find("k1"), KeyAnswer::Known(KnownKey { expires: Some(_), .. }))
    });
    for key in ["k1", "k2"] {
        let digest = digest(key);
        database.sql(&format!(
            "update api_keys set expires_at = '-infinity', changed_at = clock_timestamp() \
             where digest = {digest}"
        ));
        reader.wait_for(key, &KeyAnswer::Unknown);
    }
}

#[test]
fn a_revoked_key_is_refused_within_one_poll() {
    let database = table_of(&SERVER, 1000);
    let reader = Reader::loaded(PostgresConfig { poll: ms(2000), ..config(database.url()) });
    assert_eq!(reader.find("k7"), known("c7"));
    database.sql("create extension pg_stat_statements");
    let polls = || -> usize {
        let calls = database.sql(
            "select coalesce(sum(calls), 0) from pg_stat_statements join pg_database on dbid = oid \
             where datname = current_database() and query like '%where changed_at >=%'",
        );
        calls.trim().parse().unwrap()
    };
    wait_until("a poll", || polls() > 0);
    expire(&database, "k7");
    let before = polls();
    reader.wait_for("k7", &KeyAnswer::Unknown);
    // One may have begun before the revocation, and everything is read once an hour.
    let taken = polls() - before;
    assert!(taken <= 2, "{taken} polls");
}

#[test]
fn a_revocation_is_seen_and_stays_while_everything_is_read() {
    let database = table_of(&SERVER, 80);
    database.sql(
        "create function slow(digest text) returns boolean language plpgsql volatile cost 10000 as \
         $$ begin perform pg_sleep(0.05); return true; end $$",
    );
    let query = "select digest, customer, plan, expires_at, changed_at from api_keys \
                 where slow(digest)";
    let config = PostgresConfig { query: query.to_owned(), full: ms(50), ..config(database.url()) };
    let reader = Reader::loaded(config);
    // A newer row, so that polls do not read the others again.
    insert(&database, "k81", "c81");
    reader.wait_for("k81", &known("c81"));
    let pass = || running_pass(&database);
    // On a busy machine a pass may end before the revocation is seen; then in the next one.
    let is_seen_within_a_pass = |nth: usize| {
        let (last, mut running) = (pass(), String::new());
        wait_until("another pass", || {
            running = pass();
            !running.is_empty() && running != last
        });
        let (key, revoked) = (format!("k{nth}"), Instant::now());
        expire(&database, &key);
        reader.wait_for(&key, &KeyAnswer::Unknown);
        println!("revoked within {:?} during a pass of 4 s", revoked.elapsed());
        let is_within = pass() == running;
        // Until its end, the pass shows rows as they were when it began.
        wait_until("the end of the pass", || {
            assert_eq!(reader.find(&key), KeyAnswer::Unknown);
            pass() != running
        });
        assert_eq!(reader.find(&key), KeyAnswer::Unknown);
        is_within
    };
    assert!((70..=80).rev().any(is_seen_within_a_pass), "each pass ended too soon");
    assert_eq!(reader.find("k60"), known("c60"));
}

/// The process that reads everything now, if one does.
fn running_pass(database: &Database<'_>) -> String {
    database.sql(
        "select pid from pg_stat_activity where application_name = 'slidegate' and state = 'active' \
         and datname = current_database() and query not like '%changed_at >=%'",
    )
}

#[test]
fn invented_keys_cost_no_query() {
    let database = table_of(&SERVER, 10);
    database.sql("create extension pg_stat_statements");
    let reader = Reader::loaded(PostgresConfig { poll: HOUR, ..config(database.url()) });
    let before = queries(&database);
    assert!(before > 0, "queries are counted");
    for i in 0..100_000 {
        assert_eq!(reader.find(&format!("invented-{i}")), KeyAnswer::Unknown);
    }
    assert_eq!(queries(&database), before);
}

/// The queries so far in the database, without those that ask for this.
pub(crate) fn queries(database: &Database<'_>) -> u64 {
    database
        .sql(
            "select coalesce(sum(calls), 0) from pg_stat_statements join pg_database on dbid = oid \
         where datname = current_database() and query not like '%pg_stat_statements%'",
        )
        .parse()
        .unwrap()
}

#[test]
fn a_row_of_a_transaction_that_commits_late_is_seen() {
    let database = table_of(&SERVER, 1);
    let reader = Reader::loaded(config(database.url()));
    let mut late = database.session();
    let k2 = digest("k2");
    late.sql("begin");
    late.sql(&format!("insert into api_keys values ({k2}, 'c2', 'pro', null, null, now())"));
    insert(&database, "k3", "c3");
    reader.wait_for("k3", &known("c3"));
    assert_eq!(reader.find("k2"), KeyAnswer::Unknown, "it is not committed");
    late.sql("commit");
    reader.wait_for("k2", &known("c2"));
}

#[test]
fn a_row_of_a_transaction_that_took_too_long_is_seen_when_everything_is_read() {
    // After a poll that failed, which a busy machine can cause, everything is read.
    let shown = (0..3).any(|_| {
        let database = table_of(&SERVER, 1);
        let polls = Reader::loaded(config(database.url()));
        let all = Reader::loaded(PostgresConfig { full: ms(200), ..config(database.url()) });
        insert(&database, "k2", "c2");
        polls.wait_for("k2", &known("c2"));
        let k3 = digest("k3");
        database.sql(&format!(
            "insert into api_keys values \
             ({k3}, 'c3', 'pro', null, null, now() - interval '1 minute')"
        ));
        all.wait_for("k3", &known("c3"));
        insert(&database, "k4", "c4");
        polls.wait_for("k4", &known("c4"));
        let found = polls.find("k3");
        let is_undisturbed = polls.logged("key source failed") == 0;
        assert!(!is_undisturbed || found == KeyAnswer::Unknown, "{found:?}");
        is_undisturbed
    });
    assert!(shown, "a poll failed each time");
}

#[test]
fn a_row_from_the_future_does_not_hide_later_changes() {
    let database = table_of(&SERVER, 1);
    for (key, changed_at) in [("k2", "now() + interval '1 day'"), ("k3", "'infinity'")] {
        let digest = digest(key);
        database.sql(&format!(
            "insert into api_keys values ({digest}, 'c', 'pro', null, null, {changed_at})"
        ));
    }
    let reader = Reader::loaded(config(database.url()));
    insert(&database, "k4", "c4");
    reader.wait_for("k4", &known("c4"));
}

/// By then the other rows are no longer read again with each poll.
#[test]
fn a_row_that_is_dated_seconds_ahead_hides_no_revocation() {
    let database = table_of(&SERVER, 3);
    let reader = Reader::loaded(config(database.url()));
    let ahead = digest("k4");
    database.sql(&format!(
        "insert into api_keys values \
         ({ahead}, 'c4', 'pro', null, null, clock_timestamp() + interval '40 seconds')"
    ));
    reader.wait_for("k4", &known("c4"));
    expire(&database, "k1");
    reader.wait_for("k1", &KeyAnswer::Unknown);
    // Longer than the overlap of polls.
    thread::sleep(ms(11_000));
    expire(&database, "k2");
    reader.wait_for("k2", &KeyAnswer::Unknown);
    // What is ahead is read again, and stays revocable.
    database.sql(&format!("update api_keys set expires_at = '-infinity' where digest = {ahead}"));
    reader.wait_for("k4", &KeyAnswer::Unknown);
    assert_eq!(reader.find("k3"), known("c3"));
}

#[test]
fn rows_that_changed_together_are_not_read_again_with_each_poll_for_ever() {
    let database = table_of(&SERVER, 1000);
    database.sql("create extension pg_stat_statements");
    let _reader = Reader::loaded(config(database.url()));
    let polled = || {
        let polled = database.sql(
            "select coalesce(sum(calls), 0) || ' ' || coalesce(sum(rows), 0) from pg_stat_statements \
             join pg_database on dbid = oid where datname = current_database() \
             and query like '%where changed_at >=%'",
        );
        let (calls, rows) = polled.split_once(' ').unwrap();
        (calls.parse::<u64>().unwrap(), rows.parse::<u64>().unwrap())
    };
    wait_until("a poll with the overlap", || polled().1 >= 1000);
    wait_until("polls without it", || {
        let (calls, rows) = polled();
        wait_until("more polls", || polled().0 > calls + 3);
        polled().1 == rows
    });
}

#[test]
fn without_changed_at_each_poll_reads_everything() {
    let database = table_of(&SERVER, 2);
    let query = "select digest, customer, plan from api_keys;\n";
    let reader =
        Reader::loaded(PostgresConfig { query: query.to_owned(), ..config(database.url()) });
    insert(&database, "k3", "c3");
    reader.wait_for("k3", &known("c3"));
    database.sql("delete from api_keys where customer <> 'c3'");
    reader.wait_for("k1", &KeyAnswer::Unknown);
    assert_eq!(reader.keys(), 1);
}

#[test]
fn an_empty_table_is_an_answer_and_fills() {
    let database = table_of(&SERVER, 0);
    let reader = Reader::loaded(config(database.url()));
    assert_eq!(reader.find("k1"), KeyAnswer::Unknown);
    insert(&database, "k1", "c1");
    reader.wait_for("k1", &known("c1"));
}

#[test]
fn a_reader_that_is_dropped_leaves_no_connection() {
    let database = table_of(&SERVER, 1);
    let notify = Some("api_keys".to_owned());
    let reader = Reader::loaded(PostgresConfig { notify, ..config(database.url()) });
    let connections = || {
        database.sql(
            "select count(*) from pg_stat_activity where application_name = 'slidegate' \
             and datname = current_database()",
        )
    };
    wait_until("the connections of polls and of notifications", || connections() == "2");
    drop(reader);
    wait_until("their end", || connections() == "0");
}
