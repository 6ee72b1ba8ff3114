//! Clients that send exactly the given bytes.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::endpoint::TEST_TIMEOUT;

/// Speaks HTTP/1, byte by byte if need be.
pub(super) struct Client<S = TcpStream> {
    pub(super) stream: S,
    unread: Vec<u8>,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        Self::on(TcpStream::connect(address).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(super) fn on(stream: S) -> Self {
        Self { stream, unread: Vec::new() }
    }

    pub(super) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The body of the answer to a request for a path.
    pub(super) async fn get(&mut self, path: &str) -> String {
        self.say(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n")).await;
        self.answer().await.1
    }

    /// The head and the body of the next answer.
    pub(super) async fn answer(&mut self) -> (String, String) {
        timeout(TEST_TIMEOUT, self.read_answer()).await.expect("no answer came").unwrap()
    }

    /// How long it takes until the other side ends the connection, with everything that it says
    /// before.
    pub(super) async fn end(&mut self) -> (Duration, String) {
        let started = Instant::now();
        let mut rest = std::mem::take(&mut self.unread);
        let read = timeout(TEST_TIMEOUT, self.stream.read_to_end(&mut rest)).await;
        // That it is reset is also an end.
        let _ = read.expect("the connection goes on");
        (started.elapsed(), String::from_utf8_lossy(&rest).into_owned())
    }

    async fn read_answer(&mut self) -> io::Result<(String, String)> {
        let head_end = loop {
            if let Some(at) = self.unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more().await?;
        };
        let head = String::from_utf8_lossy(&self.unread[..head_end]).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        while self.unread.len() < head_end + length {
            self.read_more().await?;
        }
        let rest = self.unread.split_off(head_end + length);
        let body = String::from_utf8_lossy(&self.unread[head_end..]).into_owned();
        self.unread = rest;
        Ok((head, body))
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.unread).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Speaks HTTP/2.
pub(super) struct Http2Client(http2::SendRequest<Empty<Bytes>>);

impl Http2Client {
    pub(super) async fn on<S>(stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    pub(super) async fn get(&mut self, path: &str) -> hyper::Result<(StatusCode, String)> {
        let uri = format!("http://h{path}");
        self.send(Request::get(uri).body(Empty::new()).unwrap()).await
    }

    pub(super) async fn send(
        &mut self,
        request: Request<Empty<Bytes>>,
    ) -> hyper::Result<(StatusCode, String)> {
        self.0.ready().await?;
        let response = self.0.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// The body of the answer, not yet read.
    pub(super) async fn begin(&mut self, path: &str) -> Incoming {
        let request = Request::get(format!("http://h{path}")).body(Empty::new()).unwrap();
        self.0.send_request(request).await.unwrap().into_body()
    }

    /// Ends when the other side has closed the connection.
    pub(super) async fn end(&mut self) {
        let closed = async {
            while self.0.ready().await.is_ok() && !self.0.is_closed() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(TEST_TIMEOUT, closed).await.expect("the connection goes on");
    }

    /// Another sender on the same connection.
    pub(super) fn another(&self) -> Self {
        Self(self.0.clone())
    }
}
