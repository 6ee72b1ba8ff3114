//! The one connection that everything of a store goes over, made again when it breaks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, RedisError, RedisResult, TlsMode, Value,
};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::builder::{RedisTls, StreamConnector};
use crate::address::{Address, Sentinels, Topology};
use crate::checkup::findings;
use crate::error::RedisStoreError;
use crate::script::{ScriptCall, Scripts};

/// A connection to Redis, shared by all calls, that is made when it is first needed and again
/// after it broke.
pub(crate) struct RedisConnection {
    pub(crate) address: Address,
    tls: Option<RedisTls>,
    connector: Option<StreamConnector>,
    pub(crate) scripts: Scripts,
    /// How long a call may take before no request waits for it any more.
    pub(crate) deadline: Duration,
    state: Mutex<ConnectionState>,
    /// How many connections have been made.
    pub(crate) made: AtomicU64,
    made_at: Instant,
    /// A name that no other process has, and how many names were made of it.
    pub(crate) process: String,
    names: AtomicU64,
    /// Where tasks run; none for the runtime of the call that needs them.
    runtime: Option<Handle>,
}

enum ConnectionState {
    Down,
    Connecting(ConnectAttempt),
    Up(LiveConnection),
}

/// An attempt to connect. It runs in its own task, because the deadline of a caller may end first. Callers
/// get the connection in the order in which they asked.
#[derive(Clone)]
struct ConnectAttempt {
    outcome: Shared<BoxFuture<'static, RedisResult<LiveConnection>>>,
    task: AbortHandle,
}

/// A connection that is up.
#[derive(Clone)]
pub(crate) struct LiveConnection {
    connection: Transport,
    /// Since when answers have been missed and none has come, in nanoseconds; zero if none is.
    silent_ns: Arc<AtomicU64>,
}

#[derive(Clone)]
enum Transport {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// How long to try to connect: longer than a lost packet takes to be sent again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A server that has answered nothing for this long while it was asked is behind a dead connection.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);
/// A cluster sends a call again when a node is gone or has moved the slot. Each time may count it
/// again, which is stricter and never looser, so it is done seldom.
const CLUSTER_RETRIES: u32 = 3;
const CLUSTER_RETRY_WAIT_MS: (u64, u64) = (5, 50);

impl RedisConnection {
    pub(crate) fn new(
        address: Address,
        tls: Option<RedisTls>,
        connector: Option<StreamConnector>,
        scripts: Scripts,
        deadline: Duration,
        runtime: Option<Handle>,
    ) -> Self {
        Self {
            address,
            tls,
            connector,
            scripts,
            deadline,
            state: Mutex::new(ConnectionState::Down),
            made: AtomicU64::new(0),
            made_at: Instant::now(),
            process: format!("{:x}", fastrand::u64(..)),
            names: AtomicU64::new(0),
            runtime,
        }
    }

