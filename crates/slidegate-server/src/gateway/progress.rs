//! Upload progress of a request's body, shared with the task that awaits the response.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// When a body last made progress, and which side has to act next.
#[derive(Debug)]
pub(crate) struct BodyProgress {
    began: Instant,
    last_ms: AtomicU64,
    /// The client has not sent the next piece. How long it may take is the body's own affair.
    awaits_client: AtomicBool,
    flaw: OnceLock<UploadError>,
}

/// What the client did to a body that has no good end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadError {
    /// It broke off, or sent what is no body.
    Broken,
    /// It stopped sending, and kept the connection.
    Stalled,
}

impl BodyProgress {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            last_ms: AtomicU64::new(0),
            awaits_client: AtomicBool::new(false),
            flaw: OnceLock::new(),
        }
    }

    /// The body has moved.
    pub(crate) fn made(&self) {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(ms, Ordering::Relaxed);
        self.awaits_client.store(false, Ordering::Relaxed);
    }

    /// The body could move, but the client has not sent more.
    pub(crate) fn await_client(&self) {
        self.awaits_client.store(true, Ordering::Relaxed);
    }

    /// The body has no good end, by the client's doing.
    pub(crate) fn spoil(&self, flaw: UploadError) {
        self.flaw.get_or_init(|| flaw);
    }

    pub(crate) fn flaw(&self) -> Option<UploadError> {
        self.flaw.get().copied()
    }

    /// Ends when from now on nothing has moved for this long, and not for want of the client's
    /// doing.
    pub(crate) async fn ceased_for(&self, patience: Duration) {
        self.made();
        loop {
            let now = Instant::now();
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let since =
                if self.awaits_client.load(Ordering::Relaxed) { now } else { self.began + last };
            if since + patience <= now {
                return;
            }
            sleep_until(since + patience).await;
        }
    }
}
