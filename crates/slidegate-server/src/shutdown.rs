//! The word that it is time to go.

use tokio::sync::watch;

/// Gives the word.
#[derive(Debug)]
pub(crate) struct Closing(watch::Sender<bool>);

/// Waits for the word. Clones all hear it.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown(watch::Receiver<bool>);

/// Somebody who can give the word, and what hears it.
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
    /// Ends when it is time to go; also if nobody is left to say so.
    pub(crate) async fn begun(&mut self) {
        let _ = self.0.wait_for(|begun| *begun).await;
    }

    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }
}
