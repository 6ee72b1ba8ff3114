//! Steps that many connections take together.

use std::task::{Context, Poll};

/// The wait for one's turn, while every other task that is ready has its own.
///
/// A connection that waits before each large step takes the step together with all others that are
/// at it: under load a worker reads from all of them, then decides for all of them, then writes to
/// all of them. So the processor keeps the code of a step in its caches, the kernel's above all, and
/// clients find several answers at a time. Who is alone is polled again at once.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    has_waited: bool,
}

impl Turn {
    /// Ready when polled again.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_waited {
            return Poll::Ready(());
        }
        self.has_waited = true;
        // Not `yield_now`, which has the runtime ask the kernel for events first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::{Arc, Mutex};

    use tokio::task::JoinSet;

    #[tokio::test]
    async fn all_take_a_step_before_one_takes_the_next() {
        let steps = Arc::<Mutex<Vec<(u32, char)>>>::default();
        let mut walkers = JoinSet::new();
        for who in ['a', 'b', 'c'] {
            let steps = Arc::clone(&steps);
            walkers.spawn(async move {
                for step in 1..=3 {
                    let mut turn = Turn::default();
                    poll_fn(|cx| turn.poll(cx)).await;
                    steps.lock().unwrap().push((step, who));
                }
            });
        }
        walkers.join_all().await;
        let steps = steps.lock().unwrap();
        assert_eq!(steps.len(), 9);
        assert!(steps.is_sorted(), "{steps:?}");
    }
}
