//! API keys from a table in PostgreSQL, which is kept in memory.
//!
//! Two loops read it: one all of it, on a new connection each time, and one what has changed, on a
//! connection that is kept. They go on side by side, so that a change is seen within one poll also
//! while a million rows are read.

mod config;
mod health;
mod listen;
mod row;
mod select;
mod session;
mod url;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::join3;
use parking_lot::Mutex;
use slidegate::Clock;
use slidegate::limit::SystemClock;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::Type;

use self::health::{Before, Reading, SourceHealth};
use self::listen::listen;
use self::row::{BadColumn, BadRows, PgInstant, RowContent, RowReader};
use self::select::{KeySelect, trimmed};
use self::session::{PgConnector, PgError, PgSession};
use crate::key::KeyAnswer;
use crate::key_table::{KeyTable, TableEntry};
use crate::status::SourceStatus;

pub use self::config::{KeySourceError, PostgresConfig};
pub use self::url::PostgresUrl;

/// How long the database may take to answer a poll, and then between two rows.
const POLL_STALL: Duration = Duration::from_secs(5);

/// The same when everything is read, which may begin with sorting it.
const FULL_STALL: Duration = Duration::from_secs(10);

/// Rows are asked for again that changed up to this long before the newest one. `changed_at` is
/// usually the time at which a transaction began, and transactions commit in another order: a row may
/// appear after others that are newer. Those that take longer are seen when everything is read.
const OVERLAP: Duration = Duration::from_secs(OVERLAP_SECONDS);
const OVERLAP_SECONDS: u64 = 10;

/// Notifications lead to polls that are at least this far apart, unless polls are closer.
const MIN_GAP: Duration = Duration::from_millis(100);

/// How often rows that cannot be used are logged.
const BAD_ROWS_INTERVAL: Duration = Duration::from_secs(60);

/// Other tasks of the thread get their turn after this many rows.
const ROWS_PER_TURN: usize = 256;

/// API keys from a table in PostgreSQL. Clones share the keys.
///
/// ```no_run
/// use std::time::Duration;
///
/// use slidegate::policy::KeyHash;
/// use slidegate_customers::{KeyAnswer, PostgresConfig, PostgresKeys};
///
/// # async fn example() -> Result<(), slidegate_customers::KeySourceError> {
/// let keys = PostgresKeys::new(PostgresConfig {
///     url: "postgres://slidegate@10.0.2.7/app".to_owned(),
///     query: "select digest, customer, plan, expires_at, changed_at from api_keys".to_owned(),
///     poll: Duration::from_secs(2),
///     full: Duration::from_secs(60),
///     notify: None,
///     hash: KeyHash::Sha256,
///     authorities: rustls::RootCertStore::empty(),
/// })?;
/// let reader = keys.clone();
/// tokio::spawn(async move { reader.run().await });
/// match keys.find(b"k-5f2c9a") {
///     KeyAnswer::Known(key) => println!("{:?}", key.customer),
///     KeyAnswer::Unknown => println!("no such key"),
///     _ => println!("the table has not been read yet"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresKeys(Arc<PostgresSource>);

struct PostgresSource {
    config: PostgresConfig,
    connector: PgConnector,
    clock: Arc<dyn Clock>,
    table: KeyTable,
    is_loaded: AtomicBool,
    health: SourceHealth,
    reader: Mutex<RowReader>,
    progress: Mutex<TableProgress>,
    /// Makes the next poll come now.
    poll_now: Notify,
    /// Makes the next reading of everything come now.
    full_now: Notify,
    /// The same, also if the last one has failed.
    retry_full: Notify,
    /// Makes the next attempt of a poll that has failed come now.
    retry_poll: Notify,
    /// Held by the one call of `run` that reads.
    running: tokio::sync::Mutex<()>,
}

/// How far the table has been read.
#[derive(Default)]
struct TableProgress {
    select: Option<Arc<KeySelect>>,
    newest: Option<Newest>,
    bad_rows_logged: Option<Instant>,
}

