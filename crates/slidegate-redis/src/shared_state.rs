//! What processes on one Redis share besides accounts: entries, events, a secret, and which of them
//! are alive.

use std::fmt::{self, Write};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use slidegate::{Quota, StoreError};

use crate::store::RedisStore;

/// What processes on one Redis tell each other. Texts are up to the application.
///
/// - *Entries* have an id and a time to live: one process inserts them, all can read them.
/// - *Events* are read in the order in which they were appended, and by each reader once. There is
///   room for [`MAX_EVENTS`](Self::MAX_EVENTS); the oldest make way.
/// - *Members* are the processes that have sent a heartbeat which has not expired.
/// - The *secret* is a random text that all members know. The first of them chooses it, and it is kept
///   for [a day](Self::SECRET_TTL) after the last heartbeat. A member writes it again if Redis has
///   lost it.
///
/// [`exchange`](Self::exchange) reads all of them and writes a heartbeat, in one round trip, and only
/// transfers what is new. Every call ends by the store's deadline, or after a second if that is
/// shorter, because no request waits for it. A call that failed may have been done all the same.
/// Times to live are by the server's clock.
///
/// Each kind is in one key, which expires with the last of its kind. All keys are in one slot of a
/// cluster. A reader notices if Redis has lost entries or events, wholly or in part: entries then
/// have another version, as after any other change, and events have
/// [restarted](SharedChanges::restarted).
///
/// ```no_run
/// use std::time::Duration;
///
/// use slidegate_redis::{RedisStore, SharedCursor};
///
/// # async fn share() -> Result<(), Box<dyn std::error::Error>> {
/// let minute = Duration::from_secs(60);
/// let state = RedisStore::builder("redis://127.0.0.1:6379").build()?.shared_state();
/// state.insert("maintenance", "back at noon", minute).await?;
/// state.append([("first", minute), ("second", minute)]).await?;
///
/// let changes = state.exchange(&SharedCursor::default(), Some(("host-1", minute))).await?;
/// assert_eq!(changes.entries.expect("nothing was known")[0].text, "back at noon");
/// assert_eq!(changes.events[1].text, "second");
///
/// let changes = state.exchange(&changes.cursor, None).await?;
/// assert!(changes.entries.is_none() && changes.events.is_empty(), "nothing new");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SharedState {
    store: RedisStore,
    /// Of entries, events, members and the secret.
    keys: Arc<[String; 4]>,
    /// What the members have agreed on, or what this one proposes.
    secret: Arc<Mutex<Option<SharedSecret>>>,
}

/// An entry, an event or a member of a [`SharedState`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedEntry {
    /// Its name. Redis names events, and stores name themselves as members.
    pub id: String,
    /// Its text.
    pub text: String,
    /// When it ends, in Unix milliseconds by the server's clock.
    pub until_ms: u64,
}

/// A random text that only those know who can read it in Redis.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret(Arc<str>);

/// How much of a [`SharedState`] a reader knows. The default knows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharedCursor {
    version: Option<u64>,
    position: String,
}

/// What has changed in a [`SharedState`] since a [`SharedCursor`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedChanges {
    /// All entries that have not ended, in no order, if they have changed. That an entry has ended is
    /// no change, because its reader knows when it does.
    pub entries: Option<Vec<SharedEntry>>,
    /// The events that are new to the reader, the oldest first, ended ones among them.
    pub events: Vec<SharedEntry>,
    /// Whether the events that the reader knew are gone or the newest of them are, as after a
    /// failover. `events` are then from the beginning.
    pub restarted: bool,
    /// The other members, in no order, if a heartbeat was sent.
    pub members: Option<Vec<SharedEntry>>,
    /// The secret of the members, if a heartbeat was sent.
    pub secret: Option<SharedSecret>,
    /// When it was read, in Unix milliseconds by the server's clock.
    pub now_ms: u64,
    /// What the reader knows now.
    pub cursor: SharedCursor,
}

/// Why something could not be done to a [`SharedState`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharedStateError {
    /// Another entry does not fit.
    #[error("full: expected at most {} entries that have not ended", SharedState::MAX_ENTRIES)]
    Full,
    /// The id is empty or too long.
    #[error("id = {0:?}: expected 1 to {most} bytes", most = SharedState::MAX_ID_BYTES)]
    Id(String),
    /// The text is too long.
    #[error("a text of {0} bytes: expected at most {most}", most = SharedState::MAX_TEXT_BYTES)]
    Text(usize),
    /// It would end at once, or too late.
    #[error("a time to live of {0:?}: expected more than no time and at most 366 days")]
    Lasting(Duration),
    /// Too many events at once.
    #[error("{0} events at once: expected at most {most}", most = SharedState::MAX_BATCH)]
    Batch(usize),
    /// Redis could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RedisStore {
    /// What processes share beside the ledgers, for all stores whose key template begins alike: the
    /// one for all policies or, if none is set, those of policies if they all begin alike.
    pub fn shared_state(&self) -> SharedState {
        let prefix = self.shared_prefix();
        // The first braces of a key decide its slot.
        let tag = if prefix.contains('{') { "" } else { ":{gateways}" };
        let kinds = ["entries", "events", "members", "secret"];
        let keys = kinds.map(|kind| format!("{prefix}{tag}:{kind}"));
        SharedState { store: self.clone(), keys: Arc::new(keys), secret: Arc::default() }
    }
}

