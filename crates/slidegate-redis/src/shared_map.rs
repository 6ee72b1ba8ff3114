//! A map of entries with a time to live that all processes on one Redis can read.

use std::sync::Arc;
use std::time::Duration;

use slidegate::{Name, Quota, StoreError};

use crate::store::RedisStore;

/// Entries with a time to live for all processes on one Redis: what one inserts, the others can read.
/// Their text is up to the application.
///
/// Every call is one round trip over the store's connection. It ends by the store's deadline, or
/// after a second if that is shorter, because no request waits for it. A call that failed may have
/// been done all the same; repeating it does no harm.
///
/// All entries are in one key, which expires with the last of them. A map that Redis has lost, wholly
/// or in part, has another version, as after any other change.
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
/// let snapshot = map.read(None).await?.expect("nothing was seen before");
/// assert_eq!(snapshot.entries[0].text, "back at noon");
/// assert!(map.read(Some(snapshot.version)).await?.is_none(), "nothing new");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SharedMap {
    store: RedisStore,
    key: Arc<str>,
}

/// An entry of a [`SharedMap`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedEntry {
    /// Its name.
    pub id: String,
    /// Its text.
    pub text: String,
    /// When it ends, in Unix milliseconds by the server's clock.
    pub until_ms: u64,
}

/// All entries of a [`SharedMap`] at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedSnapshot {
    /// The version, to ask for what comes after it.
    pub version: MapVersion,
    /// When it was read, in Unix milliseconds by the server's clock.
    pub now_ms: u64,
    /// All entries that have not ended, in no order.
    pub entries: Vec<SharedEntry>,
}

/// The version of a [`SharedMap`]. No two states have the same, but for empty ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MapVersion(u64);

/// Why something could not be done to a map.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharedMapError {
    /// Another entry does not fit.
    #[error(
        "the map is full: expected at most {} entries that have not ended",
        SharedMap::MAX_ENTRIES
    )]
    Full,
    /// The id is empty or too long.
    #[error("id = {0:?}: expected 1 to {most} bytes", most = SharedMap::MAX_ID_BYTES)]
    Id(String),
    /// The text is too long.
    #[error("a text of {0} bytes: expected at most {most}", most = SharedMap::MAX_TEXT_BYTES)]
    Text(usize),
    /// The entry would end at once, or too late.
    #[error("an entry that lasts {0:?}: expected more than no time and at most 366 days")]
    Lasting(Duration),
    /// Redis could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RedisStore {
    /// The shared map beside the ledgers, for all stores whose key template begins alike: the
    /// one for all policies or, if none is set, those of policies if they all begin alike.
    pub fn shared_map(&self) -> SharedMap {
        SharedMap { store: self.clone(), key: self.shared_map_key().into() }
    }

    /// Another shared map beside the ledgers, of this name: for entries that would crowd the
    /// [first](Self::shared_map), or change its version all the time.
    pub fn shared_map_named(&self, name: &Name) -> SharedMap {
        SharedMap {
            store: self.clone(),
            key: format!("{}:map:{name}", self.shared_map_key()).into(),
        }
    }
}

impl SharedMap {
    /// How many entries there can be at a time.
    pub const MAX_ENTRIES: usize = 10_000;
    /// The longest id, in bytes.
    pub const MAX_ID_BYTES: usize = 128;
    /// The longest text, in bytes.
    pub const MAX_TEXT_BYTES: usize = 1024;
    /// How long an entry can last: as long as a ban.
    pub const LONGEST: Duration = Quota::MAX_WINDOW;

    /// Inserts an entry that lasts this long, rounded up to a millisecond, in place of one with the
    /// same id.
    pub async fn insert(
        &self,
        id: &str,
        text: &str,
        lasting: Duration,
    ) -> Result<(), SharedMapError> {
        check_id(id)?;
        if text.len() > Self::MAX_TEXT_BYTES {
            return Err(SharedMapError::Text(text.len()));
        }
        if lasting.is_zero() || lasting > Self::LONGEST {
            return Err(SharedMapError::Lasting(lasting));
        }
        let lasting_ms = lasting.as_nanos().div_ceil(1_000_000) as u64;
        let args = ("insert", new_version(), id, lasting_ms, text, Self::MAX_ENTRIES);
        match self.store.eval(SCRIPT, &self.key, args).await? {
            true => Ok(()),
            false => Err(SharedMapError::Full),
        }
    }

    /// Removes an entry. Returns whether it was there.
    pub async fn remove(&self, id: &str) -> Result<bool, SharedMapError> {
        check_id(id)?;
        let args = ("remove", new_version(), id);
        Ok(self.store.eval(SCRIPT, &self.key, args).await?)
    }

    /// All entries, if the version is another than the one that was seen; none if nothing has
    /// changed. That an entry has ended is no change, because its reader knows when it does.
    pub async fn read(
        &self,
        seen: Option<MapVersion>,
    ) -> Result<Option<SharedSnapshot>, SharedMapError> {
        let seen = seen.map(|version| version.0.to_string()).unwrap_or_default();
        let reply: Option<_> = self.store.eval(SCRIPT, &self.key, ("read", seen)).await?;
        Ok(reply.map(snapshot))
    }
}

const SCRIPT: &str =
    concat!(include_str!("lua/clock.lua"), "\n", include_str!("lua/shared_map.lua"));

fn check_id(id: &str) -> Result<(), SharedMapError> {
    match id.len() {
        1..=SharedMap::MAX_ID_BYTES => Ok(()),
        _ => Err(SharedMapError::Id(id.to_owned())),
    }
}

/// Of the version, the time, and all fields of the hash: ids and entries. What is no entry is left
/// out.
fn snapshot((version, now_ms, fields): (u64, u64, Vec<(String, String)>)) -> SharedSnapshot {
    let entry = |(id, entry): (String, String)| {
        let (until_ms, text) = entry.split_once(' ')?;
        Some(SharedEntry { id, text: text.to_owned(), until_ms: until_ms.parse().ok()? })
    };
    let is_live = |entry: &SharedEntry| !entry.id.is_empty() && entry.until_ms > now_ms;
    let entries = fields.into_iter().filter_map(entry).filter(is_live).collect();
    SharedSnapshot { version: MapVersion(version), now_ms, entries }
}

/// A version that no other state has; that of an empty map is 0. It is random, because a count would
/// begin anew on a server that has lost the map.
fn new_version() -> u64 {
    fastrand::u64(1..)
}
