//! Notifications, which only make a poll come sooner.

use std::mem;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::{ToSql, Type};

use super::POLL_STALL;
use super::health::pause;
use super::session::{PgConnector, PgError, PgSession};

/// How long a notification of our own may take to arrive.
const PROBE_DEADLINE: Duration = Duration::from_secs(2);

/// Where notifications do not arrive, they are tried again after this.
const PROBE_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// How soon a lost connection is made again. Later attempts are further apart.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Why no notification can arrive.
#[derive(Debug, thiserror::Error)]
enum ListenError {
    #[error(transparent)]
    Session(#[from] PgError),
    #[error(
        "a notification did not arrive within {PROBE_DEADLINE:?}; PgBouncer in transaction mode \
         does not pass them on"
    )]
    Lost,
    #[error("connection closed")]
    Closed,
}

/// Wakes the poll for every notification on the channel, and once after each new connection, since
/// notifications may have been missed before. Never returns.
pub(super) async fn listen(connector: &PgConnector, channel: &str, wake: &Notify) {
    let mut failures = 0;
    let mut warned = None;
    loop {
        let error = match subscribe(connector, channel).await {
            Ok(mut session) => {
                if warned.take().is_some() {
                    tracing::info!(channel, "notifications of the key source arrive again");
                }
                failures = 0;
                wake.notify_one();
                while session.notifications.recv().await.is_some() {
                    wake.notify_one();
                }
                ListenError::Closed
            }
            Err(error) => error,
        };
        failures += 1;
        // One line for each kind of trouble: a database that is down at first may be behind PgBouncer.
        // A closed connection is usual when a database restarts, and the next attempt says more.
        let kind = Some(mem::discriminant(&error));
        if warned != kind && !matches!(error, ListenError::Closed) {
            warned = kind;
            let error = error.to_string();
            tracing::warn!(channel, error, "no notifications of the key source; polling goes on");
        }
        let wait = match error {
            ListenError::Lost => PROBE_INTERVAL,
            _ => pause(failures, FIRST_RETRY),
        };
        sleep(wait.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
    }
}

/// Listens, and sends a notification to see that it arrives.
async fn subscribe(connector: &PgConnector, channel: &str) -> Result<PgSession, ListenError> {
    let mut listener = connector.connect().await?;
    let listen = format!("listen \"{}\"", channel.replace('"', "\"\""));
    listener.within(POLL_STALL, listener.client.batch_execute(&listen)).await?;
    // From another connection: behind PgBouncer our own would get back what it sent itself.
    let notifier = connector.connect().await?;
    let payload = format!("slidegate-probe-{:016x}", fastrand::u64(..));
    let notify = async {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&channel, Type::TEXT), (&payload, Type::TEXT)];
        notifier.client.execute_typed("select pg_notify($1, $2)", &parameters).await
    };
    notifier.within(POLL_STALL, notify).await?;
    let arrival = async {
        while let Some(arrived) = listener.notifications.recv().await {
            if arrived == payload {
                return Ok(());
            }
        }
        Err(ListenError::Closed)
    };
    timeout(PROBE_DEADLINE, arrival).await.map_err(|_| ListenError::Lost)??;
    Ok(listener)
}
