//! A database that is away, slow or changed.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use slidegate_customers::{KeyAnswer, PostgresConfig};
use slidegate_testbed::{PostgresServer, assert_no_hang, wait_until};

use crate::link::Link;
use crate::reader::{HOUR, Reader, SERVER, config, digest, expire, insert, known, ms, table_of};

const FAILED: &str = "key source failed";
const AGAIN: &str = "key source answers again";

#[test]
fn known_keys_go_on_while_the_database_is_stopped() {
    let server = PostgresServer::start();
    let database = table_of(&server, 3);
    let notify = Some("api_keys".to_owned());
    let reader = Reader::loaded(PostgresConfig { notify, ..config(database.url()) });
    server.stop();
    reader.wait_for_error("Connection refused");
    assert_eq!(reader.find("k1"), known("c1"));
    assert_eq!(reader.find("new"), KeyAnswer::Unavailable, "it may have been issued meanwhile");

    server.start_again();
    reader.wait_for_recovery();
    assert_eq!(reader.find("new"), KeyAnswer::Unknown);
    // What was deleted meanwhile would be seen too: the recovery reads everything.
    insert(&database, "k4", "c4");
    expire(&database, "k1");
    reader.wait_for("k4", &known("c4"));
    reader.wait_for("k1", &KeyAnswer::Unknown);
    assert_eq!((reader.logged(FAILED), reader.logged(AGAIN)), (1, 1), "{}", reader.log());
}

#[test]
fn it_starts_before_the_database_does() {
    let server = PostgresServer::start();
    let database = table_of(&server, 3);
    server.stop();
    let reader = Reader::start(config(database.url()));
    reader.wait_for_error("Connection refused");
    assert_eq!(reader.find("k1"), KeyAnswer::Unavailable);
    assert_eq!(reader.find("invented"), KeyAnswer::Unavailable);
    server.start_again();
    reader.wait_for("k1", &known("c1"));
    reader.wait_for_recovery();
    assert_eq!((reader.logged(FAILED), reader.logged(AGAIN)), (1, 1), "{}", reader.log());
}

#[test]
fn a_locked_table_is_an_error_and_no_queue_of_queries() {
    let database = table_of(&SERVER, 3);
    let reader = Reader::loaded(PostgresConfig { full: ms(100), ..config(database.url()) });
    let mut owner = database.session();
    owner.sql("begin");
    owner.sql("lock table api_keys in access exclusive mode");
    reader.wait_for_error("no answer within 5s");
    assert_eq!(reader.find("k1"), known("c1"));
    assert_eq!(reader.find("invented"), KeyAnswer::Unavailable);
    // One that reads everything and one that polls, and none that was given up.
    let waiting = || {
        database.sql(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
             and datname = current_database()",
        )
    };
    for _ in 0..20 {
        assert!(waiting().parse::<u32>().unwrap() <= 2);
    }
    owner.sql("commit");
    reader.wait_for_recovery();
    assert_eq!((reader.logged(FAILED), reader.logged(AGAIN)), (1, 1), "{}", reader.log());
}

#[test]
fn a_slow_query_removes_nothing() {
    let database = table_of(&SERVER, 3);
    database.sql("create table delay (seconds float8); insert into delay values (0)");
    let query = "select digest, customer, plan from api_keys, \
                 (select pg_sleep(seconds) from delay) as slept";
    let reader =
        Reader::loaded(PostgresConfig { query: query.to_owned(), ..config(database.url()) });
    database.sql("update delay set seconds = 3600");
    reader.wait_for_error("no answer within 10s");
    assert_eq!(reader.find("k1"), known("c1"));
    database.sql("update delay set seconds = 0; delete from api_keys where customer = 'c1'");
    reader.wait_for("k1", &KeyAnswer::Unknown);
    reader.wait_for_recovery();
    let asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' \
                  and datname = current_database()";
    wait_until("no query to be left", || database.sql(asleep) == "0");
}

#[test]
fn a_query_that_fails_in_the_middle_removes_nothing() {
    let database = table_of(&SERVER, 5000);
    database.sql("create table divisor (n int); insert into divisor values (1)");
    let query = "select digest, customer, case when customer = 'c4999' \
                 then left('pro' || 1 / (select n from divisor), 3) else plan end as plan \
                 from api_keys"
        .to_owned();
    let reader = Reader::loaded(PostgresConfig { query, ..config(database.url()) });
    assert_eq!(reader.keys(), 5000);
    database
        .sql("update divisor set n = 0; delete from api_keys where customer in ('c1', 'c5000')");
    reader.wait_for_error("bad data (SQLSTATE 22012)");
    assert_eq!((reader.keys(), reader.find("k5000")), (5000, known("c5000")));
    database.sql("update divisor set n = 1");
    reader.wait_for("k5000", &KeyAnswer::Unknown);
    reader.wait_for_recovery();
    assert_eq!(reader.keys(), 4998);
}

