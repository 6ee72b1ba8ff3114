//! One connection to PostgreSQL, with a deadline on all that it is asked.

use std::error::Error;
use std::time::Duration;

use futures_util::future::poll_fn;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// A query that is given up is cancelled, and the database is asked to do so for no longer than this.
const CANCEL_DEADLINE: Duration = Duration::from_secs(2);

/// How to connect.
pub(super) struct PgConnector {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
}

/// A connection, which is closed on drop.
pub(super) struct PgSession {
    pub(super) client: Client,
    tls: MakeRustlsConnect,
    /// Payloads of notifications.
    pub(super) notifications: mpsc::Receiver<String>,
    _connection: JoinSet<()>,
}

/// Why the database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum PgError {
    #[error("no connection within {0:?}")]
    ConnectDeadline(Duration),
    #[error("no answer within {0:?}")]
    Stalled(Duration),
    #[error("{}", in_words(.0))]
    Database(#[from] tokio_postgres::Error),
    #[error("the query has no column digest, only {0}")]
    NoDigest(String),
    #[error("the query no longer has the column {0}, which it had when it was read last")]
    ColumnGone(&'static str),
    #[error("the column {column} is of type {found}; expected timestamptz")]
    NotATime { column: &'static str, found: String },
    #[error("none of the {rows} rows can be used: {why}")]
    NoGoodRow { rows: usize, why: String },
    #[error("the table has more than {0} keys; those beyond are not known")]
    TooManyKeys(usize),
    #[error("the query is executed, but is not a select")]
    NotASelect,
}

impl PgConnector {
    pub(super) async fn connect(&self) -> Result<PgSession, PgError> {
        let connecting = timeout(CONNECT_DEADLINE, self.config.connect(self.tls.clone())).await;
        let (client, mut connection) =
            connecting.map_err(|_| PgError::ConnectDeadline(CONNECT_DEADLINE))??;
        // If it is full, notifications wait to be read already, and one is as good as many.
        let (sender, notifications) = mpsc::channel(64);
        let mut task = JoinSet::new();
        task.spawn(async move {
            // An error ends it, and then all that the client asks fails.
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = message {
                    let _ = sender.try_send(notification.payload().to_owned());
                }
            }
        });
        Ok(PgSession { client, tls: self.tls.clone(), notifications, _connection: task })
    }
}

impl PgSession {
    /// Waits for an answer. If none comes, the query is cancelled: the end of the connection alone would
    /// leave it running in the database, and each retry would add another.
    pub(super) async fn within<T>(
        &self,
        deadline: Duration,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, PgError> {
        match timeout(deadline, answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                let token = self.client.cancel_token();
                let _ = timeout(CANCEL_DEADLINE, token.cancel_query(self.tls.clone())).await;
                Err(PgError::Stalled(deadline))
            }
        }
    }
}

/// The error with its causes, the first of which alone says nothing, and without values of the table.
fn in_words(error: &tokio_postgres::Error) -> String {
    if let Some(database) = error.as_db_error() {
        let code = database.code().code();
        // Class 22 is about data, and its messages repeat them.
        return match code.starts_with("22") {
            true => format!("the database reports bad data (SQLSTATE {code})"),
            false => format!("{} (SQLSTATE {code})", database.message()),
        };
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
