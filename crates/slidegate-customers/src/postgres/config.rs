//! Where the keys are, and how often they are read.

use std::fmt;
use std::time::Duration;

use rustls::RootCertStore;
use slidegate::policy::KeyHash;
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::select::trimmed;
use super::session::PgConnector;
use super::url::PostgresUrl;
use crate::fetch::tls_config;

/// The table of keys in a PostgreSQL database.
///
/// TLS always checks the server's certificate and name, whichever `sslmode` asks for it: `prefer`,
/// `require`, `verify-ca` and `verify-full` differ only in what happens if the server has no TLS.
#[derive(Clone)]
pub struct PostgresConfig {
    /// `postgres://user:password@host:port/database?sslmode=…`. The password is never shown.
    pub url: String,
    /// A `select` with a column `digest`, at least one of `customer`, `plan` and `quotas`, and
    /// optionally `expires_at` and `changed_at`.
    pub query: String,
    /// How often what has changed is read.
    pub poll: Duration,
    /// How often everything is read, so that deleted rows go.
    pub full: Duration,
    /// A channel on which `NOTIFY` leads to a poll at once.
    pub notify: Option<String>,
    /// How the column `digest` was made.
    pub hash: KeyHash,
    /// Authorities that are trusted to sign the database's certificate, beside the public ones.
    pub authorities: RootCertStore,
}

/// What is wrong with a [`PostgresConfig`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeySourceError {
    /// The URL is not one of PostgreSQL.
    #[error("url: expected postgres://user:password@host:port/database?sslmode=…, found {0}")]
    Url(String),
    /// The query is empty.
    #[error("query: expected a select with a column digest, found nothing")]
    Query,
    /// Polling would be a busy loop, or would not happen.
    #[error("poll: expected a time from 10ms to 1h, found {0:?}")]
    Poll(Duration),
    /// Everything would be read more often than what has changed, or hardly ever.
    #[error("full: expected a time from poll to 1 day, found {0:?}")]
    Full(Duration),
    /// PostgreSQL has no channel of this name.
    #[error("notify: expected the name of a channel, of 1 to 63 bytes, found {0:?}")]
    Notify(String),
}

const POLLS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60 * 60);

const MAX_FULL: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest name that PostgreSQL does not cut.
const MAX_CHANNEL_BYTES: usize = 63;

impl PostgresConfig {
    pub(super) fn check(&self) -> Result<PgConnector, KeySourceError> {
        let config = session_config(self.url.parse()?);
        if trimmed(&self.query).is_empty() {
            return Err(KeySourceError::Query);
        }
        if !POLLS.contains(&self.poll) {
            return Err(KeySourceError::Poll(self.poll));
        }
        if !(self.poll..=MAX_FULL).contains(&self.full) {
            return Err(KeySourceError::Full(self.full));
        }
        let is_channel =
            |name: &&String| (1..=MAX_CHANNEL_BYTES).contains(&name.len()) && !name.contains('\0');
        if let Some(name) = self.notify.as_ref().filter(|name| !is_channel(name)) {
            return Err(KeySourceError::Notify(name.clone()));
        }
        Ok(PgConnector { config, tls: MakeRustlsConnect::new(tls_config(&self.authorities)) })
    }
}

fn session_config(url: PostgresUrl) -> Config {
    let mut config = url.config();
    if config.get_application_name().is_none() {
        config.application_name("slidegate");
    }
    // The default of two hours would leave a connection that is gone unnoticed for as long.
    config.keepalives_idle(Duration::from_secs(30));
    config
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("url", &self.url.parse::<PostgresUrl>().ok())
            .field("query", &self.query)
            .field("poll", &self.poll)
            .field("full", &self.full)
            .field("notify", &self.notify)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> PostgresConfig {
        PostgresConfig {
            url: url.to_owned(),
            query: "select digest, customer from api_keys".to_owned(),
            poll: Duration::from_secs(2),
            full: Duration::from_secs(60),
            notify: None,
            hash: KeyHash::Sha256,
            authorities: RootCertStore::empty(),
        }
    }

    #[test]
    fn urls_of_postgresql_are_taken() {
        for url in [
            "postgres://slidegate@10.0.2.7/app",
            "postgresql://u:p@db.internal:6432/app?sslmode=require",
            "postgres://u:p@db/app?sslmode=verify-full",
            "postgres://u:p@db/app?sslmode=verify-ca&connect_timeout=3",
            "postgres://u@%2Fvar%2Frun%2Fpostgresql/app",
            "postgres://u:p@db1:5432,db2:5432/app?target_session_attrs=read-write",
        ] {
            assert!(config(url).check().is_ok(), "{url}");
        }
    }

    #[test]
    fn no_message_has_the_password() {
        for url in [
            "mysql://u:s3cret@db/app",
            "postgres://u:s3cret@db/app?sslmode=maybe",
            "postgres://u:s3cret@db/app?password=s3cret&unheard=of",
            "postgres://u:s3cret@db:port/app",
            "host=db user=u password=s3cret",
            "postgres:///app?password=s3cret",
            "postgres://u:12@s3cret@db/app",
            "postgres://u:12@x/s3cret@db/app",
            "postgres://u:12@x,s3cret@db",
        ] {
            let config = config(url);
            let error = config.check().err().unwrap_or_else(|| panic!("{url} was taken"));
            for text in [error.to_string(), format!("{error:?}"), format!("{config:?}")] {
                assert!(!text.contains("s3cret"), "{url}: {text}");
            }
        }
        for url in [
            "postgres://u:s3cret@db/app",
            "postgres://u:x?s3cret@db/app",
            "postgres://u:12/s3cret@db/app",
            "postgres://u:12#s3cret@db/app",
        ] {
            let config = config(url);
            assert!(config.check().is_ok(), "{url}");
            assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
        }
    }

    #[test]
    fn an_error_names_the_setting_and_its_value() {
        let good = config("postgres://u@db/app");
        let cases = [
            (PostgresConfig { query: " ;\n".to_owned(), ..good.clone() }, "query: expected"),
            (PostgresConfig { poll: Duration::ZERO, ..good.clone() }, "poll: expected a time"),
            (PostgresConfig { full: Duration::from_secs(1), ..good.clone() }, "found 1s"),
            (PostgresConfig { notify: Some("c".repeat(64)), ..good.clone() }, "notify: expected"),
            (config("redis://u@db/0"), "found redis://…"),
        ];
        for (config, expected) in cases {
            let error = config.check().err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(expected), "{error}");
        }
    }
}
