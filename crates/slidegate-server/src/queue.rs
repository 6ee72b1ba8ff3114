//! Things on their way to a thread that may be slow or stuck.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

/// A thread with a bounded queue. Sending never blocks. When the queue is dropped, the thread has a
/// moment to process what was sent before.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    sender: QueueSender<T>,
    /// Closes when the thread ends; nothing is sent on it.
    ended: Receiver<()>,
}

/// Sends to a queue's thread.
#[derive(Debug)]
pub(crate) struct QueueSender<T>(SyncSender<QueueMessage<T>>);

/// What the thread is sent.
#[derive(Debug)]
pub(crate) struct QueueReceiver<T> {
    messages: Receiver<QueueMessage<T>>,
    is_over: bool,
}

#[derive(Debug)]
enum QueueMessage<T> {
    Item(T),
    Last,
}

/// A few megabytes of lines.
pub(crate) const MOST_WAITING: usize = 8192;
/// For what is still on its way when the process ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// Between two attempts to say farewell to a thread that is busy.
const PAUSE: Duration = Duration::from_millis(5);

impl<T: Send + 'static> Queue<T> {
    /// Starts the thread.
    pub(crate) fn start(
        name: &str,
        work: impl FnOnce(QueueReceiver<T>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, messages) = mpsc::sync_channel(MOST_WAITING);
        let (alive, ended) = mpsc::channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            work(QueueReceiver { messages, is_over: false });
            drop::<mpsc::Sender<()>>(alive);
        })?;
        Ok(Self { sender: QueueSender(sender), ended })
    }

    pub(crate) fn sender(&self) -> QueueSender<T> {
        self.sender.clone()
    }
}

impl<T> Queue<T> {
    /// Whether the thread ends in this time.
    fn ends_within(&self, time: Duration) -> bool {
        // Nothing is ever sent, so this is a timeout or the end.
        self.ended.recv_timeout(time) == Err(RecvTimeoutError::Disconnected)
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        for _ in 0..FAREWELL.as_millis() / PAUSE.as_millis() {
            if self.sender.0.try_send(QueueMessage::Last).is_ok() {
                self.ends_within(FAREWELL);
                return;
            }
            if self.ends_within(PAUSE) {
                return;
            }
        }
    }
}

impl<T> QueueSender<T> {
    /// Returns whether there was room.
    pub(crate) fn try_send(&self, item: T) -> bool {
        self.0.try_send(QueueMessage::Item(item)).is_ok()
    }
}

impl<T> Clone for QueueSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> QueueReceiver<T> {
    /// The next one, if it is there already.
    pub(crate) fn next_if_there(&mut self) -> Option<T> {
        let message = self.messages.try_recv().ok()?;
        self.item(message)
    }

    fn item(&mut self, message: QueueMessage<T>) -> Option<T> {
        match message {
            QueueMessage::Item(item) => Some(item),
            QueueMessage::Last => {
                self.is_over = true;
                None
            }
        }
    }
}

/// Waits for the next one, until there is to be no more.
impl<T> Iterator for QueueReceiver<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.is_over {
            return None;
        }
        let message = self.messages.recv().ok()?;
        self.item(message)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn what_was_sent_has_arrived_when_the_queue_is_gone() {
        let sum = Arc::new(AtomicUsize::new(0));
        let seen = sum.clone();
        let work = move |mut waiting: QueueReceiver<usize>| {
            while let Some(first) = waiting.next() {
                seen.fetch_add(first, Ordering::Relaxed);
                while let Some(more) = waiting.next_if_there() {
                    seen.fetch_add(more, Ordering::Relaxed);
                }
            }
        };
        let queue = Queue::start("test", work).unwrap();
        assert!((0..MOST_WAITING).all(|_| queue.sender().try_send(1)));
        drop(queue);
        assert_eq!(sum.load(Ordering::Relaxed), MOST_WAITING);
    }

    #[test]
    fn nobody_waits_for_a_stuck_thread() {
        let gate = Arc::new(Mutex::new(()));
        let shut = gate.lock().unwrap();
        let behind = gate.clone();
        let work = move |waiting: QueueReceiver<()>| waiting.for_each(|()| drop(behind.lock()));
        let queue = Queue::start("test", work).unwrap();
        let sent = (0..MOST_WAITING + 100).filter(|_| queue.sender().try_send(())).count();
        assert!(sent <= MOST_WAITING + 1, "{sent}");
        drop(queue);
        drop(shut);
    }
}
