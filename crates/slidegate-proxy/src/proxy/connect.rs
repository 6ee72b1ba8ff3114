//! Connects to upstream.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::pool::Http1Connection;
use super::upstream::Upstream;
use super::upstream_stream::UpstreamStream;
use crate::net::{BoxIo, RequestBody};

/// Maximum size of a response head, and of one read of a body.
const RESPONSE_BUFFER_BYTES: usize = 256 * 1024;

/// Opens connections within `timeouts.connect`.
#[derive(Clone)]
pub(crate) struct Connector {
    timeout: Duration,
    tls: TlsConnector,
    tls_http2: TlsConnector,
}

impl Connector {
    pub(crate) fn new(timeout: Duration) -> Self {
        let tls = |protocol: &[u8]| TlsConnector::from(Arc::new(tls_config(protocol)));
        Self { timeout, tls: tls(b"http/1.1"), tls_http2: tls(b"h2") }
    }

    pub(crate) async fn http1(&self, server: &Upstream) -> io::Result<Box<Http1Connection>> {
        let connected = async {
            let (stream, meter) = UpstreamStream::new(self.dial(server).await?);
            let mut builder = http1::Builder::new();
            builder.max_buf_size(RESPONSE_BUFFER_BYTES);
            let handshake = builder.handshake(TokioIo::new(stream)).await;
            let (sender, connection) = handshake.map_err(io::Error::other)?;
            Ok(Http1Connection::new(sender, connection.with_upgrades(), meter))
        };
        self.in_time(connected).await.map(Box::new)
    }

    pub(crate) async fn http2(
        &self,
        server: &Upstream,
    ) -> io::Result<http2::SendRequest<RequestBody>> {
        self.in_time(async { http2_over(self.dial(server).await?).await }).await
    }

    async fn in_time<T>(&self, made: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let late = |_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "not connected within timeouts.connect"))
        };
        tokio::time::timeout(self.timeout, made).await.unwrap_or_else(late)
    }

    async fn dial(&self, server: &Upstream) -> io::Result<BoxIo> {
        let stream = TcpStream::connect((server.host(), server.port())).await?;
        stream.set_nodelay(true)?;
        if server.scheme != Scheme::HTTPS {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(server.host().to_owned()).map_err(io::Error::other)?;
        let connector = if server.http2 { &self.tls_http2 } else { &self.tls };
        Ok(Box::new(connector.connect(name, stream).await?))
    }
}

async fn http2_over(stream: BoxIo) -> io::Result<http2::SendRequest<RequestBody>> {
    let handshake = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

fn tls_config(protocol: &[u8]) -> ClientConfig {
    let roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default TLS versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}