/// The newest `changed_at` of all rows that are not dated ahead of the database's clock.
#[derive(Clone, Copy)]
struct Newest {
    changed_at: PgInstant,
    seen: Instant,
    /// Whether a poll has asked with the overlap since all transactions of then are taken to be over.
    is_settled: bool,
}

/// What one reading has seen.
#[derive(Default)]
struct RowsRead {
    rows: usize,
    bad: BadRows,
    newest: Option<PgInstant>,
}

impl PostgresKeys {
    /// Checks what can be checked without the database, and starts nothing.
    pub fn new(config: PostgresConfig) -> Result<Self, KeySourceError> {
        Self::with_clock(config, SystemClock::new())
    }

    /// The same with another clock, whose calendar says when keys expire.
    pub fn with_clock(config: PostgresConfig, clock: impl Clock) -> Result<Self, KeySourceError> {
        Self::with_table(config, Arc::new(clock), KeyTable::new())
    }

    fn with_table(
        config: PostgresConfig,
        clock: Arc<dyn Clock>,
        table: KeyTable,
    ) -> Result<Self, KeySourceError> {
        let connector = config.check()?;
        Ok(Self(Arc::new(PostgresSource {
            connector,
            clock,
            table,
            is_loaded: AtomicBool::new(false),
            health: SourceHealth::default(),
            reader: Mutex::new(RowReader::new(config.hash)),
            progress: Mutex::default(),
            poll_now: Notify::new(),
            full_now: Notify::new(),
            retry_full: Notify::new(),
            retry_poll: Notify::new(),
            running: tokio::sync::Mutex::default(),
            config,
        })))
    }

    /// Reads the table and goes on to read what changes, until it is dropped.
    pub async fn run(&self) {
        let _only = self.0.running.lock().await;
        let notifications = async {
            if let Some(channel) = &self.0.config.notify {
                listen(&self.0.connector, channel, &self.0.poll_now).await;
            }
        };
        join3(self.0.read_all_again(), self.0.read_changes_again(), notifications).await;
    }

    /// Looks a key up as the client sent it, in memory. [`KeyAnswer::Unavailable`] is the answer if its row
    /// cannot be read, and while the database does not answer, when a key that is not there may be new.
    pub fn find(&self, key: &[u8]) -> KeyAnswer {
        let is_over = |expires| expires <= self.0.clock.wall();
        match self.0.table.find(self.0.config.hash.digest(key)) {
            Some(TableEntry::Known(key)) if key.expires.is_some_and(is_over) => KeyAnswer::Unknown,
            Some(TableEntry::Known(key)) => KeyAnswer::Known(key),
            Some(TableEntry::Unreadable { expires }) if expires.is_some_and(is_over) => {
                KeyAnswer::Unknown
            }
            // An error is never an unknown key.
            Some(TableEntry::Unreadable { .. }) => KeyAnswer::Unavailable,
            None if self.0.has_all_keys() => KeyAnswer::Unknown,
            None => KeyAnswer::Unavailable,
        }
    }

    /// Whether the database answers.
    pub fn status(&self) -> SourceStatus {
        self.0.health.status(self.0.table.len())
    }
}

impl fmt::Debug for PostgresKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresKeys")
            .field("config", &self.0.config)
            .field("keys", &self.0.table.len())
            .finish_non_exhaustive()
    }
}

impl PostgresSource {
    /// Whether a key that is not in the table was not issued.
    fn has_all_keys(&self) -> bool {
        let is_loaded = self.is_loaded.load(Ordering::Acquire);
        is_loaded && !self.health.is_failing() && self.table.exceeded_capacity().is_none()
    }

    async fn read_all_again(&self) {
        loop {
            let began = Instant::now();
            match self.read_all().await {
                Ok(()) => {
                    self.health.succeeded(Reading::All);
                    if self.health.is_failing() {
                        self.retry_poll.notify_one();
                    }
                    sleep(self.gap_after(began.elapsed())).await;
                    let _ = timeout(self.config.full, self.full_now.notified()).await;
                }
                Err(error) => {
                    let retry = self.health.failed(Reading::All, &error, self.config.poll);
                    let pause = match error {
                        // Reading it again soon would not make it smaller.
                        PgError::TooManyKeys(_) => self.config.full,
                        _ => retry,
                    };
                    let _ = timeout(pause, self.retry_full.notified()).await;
                }
            }
        }
    }

