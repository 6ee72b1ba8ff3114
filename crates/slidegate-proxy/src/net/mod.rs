//! From a socket to requests: accepting, TLS, the PROXY protocol, connections, draining.
//!
//! ```text
//! Listeners::bind ─▶ Sockets, one per worker ─▶ serve ─▶ Acceptor ─▶ ConnectionServer
//!                                            PROXY header ─▶ TLS ─▶ ClientStream ─▶ hyper ─▶ Handler
//!                                                              or ─▶ RawConnection ─▶ RawHandler
//! ```

mod accept;
mod activity;
mod bind;
mod body;
mod connection;
mod connections;
mod idle;
mod joined_frames;
mod lifecycle;
mod proxy_header;
mod raw;
mod serve;
mod stream;
#[cfg(test)]
mod tests;
mod tls;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ::http::{HeaderValue, Request, Response};
use bytes::Bytes;
use http_body::Body;

use self::connection::Socket;
use self::connections::Admitted;
use crate::{Bounds, Timeouts};

pub use self::activity::InFlight;
pub use self::bind::{Listeners, Sockets};
pub(crate) use self::body::Upload;
pub use self::body::{RequestBody, RequestBodyError};
pub use self::connections::{ConnectionCounts, ConnectionTable};
pub(crate) use self::idle::IdleTimeout;
pub use self::raw::{RawConnection, RawHandler};
pub use self::serve::{serve, serve_raw};
pub(crate) use self::stream::BoxIo;
pub use self::tls::{Tls, TlsError, TlsPem};

/// What is known about a connection before its first request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The client's address: from the PROXY header if one is required and a trusted peer sent
    /// it, else from the socket. A Unix socket's peer has no address.
    pub peer: Option<IpAddr>,
    /// Whether the connection uses TLS.
    pub secure: bool,
    /// The peer as `X-Forwarded-For` has it: formatted once for all requests of the connection.
    peer_value: HeaderValue,
}

impl Accepted {
    /// A connection without TLS.
    pub fn new(peer: Option<IpAddr>) -> Self {
        let peer_value = match peer {
            Some(peer) => HeaderValue::from_maybe_shared(Bytes::from(peer.to_string()))
                .expect("an address has only visible characters"),
            None => HeaderValue::from_static("unknown"),
        };
        Self { peer, secure: false, peer_value }
    }

    pub(crate) fn peer_value(&self) -> &HeaderValue {
        &self.peer_value
    }
}

/// Serves the connections of one worker.
trait Protocol: Send + Sync + 'static {
    fn settings(&self) -> &Settings;

    fn serve(
        self: Arc<Self>,
        socket: Socket,
        admitted: Admitted,
    ) -> impl Future<Output = ()> + Send;
}

/// Answers the requests of all connections of one worker.
pub trait Handler: Send + Sync + 'static {
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + 'static;

    /// Answers one request.
    fn answer(
        &self,
        accepted: Accepted,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Settings of a listener. Clones share its connections: pass a clone to each worker of the
/// listener.
#[derive(Debug, Clone)]
pub struct Settings {
    timeouts: Timeouts,
    bounds: Bounds,
    /// Every connection must start with a PROXY protocol header from a trusted peer.
    needs_proxy_header: bool,
    trusted: Option<TrustedPeers>,
    tls: Option<Tls>,
    /// Accepts connections beyond the soft limit on open files.
    uses_reserve: bool,
    connections: Arc<ConnectionTable>,
}

impl Settings {
    /// Plain connections, without TLS and without a PROXY header.
    pub fn new(timeouts: &Timeouts, bounds: &Bounds) -> Self {
        Self {
            timeouts: timeouts.clone(),
            bounds: bounds.clone(),
            needs_proxy_header: false,
            trusted: None,
            tls: None,
            uses_reserve: false,
            connections: Arc::new(ConnectionTable::new(bounds)),
        }
    }

    /// Exempts the connections of trusted peers from the limit per address.
    #[must_use]
    pub fn with_trusted_peers(self, trusted: TrustedPeers) -> Self {
        Self { trusted: Some(trusted), ..self }
    }

    /// Requires every connection to start with a PROXY protocol header from a trusted peer.
    /// Other connections are closed.
    #[must_use]
    pub fn with_proxy_header(self) -> Self {
        Self { needs_proxy_header: true, ..self }
    }

    /// Requires TLS on every connection, after the PROXY header if one is required.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Accepts connections beyond the soft limit on open files, up to the hard limit.
    #[must_use]
    pub fn with_reserve(self) -> Self {
        Self { uses_reserve: true, ..self }
    }

    /// The connections of all workers.
    pub fn connections(&self) -> &Arc<ConnectionTable> {
        &self.connections
    }

    /// Peers on a Unix socket are trusted: the permissions of the socket file control access.
    fn trusts(&self, peer: Option<IpAddr>) -> bool {
        peer.is_none_or(|peer| self.trusted.as_ref().is_some_and(|trusted| (trusted.0)(peer)))
    }
}

/// Decides which peers are trusted. Called for every connection, so that a reload can change them.
#[derive(Clone)]
pub struct TrustedPeers(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl TrustedPeers {
    /// Trusts the peers for which `trusts` returns true.
    pub fn new(trusts: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(trusts))
    }
}

impl fmt::Debug for TrustedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustedPeers").finish_non_exhaustive()
    }
}
