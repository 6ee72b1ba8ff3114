//! A source of keys that runs while a test does.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use rustls::RootCertStore;
use slidegate::Clock;
use slidegate::limit::SystemClock;
use slidegate::policy::KeyHash;
use slidegate_customers::{KeyAnswer, KnownKey, PostgresConfig, PostgresKeys};
use slidegate_testbed::{Database, PostgresServer, wait_until};
use tokio::runtime::{Builder, Runtime};
use tracing::instrument::WithSubscriber;

/// For tests that leave the server alone. Each has its own database.
pub(crate) static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);

pub(crate) const TABLE: &str = "create table api_keys (digest text primary key, customer text, plan text, \
     quotas text, expires_at timestamptz, changed_at timestamptz not null default clock_timestamp())";

pub(crate) const QUERY: &str =
    "select digest, customer, plan, quotas, expires_at, changed_at from api_keys";

pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Polls every 50 ms, and reads everything every hour.
pub(crate) fn config(url: String) -> PostgresConfig {
    PostgresConfig {
        url,
        query: QUERY.to_owned(),
        poll: ms(50),
        full: HOUR,
        notify: None,
        hash: KeyHash::Sha256,
        authorities: RootCertStore::empty(),
    }
}

/// The table of [`TABLE`] with the keys `k1` to `k…`, of the customers `c1` to `c…`, long ago.
pub(crate) fn table_of<'s>(server: &'s PostgresServer, keys: u32) -> Database<'s> {
    let database = server.database();
    database.sql(TABLE);
    database.sql(&format!(
        "insert into api_keys select encode(sha256(('k' || i)::bytea), 'hex'), 'c' || i, 'pro', null, \
         null, now() - interval '1 day' from generate_series(1, {keys}) as i"
    ));
    database
}

/// The digest of a key, in quotes for SQL.
pub(crate) fn digest(key: &str) -> String {
    format!("'{}'", KeyHash::Sha256.hex(key.as_bytes()))
}

/// Adds a key with a plan.
pub(crate) fn insert(database: &Database<'_>, key: &str, customer: &str) {
    let digest = digest(key);
    database.sql(&format!(
        "insert into api_keys (digest, customer, plan) values ({digest}, '{customer}', 'pro')"
    ));
}

/// Revokes a key as an application does.
pub(crate) fn expire(database: &Database<'_>, key: &str) {
    let digest = digest(key);
    database.sql(&format!(
        "update api_keys set expires_at = now(), changed_at = clock_timestamp() where digest = {digest}"
    ));
}

/// A key of the plan `pro`.
pub(crate) fn known(customer: &str) -> KeyAnswer {
    KeyAnswer::Known(KnownKey {
        customer: Some(customer.into()),
        plan: Some("pro".into()),
        quotas: None,
        expires: None,
    })
}

/// Keys, and the task that reads them, which ends on drop.
pub(crate) struct Reader {
    keys: PostgresKeys,
    log: LogLines,
    _runtime: Runtime,
}

impl Reader {
    pub(crate) fn start(config: PostgresConfig) -> Self {
        Self::start_with_clock(config, SystemClock::new())
    }

    pub(crate) fn start_with_clock(config: PostgresConfig, clock: impl Clock) -> Self {
        let keys = PostgresKeys::with_clock(config, clock).unwrap();
        let log = LogLines::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let running = keys.clone();
        runtime.spawn(async move { running.run().await }.with_subscriber(lines.finish()));
        Self { keys, log, _runtime: runtime }
    }

    /// Starts and waits until everything has been read.
    pub(crate) fn loaded(config: PostgresConfig) -> Self {
        let reader = Self::start(config);
        wait_until("the first load", || reader.find("never issued") == KeyAnswer::Unknown);
        reader
    }

    pub(crate) fn find(&self, key: &str) -> KeyAnswer {
        self.keys.find(key.as_bytes())
    }

    pub(crate) fn keys(&self) -> usize {
        self.keys.status().keys
    }

    /// How old the data are; zero before the first.
    pub(crate) fn age(&self) -> Duration {
        self.keys.status().answered_ago.unwrap_or_default()
    }

    pub(crate) fn error(&self) -> String {
        self.keys.status().error.unwrap_or_default()
    }

    pub(crate) fn wait_for(&self, key: &str, answer: &KeyAnswer) {
        wait_until(&format!("{key} to be {answer:?}"), || self.find(key) == *answer);
    }

    pub(crate) fn wait_for_error(&self, part: &str) {
        wait_until(&format!("the error {part}"), || self.error().contains(part));
    }

    pub(crate) fn wait_for_recovery(&self) {
        wait_until("the recovery", || !self.keys.status().is_degraded());
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8(self.log.0.lock().unwrap().clone()).unwrap()
    }

    /// How many lines of the log have this text.
    pub(crate) fn logged(&self, text: &str) -> usize {
        self.log().lines().filter(|line| line.contains(text)).count()
    }
}

/// What was logged. Clones share it.
#[derive(Clone, Default)]
struct LogLines(Arc<Mutex<Vec<u8>>>);

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