impl SharedState {
    /// How many entries there can be at a time, and how many members.
    pub const MAX_ENTRIES: usize = 10_000;
    /// How many events there can be at a time, ended ones among them.
    pub const MAX_EVENTS: usize = 10_000;
    /// How many events can be appended at once.
    pub const MAX_BATCH: usize = 500;
    /// The longest id, in bytes.
    pub const MAX_ID_BYTES: usize = 128;
    /// The longest text, in bytes.
    pub const MAX_TEXT_BYTES: usize = 1024;
    /// The longest time to live: as long as a ban.
    pub const MAX_TTL: Duration = Quota::MAX_WINDOW;
    /// How long the secret is kept after the last heartbeat.
    pub const SECRET_TTL: Duration = Duration::from_secs(24 * 60 * 60);

    /// Inserts an entry that lasts this long, rounded up to a millisecond, in place of one with the
    /// same id.
    pub async fn insert(
        &self,
        id: &str,
        text: &str,
        lasting: Duration,
    ) -> Result<(), SharedStateError> {
        let args = ["insert".to_owned()].into_iter().chain(insertion(id, text, lasting)?).collect();
        match self.eval(args).await? {
            true => Ok(()),
            false => Err(SharedStateError::Full),
        }
    }

    /// Removes an entry. Returns whether it was there.
    pub async fn remove(&self, id: &str) -> Result<bool, SharedStateError> {
        check_id(id)?;
        self.eval(vec!["remove".to_owned(), new_version(), id.to_owned()]).await
    }

    /// Removes this store, and its clones, from the members. Returns whether it was one.
    pub async fn leave(&self) -> Result<bool, SharedStateError> {
        let id = self.store.process();
        self.eval(vec!["leave".to_owned(), new_version(), id.to_owned()]).await
    }

    /// Appends events that each last for some time, rounded up to a millisecond. An event that lasts
    /// no time is kept as long as those before it, and not appended if there are none.
    ///
    /// If it fails, the events may have been appended all the same, or some of them.
    pub async fn append<'t>(
        &self,
        events: impl IntoIterator<Item = (&'t str, Duration)>,
    ) -> Result<(), SharedStateError> {
        let mut args = vec!["append".to_owned(), Self::MAX_EVENTS.to_string(), new_version()];
        let mut count = 0;
        for (text, lasting) in events {
            check_text(text)?;
            args.extend([millis(lasting)?, text.to_owned()]);
            count += 1;
        }
        match count {
            0 => Ok(()),
            1..=Self::MAX_BATCH => self.eval(args).await,
            _ => Err(SharedStateError::Batch(count)),
        }
    }

    /// Reads what is new to the owner of this cursor. With a heartbeat, its text and how long it
    /// lasts, this store and its clones are a member for that time, unless there are
    /// [`MAX_ENTRIES`](Self::MAX_ENTRIES) others, and the other members and the secret are read.
    ///
    /// It is one round trip, and another for each 500 new events.
    pub async fn exchange(
        &self,
        known: &SharedCursor,
        heartbeat: Option<(&str, Duration)>,
    ) -> Result<SharedChanges, SharedStateError> {
        let heartbeat = match heartbeat {
            Some((text, lasting)) => {
                let mut args = insertion(self.store.process(), text, lasting)?;
                args.extend([self.proposed_secret(), millis(Self::SECRET_TTL)?]);
                args
            }
            None => Vec::new(),
        };
        let mut changes = self.read_page(known, heartbeat).await?;
        let mut page = changes.events.len();
        // The log may grow meanwhile, but not for ever.
        while page == Self::MAX_BATCH && changes.events.len() < 2 * Self::MAX_EVENTS {
            let next = self.read_page(&changes.cursor, Vec::new()).await?;
            page = next.events.len();
            if next.restarted {
                changes.events.clear();
            }
            changes.events.extend(next.events);
            changes.restarted |= next.restarted;
            changes.entries = next.entries.or(changes.entries);
            (changes.now_ms, changes.cursor) = (next.now_ms, next.cursor);
        }
        Ok(changes)
    }