    async fn read_changes_again(&self) {
        let mut session = None;
        let mut took = Duration::ZERO;
        loop {
            let gap = self.gap_after(took);
            sleep(gap).await;
            let rest = self.config.poll.saturating_sub(gap);
            let _ = timeout(rest, self.poll_now.notified()).await;
            took = self.poll(&mut session).await;
        }
    }

    /// Reads what has changed, again until it succeeds, and returns how long that took. Before the first
    /// load there is nothing to compare with.
    async fn poll(&self, session: &mut Option<PgSession>) -> Duration {
        loop {
            let select = self.progress.lock().select.clone();
            let Some(select) = select.filter(|_| self.is_loaded.load(Ordering::Acquire)) else {
                return Duration::ZERO;
            };
            let Some(changed) = &select.changed else {
                self.full_now.notify_one();
                return Duration::ZERO;
            };
            let began = Instant::now();
            let Err(error) = self.read_changes(session, changed).await else {
                if self.health.succeeded(Reading::Changes) == Before::Failing {
                    // Rows may have been deleted meanwhile.
                    self.full_now.notify_one();
                    self.retry_full.notify_one();
                }
                return began.elapsed();
            };
            *session = None;
            let pause = self.health.failed(Reading::Changes, &error, self.config.poll);
            let _ = timeout(pause, self.retry_poll.notified()).await;
        }
    }

    /// How long the database is left alone after a reading, however many notifications there are: as
    /// long as the reading took, and at most for one poll.
    fn gap_after(&self, took: Duration) -> Duration {
        took.max(MIN_GAP).min(self.config.poll)
    }

    async fn read_all(&self) -> Result<(), PgError> {
        let session = self.connector.connect().await?;
        let select = KeySelect::describe(&session, trimmed(&self.config.query)).await?;
        if let Some(before) = &self.progress.lock().select {
            select.check_after(before)?;
        }
        let mut pass = self.table.begin_pass();
        let rows = session.client.query_typed_raw::<PgInstant, _>(&select.all, []);
        let read = self
            .read_rows(&session, FULL_STALL, rows, |content| match content {
                RowContent::Key(digest, record) => pass.put(digest, record),
                RowContent::BadKey(digest, expires, _) => pass.keep(digest, expires),
                RowContent::BadDigest => {}
            })
            .await?;
        if read.rows > 0 && read.rows == read.bad.total() {
            let why = read.bad.to_string();
            return Err(PgError::NoGoodRow { rows: read.rows, why });
        }
        let repeated = pass.repeated();
        pass.finish();
        self.reader.lock().forget_unused();
        self.note(&read, repeated);
        self.progress.lock().select = Some(Arc::new(select));
        self.is_loaded.store(true, Ordering::Release);
        self.check_room()
    }

    /// Fails if the source has more keys than the table: one that is not known may be one of them.
    fn check_room(&self) -> Result<(), PgError> {
        self.table.exceeded_capacity().map_or(Ok(()), |keys| Err(PgError::TooManyKeys(keys)))
    }

    async fn read_changes(
        &self,
        kept: &mut Option<PgSession>,
        select: &str,
    ) -> Result<(), PgError> {
        let session = match kept {
            Some(session) => session,
            None => kept.insert(self.connector.connect().await?),
        };
        let (newest, began) = (self.progress.lock().newest, Instant::now());
        let since = match newest {
            Some(newest) if newest.is_settled => newest.changed_at.next(),
            Some(newest) => newest.changed_at.before(OVERLAP),
            None => PgInstant::BEGINNING,
        };
        let rows = session.client.query_typed_raw(select, [(since, Type::TIMESTAMPTZ)]);
        let read = self
            .read_rows(session, POLL_STALL, rows, |content| match content {
                RowContent::Key(digest, record) => self.table.change(digest, record),
                RowContent::BadKey(digest, expires, _) => self.table.keep(digest, expires),
                RowContent::BadDigest => {}
            })
            .await?;
        self.note(&read, 0);
        self.settle(newest, began);
        Ok(())
    }

