//! Timeouts that are set for every request and rarely elapse.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

/// A deadline that is cheap to move.
///
/// Moving it to a later time leaves the runtime's timer unchanged; when the timer fires too early,
/// it is reset.
#[derive(Debug, Default)]
pub(crate) struct IdleTimeout {
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleTimeout {
    pub(crate) fn after(time: Duration) -> Self {
        Self { deadline: Some(Instant::now() + time), timer: None }
    }

    pub(crate) fn set(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    pub(crate) fn stop(&mut self) {
        self.deadline = None;
    }

    pub(crate) fn is_set(&self) -> bool {
        self.deadline.is_some()
    }

    /// Ready once the deadline has passed. Always pending without a deadline.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            // A peer that always has more to read exhausts the task's coop budget, and without
            // budget a timer never completes.
            ready!(pin!(unconstrained(timer.as_mut())).poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_holds_however_it_was_moved() {
        let start = Instant::now();
        let mut timeout = IdleTimeout::after(Duration::from_secs(5));
        let mut after = async |seconds| {
            timeout.set(start + Duration::from_secs(seconds));
            poll_fn(|cx| timeout.poll(cx)).await;
            start.elapsed().as_secs()
        };
        assert_eq!(
            [after(3).await, after(9).await, after(20).await, after(21).await],
            [3, 9, 20, 21]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_deadline_nothing_ends() {
        let mut timeout = IdleTimeout::after(Duration::from_secs(1));
        timeout.stop();
        let ended = poll_fn(|cx| timeout.poll(cx));
        assert!(tokio::time::timeout(Duration::from_secs(60), ended).await.is_err());
    }
}
