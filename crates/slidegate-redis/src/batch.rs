//! Requests that leave for Redis, those that would wait anyway together.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::connection::RedisConnection;
use crate::error::RedisStoreError;
use crate::in_flight_batch::{self, Answered, BatchOutcome, BatchReply, PendingRequest};
use crate::script::{Request, Scripts};
use crate::store::LATEST;

/// Where requests leave for Redis. While few calls are under way a request leaves at once. Others
/// wait until one of the calls is back or late, or until there are enough for a full one, and leave
/// together: the server then has one command to read, one script to enter and one look at the clock
/// for all of them.
pub(crate) struct Batcher {
    connection: Arc<RedisConnection>,
    scripts: &'static Scripts,
    /// How long a call may take before nobody waits for it any more.
    deadline: Duration,
    state: Mutex<BatchQueue>,
    /// Whether the answers of a call are being told, and those who hear them have not asked again.
    telling: AtomicBool,
    /// Whether the server has said that requests cannot go together.
    apart: AtomicBool,
}

#[derive(Default)]
struct BatchQueue {
    /// Fewer than a full call has, in the order in which they came.
    waiting: Vec<(u64, PendingRequest)>,
    /// Of all that wait.
    ledgers: usize,
    /// Calls that are not late.
    under_way: usize,
    /// How many requests have come so far.
    tickets: u64,
}

/// With fewer calls under way than this, nobody waits for others. Two keep the server at work while
/// the answers of one are read.
const FEW: usize = 2;

/// Requests in a call. The server does nothing else meanwhile, a fifth of a millisecond for this
/// many, and what the call has once and not for each request is by then a thirtieth.
const MOST_REQUESTS: usize = 32;

/// Ledgers in a call: as many as are looked at in the same time.
pub(crate) const MOST_LEDGERS: usize = 64;

impl Batcher {
    pub(crate) fn new(
        connection: Arc<RedisConnection>,
        scripts: &'static Scripts,
        deadline: Duration,
    ) -> Self {
        let (telling, apart) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { connection, scripts, deadline, state: Mutex::default(), telling, apart }
    }

    /// Whether a request may go with others.
    pub(crate) fn takes(&self, request: &Request) -> bool {
        request.ledgers() <= MOST_LEDGERS && !self.apart.load(Ordering::Relaxed)
    }

    /// Lets a request leave, alone or with others. It has no more than [`MOST_LEDGERS`].
    pub(crate) fn enqueue(self: &Arc<Self>, request: Request) -> QueuedRequest {
        let (pending, awaited) = PendingRequest::new(request);
        let mut state = self.state();
        if state.ledgers + pending.request.ledgers() > MOST_LEDGERS {
            self.flush(&mut state);
        }
        let ticket = state.push(pending);
        if state.waiting.len() == MOST_REQUESTS {
            self.flush(&mut state);
        } else if state.under_way < FEW {
            self.start(&mut state, Vec::new());
        }
        QueuedRequest { batcher: self.clone(), ticket, awaited }
    }

    /// Makes a call of all who wait.
    fn flush(self: &Arc<Self>, state: &mut BatchQueue) {
        let pending = state.take();
        if !pending.is_empty() {
            self.start(state, pending);
        }
    }

    fn start(self: &Arc<Self>, state: &mut BatchQueue, pending: Vec<PendingRequest>) {
        state.under_way += 1;
        tokio::spawn(InFlightBatch { batcher: self.clone(), is_over: false }.go(pending));
    }

    async fn call(&self, pending: Vec<PendingRequest>) -> Answered {
        in_flight_batch::run(&self.connection, self.scripts, pending).await
    }

    fn tell(&self, answered: Answered) {
        if answered.tell(&self.connection, self.scripts) == BatchOutcome::OneByOne {
            self.apart.store(true, Ordering::Relaxed);
        }
    }

