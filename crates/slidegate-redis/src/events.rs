//! A log of events that all who share a Redis can append to and read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use slidegate::{Quota, StoreError};

use crate::error::RedisStoreError;
use crate::store::RedisStore;

/// Events in the order in which they were appended, for all who share a Redis. What they say is up
/// to whoever appends them.
///
/// It is a Redis stream in one key, so a reader gets only what is new to it, however much there is.
/// It has room for [`MAX_EVENTS`](Self::MAX_EVENTS); the oldest make way. The key is gone when the
/// last event has ended. Every call is one round trip over the store's connection. It ends by the
/// store's deadline, or after a second if that is shorter.
///
/// ```no_run
/// use std::time::Duration;
///
/// use slidegate_redis::RedisStore;
///
/// # async fn tell() -> Result<(), Box<dyn std::error::Error>> {
/// let log = RedisStore::builder("redis://127.0.0.1:6379").build()?.event_log();
/// log.append([("first", Duration::from_secs(60)), ("second", Duration::from_secs(60))]).await?;
///
/// let batch = log.read(None).await?;
/// assert_eq!(batch.events[1].text, "second");
/// assert!(log.read(Some(&batch.position)).await?.events.is_empty(), "nothing new");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EventLog {
    store: RedisStore,
    key: Arc<str>,
}

/// An entry of an [`EventLog`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedEvent {
    /// What it says.
    pub text: String,
    /// When it ends, in Unix milliseconds by the server's clock. Events that have ended may still be
    /// in the log.
    pub until_ms: u64,
}

/// What was read from an [`EventLog`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBatch {
    /// Events that are new to the reader, the oldest first: at most
    /// [`EventLog::MAX_BATCH`]. If there are as many, more may follow.
    pub events: Vec<LoggedEvent>,
    /// Where to read on.
    pub position: Position,
    /// When it was read, in Unix milliseconds by the server's clock.
    pub now_ms: u64,
    /// Whether the log that the reader knew is gone or has lost its newest events, as after a
    /// failover. These events are then from the beginning.
    pub restarted: bool,
}

/// A position in an [`EventLog`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position(String);

/// Why something could not be done to an [`EventLog`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventLogError {
    /// Too many events at once.
    #[error("{0} events at once: expected at most {most}", most = EventLog::MAX_BATCH)]
    Batch(usize),
    /// The text is too long.
    #[error("a text of {0} bytes: expected at most {most}", most = EventLog::MAX_TEXT_BYTES)]
    Text(usize),
    /// The event would end too late.
    #[error("an event that lasts {0:?}: expected at most 366 days")]
    Lasting(Duration),
    /// Redis could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EventLog {
    /// How many events there can be at a time, ended ones among them.
    pub const MAX_EVENTS: usize = 10_000;
    /// How many events are appended or read at once.
    pub const MAX_BATCH: usize = 500;
    /// The longest text, in bytes.
    pub const MAX_TEXT_BYTES: usize = 1024;
    /// How long an event can last: as long as a ban.
    pub const LONGEST: Duration = Quota::MAX_WINDOW;

    pub(crate) fn new(store: RedisStore, key: String) -> Self {
        Self { store, key: key.into() }
    }

    /// Appends events that each last for some time, rounded up to a millisecond. An event that lasts
    /// no time is kept as long as those before it, and not appended if there are none.
    ///
    /// If it fails, the events may have been appended all the same, or some of them.
    pub async fn append<'t>(
        &self,
        events: impl IntoIterator<Item = (&'t str, Duration)>,
    ) -> Result<(), EventLogError> {
        let mut command = self.command("append");
        command.arg(Self::MAX_EVENTS).arg(format!("{:016x}", fastrand::u64(..)));
        let mut count = 0;
        for (text, lasting) in events {
            if text.len() > Self::MAX_TEXT_BYTES {
                return Err(EventLogError::Text(text.len()));
            }
            if lasting > Self::LONGEST {
                return Err(EventLogError::Lasting(lasting));
            }
            let lasting_ms = lasting.as_nanos().div_ceil(1_000_000) as u64;
            command.arg(lasting_ms).arg(text);
            count += 1;
        }
        match count {
            0 => Ok(()),
            1..=Self::MAX_BATCH => {
                self.store.send_in_background(&self.key, &command).await?;
                Ok(())
            }
            _ => Err(EventLogError::Batch(count)),
        }
    }

    /// Reads what was appended after a position, or from the beginning.
    pub async fn read(&self, after: Option<&Position>) -> Result<EventBatch, EventLogError> {
        let mut command = self.command("read");
        command.arg(after.map_or("", |position| &position.0)).arg(Self::MAX_BATCH);
        let reply = self.store.send_in_background(&self.key, &command).await?;
        batch(reply).ok_or_else(|| EventLogError::Store(RedisStoreError::Reply.into()))
    }

    /// The script is sent along: a server that has been started anew does not know it, and asking
    /// twice would be a second round trip.
    fn command(&self, what: &str) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(1).arg(&*self.key).arg(what);
        command
    }
}

const SCRIPT: &str = concat!(include_str!("lua/clock.lua"), "\n", include_str!("lua/events.lua"));

/// Position, time, whether it restarted, and then ends and texts in turn.
fn batch(reply: Value) -> Option<EventBatch> {
    let Value::Array(reply) = reply else { return None };
    let mut reply = reply.into_iter();
    let position = Position(String::from_redis_value(reply.next()?).ok()?);
    let now_ms = u64::from_redis_value(reply.next()?).ok()?;
    let restarted = u64::from_redis_value(reply.next()?).ok()? == 1;
    let mut events = Vec::with_capacity(reply.len() / 2);
    while let (Some(until_ms), Some(text)) = (reply.next(), reply.next()) {
        let until_ms = u64::from_redis_value(until_ms).ok()?;
        events.push(LoggedEvent { text: String::from_redis_value(text).ok()?, until_ms });
    }
    Some(EventBatch { events, position, now_ms, restarted })
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").field("store", &self.store).field("key", &self.key).finish()
    }
}
