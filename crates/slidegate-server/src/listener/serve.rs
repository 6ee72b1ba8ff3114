//! A worker's share of an endpoint: accepting connections until the shutdown, then draining the
//! last ones out.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use tokio::select;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use super::accept::Acceptor;
use super::bind::Sockets;
use super::connection::{Arrival, ConnectionContext, attend};
use super::guarded::ConnectionSlot;
use super::{Handler, Settings};
use crate::shutdown::{Shutdown, shutdown};

/// Serves connections until the shutdown, then drains the remaining ones for as long as
/// `timeouts.drain`, and cuts the rest.
///
/// Returns when all connections are gone, or the time is over. An upgraded connection that is left
/// then belongs to its tunnel and ends with the runtime.
pub(crate) async fn serve<A: Handler>(
    sockets: Sockets,
    settings: Settings,
    answer: A,
    mut stop: Shutdown,
) -> io::Result<()> {
    let mut acceptor = Acceptor::new(sockets, &settings.room, &settings.counts)?;
    let mut worker = ListenerWorker::new(settings, answer);
    loop {
        select! {
            biased;
            () = stop.begun() => break,
            Some(ended) = worker.tasks.join_next() => report(ended),
            (arrival, permit) = acceptor.next() => worker.attend(arrival, permit),
        }
    }
    for (arrival, permit) in acceptor.close() {
        worker.attend(arrival, permit);
    }
    worker.drain().await;
    Ok(())
}

/// A worker's connections.
struct ListenerWorker<A> {
    context: Arc<ConnectionContext>,
    answer: A,
    tasks: JoinSet<()>,
    /// Every connection has a sender, so that this ends with the last of them.
    gone: mpsc::Receiver<Infallible>,
    here: mpsc::Sender<Infallible>,
    closing: crate::shutdown::Closing,
    /// Of this worker alone, because all its connections ask whenever they are polled.
    shutdown: Shutdown,
}

impl<A: Handler> ListenerWorker<A> {
    fn new(settings: Settings, answer: A) -> Self {
        let (here, gone) = mpsc::channel(1);
        let (closing, shutdown) = shutdown();
        let context = Arc::new(ConnectionContext::new(settings));
        Self { context, answer, tasks: JoinSet::new(), gone, here, closing, shutdown }
    }

    fn attend(&mut self, arrival: Arrival, permit: OwnedSemaphorePermit) {
        let place = ConnectionSlot::new(&self.context.settings().counts, permit, self.here.clone());
        let (context, answer) = (Arc::clone(&self.context), self.answer.clone());
        self.tasks.spawn(attend(arrival, place, context, answer, self.shutdown.clone()));
    }

    async fn drain(self) {
        let Self { context, mut tasks, mut gone, here, closing, .. } = self;
        drop(here);
        closing.begin();
        let all_gone = async {
            while let Some(ended) = tasks.join_next().await {
                report(ended);
            }
            gone.recv().await;
        };
        if timeout(context.settings().timeouts.drain, all_gone).await.is_err() {
            tracing::warn!(
                connections = tasks.len(),
                "closing connections that are still busy after the drain timeout"
            );
            tasks.shutdown().await;
        }
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "connection task panicked");
    }
}