    async fn read_page(
        &self,
        known: &SharedCursor,
        heartbeat: Vec<String>,
    ) -> Result<SharedChanges, SharedStateError> {
        let version = known.version.map(|version| version.to_string()).unwrap_or_default();
        let most = Self::MAX_BATCH.to_string();
        let args = ["exchange".to_owned(), version, known.position.clone(), most];
        let reply: Reply = self.eval(args.into_iter().chain(heartbeat).collect()).await?;
        let (now_ms, version, entries, position, restarted, events, members, secret) = reply;
        let event = |(id, until_ms, text)| SharedEntry { id, text, until_ms };
        let others = |members| {
            let mut members = live_entries(members, now_ms);
            members.retain(|member| member.id != self.store.process());
            members
        };
        let secret = secret.map(|secret| SharedSecret(secret.into()));
        if secret.is_some() {
            self.secret.lock().clone_from(&secret);
        }
        Ok(SharedChanges {
            entries: entries.map(|entries| live_entries(entries, now_ms)),
            events: events.into_iter().map(event).collect(),
            restarted,
            members: members.map(others),
            secret,
            now_ms,
            cursor: SharedCursor { version: Some(version), position },
        })
    }

    /// The secret as it was last read, else a new one; nothing if the system has no random numbers.
    fn proposed_secret(&self) -> String {
        let mut secret = self.secret.lock();
        if secret.is_none() {
            *secret = SharedSecret::random();
        }
        secret.as_ref().map(|secret| secret.as_str().to_owned()).unwrap_or_default()
    }

    async fn eval<T: redis::FromRedisValue>(
        &self,
        args: Vec<String>,
    ) -> Result<T, SharedStateError> {
        Ok(self.store.eval(&SCRIPT, TEXT, &*self.keys, args).await?)
    }
}

impl SharedSecret {
    /// How many random bytes there are in it.
    const BYTES: usize = 32;

    fn random() -> Option<Self> {
        let mut bytes = [0; Self::BYTES];
        getrandom::fill(&mut bytes).ok()?;
        let mut text = String::with_capacity(2 * Self::BYTES);
        for byte in bytes {
            write!(text, "{byte:02x}").expect("a text grows");
        }
        Some(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Shows nothing of it.
impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSecret").finish_non_exhaustive()
    }
}

impl SharedCursor {
    /// Has the next exchange read all entries, changed or not.
    pub fn forget_entries(&mut self) {
        self.version = None;
    }
}

/// The time, the version, all fields of the entries, the position, whether it is in another log than
/// before, the events, all fields of the members, and the secret.
type Reply = (u64, u64, Option<Fields>, String, bool, Events, Option<Fields>, Option<String>);
type Events = Vec<(String, u64, String)>;
type Fields = Vec<(String, String)>;

const TEXT: &str =
    concat!(include_str!("lua/clock.lua"), "\n", include_str!("lua/shared_state.lua"));

static SCRIPT: LazyLock<redis::Script> = LazyLock::new(|| redis::Script::new(TEXT));

/// The arguments of an insertion.
fn insertion(id: &str, text: &str, lasting: Duration) -> Result<Vec<String>, SharedStateError> {
    check_id(id)?;
    check_text(text)?;
    if lasting.is_zero() {
        return Err(SharedStateError::Lasting(lasting));
    }
    let most = SharedState::MAX_ENTRIES.to_string();
    Ok(vec![new_version(), id.to_owned(), millis(lasting)?, text.to_owned(), most])
}

fn check_id(id: &str) -> Result<(), SharedStateError> {
    match id.len() {
        1..=SharedState::MAX_ID_BYTES => Ok(()),
        _ => Err(SharedStateError::Id(id.to_owned())),
    }
}

fn check_text(text: &str) -> Result<(), SharedStateError> {
    match text.len() {
        0..=SharedState::MAX_TEXT_BYTES => Ok(()),
        bytes => Err(SharedStateError::Text(bytes)),
    }
}

fn millis(lasting: Duration) -> Result<String, SharedStateError> {
    match lasting > SharedState::MAX_TTL {
        true => Err(SharedStateError::Lasting(lasting)),
        false => Ok(lasting.as_nanos().div_ceil(1_000_000).to_string()),
    }
}

/// The entries among the fields of a hash. What is no entry is left out.
fn live_entries(fields: Fields, now_ms: u64) -> Vec<SharedEntry> {
    let entry = |(id, entry): (String, String)| {
        let (until_ms, text) = entry.split_once(' ')?;
        Some(SharedEntry { id, text: text.to_owned(), until_ms: until_ms.parse().ok()? })
    };
    let is_live = |entry: &SharedEntry| !entry.id.is_empty() && entry.until_ms > now_ms;
    fields.into_iter().filter_map(entry).filter(is_live).collect()
}

/// A version that no other state has, or a log's name that no other has; the version of nothing is 0.
/// It is random, because a count would begin anew on a server that has lost everything.
fn new_version() -> String {
    fastrand::u64(1..).to_string()
}
