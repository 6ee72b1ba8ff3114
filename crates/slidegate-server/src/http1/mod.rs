//! What both sides of the server have in common where they speak HTTP/1.1 by hand: towards clients
//! (`listener::http1`) and towards upstream (`gateway::http1`).

mod alarm;
mod chunks;
mod fields;
mod name;
mod place;
mod turn;

pub(crate) use self::alarm::Alarm;
pub(crate) use self::chunks::{Chunks, Found};
pub(crate) use self::fields::{
    announced_trailers, has_too_many_names, is_hop_by_hop, length, named_by_connection, tokens,
    words,
};
pub(crate) use self::name::{
    X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_REAL_IP, name,
};
pub(crate) use self::place::{ByteSpan, FieldSpans};
pub(crate) use self::turn::Turn;

/// Bytes that are not HTTP, or can be read in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;
