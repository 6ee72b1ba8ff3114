//! Threads that serve, each with a runtime of its own: no request ever waits for another thread.

use std::io;
use std::thread::{self, JoinHandle};

use anyhow::Context;

/// How many tasks are polled before the kernel is asked for news, if tasks are ready all the time.
/// More than tokio's 61, because a connection is polled three times for a request. Nobody waits
/// longer for it: what is new goes behind what is ready.
const POLLS_BETWEEN_EVENTS: u32 = 256;

/// Threads that serve.
#[derive(Debug, Default)]
pub(crate) struct Workers(Vec<JoinHandle<()>>);

impl Workers {
    /// Begins one more. It ends when what it serves does.
    pub(crate) fn begin<F>(
        &mut self,
        serve: impl FnOnce() -> F + Send + 'static,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = ()>,
    {
        let index = self.0.len();
        let runtime = runtime().with_context(|| format!("cannot begin worker {index}"))?;
        let thread = thread::Builder::new().name(format!("worker-{index}"));
        let thread = thread.spawn(move || runtime.block_on(serve()));
        self.0.push(thread.with_context(|| format!("cannot begin worker {index}"))?);
        Ok(())
    }

    /// Waits until all have ended.
    pub(crate) fn join(self) {
        for worker in self.0 {
            if worker.join().is_err() {
                tracing::error!("worker thread panicked");
            }
        }
    }
}

/// A runtime for one thread.
pub(crate) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.event_interval(POLLS_BETWEEN_EVENTS).enable_all().build()
}
