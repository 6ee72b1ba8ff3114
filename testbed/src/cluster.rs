//! A Redis Cluster, of three primaries with a replica each unless told otherwise.

use crate::clock::ManualTime;
use crate::flavour::Flavour;
use crate::formation::{WarmUp, current_epoch, form, is_in_sync, is_ok};
use crate::member::Member;
use crate::migration::Migration;
use crate::options::{Role, ServerOptions};
use crate::server::RedisServer;
use crate::wait::{wait_for, wait_until};

/// Short, so that a failover takes about two seconds, and long enough for a busy machine.
const NODE_TIMEOUT_MS: u64 = 1_000;

/// 31 years: whatever the test does to the clock, no node looks silent.
const NODE_TIMEOUT_OF_MANUAL_TIME_MS: u64 = 1_000_000_000_000;

/// 23 days, close to the most that fits the milliseconds in which Redis counts it.
const REPLICATION_TIMEOUT_S: u64 = 2_000_000;

/// A Redis Cluster whose nodes run on this machine, all gone on drop.
///
/// The first nodes start as primaries of as many slots each, and the others as their replicas, in the
/// same order.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    primaries: usize,
    password: Option<String>,
}

/// Changes to the plain cluster of [`RedisCluster::start`].
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    primaries: usize,
    has_replicas: bool,
    node: ServerOptions,
}

impl ClusterOptions {
    pub(crate) fn new(flavour: Flavour) -> Self {
        let node = flavour
            .server()
            .role(Role::ClusterNode)
            // Otherwise replicas move to primaries that have lost theirs, and a long absence
            // keeps them from taking over.
            .line("cluster-allow-replica-migration no")
            .line("cluster-replica-validity-factor 0")
            .line(&format!("cluster-node-timeout {NODE_TIMEOUT_MS}"));
        Self { primaries: 3, has_replicas: true, node }
    }

    /// Starts the nodes and returns when all of them serve all slots and the replicas are in sync.
    #[must_use]
    pub fn start(self) -> RedisCluster {
        RedisCluster::start_with(&self)
    }

    /// Shares the slots among this many primaries.
    #[must_use]
    pub fn primaries(mut self, primaries: usize) -> Self {
        self.primaries = primaries;
        self
    }

    /// Leaves the primaries alone.
    #[must_use]
    pub fn without_replicas(mut self) -> Self {
        self.has_replicas = false;
        self
    }

    /// Lets all nodes live by this clock.
    ///
    /// As silence cannot be told from a move of the clock, no replica takes over by itself: see
    /// [`RedisCluster::promote_replica`]. A restarted node serves when the clock has moved on by
    /// two seconds. The cluster forms in the minute before the clock's time, which servers that
    /// already live by the clock see as a step back and forth.
    #[must_use]
    pub fn time(mut self, time: &ManualTime) -> Self {
        self.node = self
            .node
            .time(time)
            .line(&format!("cluster-node-timeout {NODE_TIMEOUT_OF_MANUAL_TIME_MS}"))
            .line(&format!("repl-timeout {REPLICATION_TIMEOUT_S}"));
        self
    }

    /// Asks clients for a password, as [`ServerOptions::password`] does.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.node = self.node.password(password);
        self
    }

    /// Has all nodes speak TLS, with clients and with each other, as [`ServerOptions::mutual_tls`]
    /// does. They share an authority.
    #[must_use]
    pub fn mutual_tls(mut self) -> Self {
        self.node = self.node.mutual_tls();
        self
    }

    /// Adds a line to the configuration of every node. It wins over what was set before.
    #[must_use]
    pub fn line(mut self, line: &str) -> Self {
        self.node = self.node.line(line);
        self
    }
}

impl RedisCluster {
    /// Starts three primaries and three replicas without a password and without persistence.
    #[must_use]
    pub fn start() -> Self {
        Self::options().start()
    }

    /// What may be different from [`RedisCluster::start`].
    #[must_use]
    pub fn options() -> ClusterOptions {
        ClusterOptions::new(Flavour::Redis)
    }

    fn start_with(options: &ClusterOptions) -> Self {
        let warm_up = options.node.time.clone().map(WarmUp::start);
        let node = options.node.clone().in_a_group();
        let primaries = options.primaries;
        let count = if options.has_replicas { 2 * primaries } else { primaries };
        let nodes = (0..count).map(|_| node.clone().start()).collect();
        let cluster = Self { nodes, primaries, password: options.node.password.clone() };
        match warm_up {
            None => form(&cluster.nodes, primaries, || {}),
            Some(warm_up) => cluster.form_in(warm_up),
        }
        cluster
    }

