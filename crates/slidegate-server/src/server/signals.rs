//! The signals that end the server.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, and Ctrl-C.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: listen(terminate)?, interrupt: listen(interrupt)? })
    }

    /// Ends when one comes.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
