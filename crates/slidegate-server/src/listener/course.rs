//! The course of an HTTP/2 connection, which its client, the time and the shutdown decide between
//! them.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::HttpService;
use hyper_util::rt::TokioExecutor;
use tokio::time::{Instant, Sleep, sleep_until};

use super::activity::Activity;
use super::patience::{Patience, Phase};
use crate::shutdown::Shutdown;

/// How a connection came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// By an answer, at somebody's wish, or because something failed midway.
    Over,
    /// The client took too long.
    TimedOut,
}

/// Drives a connection to its end, which its client, its patience or the shutdown may bring about.
pub(super) async fn drive(
    connection: &mut impl HyperConnection,
    patience: Patience,
    activity: &Activity,
    shutdown: &mut Shutdown,
) -> ConnectionEnd {
    let mut begun = pin!(shutdown.begun());
    let mut timer = pin!(sleep_until(patience.deadline().unwrap_or_else(Instant::now)));
    let mut course = Course { connection, patience, is_finishing: false };
    let mut is_closing = false;
    poll_fn(|cx| {
        loop {
            is_closing = is_closing || begun.as_mut().poll(cx).is_ready();
            // Before the answer is written, so that the answer says it.
            if is_closing && course.patience.phase() == Phase::Busy {
                course.finish();
            }
            if let Poll::Ready(result) = Pin::new(&mut *course.connection).poll(cx) {
                if let Err(error) = result {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(error, "connection failed");
                }
                return Poll::Ready(ConnectionEnd::Over);
            }
            let phase = course.patience.look_at(activity);
            if is_closing && !course.is_finishing {
                course.finish();
                continue;
            }
            if !has_come(course.deadline(), timer.as_mut(), &course.patience, cx) {
                return Poll::Pending;
            }
            if phase != Phase::Idle || course.is_finishing {
                return Poll::Ready(ConnectionEnd::TimedOut);
            }
            is_closing = true;
        }
    })
    .await
}

/// A connection of hyper's.
pub(super) trait HyperConnection: Future<Output = hyper::Result<()>> + Unpin {
    /// Lets requests in flight be the last ones.
    fn finish(&mut self);
}

impl<I, S, B> HyperConnection for http2::Connection<I, S, TokioExecutor>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    B: http_body::Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    TokioExecutor: hyper::rt::bounds::Http2ServerConnExec<S::Future, B>,
{
    fn finish(&mut self) {
        Pin::new(self).graceful_shutdown();
    }
}

/// A connection on its way to its end.
struct Course<'a, C> {
    connection: &'a mut C,
    patience: Patience,
    is_finishing: bool,
}

impl<C: HyperConnection> Course<'_, C> {
    fn finish(&mut self) {
        if !self.is_finishing {
            self.is_finishing = true;
            self.patience.renew();
            self.connection.finish();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        if self.is_finishing { self.patience.last_deadline() } else { self.patience.deadline() }
    }
}

/// Whether a deadline has come. If not, the task is woken then, or earlier.
fn has_come(
    deadline: Option<Instant>,
    mut timer: Pin<&mut Sleep>,
    patience: &Patience,
    cx: &mut Context<'_>,
) -> bool {
    if let Some(deadline) = deadline
        && deadline < timer.deadline()
    {
        timer.as_mut().reset(deadline);
    }
    while timer.as_mut().poll(cx).is_ready() {
        match deadline {
            Some(deadline) if deadline <= timer.deadline() => return true,
            Some(deadline) => timer.as_mut().reset(deadline),
            None => timer.as_mut().reset(patience.next_look()),
        }
    }
    false
}
