//! What the tests stand on: bytes on a wire, an upstream that writes down what it hears, and a
//! gateway between them.

mod front;
mod http2;
mod place;
mod upstream;
mod wire;

use std::time::Duration;

pub(crate) use self::front::{Front, Setup, front, gateway, options, options_after};
pub(crate) use self::http2::{Http2Client, Http2Upstream, data, frames, trailer};
pub(crate) use self::place::Place;
pub(crate) use self::upstream::Upstream;
pub(crate) use self::wire::{Message, Wire, chunk, response};
pub(crate) use slidegate_testbed::wait_until;
use slidegate_testbed::{RedisServer, Reply};

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The keys of ledgers, in order: all but what gateways tell each other.
pub(crate) fn ledgers(redis: &RedisServer) -> Vec<String> {
    let keys = redis.command(&["KEYS", "*"]).array().into_iter().map(Reply::text);
    let mut keys: Vec<String> = keys.filter(|key| !key.contains("shared")).collect();
    keys.sort_unstable();
    keys
}
