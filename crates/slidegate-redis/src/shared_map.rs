//! A map of entries that all who share a Redis can read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use slidegate::{Quota, StoreError};

use crate::error::RedisStoreError;
use crate::store::RedisStore;

/// Notices that last for a time, for all who share a Redis: whatever one process posts, the others
/// can read. What they say is up to whoever posts them.
///
/// Every call is one round trip over the store's connection. It ends by the store's deadline, or
/// after a second if that is shorter, for no request waits for it. What failed may have been done
/// all the same; doing it again does no harm.
///
/// All entries are in one key, which is gone when the last has ended. A map that Redis has lost,
/// wholly or in part, is told by its version like any other change.
///
/// ```no_run
/// use std::time::Duration;
///
/// use slidegate_redis::RedisStore;
///
/// # async fn insert() -> Result<(), Box<dyn std::error::Error>> {
/// let map = RedisStore::builder("redis://127.0.0.1:6379").build()?.shared_map();
/// map.insert("maintenance", "back at noon", Duration::from_secs(3600)).await?;
///
/// let reading = map.read(None).await?.expect("whoever knows nothing is told everything");
/// assert_eq!(reading.entries[0].text, "back at noon");
/// assert!(map.read(Some(reading.version)).await?.is_none(), "nothing new");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedMap {
    store: RedisStore,
    key: Arc<str>,
}

/// A entry on a [`SharedMap`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedEntry {
    /// Its name.
    pub id: String,
    /// What it says.
    pub text: String,
    /// When it ends, in Unix milliseconds by the server's clock.
    pub until_ms: u64,
}

/// What is on a [`SharedMap`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedSnapshot {
    /// The version, to ask for what comes after it.
    pub version: MapVersion,
    /// When it was read, in Unix milliseconds by the server's clock.
    pub now_ms: u64,
    /// All entries that have not ended, in no order.
    pub entries: Vec<SharedEntry>,
}

/// Which state of a [`SharedMap`] it is. No two have the same, but for those with nothing on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MapVersion(u64);

/// Why something could not be done to a map.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharedMapError {
    /// Another entry does not fit.
    #[error("the map is full: expected at most {} entries that have not ended", SharedMap::MOST)]
    Full,
    /// The id is empty or too long.
    #[error("id = {0:?}: expected 1 to {most} bytes", most = SharedMap::MOST_ID_BYTES)]
    Id(String),
    /// The text is too long.
    #[error("a text of {0} bytes: expected at most {most}", most = SharedMap::MOST_TEXT_BYTES)]
    Text(usize),
    /// The entry would end at once, or too late.
    #[error("a entry that lasts {0:?}: expected more than no time and at most 366 days")]
    Lasting(Duration),
    /// Redis could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SharedMap {
    /// How many entries there can be at a time.
    pub const MOST: usize = 10_000;
    /// The longest id, in bytes.
    pub const MOST_ID_BYTES: usize = 128;
    /// The longest text, in bytes.
    pub const MOST_TEXT_BYTES: usize = 1024;
    /// How long a entry can last: as long as a ban.
    pub const LONGEST: Duration = Quota::MAX_WINDOW;

    pub(crate) fn new(store: RedisStore, key: String) -> Self {
        Self { store, key: key.into() }
    }

    /// Puts a entry up that lasts this long, rounded up to a millisecond, in place of one with the
    /// same id.
    pub async fn insert(
        &self,
        id: &str,
        text: &str,
        lasting: Duration,
    ) -> Result<(), SharedMapError> {
        check_id(id)?;
        if text.len() > Self::MOST_TEXT_BYTES {
            return Err(SharedMapError::Text(text.len()));
        }
        if lasting.is_zero() || lasting > Self::LONGEST {
            return Err(SharedMapError::Lasting(lasting));
        }
        let lasting_ms = lasting.as_nanos().div_ceil(1_000_000) as u64;
        let mut command = self.command("insert", MapVersion::new());
        command.arg(id).arg(lasting_ms).arg(text).arg(Self::MOST);
        match self.ask(&command).await? {
            Value::Int(1) => Ok(()),
            Value::Int(0) => Err(SharedMapError::Full),
            _ => Err(unexpected()),
        }
    }

    /// Takes a entry down; tells whether it was there.
    pub async fn remove(&self, id: &str) -> Result<bool, SharedMapError> {
        check_id(id)?;
        let mut command = self.command("remove", MapVersion::new());
        command.arg(id);
        match self.ask(&command).await? {
            Value::Int(removed) => Ok(removed == 1),
            _ => Err(unexpected()),
        }
    }

    /// What is on the map, if it is another state than the one that was seen: none if nothing has
    /// changed. That a entry has ended is no change, for its reader knows when it does.
    pub async fn read(
        &self,
        seen: Option<MapVersion>,
    ) -> Result<Option<SharedSnapshot>, SharedMapError> {
        let seen = seen.map(|version| version.to_string()).unwrap_or_default();
        match self.ask(&self.command("read", seen)).await? {
            Value::Nil => Ok(None),
            reply => snapshot(reply).map(Some).ok_or_else(unexpected),
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
        self.store.send_in_background(&self.key, command).await
    }
}

const SCRIPT: &str =
    concat!(include_str!("lua/clock.lua"), "\n", include_str!("lua/shared_map.lua"));

fn check_id(id: &str) -> Result<(), SharedMapError> {
    match id.len() {
        1..=SharedMap::MOST_ID_BYTES => Ok(()),
        _ => Err(SharedMapError::Id(id.to_owned())),
    }
}

fn unexpected() -> SharedMapError {
    SharedMapError::Store(RedisStoreError::Reply.into())
}

/// Version, time, and all fields of the hash: ids and entries in turn. What is no entry is left out.
fn snapshot(reply: Value) -> Option<SharedSnapshot> {
    type Reply = (String, u64, Vec<(String, String)>);
    let (version, now_ms, fields) = Reply::from_redis_value(reply).ok()?;
    let entry = |(id, entry): (String, String)| {
        let (until_ms, text) = entry.split_once(' ')?;
        Some(SharedEntry { id, text: text.to_owned(), until_ms: until_ms.parse().ok()? })
    };
    let is_live = |entry: &SharedEntry| !entry.id.is_empty() && entry.until_ms > now_ms;
    let entries = fields.into_iter().filter_map(entry).filter(is_live).collect();
    Some(SharedSnapshot { version: MapVersion::of(&version), now_ms, entries })
}

impl MapVersion {
    /// One that nobody else has. By chance, because a count would begin anew on a server that has
    /// lost the map.
    fn new() -> Self {
        Self(fastrand::u64(1..))
    }

    /// Zero is the version of a map with nothing on it.
    fn of(text: &str) -> Self {
        Self(u64::from_str_radix(text, 16).unwrap_or_default())
    }
}

impl fmt::Display for MapVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for SharedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMap").field("store", &self.store).field("key", &self.key).finish()
    }
}
