//! Bytes to and from upstream, encrypted or not.

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::streams::either_stream;

/// A connection to upstream as the kernel or rustls has it.
#[derive(Debug)]
pub(crate) enum UpstreamStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

either_stream!(UpstreamStream: UpstreamStream::Plain, UpstreamStream::Tls);
