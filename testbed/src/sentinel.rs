//! A primary with two replicas, watched by three sentinels.

use crate::clock::ManualTime;
use crate::flavour::Flavour;
use crate::options::{Role, ServerOptions};
use crate::reply::Reply;
use crate::server::RedisServer;
use crate::wait::{wait_for, wait_until};

const MASTER_NAME: &str = "slidegate";

const SERVERS: usize = 3;
const SENTINELS: usize = 3;

/// Milliseconds, in place of the one to ten seconds after which sentinels act otherwise.
///
/// The last keeps a busy machine from making them distrust their clock, upon which they would not
/// act at all for 30 s.
const HASTE: &str = "info-period 200 ping-period 200 publish-period 200 ask-period 200 \
                     election-timeout 2000 tilt-trigger 60000";

/// A primary that is silent for this long is down for a sentinel: on a busy machine, one that works
/// may be silent for half as long.
const SOON_MS: u32 = 1_000;
/// The same for servers with a clock of their own, which tests keep busy for longer.
const PATIENT_MS: u32 = 60_000;

/// Three servers, one of them the primary, and three sentinels, all gone on drop.
///
/// A primary that is silent for a second is down for a sentinel; two agree on a failover.
#[derive(Debug)]
pub struct RedisSentinels {
    sentinels: Vec<RedisServer>,
    servers: Vec<RedisServer>,
}

/// Changes to the plain servers of [`RedisSentinels::start`].
#[derive(Debug, Clone)]
pub struct SentinelOptions {
    server: ServerOptions,
}

impl SentinelOptions {
    pub(crate) fn new(flavour: Flavour) -> Self {
        Self { server: flavour.server() }
    }

    /// Starts everything and returns when all sentinels know each other and both replicas.
    #[must_use]
    pub fn start(self) -> RedisSentinels {
        RedisSentinels::start_with(self.server.in_a_group())
    }

    /// Lets the servers, not the sentinels, live by this clock. A primary is then down only after a
    /// minute of silence.
    #[must_use]
    pub fn time(mut self, time: &ManualTime) -> Self {
        self.server = self.server.time(time).line("repl-timeout 2000000");
        self
    }

    /// Has servers and sentinels speak TLS, with clients and with each other, as
    /// [`ServerOptions::mutual_tls`] does. They share an authority.
    #[must_use]
    pub fn mutual_tls(mut self) -> Self {
        self.server = self.server.mutual_tls();
        self
    }
}

impl RedisSentinels {
    /// Starts servers without a password and without persistence, and their sentinels.
    #[must_use]
    pub fn start() -> Self {
        Self::options().start()
    }

    /// What may be different from [`RedisSentinels::start`].
    #[must_use]
    pub fn options() -> SentinelOptions {
        SentinelOptions::new(Flavour::Redis)
    }

    fn start_with(options: ServerOptions) -> Self {
        let servers: Vec<_> = (0..SERVERS).map(|_| options.clone().start()).collect();
        let port = servers[0].port();
        for replica in &servers[1..] {
            replica.command(&["REPLICAOF", "127.0.0.1", &port.to_string()]).expect_ok();
        }
        wait_until("the replicas to be in sync", || servers[1..].iter().all(is_in_sync));
        let ServerOptions { flavour, transport, certificates, time, .. } = options;
        let down_after_ms = if time.is_some() { PATIENT_MS } else { SOON_MS };
        let role = Role::Sentinel;
        let sentinel = ServerOptions { transport, certificates, role, ..flavour.server() };
        let start = |_| start_sentinel(sentinel.clone(), port, down_after_ms);
        let sentinels = (0..SENTINELS).map(start).collect();
        let all = Self { sentinels, servers };
        wait_until("the sentinels to meet", || all.sentinels.iter().all(has_met_everyone));
        all
    }

    /// Where clients ask for the primary, one URL for each sentinel.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// The name under which the sentinels know the primary.
    #[must_use]
    pub fn master_name(&self) -> &str {
        MASTER_NAME
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The primary and the replicas, in the order in which they were started.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The primary that the sentinels name, be it alive or not.
    ///
    /// Waits if they are about to agree on another.
    #[must_use]
    pub fn primary(&self) -> &RedisServer {
        wait_for("the sentinels to agree", || self.find_primary())
    }

    /// Kills the primary, and returns it.
    pub fn kill_primary(&self) -> &RedisServer {
        let primary = self.primary();
        primary.kill();
        primary
    }

    /// Waits until all sentinels name a primary that is awake and the other servers that are awake
    /// replicate it; returns it.
    pub fn wait_for_failover(&self) -> &RedisServer {
        wait_for("a replica to take over", || {
            let primary = self.find_primary().filter(|it| it.is_awake())?;
            let awake = self.servers.iter().filter(|it| it.is_awake());
            let mut others = awake.filter(|it| it.port() != primary.port());
            let is_settled = primary.info("role") == "master"
                && others.all(|it| replicates(it, primary) && is_in_sync(it));
            is_settled.then_some(primary)
        })
    }

    /// Waits until both replicas have everything that the primary has.
    pub fn wait_until_replicated(&self) {
        let primary = self.primary();
        // It waits for what its own connection has written.
        primary.command(&["SET", "replicated", "until here"]).expect_ok();
        let replicas = SERVERS - 1;
        let replies = primary.command(&["WAIT", &replicas.to_string(), "0"]).integer();
        assert_eq!(replies, replicas as i64, "replicas have replied");
    }

    fn find_primary(&self) -> Option<&RedisServer> {
        let awake = self.sentinels.iter().filter(|it| it.is_awake());
        let mut ports: Vec<u16> = awake.map(port_of_primary).collect();
        ports.dedup();
        let [port] = ports[..] else { return None };
        self.servers.iter().find(|it| it.port() == port)
    }
}

fn start_sentinel(options: ServerOptions, primary: u16, down_after_ms: u32) -> RedisServer {
    let sentinel = options
        .line(&format!("sentinel monitor {MASTER_NAME} 127.0.0.1 {primary} 2"))
        .line(&format!("sentinel down-after-milliseconds {MASTER_NAME} {down_after_ms}"))
        .line(&format!("sentinel failover-timeout {MASTER_NAME} 2000"))
        .line(&format!("sentinel parallel-syncs {MASTER_NAME} {SERVERS}"))
        .start();
    let haste: Vec<&str> = ["SENTINEL", "DEBUG"].into_iter().chain(HASTE.split(' ')).collect();
    sentinel.command(&haste).expect_ok();
    sentinel
}

fn port_of_primary(sentinel: &RedisServer) -> u16 {
    let address = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]).array();
    let port = address.into_iter().next_back().expect("a host and a port").text();
    port.parse().expect("a port")
}

fn has_met_everyone(sentinel: &RedisServer) -> bool {
    let fields = sentinel.command(&["SENTINEL", "MASTER", MASTER_NAME]).array();
    let fields: Vec<String> = fields.into_iter().map(Reply::text).collect();
    let has = |name: &str, count: usize| {
        fields.chunks(2).any(|field| field[0] == name && field[1] == count.to_string())
    };
    has("num-slaves", SERVERS - 1) && has("num-other-sentinels", SENTINELS - 1)
}

fn replicates(server: &RedisServer, primary: &RedisServer) -> bool {
    server.info("role") == "slave" && server.info("master_port") == primary.port().to_string()
}

/// For replicas only.
fn is_in_sync(replica: &RedisServer) -> bool {
    replica.info("master_link_status") == "up"
}
