//! A time by which something must have happened.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

/// Rings when nothing has put it off for long enough. It is set for every request and nearly never
/// rings, so setting it costs a look at the clock: the timer itself stays where it is, and is moved
/// only when its time has come and the alarm's has not.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whom the timer wakes.
    sleeper: Option<Waker>,
}

impl Alarm {
    pub(crate) fn set(&mut self, patience: Duration) {
        self.at = Some(Instant::now() + patience);
    }

    pub(crate) fn stop(&mut self) {
        self.at = None;
    }

    pub(crate) fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Ready when it rings. Never if it is not set.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        let is_known = self.sleeper.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if at < timer.deadline() {
            timer.as_mut().reset(at);
        } else if is_known && !timer.is_elapsed() {
            return Poll::Pending;
        }
        if !is_known {
            self.sleeper = Some(cx.waker().clone());
        }
        // A task that has done much at once may be told to wait its turn. But it is not told apart
        // whether that is why it waits, and then nobody would wake it.
        while pin!(unconstrained(timer.as_mut())).poll(cx).is_ready() {
            if at <= timer.deadline() {
                self.at = None;
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    use tokio::task::coop::{consume_budget, has_budget_remaining};
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn it_rings_when_it_was_not_put_off() {
        let mut alarm = Alarm::default();
        let start = Instant::now();
        alarm.set(Duration::from_secs(5));
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx))).await.is_pending());
        tokio::time::advance(Duration::from_secs(3)).await;
        alarm.set(Duration::from_secs(5));
        poll_fn(|cx| alarm.poll(cx)).await;
        assert_eq!(start.elapsed().as_secs(), 8);
        assert!(!alarm.is_set());
        alarm.set(Duration::from_secs(60));
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx))).await.is_pending());
        alarm.set(Duration::from_secs(1));
        poll_fn(|cx| alarm.poll(cx)).await;
        assert_eq!(start.elapsed().as_secs(), 9, "it can be set to an earlier time");
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_for_a_task_that_has_used_up_its_turn() {
        let mut alarm = Alarm::default();
        alarm.set(Duration::from_secs(5));
        let first = poll_fn(|cx| {
            while has_budget_remaining() {
                let _ = pin!(consume_budget()).poll(cx);
            }
            Poll::Ready(alarm.poll(cx))
        });
        assert!(first.await.is_pending());
        let ringing = timeout(Duration::from_secs(60), poll_fn(|cx| alarm.poll(cx)));
        ringing.await.expect("it rings");
    }
}
