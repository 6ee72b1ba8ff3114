//! Lines on their way to a stream that may be slow, stuck or closed.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_subscriber::fmt::MakeWriter;

use crate::queue::{Queue, QueueReceiver, QueueSender};

/// The queue of log lines and its writer thread. Logging never blocks a request: lines that find no
/// room are dropped and counted.
pub(crate) type LogQueue = Queue<Vec<u8>>;

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Lines that found no room, since the process started.
pub(crate) fn dropped_lines() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Starts the thread.
pub(super) fn start(stream: impl Write + Send + 'static) -> io::Result<LogQueue> {
    Queue::start("log", move |waiting| write_all(waiting, stream))
}

/// Writes until the queue is closed. A line that cannot be written is lost.
fn write_all(waiting: QueueReceiver<Vec<u8>>, mut stream: impl Write) {
    for line in waiting {
        let _ = stream.write_all(&line);
    }
    let _ = stream.flush();
}

/// Makes a writer for each line.
#[derive(Debug, Clone)]
pub(super) struct Writers(QueueSender<Vec<u8>>);

impl Writers {
    pub(super) fn to(lines: &LogQueue) -> Self {
        Self(lines.sender())
    }
}

/// Takes one line.
#[derive(Debug)]
pub(super) struct LineWriter<'a>(&'a QueueSender<Vec<u8>>);

impl<'a> MakeWriter<'a> for Writers {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> LineWriter<'a> {
        LineWriter(&self.0)
    }
}

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.0.try_send(line.to_vec()) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::logs::tests::Kept;
    use crate::queue::MOST_WAITING;

    #[test]
    fn what_was_logged_is_there_when_the_queue_is_gone() {
        let kept = Kept::default();
        let queue = start(kept.clone()).unwrap();
        let writers = Writers::to(&queue);
        for i in 0..1000 {
            writers.make_writer().write_all(format!("{i}\n").as_bytes()).unwrap();
        }
        drop(queue);
        assert_eq!(kept.text().lines().count(), 1000);
    }

    /// A stream that is never read.
    struct Stuck(Arc<Mutex<()>>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            drop(self.0.lock());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A stream whose reader is gone.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_stuck_stream_holds_nobody_up_and_a_closed_one_hurts_nobody() {
        let gate = Arc::new(Mutex::new(()));
        let shut = gate.lock().unwrap();
        let queue = start(Stuck(gate.clone())).unwrap();
        let before = dropped_lines();
        for _ in 0..MOST_WAITING + 100 {
            Writers::to(&queue).make_writer().write_all(b"line\n").unwrap();
        }
        assert!(dropped_lines() - before >= 99);
        drop(shut);
        drop(queue);
        let queue = start(Closed).unwrap();
        Writers::to(&queue).make_writer().write_all(b"line\n").unwrap();
        drop(queue);
    }
}