    fn state(&self) -> MutexGuard<'_, BatchQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchQueue {
    fn push(&mut self, pending: PendingRequest) -> u64 {
        let ticket = self.tickets;
        self.tickets += 1;
        self.ledgers += pending.request.ledgers();
        self.waiting.push((ticket, pending));
        ticket
    }

    fn take(&mut self) -> Vec<PendingRequest> {
        self.ledgers = 0;
        self.waiting.drain(..).map(|(_, pending)| pending).collect()
    }

    /// Removes a request; tells whether it was still waiting.
    fn remove(&mut self, ticket: u64) -> bool {
        let Ok(place) = self.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket) else {
            return false;
        };
        let (_, pending) = self.waiting.remove(place);
        self.ledgers -= pending.request.ledgers();
        true
    }
}

/// A call that is under way, and those that follow it while somebody waits.
struct InFlightBatch {
    batcher: Arc<Batcher>,
    is_over: bool,
}

impl InFlightBatch {
    async fn go(mut self, mut pending: Vec<PendingRequest>) {
        loop {
            if !pending.is_empty() {
                let batcher = self.batcher.clone();
                let mut call = Box::pin(async move { batcher.call(pending).await });
                match timeout(self.batcher.deadline, &mut call).await {
                    Ok(answered) => self.tell(answered).await,
                    Err(_) => return self.wait_on(call).await,
                }
            }
            // Whoever is about to ask, as many do who were answered just now, comes along.
            yield_now().await;
            self.batcher.telling.store(false, Ordering::Relaxed);
            match self.next() {
                Some(next) => pending = next,
                None => return,
            }
        }
    }

    /// Tells the answers. Redis writes those of all calls that it has read at once together, and
    /// would then have nothing to do until the next calls come, together again. So the next call
    /// leaves before others hear of theirs.
    async fn tell(&self, answered: Answered) {
        if self.batcher.telling.swap(true, Ordering::Relaxed) {
            yield_now().await;
        }
        self.batcher.tell(answered);
    }

    /// Waits for a call that is late.
    async fn wait_on(mut self, call: impl Future<Output = Answered>) {
        self.give_way();
        // What is not answered by then was lost with its connection.
        if let Ok(answered) = timeout(LATEST, call).await {
            self.batcher.tell(answered);
        }
    }

    /// Lets others go: this call is late and may never be back, as when its connection is dead.
    fn give_way(&mut self) {
        let mut state = self.batcher.state();
        state.under_way -= 1;
        self.is_over = true;
        self.batcher.flush(&mut state);
    }

    /// All who wait. If nobody does this is over, and the next who comes must start another.
    fn next(&mut self) -> Option<Vec<PendingRequest>> {
        let mut state = self.batcher.state();
        let pending = state.take();
        if pending.is_empty() {
            state.under_way -= 1;
            self.is_over = true;
            return None;
        }
        Some(pending)
    }
}

impl Drop for InFlightBatch {
    /// It may end halfway, with the runtime that it was started on.
    fn drop(&mut self) {
        if !self.is_over {
            self.batcher.state().under_way -= 1;
        }
    }
}

/// A request's place in the batcher. Whoever drops it before the request has left was never there.
pub(crate) struct QueuedRequest {
    batcher: Arc<Batcher>,
    ticket: u64,
    awaited: oneshot::Receiver<BatchReply>,
}

impl QueuedRequest {
    /// Waits for the answer.
    pub(crate) async fn answer(&mut self) -> BatchReply {
        let answer = (&mut self.awaited).await;
        // It went with its runtime; nobody knows whether Redis was asked.
        answer.unwrap_or_else(|_| {
            Err(RedisStoreError::Redis(io::Error::other("the call is gone").into()))
        })
    }

    /// Leaves the batcher; tells whether the request had not left yet.
    pub(crate) fn leave(&self) -> bool {
        self.batcher.state().remove(self.ticket)
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        if !self.awaited.is_terminated() {
            self.leave();
        }
    }
}
