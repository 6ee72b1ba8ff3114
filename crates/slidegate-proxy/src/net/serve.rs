//! A worker's share of an endpoint: accepting connections until the shutdown, then draining the
//! last ones out.

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

/// Serves connections until the shutdown, then drains the remaining ones for as long as
/// `timeouts.drain`, and cuts the rest.
///
/// Returns how many connections were cut, tunnels included. A tunnel that is left belongs to its own
/// task and ends with the runtime.
pub async fn serve<H: Handler>(
    sockets: Sockets,
    settings: Settings,
    handler: H,
    shutdown: CancellationToken,
) -> io::Result<usize> {
    run(sockets, ConnectionServer::new(settings, handler), shutdown).await
}

/// The same, for a protocol that is not HTTP.
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
    /// Every connection has a sender, so that this ends with the last of them.
    gone: mpsc::Receiver<Infallible>,
    here: mpsc::Sender<Infallible>,
}

impl<P: Protocol> ListenerWorker<P> {
    fn new(server: P) -> Self {
        let (here, gone) = mpsc::channel(1);
        Self { server: Arc::new(server), tasks: JoinSet::new(), gone, here }
    }

    fn serve(&mut self, socket: Socket, permit: OwnedSemaphorePermit) {
        let admitted = Admitted::new(permit, self.here.clone());
        self.tasks.spawn(Arc::clone(&self.server).serve(socket, admitted));
    }

    /// Returns how many connections were cut.
    async fn drain(self) -> usize {
        let Self { server, mut tasks, mut gone, here } = self;
        drop(here);
        server.settings().connections.drain();
        let all_gone = async {
            while let Some(ended) = tasks.join_next().await {
                report(ended);
            }
            gone.recv().await;
        };
        if timeout(server.settings().timeouts.drain, all_gone).await.is_ok() {
            return 0;
        }
        // Every connection has a sender, tunnels too.
        let connections = gone.sender_strong_count();
        tracing::warn!(
            connections,
            "cutting connections that are still busy after the drain timeout"
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
