//! Runs what may block on a file on threads that serve nothing, with a deadline.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::setpriority_process;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// Many times what a configuration with a million keys takes, so that a busy machine does not fail it.
/// Only a file system that does not answer takes longer.
const DEADLINE: Duration = Duration::from_secs(60);

/// A large file of keys takes a processor for seconds. Where there are more loads than processors,
/// the threads that serve go first. The blocking threads of this runtime do nothing but read and write
/// files.
const NICENESS: i32 = 10;

/// How often to check whether requests in flight, most of which take milliseconds, have ended.
const IN_FLIGHT_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a bounded number of loads. One that misses its deadline is abandoned, and counts until it
/// ends: a thread that is blocked on a file cannot be stopped.
#[derive(Debug)]
pub(crate) struct Loader(Arc<Semaphore>);

impl Loader {
    /// For so many loads at once.
    pub(crate) fn new(max_loads: usize) -> Self {
        Self(Arc::new(Semaphore::new(max_loads)))
    }

    /// Runs a load on a blocking thread of low priority and waits for it until the deadline.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        load: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let Ok(permit) = self.0.clone().try_acquire_owned() else {
            bail!("earlier loads still wait for a file that cannot be read");
        };
        let task = spawn_blocking(move || {
            let _permit = permit;
            // Of this thread alone, on Linux. Without it a load is as good, and others wait for it.
            let _ = setpriority_process(None, NICENESS);
            load()
        });
        match timeout(DEADLINE, task).await {
            Ok(loaded) => loaded.context("the load panicked"),
            Err(_) => {
                let seconds = DEADLINE.as_secs();
                bail!("not loaded within {seconds} s: is the file system of a file stuck?")
            }
        }
    }
}

/// Frees what takes long to free, such as a hundred thousand keys, on a thread that serves nothing.
pub(crate) fn free(value: impl Send + 'static) {
    spawn_blocking(move || drop(value));
}

/// The same for what requests in flight may still have, once none has: the last one would free it.
pub(crate) async fn free_unused<T: Send + Sync + 'static>(value: Arc<T>) {
    while Arc::strong_count(&value) > 1 {
        sleep(IN_FLIGHT_POLL_INTERVAL).await;
    }
    free(value);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_load_that_hangs_is_abandoned_and_only_so_many_are() {
        let loader = Loader::new(2);
        let mut stuck = Vec::new();
        for _ in 0..2 {
            let (end, ended) = mpsc::channel::<()>();
            stuck.push(end);
            let load = loader.run(move || ended.recv());
            // The clock does not go on by itself while a thread is blocked.
            let (error, ()) = tokio::join!(load, tokio::time::advance(DEADLINE));
            assert!(error.unwrap_err().to_string().contains("within 60 s"));
        }
        let refused = loader.run(|| 1).await.unwrap_err().to_string();
        assert!(refused.contains("earlier loads"), "{refused}");
        stuck.clear();
        tokio::time::resume();
        while loader.0.available_permits() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(loader.run(|| 1).await.unwrap(), 1);
    }
}