    /// Once a poll has found nothing newer for as long as the overlap, the next ones do without: the
    /// rows of a large update would be read again with each poll until another row changes.
    fn settle(&self, before: Option<Newest>, began: Instant) {
        if let (Some(before), Some(newest)) = (before, &mut self.progress.lock().newest) {
            let is_same = before.changed_at == newest.changed_at;
            if is_same && began.duration_since(newest.seen) >= OVERLAP {
                newest.is_settled = true;
            }
        }
    }

    async fn read_rows(
        &self,
        session: &PgSession,
        stall: Duration,
        rows: impl Future<Output = Result<tokio_postgres::RowStream, tokio_postgres::Error>>,
        mut each: impl FnMut(RowContent),
    ) -> Result<RowsRead, PgError> {
        let mut read = RowsRead::default();
        let mut rows = std::pin::pin!(session.within(stall, rows).await?);
        while let Some(row) = session.within(stall, rows.try_next()).await? {
            let row = self.reader.lock().read(&row)?;
            read.rows += 1;
            read.newest = read.newest.max(row.changed_at);
            match &row.content {
                RowContent::Key(..) => {}
                RowContent::BadKey(_, _, column) => read.bad.add(*column),
                RowContent::BadDigest => read.bad.add(BadColumn::Digest),
            }
            each(row.content);
            if read.rows.is_multiple_of(ROWS_PER_TURN) {
                tokio::task::yield_now().await;
            }
        }
        Ok(read)
    }

    /// What follows from a reading that has come to its end. Before, the newest row says nothing of
    /// those that were still to come.
    fn note(&self, read: &RowsRead, repeated: usize) {
        let mut progress = self.progress.lock();
        let now = Instant::now();
        let known = progress.newest.map(|newest| newest.changed_at);
        if let Some(changed_at) = read.newest.filter(|_| read.newest > known) {
            progress.newest = Some(Newest { changed_at, seen: now, is_settled: false });
        }
        let is_due = progress.bad_rows_logged.is_none_or(|at| now - at >= BAD_ROWS_INTERVAL);
        if read.bad.total() + repeated > 0 && is_due {
            progress.bad_rows_logged = Some(now);
            let skipped = read.bad.to_string();
            tracing::warn!(
                rows = read.rows,
                skipped,
                repeated,
                "key source has rows that were skipped, or digests that are repeated"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use slidegate::policy::KeyHash;
    use slidegate_testbed::{PostgresServer, wait_until};
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_table_of_too_many_keys_is_degraded_and_makes_none_unknown() {
        let server = PostgresServer::start();
        let database = server.database();
        database.sql(
            "create table api_keys as select sha256(('k' || i)::bytea) as digest, 'c' as customer \
             from generate_series(1, 3) as i",
        );
        let config = PostgresConfig {
            url: database.url(),
            query: "select digest, customer from api_keys".to_owned(),
            poll: Duration::from_millis(50),
            full: Duration::from_millis(100),
            notify: None,
            hash: KeyHash::Sha256,
            authorities: rustls::RootCertStore::empty(),
        };
        let clock = Arc::new(SystemClock::new());
        let keys = PostgresKeys::with_table(config, clock, KeyTable::with_capacity(2)).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let running = keys.clone();
        runtime.spawn(async move { running.run().await });
        let has_error = |part: &str| keys.status().error.is_some_and(|error| error.contains(part));
        wait_until("the error", || has_error("more than 2 keys"));
        let find = |i: u32| keys.find(format!("k{i}").as_bytes());
        let known = (1..=3).filter(|i| matches!(find(*i), KeyAnswer::Known(_))).count();
        assert_eq!((known, keys.status().keys), (2, 2));
        assert!((1..=4).all(|i| find(i) != KeyAnswer::Unknown));

        database.sql("delete from api_keys where digest = sha256('k1')");
        wait_until("room for all", || find(1) == KeyAnswer::Unknown && !has_error(""));
        assert!((2..=3).all(|i| matches!(find(i), KeyAnswer::Known(_))));
    }
}