#[test]
fn a_wrong_password_is_an_error_without_the_password() {
    let database = table_of(&SERVER, 1);
    let url = database.url().replace("pw-of-the-test", "s3cret-and-wrong");
    assert_ne!(url, database.url());
    let reader = Reader::start(config(url));
    reader.wait_for_error("password authentication failed for user \"slidegate\"");
    assert_eq!(reader.find("k1"), KeyAnswer::Unavailable);
    assert!(!reader.log().contains("s3cret") && !reader.error().contains("s3cret"));
}

#[test]
fn a_table_that_is_dropped_and_made_again_is_read_again() {
    let database = table_of(&SERVER, 3);
    let reader = Reader::loaded(PostgresConfig { full: ms(100), ..config(database.url()) });
    database.sql("alter table api_keys rename to away");
    reader.wait_for_error("relation \"api_keys\" does not exist");
    assert_eq!((reader.find("k1"), reader.keys()), (known("c1"), 3));
    database.sql("create table api_keys (like away including all); drop table away");
    insert(&database, "k4", "c4");
    reader.wait_for("k4", &known("c4"));
    reader.wait_for("k1", &KeyAnswer::Unknown);
    reader.wait_for_recovery();
    assert_eq!((reader.logged(FAILED), reader.logged(AGAIN)), (1, 1), "{}", reader.log());
}

#[test]
fn a_migration_that_renames_a_column_changes_no_key() {
    for (query, column, error) in [
        (crate::reader::QUERY, "customer", "column \"customer\" does not exist"),
        ("select * from api_keys", "customer", "no longer has the column customer"),
        ("select * from api_keys", "expires_at", "no longer has the column expires_at"),
        ("select * from api_keys", "digest", "the query has no column digest"),
    ] {
        let database = table_of(&SERVER, 3);
        let query = query.to_owned();
        let reader =
            Reader::loaded(PostgresConfig { query, full: ms(100), ..config(database.url()) });
        database.sql(&format!("alter table api_keys rename {column} to renamed"));
        reader.wait_for_error(error);
        assert_eq!((reader.find("k1"), reader.keys()), (known("c1"), 3));
        database.sql(&format!("alter table api_keys rename renamed to {column}"));
        reader.wait_for_recovery();
        insert(&database, "k4", "c4");
        reader.wait_for("k4", &known("c4"));
    }
}

#[test]
fn digests_of_another_form_in_all_rows_remove_no_key() {
    let database = table_of(&SERVER, 3);
    let reader = Reader::loaded(PostgresConfig { full: ms(100), ..config(database.url()) });
    database.sql("update api_keys set digest = 'sha256:' || digest");
    reader.wait_for_error("none of the 3 rows can be used: 3 whose digest");
    assert_eq!((reader.find("k1"), reader.keys()), (known("c1"), 3));
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let reader = Reader::start(config(url_of(address)));
    reader.wait_for_error("no connection within 5s");
    assert_eq!(reader.find("k1"), KeyAnswer::Unavailable);
}

#[test]
fn attempts_are_ever_further_apart() {
    let hanging_up = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = hanging_up.local_addr().unwrap();
    let (sender, accepted) = mpsc::channel();
    thread::spawn(move || {
        for connection in hanging_up.incoming() {
            drop(connection);
            if sender.send(Instant::now()).is_err() {
                return;
            }
        }
    });
    let _reader = Reader::start(PostgresConfig { poll: ms(100), ..config(url_of(address)) });
    let times: Vec<Instant> = accepted.iter().take(5).collect();
    // 100 + 200 + 400 + 800 ms, a quarter less at the least.
    assert!(times[4] - times[0] >= ms(1500) * 3 / 4, "{:?}", times[4] - times[0]);
}

fn url_of(address: SocketAddr) -> String {
    format!("postgres://u:p@{address}/app?sslmode=disable")
}

#[test]
fn tls_is_used_and_checked() {
    let database = table_of(&SERVER, 1);
    let mut authorities = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(&SERVER.certificates().ca).unwrap();
    authorities.add(ca).unwrap();
    let encrypted = "select count(*) from pg_stat_ssl join pg_stat_activity using (pid) \
                     where ssl and application_name = 'slidegate' and datname = current_database()";
    for mode in ["require", "verify-full", "prefer"] {
        let url = database.url().replace("sslmode=disable", &format!("sslmode={mode}"));
        let trusting = PostgresConfig { authorities: authorities.clone(), ..config(url.clone()) };
        let reader = Reader::loaded(trusting);
        wait_until("an encrypted connection", || database.sql(encrypted) == "1");
        drop(reader);
        wait_until("its end", || database.sql(encrypted) == "0");

        let reader = Reader::start(PostgresConfig { poll: HOUR, ..config(url) });
        reader.wait_for_error("certificate");
        assert_eq!(reader.find("k1"), KeyAnswer::Unavailable);
    }
}

