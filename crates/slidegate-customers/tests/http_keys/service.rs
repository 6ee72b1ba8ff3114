//! A service that knows keys, on the test's own runtime and clock.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use slidegate::policy::KeyHash;
use slidegate_customers::HttpKeysConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// Longer than anything here takes on a slow and busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A service on a port of loopback that knows no key at first. It ends on drop, and with it all its
/// connections.
pub(crate) struct Service {
    address: SocketAddr,
    state: Arc<State>,
    accept: AbortHandle,
}

#[derive(Default)]
struct State {
    replies: Mutex<HashMap<String, Reply>>,
    received: Mutex<Vec<Parts>>,
    is_held: watch::Sender<bool>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
}

type Reply = (u16, String);

impl Service {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn start_at(address: SocketAddr) -> Self {
        Self::serve(address, |stream| async { Some(stream) }).await
    }

    pub(crate) async fn start_tls(tls: TlsAcceptor) -> Self {
        let accept = move |stream| {
            let accept = tls.accept(stream);
            async { accept.await.ok() }
        };
        Self::serve("127.0.0.1:0".parse().unwrap(), accept).await
    }

    async fn serve<S, F>(
        address: SocketAddr,
        handshake: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        F: Future<Output = Option<S>> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.expect("the port is free");
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let of_task = Arc::clone(&state);
        let accept = tokio::spawn(async move {
            // Aborts the connections as it is dropped.
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (state, stream) = (Arc::clone(&of_task), handshake(stream));
                connections.spawn(async move {
                    let Some(stream) = stream.await else { return };
                    let answer = service_fn(|request| state.answer(request));
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        Self { address, state, accept: accept.abort_handle() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn config(&self) -> HttpKeysConfig {
        HttpKeysConfig::new(format!("http://{}/keys/{{digest}}", self.address))
    }

    /// Answers look-ups of this key so from now on.
    pub(crate) fn reply(&self, key: &str, status: u16, body: impl Into<String>) {
        let path = format!("/keys/{}", KeyHash::Slidegate.hex(key.as_bytes()));
        self.state.replies.lock().unwrap().insert(path, (status, body.into()));
    }

    /// Holds back all answers.
    pub(crate) fn hold(&self) {
        self.state.is_held.send_replace(true);
    }

    /// Sends the answers that were held back.
    pub(crate) fn release(&self) {
        self.state.is_held.send_replace(false);
    }

    /// How many look-ups it has received.
    pub(crate) fn received(&self) -> usize {
        self.state.received.lock().unwrap().len()
    }

    pub(crate) async fn until_received(&self, count: usize) {
        until("look-ups to arrive", || self.received() >= count).await;
    }

    pub(crate) fn last(&self) -> Parts {
        self.state.received.lock().unwrap().last().expect("it has received a look-up").clone()
    }

    /// The most look-ups that it has had at once.
    pub(crate) fn most_in_flight(&self) -> usize {
        self.state.most_in_flight.load(Ordering::SeqCst)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

impl State {
    async fn answer(
        &self,
        request: Request<hyper::body::Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(in_flight, Ordering::SeqCst);
        let (head, _) = request.into_parts();
        let path = head.uri.path().to_owned();
        self.received.lock().unwrap().push(head);
        let _ = self.is_held.subscribe().wait_for(|is_held| !is_held).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        let reply = self.replies.lock().unwrap().get(&path).cloned();
        let (status, body) = reply.unwrap_or((404, String::new()));
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        if response.status().is_redirection() {
            response.headers_mut().insert("location", "/keys/elsewhere".parse().unwrap());
        }
        Ok(response)
    }
}

/// A server that sends these bytes for each request, and then nothing.
pub(crate) async fn sending(bytes: &'static [u8]) -> HttpKeysConfig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut connections = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(bytes).await;
            connections.push(stream);
        }
    });
    HttpKeysConfig::new(format!("http://{address}/{{digest}}"))
}

/// Returns as soon as the condition holds, without moving a paused clock.
#[expect(clippy::disallowed_methods, reason = "tokio's clock is paused")]
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < TIMEOUT, "waited in vain for {what}");
        tokio::task::yield_now().await;
    }
}

/// While this lives, a paused clock moves only by `advance`, also while sockets are waited for.
pub(crate) struct StillTime(
    #[expect(dead_code, reason = "its drop counts")] std::sync::mpsc::Sender<()>,
);

impl StillTime {
    pub(crate) fn begin() -> Self {
        let (end, ended) = std::sync::mpsc::channel();
        // tokio does not advance a paused clock while a blocking task runs.
        tokio::task::spawn_blocking(move || ended.recv());
        Self(end)
    }
}
