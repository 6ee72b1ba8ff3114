//! The faults, each made with real servers.

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use slidegate_testbed::{
    FaultyNetwork, ManualTime, RedisCluster, RedisSentinels, RedisServer, Reply, wait_until,
};

use super::cost::{Cost, Span};
use super::load::{ACCOUNTS, HOT, Load};

/// How many there are of them.
const GATEWAYS: usize = 2;
/// More than a window, before and after.
const MARGIN: Duration = Duration::from_millis(2800);
/// How long a fault lasts that does not end by itself: longer than a denial is cached.
const LASTS: Duration = Duration::from_secs(2);
/// How far replicas are behind, and how far a clock steps.
const LAG: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_secs(1);
/// The store looks every three seconds at least.
const HEALS_WITHIN: Duration = Duration::from_secs(20);

/// A fault, how it is made, and what makes it.
pub type Fault = (&'static str, &'static str, fn() -> anyhow::Result<Cost>);

pub const FAULTS: [Fault; 20] = [
    ("none", "the load alone", || at_server(RedisServer::start(), |_| (), |_| ())),
    ("kill", "`SIGKILL`; restarted with its append-only file", || {
        let server = RedisServer::options().appendonly().start();
        at_server(server, RedisServer::kill, RedisServer::restart)
    }),
    ("restart empty", "`SIGKILL`; restarted without persistence", || {
        at_server(RedisServer::start(), RedisServer::kill, RedisServer::restart)
    }),
    ("stop", "`SIGSTOP`: connections stay, nothing answers", || {
        at_server(RedisServer::start(), RedisServer::pause, RedisServer::resume)
    }),
    ("blackhole", "connections stay, and every byte is swallowed", || {
        on_network(FaultyNetwork::blackhole)
    }),
    ("reset", "every connection is reset, old and new", || on_network(FaultyNetwork::refuse)),
    ("slow", "80 ms for a round trip, more than the deadline", || {
        on_network(|network| network.delay(Duration::from_millis(40)))
    }),
    ("OOM", "`maxmemory 1`", || {
        by_command(["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"])
    }),
    ("READONLY", "made a replica of an address where nothing is", || {
        by_command(["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"])
    }),
    ("wrong password", "another password, and all connections closed", || {
        let server = RedisServer::options().password("opensesame").start();
        let breaks = |server: &RedisServer| {
            server.command(&["CONFIG", "SET", "requirepass", "changed"]).expect_ok();
            assert!(server.command(&["CLIENT", "KILL", "TYPE", "normal"]).integer() > 0);
        };
        let mends = |server: &RedisServer| {
            server.command(&["CONFIG", "SET", "requirepass", "opensesame"]).expect_ok();
        };
        at_server(server, breaks, mends)
    }),
    ("NOPERM", "the user may touch no key", || {
        let set_user = |keys| ["ACL", "SETUSER", "default", keys];
        by_command(set_user("resetkeys"), set_user("~*"))
    }),
    ("WRONGTYPE", "a list in place of the hot account's ledger, deleted in the end", wrong_type),
    ("BUSY script", "an endless script of another client, killed at the end", busy),
    ("sentinel failover", "primary killed; down for sentinels after 0.5 s", || sentinels(|_| ())),
    ("late failover", "the same, with the replicas cut off 0.5 s before", || {
        sentinels(|replica| {
            replica.command(&["REPLICAOF", "127.0.0.1", "1"]).expect_ok();
        })
    }),
    ("cluster failover", "the hot account's primary killed; `cluster-node-timeout` 1 s", failover),
    ("slot migration", "the hot account's slot moved to another primary", migration),
    ("clock skew", "`stop`, with Redis' clock a day ahead of the gateways'", || {
        at_server(skewed(&ManualTime::running_ahead()), RedisServer::pause, RedisServer::resume)
    }),
    ("clock forward", "Redis' clock steps forward by 1 s", || {
        let time = ManualTime::running_ahead();
        at_server(skewed(&time), |_| time.advance(STEP), |_| ())
    }),
    ("clock back", "Redis' clock steps back by 1 s", || {
        let time = ManualTime::running_ahead();
        at_server(skewed(&time), |_| time.step_back(STEP), |_| ())
    }),
];

/// Puts load on the servers, lets the fault happen to the accounts, and waits until it has healed.
/// The fault returns the moment from which healing counts, when the servers have agreed.
fn observe(
    url: &str,
    accounts: Vec<usize>,
    fault: impl FnOnce() -> Instant,
) -> anyhow::Result<Cost> {
    observe_at(GATEWAYS, url, accounts, fault)
}

/// The same for so many gateways.
pub fn observe_at(
    gateways: usize,
    url: &str,
    accounts: Vec<usize>,
    fault: impl FnOnce() -> Instant,
) -> anyhow::Result<Cost> {
    let load = Load::start(url, gateways)?;
    sleep(MARGIN);
    let began = Instant::now();
    let span = Span { began, ended: fault(), accounts };
    let agreed = span.ended.elapsed();
    let mut heal = None;
    while span.has_cost(&load.calls()) && heal.is_none() {
        ensure!(span.ended.elapsed() < HEALS_WITHIN, "Redis does not decide again");
        sleep(Duration::from_millis(20));
        heal = span.heal(&load.calls(), gateways);
    }
    sleep(MARGIN);
    Ok(Cost::new(&load.stop()?, heal, agreed))
}

