//! Graceful-shutdown signal.

use tokio::sync::watch;

/// Triggers the shutdown.
#[derive(Debug)]
pub(crate) struct Closing(watch::Sender<bool>);

/// Waits for the shutdown. All clones are notified.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown(watch::Receiver<bool>);

/// A trigger and its receiver.
pub(crate) fn shutdown() -> (Closing, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Closing(sender), Shutdown(receiver))
}

impl Closing {
    pub(crate) fn begin(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Completes when the shutdown is triggered or its trigger is dropped.
    pub(crate) async fn begun(&mut self) {
        let _ = self.0.wait_for(|begun| *begun).await;
    }

    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }
}
