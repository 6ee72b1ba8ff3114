//! A cluster: its forming, its clock, a failover, a slot that moves.

use std::time::Duration;

use slidegate_testbed::{ManualTime, RedisCluster, RedisServer, Reply, wait_until};

#[test]
fn a_replica_takes_over_and_the_killed_primary_returns_as_its_replica() {
    let cluster = RedisCluster::start();
    assert_eq!(cluster.urls().len(), 6);
    let slot = cluster.slot_of("key");
    let primary = cluster.primary_of(slot);
    primary.command(&["SET", "key", "value"]).expect_ok();
    assert_eq!(primary.command(&["WAIT", "1", "0"]).integer(), 1);

    let killed = cluster.kill_primary_of(slot);
    let successor = cluster.wait_for_failover(slot);
    assert_ne!(successor.port(), killed.port());
    assert_eq!(successor.command(&["GET", "key"]).text(), "value");

    killed.restart();
    wait_until("the old primary to follow", || killed.info("role") == "slave");
    cluster.wait_until_ok();
    assert_eq!(cluster.replica_of(slot).port(), killed.port());
}

#[test]
fn a_slot_moves_with_its_keys() {
    let cluster = RedisCluster::options().without_replicas().password("secret").start();
    let slot = cluster.slot_of("{tag}");
    let old = cluster.primary_of(slot);
    let new = cluster.nodes().iter().find(|node| node.port() != old.port()).unwrap();
    for number in 0..250 {
        old.command(&["SET", &format!("{{tag}}{number}"), "value"]).expect_ok();
    }

    let migration = cluster.begin_migration(slot, new);
    assert!(error(old, &["GET", "{tag}new"]).starts_with("ASK "));
    migration.move_keys();
    assert!(error(old, &["GET", "{tag}0"]).starts_with("ASK "));
    migration.finish();
    assert!(error(old, &["GET", "{tag}0"]).starts_with("MOVED "));
    assert_eq!(new.command(&["GET", "{tag}249"]).text(), "value");

    cluster.migrate_slot(slot, old);
    assert_eq!(old.command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).integer(), 250);
}

#[test]
fn a_cluster_survives_leaps_of_its_clock_and_fails_over_on_demand() {
    let time = ManualTime::new();
    let cluster = RedisCluster::options().time(&time).start();
    assert_eq!(time.now_us(), 1_767_225_600_000_000);
    let slot = cluster.slot_of("key");
    let primary = cluster.primary_of(slot);
    primary.command(&["SET", "key", "value", "PX", "86400000"]).expect_ok();

    time.advance(Duration::from_secs(86_400));
    assert_eq!(primary.command(&["PTTL", "key"]).integer(), 0);
    time.step_back(Duration::from_secs(60));
    assert_eq!(primary.command(&["PTTL", "key"]).integer(), 60_000);
    assert_eq!(primary.command(&["WAIT", "1", "0"]).integer(), 1);

    let killed = cluster.kill_primary_of(slot);
    let successor = cluster.promote_replica(slot);
    assert_ne!(successor.port(), killed.port());
    assert_eq!(successor.command(&["PTTL", "key"]).integer(), 60_000);

    killed.restart();
    time.advance(Duration::from_secs(400 * 86_400));
    assert_eq!(successor.command(&["GET", "key"]), Reply::Nil);
    wait_until("the old primary to follow", || killed.info("role") == "slave");
    cluster.wait_until_ok();
}

fn error(node: &RedisServer, command: &[&str]) -> String {
    match node.command(command) {
        Reply::Error(error) => error,
        other => panic!("expected an error, got {other:?}"),
    }
}