pub fn everyone() -> Vec<usize> {
    (0..ACCOUNTS).collect()
}

/// A fault that does not end by itself.
fn outage(breaks: impl FnOnce(), mends: impl FnOnce()) -> Instant {
    breaks();
    sleep(LASTS);
    mends();
    Instant::now()
}

fn at_server(
    server: RedisServer,
    breaks: impl FnOnce(&RedisServer),
    mends: impl FnOnce(&RedisServer),
) -> anyhow::Result<Cost> {
    observe(&server.url(), everyone(), || outage(|| breaks(&server), || mends(&server)))
}

fn by_command<const N: usize>(breaks: [&str; N], mends: [&str; N]) -> anyhow::Result<Cost> {
    let server = RedisServer::start();
    let breaks = |server: &RedisServer| server.command(&breaks).expect_ok();
    at_server(server, breaks, |server| server.command(&mends).expect_ok())
}

fn on_network(breaks: impl FnOnce(&FaultyNetwork)) -> anyhow::Result<Cost> {
    let server = RedisServer::start();
    let network = FaultyNetwork::in_front_of(&server);
    observe(&network.url(), everyone(), || outage(|| breaks(&network), || network.pass()))
}

fn skewed(time: &ManualTime) -> RedisServer {
    RedisServer::options().time(time).start()
}

/// The part of a key's name that is hashed to its slot.
pub fn tag(account: usize) -> String {
    format!("{{user:{account}}}")
}

fn wrong_type() -> anyhow::Result<Cost> {
    let server = RedisServer::start();
    let key = || server.command(&["KEYS", &format!("*{}*", tag(HOT))]).array().remove(0).text();
    let put = "redis.call('DEL', KEYS[1]) return redis.call('LPUSH', KEYS[1], 'x')";
    let breaks = || assert_eq!(server.command(&["EVAL", put, "1", &key()]).integer(), 1);
    let mends = || assert_eq!(server.command(&["DEL", &key()]).integer(), 1);
    observe(&server.url(), vec![HOT], || outage(breaks, mends))
}

fn busy() -> anyhow::Result<Cost> {
    let server = RedisServer::options().line("busy-reply-threshold 200").start();
    let mut other = redis::Client::open(server.url())?.get_connection()?;
    let breaks = |server: &RedisServer| {
        thread::spawn(move || {
            let endless = redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut other);
            assert!(endless.is_err(), "it is killed");
        });
        wait_until("Redis to be busy", || matches!(server.command(&["PING"]), Reply::Error(_)));
    };
    at_server(server, breaks, |server| server.command(&["SCRIPT", "KILL"]).expect_ok())
}

/// A failover ends by itself, so healing counts from the kill.
fn sentinels(cut_off: fn(&RedisServer)) -> anyhow::Result<Cost> {
    let group = RedisSentinels::start();
    let url = format!("redis-sentinel://{}/{}", hosts(&group.urls()), group.master_name());
    observe(&url, everyone(), || {
        let primary = group.primary();
        group.servers().iter().filter(|it| it.port() != primary.port()).for_each(cut_off);
        sleep(LAG);
        primary.kill();
        let killed = Instant::now();
        group.wait_for_failover();
        killed
    })
}

fn failover() -> anyhow::Result<Cost> {
    failover_of(&RedisCluster::start(), GATEWAYS)
}

/// Kills the primary of the hot account.
pub fn failover_of(cluster: &RedisCluster, gateways: usize) -> anyhow::Result<Cost> {
    let primary = |account| cluster.primary_of(cluster.slot_of(&tag(account)));
    let hit = everyone().into_iter().filter(|it| primary(*it).port() == primary(HOT).port());
    observe_at(gateways, &cluster_url(cluster), hit.collect(), || {
        primary(HOT).kill();
        let killed = Instant::now();
        cluster.wait_for_failover(cluster.slot_of(&tag(HOT)));
        killed
    })
}

fn migration() -> anyhow::Result<Cost> {
    let cluster = RedisCluster::start();
    let slot = cluster.slot_of(&tag(HOT));
    let from = cluster.primary_of(slot).port();
    let to = cluster.nodes().iter().take(3).find(|node| node.port() != from);
    let to = to.context("there are three primaries")?;
    observe(&cluster_url(&cluster), vec![HOT], || {
        let migration = cluster.begin_migration(slot, to);
        sleep(LASTS / 2);
        migration.move_keys();
        sleep(LASTS / 2);
        migration.finish();
        Instant::now()
    })
}

pub fn cluster_url(cluster: &RedisCluster) -> String {
    format!("redis-cluster://{}", hosts(&cluster.urls()))
}

fn hosts(urls: &[String]) -> String {
    let host = |url: &String| url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    urls.iter().map(host).collect::<Vec<_>>().join(",")
}