    /// Where clients connect, one URL for each node.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// All nodes, in the order in which they were started.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        let node = self.awake().next().expect("a node is awake");
        let slot = node.command(&["CLUSTER", "KEYSLOT", key]).integer();
        u16::try_from(slot).expect("there are 16,384 slots")
    }

    /// The node that serves the slot, be it known to the others yet or not.
    ///
    /// Panics if that node is killed or paused and no replica has taken over.
    #[must_use]
    pub fn primary_of(&self, slot: u16) -> &RedisServer {
        self.find_primary_of(slot).unwrap_or_else(|| panic!("no node serves slot {slot}"))
    }

    /// A replica, awake, of the slot's primary, which may be killed.
    #[must_use]
    pub fn replica_of(&self, slot: u16) -> &RedisServer {
        let replica = self.awake().find(|node| is_replica_of(node, slot));
        replica.unwrap_or_else(|| panic!("slot {slot} has no replica"))
    }

    /// Kills the node that serves the slot, and returns it.
    pub fn kill_primary_of(&self, slot: u16) -> &RedisServer {
        let primary = self.primary_of(slot);
        primary.kill();
        primary
    }

    /// Waits until a node that is awake serves the slot and all others know; returns it.
    pub fn wait_for_failover(&self, slot: u16) -> &RedisServer {
        wait_for("a replica to take over", || {
            let primary = self.find_primary_of(slot)?;
            let id = Member::itself(primary).id;
            let agree = |node| knows_primary_of(node, slot, &id) && is_ok(node);
            self.awake().all(agree).then_some(primary)
        })
    }

    /// Waits until all nodes that are awake know the whole cluster to work, and replicas among
    /// them are in sync: after a restart or the end of a pause.
    pub fn wait_until_ok(&self) {
        wait_until("the cluster to work", || {
            self.awake().all(|node| is_ok(node) && is_in_sync(node))
        });
    }

    /// Puts a replica in the place of the slot's primary at once, whether that works or is killed.
    /// Returns the replica when all nodes that are awake know.
    pub fn promote_replica(&self, slot: u16) -> &RedisServer {
        let replica = self.replica_of(slot);
        replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).expect_ok();
        self.wait_for_failover(slot)
    }

    /// Moves a slot with its keys to another primary, while clients go on. Returns when all nodes that are
    /// awake know the newest epoch. A node with an older one could not claim the next slot that is moved
    /// to it, and no node would serve that slot.
    pub fn migrate_slot(&self, slot: u16, to: &RedisServer) {
        let migration = self.begin_migration(slot, to);
        migration.move_keys();
        migration.finish();
        wait_until("all nodes to hear of a move", || {
            let mut epochs = self.awake().map(current_epoch);
            let first = epochs.next();
            epochs.all(|epoch| Some(epoch) == first)
        });
    }

    /// Moves a slot step by step. Until its end, clients are asked to look at both nodes.
    #[must_use]
    pub fn begin_migration<'a>(&'a self, slot: u16, to: &'a RedisServer) -> Migration<'a> {
        Migration::begin(self, slot, to)
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Nodes that run and are not paused.
    pub(crate) fn awake(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_awake())
    }

    fn find_primary_of(&self, slot: u16) -> Option<&RedisServer> {
        let claims = self.awake().filter_map(|node| {
            let itself = Member::itself(node);
            itself.owns(slot).then_some((itself.epoch, node))
        });
        // A primary that returns claims its slots until it hears of the newer claim.
        claims.max_by_key(|(epoch, _)| *epoch).map(|(_, node)| node)
    }

    /// With the short timeout, for nodes talk to each other a few times in every timeout.
    fn form_in(&self, mut warm_up: WarmUp) {
        self.set_node_timeout(NODE_TIMEOUT_MS);
        form(&self.nodes, self.primaries, || warm_up.tick());
        self.set_node_timeout(NODE_TIMEOUT_OF_MANUAL_TIME_MS);
    }

    fn set_node_timeout(&self, timeout_ms: u64) {
        for node in &self.nodes {
            let timeout_ms = timeout_ms.to_string();
            node.command(&["CONFIG", "SET", "cluster-node-timeout", &timeout_ms]).expect_ok();
        }
    }
}

/// Whether the node, as it sees it, is a replica of the slot's primary.
fn is_replica_of(node: &RedisServer, slot: u16) -> bool {
    let members = Member::all_known_to(node);
    let primary = members.iter().find(|member| member.owns(slot));
    let itself = members.iter().find(|member| member.is("myself"));
    primary.zip(itself).is_some_and(|(primary, itself)| itself.follows == primary.id)
}

fn knows_primary_of(node: &RedisServer, slot: u16, id: &str) -> bool {
    let members = Member::all_known_to(node);
    members.iter().any(|member| member.id == id && member.owns(slot) && !member.is("fail"))
}
