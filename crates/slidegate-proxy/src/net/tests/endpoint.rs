//! An endpoint with worker threads of its own, and what it answers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ::http::{Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::net::{Accepted, ConnectionTable, Handler, Listeners, RequestBody, Settings, serve};
use crate::{Bounds, ListenAddress, Timeouts};

/// Longer than anything takes that is to happen, even on a busy machine.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Long enough for tests, except for those that wait for one of them.
pub(super) fn timeouts() -> Timeouts {
    Timeouts { head: TEST_TIMEOUT, idle: TEST_TIMEOUT, drain: TEST_TIMEOUT, ..Timeouts::default() }
}

/// An endpoint, and the threads behind it.
pub(super) struct Endpoint {
    pub(super) local: Vec<ListenAddress>,
    pub(super) counts: Counts,
    pub(super) answers: Arc<Answers>,
    shutdown: CancellationToken,
    workers: Vec<JoinHandle<()>>,
}

impl Endpoint {
    /// A plain endpoint for `127.0.0.1`.
    pub(super) fn open(timeouts: &Timeouts) -> Self {
        Self::with_bounds(timeouts, &Bounds::default())
    }

    pub(super) fn with_bounds(timeouts: &Timeouts, bounds: &Bounds) -> Self {
        let settings = Settings::new(timeouts, bounds);
        Self::with(Listeners::bind(&[anywhere()], 1).unwrap(), &settings)
    }

    pub(super) fn with(listeners: Listeners, settings: &Settings) -> Self {
        Self::start(listeners, settings, CancellationToken::new())
    }

    /// An endpoint that is to close before it has opened.
    pub(super) fn drained_at_start(listeners: Listeners, settings: &Settings) -> Self {
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        Self::start(listeners, settings, shutdown)
    }

    fn start(listeners: Listeners, settings: &Settings, shutdown: CancellationToken) -> Self {
        let answers = Arc::new(Answers::default());
        let local = listeners.local().to_vec();
        let counts = Counts(Arc::clone(settings.connections()));
        let spawn = |(number, sockets)| {
            let (settings, shutdown) = (settings.clone(), shutdown.clone());
            let answer = Tester { worker: number, answers: Arc::clone(&answers) };
            thread::spawn(move || work(serve(sockets, settings, answer, shutdown)))
        };
        let workers = listeners.into_workers().into_iter().enumerate().map(spawn).collect();
        Self { local, counts, answers, shutdown, workers }
    }

    pub(super) fn address(&self) -> SocketAddr {
        match self.local[0] {
            ListenAddress::Tcp(address) => address,
            ListenAddress::Unix(_) => panic!("not a TCP address"),
        }
    }

    /// Says that it is time to go.
    pub(super) fn begin_to_close(&self) {
        self.shutdown.cancel();
    }

    /// Whether all workers are done.
    pub(super) fn is_closed(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Says that it is time to go, and waits until everybody is gone.
    pub(super) async fn close(self) {
        self.shutdown.cancel();
        until("the endpoint is closed", || self.is_closed()).await;
        for worker in self.workers {
            worker.join().unwrap();
        }
    }
}

/// What a listener has counted.
pub(super) struct Counts(Arc<ConnectionTable>);

impl Counts {
    pub(super) fn open(&self) -> u64 {
        self.0.counts().open.load(Ordering::Relaxed)
    }

    pub(super) fn accepted(&self) -> u64 {
        self.0.counts().accepted.load(Ordering::Relaxed)
    }

    pub(super) fn waited(&self) -> u64 {
        self.0.counts().waited.load(Ordering::Relaxed)
    }

    pub(super) fn untrusted(&self) -> u64 {
        self.0.counts().untrusted.load(Ordering::Relaxed)
    }

    pub(super) fn over_address_limit(&self) -> u64 {
        self.0.counts().over_address_limit.load(Ordering::Relaxed)
    }

    pub(super) fn tls_failures(&self) -> u64 {
        self.0.counts().tls_failures.load(Ordering::Relaxed)
    }

    pub(super) fn proxy_header_failures(&self) -> u64 {
        self.0.counts().proxy_header_failures.load(Ordering::Relaxed)
    }

    pub(super) fn timeouts(&self) -> u64 {
        self.0.counts().timeouts.load(Ordering::Relaxed)
    }
}

/// What a worker thread does.
fn work(serving: impl Future<Output = std::io::Result<usize>>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(serving).unwrap();
}

pub(super) fn anywhere() -> ListenAddress {
    ListenAddress::Tcp("127.0.0.1:0".parse().unwrap())
}

pub(super) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let look = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, look)
        .await
        .unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

/// What tests know of the answers, and do about them.
#[derive(Debug)]
pub(super) struct Answers {
    /// Requests for `/wait` that have come.
    pub(super) waiting: AtomicUsize,
    /// A permit for each request for `/wait` that may be answered.
    pub(super) go: Semaphore,
}

impl Default for Answers {
    fn default() -> Self {
        Self { waiting: AtomicUsize::new(0), go: Semaphore::new(0) }
    }
}

/// Answers by path.
#[derive(Debug, Clone)]
struct Tester {
    worker: usize,
    answers: Arc<Answers>,
}

type AnyBody = BoxBody<Bytes, Infallible>;

impl Handler for Tester {
    type Body = AnyBody;

    async fn answer(&self, accepted: Accepted, request: Request<RequestBody>) -> Response<AnyBody> {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/accepted" => text(format!("{:?} {}", accepted.peer, accepted.secure)),
            "/worker" => text(self.worker.to_string()),
            "/length" => {
                let body = request.into_body().collect().await;
                text(body.map_or(0, |body| body.to_bytes().len()).to_string())
            }
            "/wait" => {
                self.answers.waiting.fetch_add(1, Ordering::SeqCst);
                self.answers.go.acquire().await.unwrap().forget();
                text("waited".to_owned())
            }
            "/endless" => Response::new(Endless.boxed()),
            "/panic" => panic!("a mistake, made on purpose"),
            "/upgrade" => upgrade(request),
            _ => text(format!("{} {path}", request.method())),
        }
    }
}

fn text(text: String) -> Response<AnyBody> {
    Response::new(Full::from(text).boxed())
}

/// Says back what it hears.
fn upgrade(mut request: Request<RequestBody>) -> Response<AnyBody> {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let upgraded = TokioIo::new(upgrade.await.unwrap());
        let (mut reader, mut writer) = tokio::io::split(upgraded);
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    });
    let mut response = text(String::new());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::CONNECTION, "upgrade".parse().unwrap());
    response.headers_mut().insert(header::UPGRADE, "echo".parse().unwrap());
    response
}

/// A body that has always more.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16 * 1024])))))
    }
}
