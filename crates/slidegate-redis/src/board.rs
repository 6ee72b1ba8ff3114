//! A board of notices that all who share a Redis can read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use slidegate::{Quota, StoreError};

use crate::failure::Failure;
use crate::store::RedisStore;

/// Notices that last for a time, for all who share a Redis: whatever one process posts, the others
/// can read. What they say is up to whoever posts them.
///
/// Every call is one round trip over the store's connection. It ends by the store's deadline, or
/// after a second if that is shorter, for no request waits for it. What failed may have been done
/// all the same; doing it again does no harm.
///
/// All notices are in one key, which is gone when the last has ended. A board that Redis has lost,
/// wholly or in part, is told by its version like any other change.
///
/// ```no_run
/// use std::time::Duration;
///
/// use slidegate_redis::RedisStore;
///
/// # async fn post() -> Result<(), Box<dyn std::error::Error>> {
/// let board = RedisStore::builder("redis://127.0.0.1:6379").build()?.board();
/// board.post("maintenance", "back at noon", Duration::from_secs(3600)).await?;
///
/// let reading = board.read(None).await?.expect("whoever knows nothing is told everything");
/// assert_eq!(reading.notices[0].text, "back at noon");
/// assert!(board.read(Some(reading.version)).await?.is_none(), "nothing new");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Board {
    store: RedisStore,
    key: Arc<str>,
}

/// A notice on a [`Board`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Its name.
    pub id: String,
    /// What it says.
    pub text: String,
    /// When it ends, in Unix milliseconds by the server's clock.
    pub until_ms: u64,
}

/// What is on a [`Board`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The version, to ask for what comes after it.
    pub version: Version,
    /// When it was read, in Unix milliseconds by the server's clock.
    pub now_ms: u64,
    /// All notices that have not ended, in no order.
    pub notices: Vec<Notice>,
}

/// Which state of a [`Board`] it is. No two have the same, but for those with nothing on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(u64);

/// Why something could not be done to a board.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BoardError {
    /// Another notice does not fit.
    #[error("the board is full: expected at most {} notices that have not ended", Board::MOST)]
    Full,
    /// The id is empty or too long.
    #[error("id = {0:?}: expected 1 to {most} bytes", most = Board::MOST_ID_BYTES)]
    Id(String),
    /// The text is too long.
    #[error("a text of {0} bytes: expected at most {most}", most = Board::MOST_TEXT_BYTES)]
    Text(usize),
    /// The notice would end at once, or too late.
    #[error("a notice that lasts {0:?}: expected more than no time and at most 366 days")]
    Lasting(Duration),
    /// Redis could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Board {
    /// How many notices there can be at a time.
    pub const MOST: usize = 10_000;
    /// The longest id, in bytes.
    pub const MOST_ID_BYTES: usize = 128;
    /// The longest text, in bytes.
    pub const MOST_TEXT_BYTES: usize = 1024;
    /// How long a notice can last: as long as a ban.
    pub const LONGEST: Duration = Quota::MAX_WINDOW;

    pub(crate) fn new(store: RedisStore, key: String) -> Self {
        Self { store, key: key.into() }
    }

    /// Puts a notice up that lasts this long, rounded up to a millisecond, in place of one with the
    /// same id.
    pub async fn post(&self, id: &str, text: &str, lasting: Duration) -> Result<(), BoardError> {
        check_id(id)?;
        if text.len() > Self::MOST_TEXT_BYTES {
            return Err(BoardError::Text(text.len()));
        }
        if lasting.is_zero() || lasting > Self::LONGEST {
            return Err(BoardError::Lasting(lasting));
        }
        let lasting_ms = lasting.as_nanos().div_ceil(1_000_000) as u64;
        let mut command = self.command("post", Version::new());
        command.arg(id).arg(lasting_ms).arg(text).arg(Self::MOST);
        match self.ask(&command).await? {
            Value::Int(1) => Ok(()),
            Value::Int(0) => Err(BoardError::Full),
            _ => Err(unexpected()),
        }
    }

    /// Takes a notice down; tells whether it was there.
    pub async fn remove(&self, id: &str) -> Result<bool, BoardError> {
        check_id(id)?;
        let mut command = self.command("remove", Version::new());
        command.arg(id);
        match self.ask(&command).await? {
            Value::Int(removed) => Ok(removed == 1),
            _ => Err(unexpected()),
        }
    }

    /// What is on the board, if it is another state than the one that was seen: none if nothing has
    /// changed. That a notice has ended is no change, for its reader knows when it does.
    pub async fn read(&self, seen: Option<Version>) -> Result<Option<Reading>, BoardError> {
        let seen = seen.map(|version| version.to_string()).unwrap_or_default();
        match self.ask(&self.command("read", seen)).await? {
            Value::Nil => Ok(None),
            reply => reading(reply).map(Some).ok_or_else(unexpected),
        }
    }

    /// The script is sent along: a server that has been started anew does not know it, and asking
    /// twice would be a second round trip.
    fn command(&self, what: &str, version: impl fmt::Display) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(1).arg(&*self.key).arg(what).arg(version.to_string());
        command
    }

    async fn ask(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.store.ask_patiently(&self.key, command).await
    }
}

const SCRIPT: &str = concat!(include_str!("lua/clock.lua"), "\n", include_str!("lua/board.lua"));

fn check_id(id: &str) -> Result<(), BoardError> {
    match id.len() {
        1..=Board::MOST_ID_BYTES => Ok(()),
        _ => Err(BoardError::Id(id.to_owned())),
    }
}

fn unexpected() -> BoardError {
    BoardError::Store(Failure::Reply.into())
}

/// Version, time, and then ids and notices in turn.
fn reading(reply: Value) -> Option<Reading> {
    let Value::Array(reply) = reply else { return None };
    let mut reply = reply.into_iter();
    let version = Version::of(&text(reply.next()?)?);
    let now_ms = u64::from_redis_value(reply.next()?).ok()?;
    let mut notices = Vec::with_capacity(reply.len() / 2);
    while let (Some(id), Some(notice)) = (reply.next(), reply.next()) {
        let notice = text(notice)?;
        let (until_ms, text_of_it) = notice.split_once(' ')?;
        let (until_ms, text_of_it) = (until_ms.parse().ok()?, text_of_it.to_owned());
        notices.push(Notice { id: text(id)?, text: text_of_it, until_ms });
    }
    Some(Reading { version, now_ms, notices })
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

impl Version {
    /// One that nobody else has. By chance, because a count would begin anew on a server that has
    /// lost the board.
    fn new() -> Self {
        Self(fastrand::u64(1..))
    }

    /// Zero is the version of a board with nothing on it.
    fn of(text: &str) -> Self {
        Self(u64::from_str_radix(text, 16).unwrap_or_default())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("store", &self.store).field("key", &self.key).finish()
    }
}
