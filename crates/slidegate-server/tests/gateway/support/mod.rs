//! What the tests stand on: bytes on a wire, an upstream that writes down what it hears, and a
//! gateway between them.

mod front;
mod http2;
mod place;
mod upstream;
mod wire;

use std::time::Duration;

pub(crate) use self::front::{Front, Setup, front, gateway, options};
pub(crate) use self::http2::{Http2Client, Http2Upstream, data, frames, trailer};
pub(crate) use self::place::Place;
pub(crate) use self::upstream::Upstream;
pub(crate) use self::wire::{Message, Wire, chunk, response};
pub(crate) use slidegate_testbed::wait_until;

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
