//! Notifications, with and without PgBouncer.

use std::time::Instant;

use slidegate_customers::{KeyAnswer, PostgresConfig};
use slidegate_testbed::{Database, PgBouncer, assert_no_hang, wait_until};

use crate::link::Link;
use crate::reader::{HOUR, Reader, SERVER, config, expire, insert, known, ms, table_of};
use crate::table::queries;

const NONE: &str = "no notifications of the key source";

fn listening(url: String) -> PostgresConfig {
    // A name that has to be quoted.
    PostgresConfig { notify: Some("Api \"keys\"".to_owned()), ..config(url) }
}

fn notify(database: &Database<'_>, times: u32) {
    database.sql(&format!(
        "select pg_notify('Api \"keys\"', i::text) from generate_series(1, {times}) as i"
    ));
}

/// Waits until the probe has arrived and the poll that follows it is over.
fn wait_for_subscription(database: &Database<'_>) {
    wait_until("the subscription and a poll", || {
        database.sql(
            "select count(*) filter (where query like 'listen%') || ' ' || \
             count(*) filter (where query like '%changed_at >=%' and state = 'idle') \
             from pg_stat_activity where application_name = 'slidegate' \
             and datname = current_database()",
        ) == "1 1"
    });
}

#[test]
fn a_notification_leads_to_a_poll_at_once() {
    let database = table_of(&SERVER, 10);
    let reader = Reader::loaded(PostgresConfig { poll: HOUR, ..listening(database.url()) });
    wait_for_subscription(&database);
    expire(&database, "k1");
    let began = Instant::now();
    notify(&database, 1);
    reader.wait_for("k1", &KeyAnswer::Unknown);
    println!("seen {:?} after the notification was sent", began.elapsed());
    assert_no_hang(began, ms(10_000));
    assert_eq!(reader.log(), "");
}

#[test]
fn many_notifications_lead_to_few_polls() {
    let database = table_of(&SERVER, 10);
    database.sql("create extension pg_stat_statements");
    let reader = Reader::loaded(PostgresConfig { poll: HOUR, ..listening(database.url()) });
    wait_for_subscription(&database);
    let before = queries(&database);
    insert(&database, "k11", "c11");
    notify(&database, 10_000);
    reader.wait_for("k11", &known("c11"));
    insert(&database, "k12", "c12");
    notify(&database, 10_000);
    reader.wait_for("k12", &known("c12"));
    // Two inserts and two notifications are ours.
    let polls = queries(&database) - before - 4;
    assert!((2..=10).contains(&polls), "{polls} polls");
}

#[test]
fn what_was_missed_without_a_connection_is_read_when_there_is_one_again() {
    let database = table_of(&SERVER, 10);
    let reader = Reader::loaded(PostgresConfig { poll: HOUR, ..listening(database.url()) });
    wait_for_subscription(&database);
    database.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen%' \
         and datname = current_database()",
    );
    expire(&database, "k1");
    // Nothing notifies of it.
    reader.wait_for("k1", &KeyAnswer::Unknown);
    wait_for_subscription(&database);
    expire(&database, "k2");
    notify(&database, 1);
    reader.wait_for("k2", &KeyAnswer::Unknown);
    assert_eq!(reader.log(), "");
}

#[test]
fn a_database_that_is_away_at_first_does_not_hide_the_warning_of_pgbouncer() {
    let database = table_of(&SERVER, 1);
    let bouncer = PgBouncer::in_front_of(&SERVER);
    let link = Link::to(bouncer.address());
    link.cut();
    let reader = Reader::start(listening(database.url_through(link.address())));
    wait_until("the first warning", || reader.logged(NONE) == 1);
    link.restore();
    wait_until("the warning", || reader.logged("PgBouncer in transaction mode") == 1);
    assert_eq!(reader.logged(NONE), 2, "{}", reader.log());
}

#[test]
fn behind_pgbouncer_in_transaction_mode_a_warning_and_polling() {
    let database = table_of(&SERVER, 100);
    let bouncer = PgBouncer::in_front_of(&SERVER);
    let url = database.url_through(bouncer.address());
    let config = PostgresConfig { full: ms(200), ..listening(url) };
    // Several, so that their queries meet each other's connections.
    let readers = [(); 4].map(|()| Reader::loaded(config.clone()));
    for reader in &readers {
        wait_until("the warning", || reader.logged("PgBouncer in transaction mode") == 1);
    }
    insert(&database, "k101", "c101");
    expire(&database, "k1");
    database.sql("delete from api_keys where customer = 'c2'");
    for reader in &readers {
        reader.wait_for("k101", &known("c101"));
        reader.wait_for("k1", &KeyAnswer::Unknown);
        reader.wait_for("k2", &KeyAnswer::Unknown);
        assert_eq!(reader.find("k100"), known("c100"));
        assert_eq!(reader.log().lines().count(), 1, "{}", reader.log());
        assert_eq!(reader.error(), "");
    }
}
