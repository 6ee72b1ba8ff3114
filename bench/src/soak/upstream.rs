//! The service behind the gateway: notes what arrives, and answers as the request asks.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

use super::log::Log;

pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Carries the number of a request there and back.
pub const NUMBER: &str = "x-soak-number";

/// What a request asks the upstream for, in its query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// One line.
    Plain,
    /// One line and the body of the request.
    Echo,
    /// Lines with pauses between them.
    Stream,
    /// A mebibyte.
    Large,
    /// One line after a pause.
    Delay,
    /// One line, with status 401.
    Deny,
    /// An upgrade; what comes is sent back.
    Tunnel,
}

const PAUSE: Duration = Duration::from_millis(10);
const DELAY: Duration = Duration::from_millis(300);
const LINES: usize = 5;
const LARGE_BYTES: usize = 1 << 20;

impl Action {
    pub const ALL: [Self; 7] =
        [Self::Plain, Self::Echo, Self::Stream, Self::Large, Self::Delay, Self::Deny, Self::Tunnel];

    /// The body of the response to a request with this number and body.
    pub fn body(self, number: usize, received: &[u8]) -> Vec<u8> {
        let line = line(number);
        match self {
            Self::Plain | Self::Delay | Self::Deny => line,
            Self::Echo => [&line, received].concat(),
            Self::Stream => line.repeat(LINES),
            Self::Large => line.repeat(LARGE_BYTES / line.len()),
            Self::Tunnel => Vec::new(),
        }
    }

    /// What a request's query says.
    fn of(query: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| query == format!("{action:?}"))
    }
}

fn line(number: usize) -> Vec<u8> {
    format!("this is the response to {number}\n").into_bytes()
}

/// The number in a message's headers.
pub fn number(headers: &HeaderMap) -> Option<usize> {
    headers.get(NUMBER)?.to_str().ok()?.parse().ok()
}

/// A service that can be killed and started again at the same address.
pub struct Upstream {
    address: SocketAddr,
    log: Log,
    runtime: Handle,
    /// Dropped to end all tasks, and with them all connections.
    alive: Mutex<Option<watch::Sender<()>>>,
}

impl Upstream {
    pub fn start(log: &Log, runtime: &Handle) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut upstream =
            Self { address, log: log.clone(), runtime: runtime.clone(), alive: Mutex::default() };
        upstream.address = upstream.revive()?;
        Ok(upstream)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the listener and all connections, as the kernel does for a killed process.
    pub fn kill(&self) {
        *self.alive.lock().expect("no panic while locked") = None;
    }

    /// Listens again.
    pub fn revive(&self) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(self.address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (alive, ended) = watch::channel(());
        *self.alive.lock().expect("no panic while locked") = Some(alive);
        self.runtime.spawn(serve(listener, self.log.clone(), ended));
        Ok(address)
    }
}

async fn serve(listener: TcpListener, log: Log, ended: watch::Receiver<()>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("it is nonblocking");
    let mut over = ended.clone();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, _)| stream),
            _ = over.changed() => return,
        };
        let Ok(stream) = stream else { continue };
        let (log, ended, mut over) = (log.clone(), ended.clone(), ended.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(log.clone(), ended.clone(), request));
            let server = http1::Builder::new();
            let connection = server.serve_connection(TokioIo::new(stream), service).with_upgrades();
            tokio::select! {
                // Clients and the gateway may close it at any time.
                _ = connection => {}
                _ = over.changed() => {}
            }
        });
    }
}

async fn answer(
    log: Log,
    ended: watch::Receiver<()>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    let query = request.uri().query().unwrap_or_default();
    let (Some(action), Some(number)) = (Action::of(query), number(request.headers())) else {
        log.complain(format!("upstream received a request that was not sent so: {request:?}"));
        return Ok(Response::new(full(Vec::new())));
    };
    log.arrived(number);
    let mut response = Response::builder().header(NUMBER, number);
    let body = match action {
        Action::Tunnel => {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(echo(upgrade, ended));
            response = response.status(StatusCode::SWITCHING_PROTOCOLS);
            response = response.header(header::CONNECTION, "upgrade");
            response = response.header(header::UPGRADE, "websocket");
            full(Vec::new())
        }
        Action::Stream => {
            let lines = stream::iter(0..LINES).then(move |index| async move {
                if index > 0 {
                    sleep(PAUSE).await;
                }
                Ok::<_, Infallible>(Frame::data(line(number).into()))
            });
            StreamBody::new(lines).boxed_unsync()
        }
        action => {
            let received = request.into_body().collect().await?.to_bytes();
            if action == Action::Delay {
                sleep(DELAY).await;
            }
            if action == Action::Deny {
                response = response.status(StatusCode::UNAUTHORIZED);
            }
            full(action.body(number, &received))
        }
    };
    Ok(response.body(body).expect("valid headers"))
}

pub fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).boxed_unsync()
}

async fn echo(upgrade: hyper::upgrade::OnUpgrade, mut ended: watch::Receiver<()>) {
    let tunnel = async {
        let mut stream = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
        let mut bytes = [0; 1024];
        loop {
            match stream.read(&mut bytes).await? {
                0 => return Ok::<_, io::Error>(()),
                length => stream.write_all(&bytes[..length]).await?,
            }
        }
    };
    tokio::select! {
        // The client may close it at any time.
        _ = tunnel => {}
        _ = ended.changed() => {}
    }
}
