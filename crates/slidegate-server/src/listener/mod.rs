//! From a socket to requests: accepting, TLS, the PROXY protocol, connections, draining.
//!
//! ```text
//! Listeners::bind ─▶ Sockets, one for each worker ─▶ serve ─▶ accept ─▶ connection
//!                                                             PROXY header ─▶ TLS ─▶ HTTP/1 or HTTP/2 ─▶ Answer
//! ```

mod accept;
mod activity;
mod bind;
mod body;
mod connection;
mod counts;
mod course;
mod guarded;
mod http;
mod http1;
mod patience;
mod proxy_header;
mod serve;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod upgrade;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::Body;
use tokio::sync::Semaphore;

use crate::config::{Bounds, Timeouts};

pub(crate) use self::bind::{Listeners, Sockets};
pub(crate) use self::body::RequestBody;
pub(crate) use self::counts::ConnectionCounts;
pub(crate) use self::serve::serve;
pub(crate) use self::tls::Tls;
pub(crate) use self::upgrade::{OnUpgrade, Upgraded};

/// What is known of a connection before its first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// The client's address: from the PROXY header if one is required and a trusted peer sent
    /// it, else by the socket. A Unix socket's peer has no address.
    pub(crate) peer: Option<IpAddr>,
    /// Whether it came over TLS.
    pub(crate) secure: bool,
}

/// Answers the requests of all connections.
pub(crate) trait Handler: Clone + Send + Sync + 'static {
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Answers one request.
    fn answer(
        &mut self,
        accepted: Accepted,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// How connections are treated. Clones share the counts and the room for connections: give each
/// worker of one endpoint a clone.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    timeouts: Timeouts,
    head_bytes: usize,
    proxy_header: Option<TrustedPeers>,
    tls: Option<Tls>,
    room: Arc<Semaphore>,
    counts: Arc<ConnectionCounts>,
}

impl Settings {
    /// Plain connections, without TLS and without a PROXY header.
    pub(crate) fn new(timeouts: &Timeouts, bounds: &Bounds, counts: Arc<ConnectionCounts>) -> Self {
        Self {
            timeouts: timeouts.clone(),
            head_bytes: bounds.head_bytes,
            proxy_header: None,
            tls: None,
            room: Arc::new(Semaphore::new(bounds.connections.clamp(1, Semaphore::MAX_PERMITS))),
            counts,
        }
    }

    /// Every connection must begin with a header of the PROXY protocol, which only peers may send
    /// that are trusted. Others are closed.
    #[must_use]
    pub(crate) fn with_proxy_header(self, from: TrustedPeers) -> Self {
        Self { proxy_header: Some(from), ..self }
    }

    /// Every connection must speak TLS, after the PROXY header if there is to be one.
    #[must_use]
    pub(crate) fn with_tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }
}

/// Trusted peers. Evaluated for every connection, so that a reload can change them.
///
/// Peers on a Unix socket need not be named: access to the socket's file is the permission.
#[derive(Clone)]
pub(crate) struct TrustedPeers(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl TrustedPeers {
    pub(crate) fn new(trusts: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(trusts))
    }

    fn trusts(&self, peer: Option<IpAddr>) -> bool {
        peer.is_none_or(|peer| (self.0)(peer))
    }
}

impl fmt::Debug for TrustedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustedPeers").finish_non_exhaustive()
    }
}
