//! Sentinels: a failover.

use slidegate_testbed::{RedisSentinels, wait_until};

#[test]
fn sentinels_name_another_primary_when_it_is_killed() {
    let all = RedisSentinels::start();
    assert_eq!(all.urls().len(), 3);
    assert_eq!(all.primary().port(), all.servers()[0].port());
    all.primary().command(&["SET", "key", "value"]).expect_ok();
    all.wait_until_replicated();

    let killed = all.kill_primary();
    let successor = all.wait_for_failover();
    assert_ne!(successor.port(), killed.port());
    assert_eq!(successor.command(&["GET", "key"]).text(), "value");

    killed.restart();
    wait_until("the old primary to follow", || killed.info("role") == "slave");
    assert_eq!(all.wait_for_failover().port(), successor.port());
}
