//! One client's connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::select;
use tokio::time::{Instant, sleep, timeout_at};

use super::course::ConnectionEnd;
use super::guarded::{ConnectionSlot, Guarded};
use super::http::{Protocols, Version};
use super::proxy_header::read_proxy_header;
use super::stream::{Rewound, Socket, TransportStream};
use super::{Accepted, ConnectionCounts, Handler, Settings, TrustedPeers, tls};
use crate::shutdown::Shutdown;

/// How long a connection without a request is kept while draining: its first request may
/// already be on its way.
const GRACE: Duration = Duration::from_millis(250);

/// What all connections of a worker have in common.
#[derive(Debug)]
pub(super) struct ConnectionContext {
    settings: Settings,
    protocols: Protocols,
}

impl ConnectionContext {
    pub(super) fn new(settings: Settings) -> Self {
        Self { protocols: Protocols::new(&settings), settings }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// A connection that the kernel has handed over.
#[derive(Debug)]
pub(super) struct Arrival {
    socket: Socket,
    peer: Option<IpAddr>,
}

impl Arrival {
    pub(super) fn tcp(stream: TcpStream, peer: SocketAddr) -> Self {
        Self { socket: Socket::Tcp(stream), peer: Some(peer.ip().to_canonical()) }
    }

    pub(super) fn unix(stream: UnixStream) -> Self {
        Self { socket: Socket::Unix(stream), peer: None }
    }
}

/// Serves a connection to its end.
pub(super) async fn attend(
    arrival: Arrival,
    place: ConnectionSlot,
    context: Arc<ConnectionContext>,
    answer: impl Handler,
    mut shutdown: Shutdown,
) {
    let opened = select! {
        biased;
        opened = open(arrival, &context.settings) => opened,
        () = no_more_grace(shutdown.clone()) => return,
    };
    let HttpConnection { stream, accepted, version } = match opened {
        Ok(opened) => opened,
        Err(failure) => return failure.report(&context.settings.counts),
    };
    let stream = Guarded::new(stream, context.settings.timeouts.idle, place);
    let end = context.protocols.speak(version, stream, answer, accepted, &mut shutdown).await;
    if end == ConnectionEnd::TimedOut {
        context.settings.counts.timed_out();
    }
}

async fn no_more_grace(mut shutdown: Shutdown) {
    shutdown.begun().await;
    sleep(GRACE).await;
}

/// A connection on which HTTP has begun.
struct HttpConnection {
    stream: Rewound<TransportStream>,
    accepted: Accepted,
    version: Version,
}

/// Why a connection did not come to HTTP.
enum HandshakeError {
    Untrusted { peer: Option<IpAddr> },
    ProxyHeader { peer: Option<IpAddr>, error: io::Error },
    Tls(io::Error),
    Silence(io::Error),
}

async fn open(arrival: Arrival, settings: &Settings) -> Result<HttpConnection, HandshakeError> {
    let deadline = Instant::now() + settings.timeouts.head;
    let Arrival { socket, peer } = arrival;
    let mut socket = Rewound::new(socket);
    let peer = match &settings.proxy_header {
        Some(trusted) => client_address(peer, &mut socket, trusted, deadline).await?,
        None => peer,
    };
    let accepted = Accepted { peer, secure: settings.tls.is_some() };
    let Some(tls) = &settings.tls else {
        return listen_for_http(TransportStream::Plain(socket), accepted, settings).await;
    };
    let stream = in_time(deadline, tls.accept(socket)).await.map_err(HandshakeError::Tls)?;
    let negotiated = tls::negotiated(&stream);
    let stream = TransportStream::Tls(Box::new(stream));
    match negotiated {
        Some(version @ Version::Http2) => {
            Ok(HttpConnection { stream: Rewound::new(stream), accepted, version })
        }
        Some(version @ Version::Http1) => {
            Ok(HttpConnection { version, ..listen_for_http(stream, accepted, settings).await? })
        }
        None => listen_for_http(stream, accepted, settings).await,
    }
}

/// The client address in a peer's PROXY header.
async fn client_address(
    peer: Option<IpAddr>,
    socket: &mut Rewound<Socket>,
    trusted: &TrustedPeers,
    deadline: Instant,
) -> Result<Option<IpAddr>, HandshakeError> {
    if !trusted.trusts(peer) {
        return Err(HandshakeError::Untrusted { peer });
    }
    match in_time(deadline, read_proxy_header(socket)).await {
        Ok(source) => Ok(source.or(peer)),
        Err(error) => Err(HandshakeError::ProxyHeader { peer, error }),
    }
}

/// Waits for HTTP to begin, to see which version it is.
async fn listen_for_http(
    stream: TransportStream,
    accepted: Accepted,
    settings: &Settings,
) -> Result<HttpConnection, HandshakeError> {
    let deadline = Instant::now() + settings.timeouts.head;
    let mut stream = Rewound::new(stream);
    let detected = in_time(deadline, Version::detect(&mut stream)).await;
    let (version, bytes) = detected.map_err(HandshakeError::Silence)?;
    stream.unread(bytes);
    Ok(HttpConnection { stream, accepted, version })
}

async fn in_time<T>(deadline: Instant, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout_at(deadline, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl HandshakeError {
    fn report(self, counts: &ConnectionCounts) {
        match self {
            Self::Untrusted { peer } => {
                counts.was_refused();
                tracing::debug!(
                    ?peer,
                    "refused a peer that is not trusted to send the required PROXY header"
                );
            }
            Self::ProxyHeader { peer, error } => {
                counts.proxy_header_failed();
                tracing::debug!(?peer, %error, "invalid or missing PROXY header");
            }
            Self::Tls(error) => {
                counts.tls_failed();
                tracing::debug!(%error, "TLS handshake failed");
            }
            Self::Silence(error) if error.kind() == io::ErrorKind::TimedOut => counts.timed_out(),
            Self::Silence(_) => {}
        }
    }
}
