//! Upgraded connections, handed over to another protocol.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::guarded::Guarded;
use super::stream::{Rewound, TransportStream};
use crate::streams::either_stream;

/// A client's stream, from the first byte after HTTP. It keeps its place among the connections.
#[derive(Debug)]
pub(crate) struct Upgraded(Rewound<Guarded<Rewound<TransportStream>>>);

either_stream!(Upgraded: Upgraded);

/// Waits for a connection to be handed over. Requests that ask for another protocol have it among
/// their extensions.
#[derive(Debug, Clone)]
pub(crate) struct OnUpgrade(Arc<Mutex<Option<oneshot::Receiver<Upgraded>>>>);

/// The connection's part: hands itself over, or is dropped if it is not wanted.
#[derive(Debug)]
pub(super) struct Handover(oneshot::Sender<Upgraded>);

/// Both parts of a connection that may be handed over.
pub(super) fn handover() -> (Handover, OnUpgrade) {
    let (sender, receiver) = oneshot::channel();
    (Handover(sender), OnUpgrade(Arc::new(Mutex::new(Some(receiver)))))
}

impl OnUpgrade {
    /// The connection, once the switching response was sent; `None` if it was not, or if the
    /// connection was taken already.
    pub(crate) async fn upgraded(self) -> Option<Upgraded> {
        let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        receiver.await.ok()
    }
}

impl Handover {
    /// Hands over the stream, with what was read of it too early.
    pub(super) fn complete(self, stream: Guarded<Rewound<TransportStream>>, unread: Bytes) {
        let mut stream = Rewound::new(stream);
        stream.unread(unread);
        // The receiver may be gone.
        let _ = self.0.send(Upgraded(stream));
    }
}
