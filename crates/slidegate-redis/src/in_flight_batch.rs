//! Requests that one call decides.

use std::sync::Arc;

use redis::Value;
use tokio::sync::oneshot;

use crate::connection::RedisConnection;
use crate::error::RedisStoreError;
use crate::script::{Request, ScriptCall, Scripts, TIME_BYTES, answer_of};

/// What Redis says to a request.
pub(crate) type BatchReply = Result<Value, RedisStoreError>;

/// A request, and who waits for its answer.
pub(crate) struct PendingRequest {
    pub(crate) request: Request,
    answer: oneshot::Sender<BatchReply>,
}

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchOutcome {
    Done,
    /// The server takes such requests one by one only.
    OneByOne,
}

impl PendingRequest {
    pub(crate) fn new(request: Request) -> (Self, oneshot::Receiver<BatchReply>) {
        let (answer, awaited) = oneshot::channel();
        (Self { request, answer }, awaited)
    }

    /// Tells the answer, unless nobody waits any more.
    fn tell(self, answer: BatchReply) {
        let _ = self.answer.send(answer);
    }
}

/// What came of a call, not yet told to anybody.
pub(crate) struct Answered {
    pending: Vec<PendingRequest>,
    reply: BatchReply,
}

/// Has requests decided by one call.
pub(crate) async fn run(
    connection: &Arc<RedisConnection>,
    scripts: &'static Scripts,
    pending: Vec<PendingRequest>,
) -> Answered {
    let reply = connection.run(&call(scripts, &pending)).await;
    Answered { pending, reply }
}

impl Answered {
    /// Tells everybody. What failed as a whole has failed for all of them.
    pub(crate) fn tell(
        self,
        connection: &Arc<RedisConnection>,
        scripts: &'static Scripts,
    ) -> BatchOutcome {
        let Self { pending, reply } = self;
        match reply {
            Ok(Value::BulkString(bytes)) if pending.len() > 1 => {
                share_out(connection, pending, &bytes)
            }
            Err(failure) if pending.len() > 1 && is_of_one_key(&failure) => {
                for pending in pending {
                    let (connection, call) =
                        (connection.clone(), call(scripts, std::slice::from_ref(&pending)));
                    tokio::spawn(async move { pending.tell(connection.run(&call).await) });
                }
                let apart = failure.code() == Some("CROSSSLOT");
                return if apart { BatchOutcome::OneByOne } else { BatchOutcome::Done };
            }
            reply => pending.into_iter().for_each(|pending| pending.tell(reply.clone())),
        }
        BatchOutcome::Done
    }
}

fn call(scripts: &'static Scripts, pending: &[PendingRequest]) -> ScriptCall {
    let requests: Vec<&Request> = pending.iter().map(|pending| &pending.request).collect();
    ScriptCall::decide_all(scripts, &requests)
}

/// Whether a key of one request keeps the server from looking at the others: one that the user may
/// not touch, or that is kept elsewhere. Nothing has been done then.
fn is_of_one_key(failure: &RedisStoreError) -> bool {
    matches!(failure.code(), Some("NOPERM" | "CROSSSLOT"))
}

fn share_out(connection: &RedisConnection, pending: Vec<PendingRequest>, reply: &[u8]) {
    let (time, mut rest) = reply.split_at_checked(TIME_BYTES).unzip();
    for pending in pending {
        let answer = rest.and_then(|rest| answer_of(&pending.request, rest));
        rest = answer.as_ref().map(|(_, rest)| *rest);
        pending.tell(match answer {
            None => Err(RedisStoreError::Reply),
            Some((Ok(own), _)) => Ok(Value::BulkString([time.unwrap_or_default(), own].concat())),
            Some((Err(error), _)) => {
                connection.refused(&error);
                Err(error.into())
            }
        });
    }
}
