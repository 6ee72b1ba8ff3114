//! A log of events that all processes on one Redis append to and read.

use std::sync::Arc;
use std::time::Duration;

use slidegate::{Quota, StoreError};

use crate::store::RedisStore;

/// Events in the order in which they were appended, for all processes on one Redis. Their text is up
/// to the application.
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
#[derive(Debug, Clone)]
pub struct EventLog {
    store: RedisStore,
    key: Arc<str>,
}

/// An entry of an [`EventLog`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedEvent {
    /// Its text.
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

impl RedisStore {
    /// The log of events beside the ledgers, for all stores whose key template begins alike.
    pub fn event_log(&self) -> EventLog {
        EventLog { store: self.clone(), key: format!("{}:events", self.shared_map_key()).into() }
    }
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

    /// Appends events that each last for some time, rounded up to a millisecond. An event that lasts
    /// no time is kept as long as those before it, and not appended if there are none.
    ///
    /// If it fails, the events may have been appended all the same, or some of them.
    pub async fn append<'t>(
        &self,
        events: impl IntoIterator<Item = (&'t str, Duration)>,
    ) -> Result<(), EventLogError> {
        let name = format!("{:016x}", fastrand::u64(..));
        let mut args = vec!["append".to_owned(), Self::MAX_EVENTS.to_string(), name];
        let mut count = 0;
        for (text, lasting) in events {
            if text.len() > Self::MAX_TEXT_BYTES {
                return Err(EventLogError::Text(text.len()));
            }
            if lasting > Self::LONGEST {
                return Err(EventLogError::Lasting(lasting));
            }
            let lasting_ms = lasting.as_nanos().div_ceil(1_000_000);
            args.extend([lasting_ms.to_string(), text.to_owned()]);
            count += 1;
        }
        match count {
            0 => Ok(()),
            1..=Self::MAX_BATCH => Ok(self.store.eval::<()>(SCRIPT, &self.key, &args).await?),
            _ => Err(EventLogError::Batch(count)),
        }
    }

    /// Reads what was appended after a position, or from the beginning.
    pub async fn read(&self, after: Option<&Position>) -> Result<EventBatch, EventLogError> {
        type Reply = (String, u64, bool, Vec<(u64, String)>);
        let args = ("read", after.map_or("", |position| &position.0), Self::MAX_BATCH);
        let (position, now_ms, restarted, events): Reply =
            self.store.eval(SCRIPT, &self.key, args).await?;
        let event = |(until_ms, text)| LoggedEvent { text, until_ms };
        let events = events.into_iter().map(event).collect();
        Ok(EventBatch { events, position: Position(position), now_ms, restarted })
    }
}

const SCRIPT: &str = concat!(include_str!("lua/clock.lua"), "\n", include_str!("lua/events.lua"));
