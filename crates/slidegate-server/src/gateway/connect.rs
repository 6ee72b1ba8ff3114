//! Connections to upstream.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::body::Timed;
use super::http1::{Http1Connection, UpstreamStream};
use super::upstream::Upstream;

/// Makes connections, each within a time.
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
        let stream = self.in_time(self.dial(server)).await?;
        Ok(Box::new(Http1Connection::new(stream)))
    }

    pub(crate) async fn http2(&self, server: &Upstream) -> io::Result<http2::SendRequest<Timed>> {
        self.in_time(async { http2_over(self.dial(server).await?).await }).await
    }

    async fn in_time<T>(&self, made: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let late = |_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "not connected within timeouts.connect"))
        };
        tokio::time::timeout(self.timeout, made).await.unwrap_or_else(late)
    }

    async fn dial(&self, server: &Upstream) -> io::Result<UpstreamStream> {
        let stream = TcpStream::connect((server.host(), server.port())).await?;
        stream.set_nodelay(true)?;
        if server.scheme != Scheme::HTTPS {
            return Ok(UpstreamStream::Plain(stream));
        }
        let name = ServerName::try_from(server.host().to_owned()).map_err(io::Error::other)?;
        let connector = if server.http2 { &self.tls_http2 } else { &self.tls };
        Ok(UpstreamStream::Tls(Box::new(connector.connect(name, stream).await?)))
    }
}

async fn http2_over(stream: UpstreamStream) -> io::Result<http2::SendRequest<Timed>> {
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
        .expect("ring has the usual versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}
