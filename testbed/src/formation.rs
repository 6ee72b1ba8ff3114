//! How lone nodes become a cluster.

use std::time::Duration;

use crate::clock::ManualTime;
use crate::member::Member;
use crate::server::{RedisServer, value_of};
use crate::wait::wait_until;

const SLOTS: usize = 16_384;

/// Makes the first nodes primaries and the others their replicas, and returns when all of them serve and
/// are in sync. Calls `tick` every few milliseconds.
pub(crate) fn form(nodes: &[RedisServer], primaries: usize, mut tick: impl FnMut()) {
    share_slots(nodes, primaries);
    introduce(nodes);
    wait_until("the nodes to meet", || {
        tick();
        nodes.iter().all(|node| has_met(node, nodes.len()))
    });
    let (primaries, replicas) = nodes.split_at(primaries);
    attach(primaries, replicas);
    wait_until("the cluster to form", || {
        tick();
        let knows_all = |node| known_replicas(node) == replicas.len();
        nodes.iter().all(|node| is_ok(node) && is_in_sync(node) && knows_all(node))
    });
}

/// Whether the node knows the whole cluster to work.
pub(crate) fn is_ok(node: &RedisServer) -> bool {
    let info = node.command(&["CLUSTER", "INFO"]).text();
    value_of(&info, "cluster_state") == Some("ok")
}

/// The newest epoch that the node has heard of.
pub(crate) fn current_epoch(node: &RedisServer) -> Option<String> {
    let info = node.command(&["CLUSTER", "INFO"]).text();
    value_of(&info, "cluster_current_epoch").map(str::to_owned)
}

/// Whether the node is a primary, or a replica with all that its primary has.
pub(crate) fn is_in_sync(node: &RedisServer) -> bool {
    let replication = node.command(&["INFO", "replication"]).text();
    value_of(&replication, "master_link_status").is_none_or(|status| status == "up")
}

fn share_slots(nodes: &[RedisServer], primaries: usize) {
    for (index, node) in nodes.iter().enumerate() {
        // Distinct from the start, so that no time goes into resolving collisions.
        node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]).expect_ok();
        if index < primaries {
            let [from, end] = [index, index + 1].map(|index| SLOTS * index / primaries);
            let (from, to) = (from.to_string(), (end - 1).to_string());
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &from, &to]).expect_ok();
        }
    }
}

fn introduce(nodes: &[RedisServer]) {
    for (index, node) in nodes.iter().enumerate() {
        for other in &nodes[index + 1..] {
            let (port, bus) = (other.port().to_string(), other.cluster_bus_port().to_string());
            node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).expect_ok();
        }
    }
}

fn attach(primaries: &[RedisServer], replicas: &[RedisServer]) {
    for (primary, replica) in primaries.iter().zip(replicas) {
        let id = Member::itself(primary).id;
        replica.command(&["CLUSTER", "REPLICATE", &id]).expect_ok();
    }
}

fn has_met(node: &RedisServer, everyone: usize) -> bool {
    let members = Member::all_known_to(node);
    members.len() == everyone && !members.iter().any(|member| member.is("handshake"))
}

fn known_replicas(node: &RedisServer) -> usize {
    Member::all_known_to(node).iter().filter(|member| member.is("slave")).count()
}

/// The minute before a clock's time, in which a cluster forms: nodes refuse to serve in their
/// first two seconds, which a clock that stands still would never bring to an end.
pub(crate) struct WarmUp {
    time: ManualTime,
    left: Duration,
}

impl WarmUp {
    const LENGTH: Duration = Duration::from_secs(60);

    /// About as long as it takes from tick to tick.
    const TICK: Duration = Duration::from_millis(10);

    pub(crate) fn start(time: ManualTime) -> Self {
        time.step_back(Self::LENGTH);
        Self { time, left: Self::LENGTH }
    }

    pub(crate) fn tick(&mut self) {
        let tick = Self::TICK.min(self.left);
        self.left -= tick;
        self.time.advance(tick);
    }
}

impl Drop for WarmUp {
    fn drop(&mut self) {
        self.time.advance(self.left);
    }
}
