//! Decisions on their way to Redis: those that would wait anyway share a script call.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redis::Value;
use slidegate::limit::Receipt;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::LATE_CALL_TIMEOUT;
use super::connection::RedisConnection;
use crate::error::RedisStoreError;
use crate::script::{AnswerReader, Request, ScriptCall};

/// Sends requests to Redis. While few calls are in flight a request leaves at once. Others wait until
/// one of the calls is answered or late, or until there are enough for a full one, and leave together:
/// the server then has one command to read, one script to enter and one look at the clock for all.
pub(crate) struct Batcher {
    connection: Arc<RedisConnection>,
    queue: Mutex<BatchQueue>,
    /// Whether answers are being delivered to callers that have not asked again yet.
    delivering: AtomicBool,
    /// Whether every request is a separate call: a cluster keeps keys in slots, and a call can only
    /// have keys of one slot.
    one_by_one: AtomicBool,
}

#[derive(Default)]
struct BatchQueue {
    /// Fewer than a full call has, in the order in which they came.
    waiting: Vec<PendingRequest>,
    /// Of all that wait.
    ledgers: usize,
    /// Calls that are not late.
    in_flight: usize,
    tickets: u64,
}

struct PendingRequest {
    ticket: u64,
    request: Request,
    answer: oneshot::Sender<Result<Receipt, RedisStoreError>>,
}

/// With fewer calls in flight than this, no request waits for others. Two keep the server at work
/// while the answers of one are read.
const IN_FLIGHT_BEFORE_BATCHING: usize = 2;

/// Requests in a call. The server does nothing else meanwhile, a fifth of a millisecond for this
/// many, and the cost of the call itself is by then a thirtieth.
const MAX_REQUESTS: usize = 32;

/// Ledgers in a call: as many as are looked at in the same time.
const MAX_LEDGERS: usize = 64;

impl Batcher {
    pub(crate) fn new(connection: Arc<RedisConnection>) -> Self {
        let one_by_one = AtomicBool::new(connection.address.is_cluster());
        let delivering = AtomicBool::new(false);
        Self { connection, queue: Mutex::default(), delivering, one_by_one }
    }

    /// Sends a request, alone or with others.
    pub(crate) fn enqueue(self: &Arc<Self>, request: Request) -> QueuedRequest {
        let (answer, awaited) = oneshot::channel();
        let mut queue = self.queue.lock();
        queue.tickets += 1;
        let ticket = queue.tickets;
        let pending = PendingRequest { ticket, request, answer };
        let ledgers = pending.request.ledgers();
        if ledgers > MAX_LEDGERS || self.one_by_one.load(Ordering::Relaxed) {
            self.send_alone(pending);
        } else {
            if queue.ledgers + ledgers > MAX_LEDGERS {
                self.flush(&mut queue);
            }
            queue.ledgers += ledgers;
            queue.waiting.push(pending);
            if queue.waiting.len() == MAX_REQUESTS {
                self.flush(&mut queue);
            } else if queue.in_flight < IN_FLIGHT_BEFORE_BATCHING {
                self.start(&mut queue, Vec::new());
            }
        }
        QueuedRequest { batcher: self.clone(), ticket, awaited }
    }

    /// Makes a call of all requests that wait.
    fn flush(self: &Arc<Self>, queue: &mut BatchQueue) {
        let batch = queue.take();
        if !batch.is_empty() {
            self.start(queue, batch);
        }
    }

    fn start(self: &Arc<Self>, queue: &mut BatchQueue, batch: Vec<PendingRequest>) {
        queue.in_flight += 1;
        let call = InFlightBatch { batcher: self.clone(), is_over: false };
        self.connection.spawn(call.run(batch));
    }

    fn send_alone(self: &Arc<Self>, pending: PendingRequest) {
        let batcher = self.clone();
        self.connection.spawn(async move {
            let batch = vec![pending];
            if let Ok(reply) = timeout(LATE_CALL_TIMEOUT, batcher.call(&batch)).await {
                batcher.deliver(batch, reply);
            }
        });
    }

    async fn call(&self, batch: &[PendingRequest]) -> Result<Value, RedisStoreError> {
        let requests: Vec<&Request> = batch.iter().map(|pending| &pending.request).collect();
        let name = self.connection.unique_name();
        let call = ScriptCall::decide(&self.connection.scripts, &requests, &name);
        self.connection.run(&call).await
    }

