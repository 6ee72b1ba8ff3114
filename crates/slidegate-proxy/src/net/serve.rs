//! The accept loop of one worker: accepts connections until shutdown, then drains the open ones.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use tokio::select;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::accept::Acceptor;
use super::bind::Sockets;
use super::connection::{ConnectionServer, Socket};
use super::connections::Admitted;
use super::raw::RawServer;
use super::{Handler, Protocol, RawHandler, Settings};

/// Serves connections until `shutdown`, then drains the open ones for up to `timeouts.drain` and
/// aborts the rest.
///
/// Returns how many connections were still open after the drain timeout, tunnels included. A tunnel
/// runs in a separate task and ends with the runtime.
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use slidegate_proxy::{
///     Accepted, Bounds, Handler, Listeners, RequestBody, Settings, Timeouts, serve,
/// };
/// use tokio_util::sync::CancellationToken;
///
/// struct Hello;
///
/// impl Handler for Hello {
///     type Body = Full<Bytes>;
///
///     async fn answer(&self, _: Accepted, _: Request<RequestBody>) -> Response<Full<Bytes>> {
///         Response::new(Full::from("hello"))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let listeners = Listeners::bind(&["127.0.0.1:0".parse().unwrap()], 1)?;
/// println!("listening on {}", listeners.local()[0]);
/// let settings = Settings::new(&Timeouts::default(), &Bounds::default());
/// let shutdown = CancellationToken::new();
/// # shutdown.cancel();
/// for sockets in listeners.into_workers() {
///     // With several runtimes, each serves on its own thread.
///     let open = serve(sockets, settings.clone(), Hello, shutdown.clone()).await?;
///     assert_eq!(open, 0, "all connections were drained");
/// }
/// # Ok(())
/// # }
/// ```
pub async fn serve<H: Handler>(
    sockets: Sockets,
    settings: Settings,
    handler: H,
    shutdown: CancellationToken,
) -> io::Result<usize> {
    run(sockets, ConnectionServer::new(settings, handler), shutdown).await
}

/// Like [`serve`], for a protocol other than HTTP.
pub async fn serve_raw<H: RawHandler>(
    sockets: Sockets,
    settings: Settings,
    handler: H,
    shutdown: CancellationToken,
) -> io::Result<usize> {
    run(sockets, RawServer { settings, handler }, shutdown).await
}

async fn run(
    sockets: Sockets,
    server: impl Protocol,
    shutdown: CancellationToken,
) -> io::Result<usize> {
    let mut acceptor = Acceptor::new(sockets, server.settings())?;
    let mut worker = ListenerWorker::new(server);
    loop {
        select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = worker.tasks.join_next() => report(ended),
            (socket, permit) = acceptor.next() => worker.serve(socket, permit),
        }
    }
    for (socket, permit) in acceptor.close() {
        worker.serve(socket, permit);
    }
    Ok(worker.drain().await)
}

/// A worker's connections.
struct ListenerWorker<P> {
    server: Arc<P>,
    tasks: JoinSet<()>,
    /// Closed once every connection has dropped its sender.
    closed: mpsc::Receiver<Infallible>,
    open: mpsc::Sender<Infallible>,
}

impl<P: Protocol> ListenerWorker<P> {
    fn new(server: P) -> Self {
        let (open, closed) = mpsc::channel(1);
        Self { server: Arc::new(server), tasks: JoinSet::new(), closed, open }
    }

    fn serve(&mut self, socket: Socket, permit: OwnedSemaphorePermit) {
        let admitted = Admitted::new(permit, self.open.clone());
        self.tasks.spawn(Arc::clone(&self.server).serve(socket, admitted));
    }

    /// Returns how many connections were aborted.
    async fn drain(self) -> usize {
        let Self { server, mut tasks, mut closed, open } = self;
        drop(open);
        server.settings().connections.drain();
        let all_closed = async {
            while let Some(ended) = tasks.join_next().await {
                report(ended);
            }
            closed.recv().await;
        };
        if timeout(server.settings().timeouts.drain, all_closed).await.is_ok() {
            return 0;
        }
        // Every connection holds a sender, and so does every tunnel.
        let connections = closed.sender_strong_count();
        tracing::warn!(
            connections,
            "aborting connections that are still open after the drain timeout"
        );
        tasks.shutdown().await;
        connections
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "connection task panicked");
    }
}
