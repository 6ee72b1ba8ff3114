//! Counting what a server saw.

use slidegate_testbed::{CommandCounts, RedisServer};

#[test]
fn counts_are_those_between_two_moments() {
    let server = RedisServer::options().password("secret").start();
    server.command(&["SET", "key", "0"]).expect_ok();
    let before = CommandCounts::of([&server]);
    server.command(&["EVAL", "return redis.call('INCR', KEYS[1])", "1", "key"]).integer();
    server.command(&["INCR", "key"]).integer();
    server.command(&["CONFIG", "GET", "port"]).array();
    let seen = CommandCounts::of([&server]).since(&before);
    let expected = [("config|get", 1), ("eval", 1), ("incr", 2)];
    assert_eq!(seen.iter().collect::<Vec<_>>(), expected);
    assert_eq!((seen.calls("incr"), seen.calls("set"), seen.total()), (2, 0, 4));
}
