//! HTTP/1.1 to upstream, spoken in the task of the request itself.
//!
//! hyper's client is a task of its own for every connection, and hands requests, responses and pieces
//! of bodies through channels. For requests as small as most are, that costs as much as all the rest
//! of a gateway; so this is by hand, with httparse for the heads and chunks.
//!
//! ```text
//! Connection ─▶ Exchange::begin ─▶ Exchange::response ─▶ IncomingBody ─▶ Connection, for the next
//! ```

mod connection;
mod exchange;
mod incoming;
mod outgoing;
mod response;
mod stream;

pub(crate) use self::connection::Http1Connection;
pub(crate) use self::exchange::{Exchange, ExchangeError};
pub(crate) use self::incoming::IncomingBody;
pub(crate) use self::stream::UpstreamStream;
