//! What the services of one layer share: from a request to a gate's answer.

use std::any::Any;
use std::sync::Arc;

use slidegate::{Facts, Gate, MemoryStore, Store};

use crate::client_address::{ClientAddress, ResolvedClient};
use crate::detector::Detectors;
use crate::facts::RequestHead;
use crate::path::PathReading;
use crate::responder::Responder;

/// What the services of one layer share.
#[derive(Debug)]
pub(crate) struct RequestLimiter<S> {
    pub(crate) gate: Arc<Gate<S>>,
    pub(crate) client_address: ClientAddress,
    pub(crate) paths: PathReading,
    pub(crate) responder: Responder,
    pub(crate) detectors: Arc<Detectors>,
}

impl<S: Store> RequestLimiter<S> {
    /// How else the path of a request may be read.
    pub(crate) fn other_paths(&self, head: RequestHead<'_>) -> Vec<String> {
        self.paths.readings(head.uri.path())
    }

    /// The facts about a request with these [other paths](Self::other_paths), from this sender if it
    /// is known.
    pub(crate) fn facts<'r>(
        &self,
        head: RequestHead<'r>,
        other_paths: &'r [String],
        sender: Option<ResolvedClient>,
    ) -> Facts<'r> {
        let facts = head.facts().other_paths(other_paths);
        let sender =
            sender.unwrap_or_else(|| self.client_address.sender(head.peer(), head.headers));
        let Some(peer) = sender.peer else {
            self.detectors.no_peer();
            return facts;
        };
        let facts = sender.client.map_or(facts, |client| facts.client(client));
        if sender.is_trusted {
            return facts.headers_trusted();
        }
        self.detectors.untrusted(peer, head.headers);
        facts
    }

    /// The gate, if its store answers at once.
    pub(crate) fn ready_gate(&self) -> Option<&Gate<MemoryStore>> {
        (&*self.gate as &dyn Any).downcast_ref()
    }
}

impl<S> Clone for RequestLimiter<S> {
    fn clone(&self) -> Self {
        Self {
            gate: self.gate.clone(),
            client_address: self.client_address.clone(),
            paths: self.paths,
            responder: self.responder.clone(),
            detectors: self.detectors.clone(),
        }
    }
}