    /// A name that is given out once, here and elsewhere.
    pub(crate) fn unique_name(&self) -> String {
        format!("{}-{:x}", self.process, self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Spawns a task where those of this connection run.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.runtime {
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        }
    }

    /// Runs a script. If the server does not know it, as after a restart, it is loaded and called
    /// again.
    pub(crate) async fn run(
        self: &Arc<Self>,
        call: &ScriptCall<'_>,
    ) -> Result<Value, RedisStoreError> {
        match self.send(&call.command).await {
            Err(error) if error.is_unknown_script() => {
                self.send(&call.script.load()).await?;
                self.send(&call.command).await
            }
            reply => reply,
        }
    }

    /// Sends a command.
    pub(crate) async fn send(self: &Arc<Self>, command: &Cmd) -> Result<Value, RedisStoreError> {
        let mut connected = self.connected().await.map_err(RedisStoreError::Unreachable)?;
        let reply = connected.connection.send(command).await;
        match &reply {
            Err(error) if connected.connection.is_lost(error) => {
                // Another may have taken its place.
                self.drop_if(|up| Arc::ptr_eq(&up.silent_ns, &connected.silent_ns));
            }
            // Of a cluster, where others may answer: then it is not silent.
            Err(error) if !is_an_answer(error) => self.missed(),
            _ => connected.silent_ns.store(0, Ordering::Relaxed),
        }
        Ok(reply?)
    }

    /// Records that an answer did not come in time. If none has come for a second, the connection is
    /// dropped: one that a firewall has forgotten, for one, would stay silent for many minutes.
    pub(crate) fn missed(&self) {
        let now_ns = u64::try_from(self.made_at.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        self.drop_if(|up| {
            let (set, kept) = (Ordering::Relaxed, Ordering::Relaxed);
            let first = up.silent_ns.compare_exchange(0, now_ns, set, kept);
            let since_ns = first.err().unwrap_or(now_ns);
            let is_silent = now_ns.saturating_sub(since_ns) > SILENCE_TIMEOUT.as_nanos() as u64;
            if is_silent {
                tracing::debug!(address = %self.address, "silent connection to Redis dropped");
            }
            is_silent
        });
    }

    /// Drops the connection if this error, of a part of a call that succeeded as a whole, means that
    /// it is lost.
    pub(crate) fn on_error_reply(&self, error: &RedisError) {
        self.drop_if(|up| up.connection.is_lost(error));
    }

    fn drop_if(&self, is_over: impl FnOnce(&LiveConnection) -> bool) {
        let mut state = self.state.lock();
        if matches!(&*state, ConnectionState::Up(up) if is_over(up)) {
            *state = ConnectionState::Down;
        }
    }

    async fn connected(self: &Arc<Self>) -> RedisResult<LiveConnection> {
        match self.up_or_attempt() {
            Ok(connected) => Ok(connected),
            Err(attempt) => attempt.outcome.await,
        }
    }

    /// The connection, or the attempt to make it.
    fn up_or_attempt(self: &Arc<Self>) -> Result<LiveConnection, ConnectAttempt> {
        let mut state = self.state.lock();
        match &*state {
            ConnectionState::Up(connected) => Ok(connected.clone()),
            // An attempt goes with the runtime that it was begun on.
            ConnectionState::Connecting(attempt) if !attempt.task.is_finished() => {
                Err(attempt.clone())
            }
            ConnectionState::Connecting(_) | ConnectionState::Down => {
                let connecting = self.spawn(self.clone().connect());
                let task = connecting.abort_handle();
                let dropped = || Err(io::Error::other("the connection attempt was dropped").into());
                let outcome = connecting.map(move |outcome| outcome.unwrap_or_else(|_| dropped()));
                let attempt = ConnectAttempt { outcome: outcome.boxed().shared(), task };
                *state = ConnectionState::Connecting(attempt.clone());
                Err(attempt)
            }
        }
    }

    async fn connect(self: Arc<Self>) -> RedisResult<LiveConnection> {
        let outcome = match tokio::time::timeout(2 * CONNECT_TIMEOUT, self.dial()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        };
        let outcome =
            outcome.map(|connection| LiveConnection { connection, silent_ns: Arc::default() });
        match &outcome {
            Ok(connected) => {
                *self.state.lock() = ConnectionState::Up(connected.clone());
                self.made.fetch_add(1, Ordering::Relaxed);
                tracing::info!(address = %self.address, "connected to Redis");
            }
            Err(error) => {
                *self.state.lock() = ConnectionState::Down;
                tracing::debug!(address = %self.address, %error, "connecting to Redis failed");
            }
        }
        outcome
    }

    /// Connects, logs in and loads the scripts.
    async fn dial(&self) -> RedisResult<Transport> {
        let mut connection = match &self.address.topology {
            Topology::Standalone(info) => Transport::Single(self.dial_server(info).await?),
            Topology::Sentinel(sentinels) => Transport::Single(self.dial_master(sentinels).await?),
            Topology::Cluster(nodes) => {
                let mut builder = ClusterClientBuilder::new(nodes.clone())
                    .retries(CLUSTER_RETRIES)
                    .min_retry_wait(CLUSTER_RETRY_WAIT_MS.0)
                    .max_retry_wait(CLUSTER_RETRY_WAIT_MS.1)
                    .connection_timeout(CONNECT_TIMEOUT)
                    // Then it sends the call again.
                    .response_timeout(self.deadline.max(SILENCE_TIMEOUT));
                if let Some(tls) = &self.tls {
                    builder = builder.certs(tls.0.clone());
                }
                Transport::Cluster(builder.build()?.get_async_connection().await?)
            }
        };
        for script in [&self.scripts.decide, &self.scripts.amend] {
            connection.send(&script.load()).await?;
        }
        // Some services forbid INFO; then there is nothing to be found.
        let info = connection.send(&redis::cmd("INFO")).await;
        for finding in info.iter().flat_map(findings) {
            tracing::warn!(address = %self.address, "{finding}");
        }
        Ok(connection)
    }

    async fn dial_server(&self, info: &ConnectionInfo) -> RedisResult<MultiplexedConnection> {
        let config = single_config();
        if let Some(StreamConnector(connect)) = &self.connector {
            let (login, stream) = (info.redis_settings(), connect().await?);
            let connecting = MultiplexedConnection::new_with_config(login, stream, config);
            let (connection, driver) = connecting.await?;
            self.spawn(driver);
            return Ok(connection);
        }
        let client = match &self.tls {
            Some(tls) => Client::build_with_tls(info.clone(), tls.0.clone())?,
            None => Client::open(info.clone())?,
        };
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Asks the sentinels who the master is, each time anew.
    async fn dial_master(&self, sentinels: &Sentinels) -> RedisResult<MultiplexedConnection> {
        let login = sentinels.server.redis_settings();
        let mut builder = SentinelClientBuilder::new(
            sentinels.nodes.clone(),
            &sentinels.master,
            SentinelServerType::Master,
        )?
        .set_client_to_redis_db(login.db())
        .set_client_to_redis_protocol(login.protocol());
        if let Some(user) = login.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = login.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(user) = &sentinels.user {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = &sentinels.password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if self.address.is_tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            if let Some(tls) = &self.tls {
                builder = builder
                    .set_client_to_redis_certificates(tls.0.clone())
                    .set_client_to_sentinel_certificates(tls.0.clone());
            }
        }
        builder.build()?.get_async_connection_with_config(&single_config()).await
    }
}

/// Whether a server that is in charge of the key says it. A cluster's connection that has lost its
/// way says something else of every call, and would for ever.
fn is_an_answer(error: &RedisError) -> bool {
    let astray = ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "LOADING"];
    error.code().is_some_and(|code| !astray.contains(&code))
}

/// The deadline of a call is kept by the store; a connection waits for as long as it takes.
fn single_config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(None)
}

impl Transport {
    async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        let reply = match self {
            Self::Single(connection) => connection.req_packed_command(command).await?,
            Self::Cluster(connection) => connection.req_packed_command(command).await?,
        };
        // What the server refuses comes as a value.
        reply.extract_error()
    }

    /// Whether an error says that the connection leads nowhere, or to a server that is no longer
    /// the one that decides. A cluster's finds its way again by itself.
    fn is_lost(&self, error: &RedisError) -> bool {
        let not_the_primary = matches!(error.code(), Some("READONLY" | "MASTERDOWN"));
        matches!(self, Self::Single(_))
            && (error.is_unrecoverable_error() || error.is_io_error() || not_the_primary)
    }
}