    /// Gives every caller its answer. What failed as a whole has failed for all of them.
    fn deliver(
        self: &Arc<Self>,
        batch: Vec<PendingRequest>,
        reply: Result<Value, RedisStoreError>,
    ) {
        match reply {
            Ok(reply) => {
                let mut answers = AnswerReader::new(&reply);
                for pending in batch {
                    let answer = answers.next(&pending.request);
                    if let Err(RedisStoreError::Redis(error)) = &answer {
                        self.connection.on_error_reply(error);
                    }
                    let _ = pending.answer.send(answer);
                }
            }
            // A key of one request keeps the server from looking at the others: one that the user may
            // not touch, or that is kept elsewhere. Nothing has been done then.
            Err(error)
                if batch.len() > 1 && matches!(error.code(), Some("NOPERM" | "CROSSSLOT")) =>
            {
                if error.code() == Some("CROSSSLOT") {
                    self.one_by_one.store(true, Ordering::Relaxed);
                }
                batch.into_iter().for_each(|pending| self.send_alone(pending));
            }
            Err(error) => {
                for pending in batch {
                    let _ = pending.answer.send(Err(error.clone()));
                }
            }
        }
    }
}

impl BatchQueue {
    fn take(&mut self) -> Vec<PendingRequest> {
        self.ledgers = 0;
        std::mem::take(&mut self.waiting)
    }
}

/// A call that is in flight, and those that follow it while requests wait.
struct InFlightBatch {
    batcher: Arc<Batcher>,
    is_over: bool,
}

impl InFlightBatch {
    async fn run(mut self, mut batch: Vec<PendingRequest>) {
        let batcher = self.batcher.clone();
        loop {
            if !batch.is_empty() {
                let mut call = Box::pin(batcher.call(&batch));
                let Ok(reply) = timeout(batcher.connection.deadline, &mut call).await else {
                    // It may never be answered, as when its connection is dead, and must not hold up others.
                    self.finish(&mut batcher.queue.lock());
                    batcher.flush(&mut batcher.queue.lock());
                    // What is not answered by then was lost with its connection.
                    if let Ok(reply) = timeout(LATE_CALL_TIMEOUT, call).await {
                        batcher.deliver(batch, reply);
                    }
                    return;
                };
                drop(call);
                // Redis writes the answers of all calls that it has read at once together, and would
                // then have nothing to do until the next calls come, together again. So the next call
                // leaves before the callers of another batch get their answers.
                if batcher.delivering.swap(true, Ordering::Relaxed) {
                    yield_now().await;
                }
                batcher.deliver(batch, reply);
            }
            // Callers that are about to ask, as many do that were answered just now, come along.
            yield_now().await;
            batcher.delivering.store(false, Ordering::Relaxed);
            let mut queue = batcher.queue.lock();
            batch = queue.take();
            if batch.is_empty() {
                return self.finish(&mut queue);
            }
        }
    }

    fn finish(&mut self, queue: &mut BatchQueue) {
        queue.in_flight -= 1;
        self.is_over = true;
    }
}

impl Drop for InFlightBatch {
    /// It may end halfway, with the runtime that it was started on.
    fn drop(&mut self) {
        if !self.is_over {
            self.batcher.queue.lock().in_flight -= 1;
        }
    }
}

/// A request that is waiting or in flight. One that is dropped before it has left is not sent.
pub(crate) struct QueuedRequest {
    batcher: Arc<Batcher>,
    ticket: u64,
    awaited: oneshot::Receiver<Result<Receipt, RedisStoreError>>,
}

impl QueuedRequest {
    pub(crate) async fn answer(&mut self) -> Result<Receipt, RedisStoreError> {
        let answer = (&mut self.awaited).await;
        // It went with its runtime, and Redis may have decided or not.
        let gone = |_| Err(RedisStoreError::Redis(io::Error::other("the call is gone").into()));
        answer.unwrap_or_else(gone)
    }

    /// Takes the request out of the queue. Returns whether it had not been sent yet.
    pub(crate) fn cancel(&self) -> bool {
        let mut queue = self.batcher.queue.lock();
        let place = queue.waiting.iter().position(|pending| pending.ticket == self.ticket);
        if let Some(place) = place {
            queue.ledgers -= queue.waiting.remove(place).request.ledgers();
        }
        place.is_some()
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        if !self.awaited.is_terminated() {
            self.cancel();
        }
    }
}
