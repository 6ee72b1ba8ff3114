//! One server that is killed, stopped, full, demoted, locked, or busy.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::queue_full::{ALLOW, COUNTED, CROWDED, Crowd, LOCAL, STORES, STRICT, turn};
use super::scenario::{Outage, Story};
use crate::support::on_redis_and_valkey;

const BEFORE: Duration = Duration::from_millis(1200);
const OUTAGE: Duration = Duration::from_secs(2);
/// Longer than a window of those who ask for more than they get.
const AFTER: Duration = Duration::from_millis(2300);

/// As many calls of an account as may be under way, when each store has one task for it.
const UNDER_WAY: i64 = STORES as i64;

/// Spends before, during and after a fault in which Redis counts nothing but forgets nothing, and
/// checks all that is promised then.
async fn goes_through(url: &str, breaks: impl FnOnce(), mends: impl FnOnce()) -> Story {
    let crowd = Crowd::start(turn().await, url);
    sleep(BEFORE).await;
    breaks();
    let from = Instant::now();
    sleep(OUTAGE).await;
    let to = Instant::now();
    mends();
    let replayed = crowd.heal().await;
    let healed = Instant::now();
    sleep(AFTER).await;
    let story = crowd.stop().await;
    story.is_calm();
    story.is_degraded_in(Outage { from, to });
    story.is_well_after(healed);
    for account in [LOCAL, CROWDED, ALLOW] {
        story.redis_is_exact(account);
    }
    for account in [LOCAL, CROWDED] {
        story.redis_counts_the_outage_after(account, replayed, 0);
    }
    story
}

#[test]
fn decisions_survive_a_restart_with_data() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().appendonly().start();
        let story = goes_through(&server.url(), || server.kill(), || server.restart()).await;
        // A call that was under way may have been counted, and is replayed.
        story.redis_knows(&server.url(), COUNTED, 0..=UNDER_WAY).await;
        story.redis_knows(&server.url(), STRICT, 0..=UNDER_WAY).await;
    });
}

/// Without persistence, what was counted before the kill is lost, and nothing else: what was
/// admitted without Redis is replayed, and what it counts from then on is exact.
#[test]
fn decisions_survive_a_restart_without_data() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().start();
        let crowd = Crowd::start(turn().await, &server.url());
        sleep(BEFORE).await;
        server.kill();
        let killed_us = crowd.now().as_nanos() / 1000;
        let from = Instant::now();
        sleep(OUTAGE).await;
        let to = Instant::now();
        server.restart();
        let replayed = crowd.heal().await;
        let healed = Instant::now();
        sleep(AFTER).await;
        let story = crowd.stop().await;
        story.is_calm();
        story.is_degraded_in(Outage { from, to });
        story.is_well_after(healed);
        for account in [LOCAL, CROWDED, ALLOW] {
            story.redis_is_exact_between(account, 0..=killed_us);
            story.redis_is_exact_between(account, killed_us..=u64::MAX);
            let units = story.accounts[account].quota().units().get() as usize;
            assert!(
                story.most_counted_in_a_window(account) <= 2 * units,
                "once before, once after"
            );
        }
        for account in [LOCAL, CROWDED] {
            story.redis_counts_the_outage_after(account, replayed, STORES);
        }
        let signed = |count: usize| i64::try_from(count).unwrap();
        for account in [COUNTED, STRICT] {
            let lost = signed(story.counted_between(account, 0..=killed_us));
            assert!(lost > 50, "{lost}");
            // What a busy machine admits without Redis before the kill is replayed to it, and lost too.
            let most_lost = signed(story.admitted_between(account, 0..=killed_us));
            let off_by = -most_lost - UNDER_WAY..=-lost + UNDER_WAY;
            story.redis_knows(&server.url(), account, off_by).await;
        }
    });
}

/// Slow, and not gone: every call would hang. What it answers too late is taken back.
#[test]
fn decisions_survive_a_server_stopped_for_two_seconds() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().start();
        let story = goes_through(&server.url(), || server.pause(), || server.resume()).await;
        story.redis_knows(&server.url(), COUNTED, 0..=0).await;
        story.redis_knows(&server.url(), STRICT, 0..=0).await;
    });
}

#[test]
fn decisions_survive_a_server_out_of_memory() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().start();
        let maxmemory =
            |bytes: &str| server.command(&["CONFIG", "SET", "maxmemory", bytes]).expect_ok();
        let story = goes_through(&server.url(), || maxmemory("1"), || maxmemory("0")).await;
        story.redis_knows(&server.url(), COUNTED, 0..=0).await;
        story.redis_knows(&server.url(), STRICT, 0..=0).await;
    });
}

/// Demoted while connections stay; it keeps its data, for its new primary is nowhere.
#[test]
fn decisions_survive_a_server_that_becomes_a_replica() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().start();
        let replica_of =
            |host: &str, port: &str| server.command(&["REPLICAOF", host, port]).expect_ok();
        let breaks = || replica_of("127.0.0.1", "1");
        let story = goes_through(&server.url(), breaks, || replica_of("NO", "ONE")).await;
        story.redis_knows(&server.url(), COUNTED, 0..=0).await;
        story.redis_knows(&server.url(), STRICT, 0..=0).await;
    });
}

#[test]
fn decisions_survive_a_changed_password() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().password("opensesame").start();
        let password =
            |word: &str| server.command(&["CONFIG", "SET", "requirepass", word]).expect_ok();
        let breaks = || {
            password("changed");
            let killed = server.command(&["CLIENT", "KILL", "TYPE", "normal"]).integer();
            assert!(killed >= UNDER_WAY, "all stores were connected");
        };
        let story = goes_through(&server.url(), breaks, || password("opensesame")).await;
        // The connections broke with calls under way.
        story.redis_knows(&server.url(), COUNTED, 0..=UNDER_WAY).await;
        story.redis_knows(&server.url(), STRICT, 0..=UNDER_WAY).await;
        let shown = format!("{:?}", story.stores[0]);
        assert!(!shown.contains("opensesame"), "{shown}");
    });
}

/// Somebody's endless script: first silence, then `BUSY`.
#[test]
fn decisions_survive_a_server_busy_with_a_script() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().line("busy-reply-threshold 200").start();
        let client = redis::Client::open(server.url()).unwrap();
        let mut other = client.get_connection().unwrap();
        let mut script = None;
        let breaks = || {
            script = Some(std::thread::spawn(move || {
                redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut other)
            }));
            slidegate_testbed::wait_until("Redis to be busy", || {
                matches!(server.command(&["PING"]), slidegate_testbed::Reply::Error(_))
            });
        };
        let mends = || server.command(&["SCRIPT", "KILL"]).expect_ok();
        let story = goes_through(&server.url(), breaks, mends).await;
        assert!(script.unwrap().join().unwrap().is_err(), "it was killed");
        // What Redis counted just before, with an answer that the script held up until it was late,
        // cannot be taken back while Redis is busy.
        story.redis_knows(&server.url(), COUNTED, 0..=UNDER_WAY).await;
        story.redis_knows(&server.url(), STRICT, 0..=UNDER_WAY).await;
    });
}
