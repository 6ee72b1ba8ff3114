//! Requests that one call decides.

use std::sync::Arc;

use redis::Value;
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::link::Link;
use crate::script::{Call, Request, Scripts, TIME_BYTES, answer_of};

/// What Redis says to a request.
pub(crate) type Answer = Result<Value, Failure>;

/// A request, and who waits for its answer.
pub(crate) struct Asker {
    pub(crate) request: Request,
    answer: oneshot::Sender<Answer>,
}

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The server takes such requests one by one only.
    Apart,
}

impl Asker {
    pub(crate) fn new(request: Request) -> (Self, oneshot::Receiver<Answer>) {
        let (answer, awaited) = oneshot::channel();
        (Self { request, answer }, awaited)
    }

    /// Tells the answer, unless nobody waits any more.
    fn tell(self, answer: Answer) {
        let _ = self.answer.send(answer);
    }
}

/// What came of a call, not yet told to anybody.
pub(crate) struct Answered {
    askers: Vec<Asker>,
    reply: Answer,
}

/// Has requests decided by one call.
pub(crate) async fn run(
    link: &Arc<Link>,
    scripts: &'static Scripts,
    askers: Vec<Asker>,
) -> Answered {
    let reply = link.run(&call(scripts, &askers)).await;
    Answered { askers, reply }
}

impl Answered {
    /// Tells everybody. What failed as a whole has failed for all of them.
    pub(crate) fn tell(self, link: &Arc<Link>, scripts: &'static Scripts) -> Outcome {
        let Self { askers, reply } = self;
        match reply {
            Ok(Value::BulkString(bytes)) if askers.len() > 1 => share_out(link, askers, &bytes),
            Err(failure) if askers.len() > 1 && is_of_one_key(&failure) => {
                for asker in askers {
                    let (link, call) = (link.clone(), call(scripts, std::slice::from_ref(&asker)));
                    tokio::spawn(async move { asker.tell(link.run(&call).await) });
                }
                let apart = failure.code() == Some("CROSSSLOT");
                return if apart { Outcome::Apart } else { Outcome::Done };
            }
            reply => askers.into_iter().for_each(|asker| asker.tell(reply.clone())),
        }
        Outcome::Done
    }
}

fn call(scripts: &'static Scripts, askers: &[Asker]) -> Call {
    let requests: Vec<&Request> = askers.iter().map(|asker| &asker.request).collect();
    Call::decide_all(scripts, &requests)
}

/// Whether a key of one request keeps the server from looking at the others: one that the user may
/// not touch, or that is kept elsewhere. Nothing has been done then.
fn is_of_one_key(failure: &Failure) -> bool {
    matches!(failure.code(), Some("NOPERM" | "CROSSSLOT"))
}

fn share_out(link: &Link, askers: Vec<Asker>, reply: &[u8]) {
    let (time, mut rest) = reply.split_at_checked(TIME_BYTES).unzip();
    for asker in askers {
        let answer = rest.and_then(|rest| answer_of(&asker.request, rest));
        rest = answer.as_ref().map(|(_, rest)| *rest);
        asker.tell(match answer {
            None => Err(Failure::Reply),
            Some((Ok(own), _)) => Ok(Value::BulkString([time.unwrap_or_default(), own].concat())),
            Some((Err(error), _)) => {
                link.refused(&error);
                Err(error.into())
            }
        });
    }
}