#[test]
fn a_certificate_of_another_host_is_refused() {
    let database = table_of(&SERVER, 1);
    let mut authorities = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(&SERVER.certificates().ca).unwrap();
    authorities.add(ca).unwrap();
    for mode in ["require", "prefer"] {
        let url = database.url().replace("sslmode=disable", &format!("sslmode={mode}"));
        let url = url.replace("127.0.0.1", "db.example.com") + "&hostaddr=127.0.0.1";
        let config = PostgresConfig { authorities: authorities.clone(), ..config(url) };
        let reader = Reader::start(PostgresConfig { poll: HOUR, ..config });
        reader.wait_for_error("not valid for name");
        assert_eq!(reader.find("k1"), KeyAnswer::Unavailable, "{mode}");
    }
}

/// A minute is long enough for attempts to be as far apart as they get.
#[test]
fn what_was_revoked_during_an_outage_of_a_minute_is_refused_soon_after_it() {
    let database = table_of(&SERVER, 3);
    let link = Link::to(SERVER.address());
    let url = database.url_through(link.address());
    let poll = ms(2000);
    let reader = Reader::loaded(PostgresConfig { poll, ..config(url) });
    link.cut();
    let began = Instant::now();
    reader.wait_for_error("connection closed");
    expire(&database, "k1");
    database.sql("delete from api_keys where customer = 'c2'");
    thread::sleep(ms(60_000).saturating_sub(began.elapsed()));
    assert_eq!((reader.find("k1"), reader.find("k2")), (known("c1"), known("c2")));

    link.restore();
    let began = Instant::now();
    reader.wait_for("k1", &KeyAnswer::Unknown);
    reader.wait_for("k2", &KeyAnswer::Unknown);
    reader.wait_for_recovery();
    println!("revoked and deleted keys refused {:?} after the outage", began.elapsed());
    // Attempts are at most 6.25 s apart.
    assert!(began.elapsed() < ms(9000), "{:?}", began.elapsed());
    assert_eq!(reader.find("k3"), known("c3"));
    assert_eq!((reader.logged(FAILED), reader.logged(AGAIN)), (1, 1), "{}", reader.log());
}

#[test]
fn a_full_reading_that_succeeds_lets_a_failed_poll_try_again_at_once() {
    let database = table_of(&SERVER, 1);
    database.sql(
        "create sequence failures;
         create function answers() returns boolean language plpgsql volatile as $$ begin
             if current_query() like '%changed_at >=%' then
                 perform nextval('failures');
                 raise 'polls fail';
             end if;
             return true;
         end $$",
    );
    let query =
        "select digest, customer, plan, changed_at from api_keys where answers()".to_owned();
    let began = Instant::now();
    let _reader = Reader::start(PostgresConfig { query, full: ms(100), ..config(database.url()) });
    // Without that, the pauses between so many attempts would be half a minute together.
    let failures = || database.sql("select last_value from failures").parse::<u32>().unwrap();
    wait_until("attempts", || failures() >= 12);
    assert_no_hang(began, ms(15_000));
}

#[test]
fn the_age_is_that_of_the_full_reading_while_only_polls_succeed() {
    let database = table_of(&SERVER, 1);
    database.sql(
        "create table no_trouble ();
         create function answers() returns boolean language plpgsql volatile as $$ begin
             if current_query() not like '%changed_at >=%' and to_regclass('no_trouble') is null then
                 raise 'full readings fail';
             end if;
             return true;
         end $$",
    );
    let query = "select * from api_keys where answers()".to_owned();
    let reader = Reader::loaded(PostgresConfig { query, full: ms(100), ..config(database.url()) });
    database.sql("drop table no_trouble");
    reader.wait_for_error("full readings fail");
    let began = Instant::now();
    wait_until("the age to grow", || reader.age() >= ms(1500));
    assert!(began.elapsed() >= ms(1000), "{:?}", began.elapsed());
    expire(&database, "k1");
    reader.wait_for("k1", &KeyAnswer::Unknown);
    assert!(reader.age() >= ms(1500), "polls succeed all the while: {:?}", reader.age());
    database.sql("create table no_trouble ()");
    reader.wait_for_recovery();
    wait_until("the age to be that of a poll", || reader.age() < ms(1000));
}

#[test]
fn a_lost_connection_of_polls_is_made_again() {
    let database = table_of(&SERVER, 1);
    let reader = Reader::loaded(config(database.url()));
    insert(&database, "k2", "c2");
    reader.wait_for("k2", &known("c2"));
    database.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity \
         where application_name = 'slidegate' and datname = current_database()",
    );
    let k3 = digest("k3");
    database.sql(&format!("insert into api_keys values ({k3}, 'c3', 'pro')"));
    reader.wait_for("k3", &known("c3"));
    reader.wait_for_recovery();
}
