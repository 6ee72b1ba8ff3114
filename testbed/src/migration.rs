//! The move of one slot from node to node.

use crate::cluster::RedisCluster;
use crate::member::Member;
use crate::reply::Reply;
use crate::server::RedisServer;

/// Keys that one `MIGRATE` moves at most.
const KEYS_PER_MOVE: &str = "100";

const MOVE_TIMEOUT_MS: &str = "20000";

/// A slot on its way: for a key that is no longer at its old node, that node answers `ASK`.
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a RedisCluster,
    slot: String,
    from: &'a RedisServer,
    to: &'a RedisServer,
}

impl<'a> Migration<'a> {
    pub(crate) fn begin(cluster: &'a RedisCluster, slot: u16, to: &'a RedisServer) -> Self {
        let from = cluster.primary_of(slot);
        assert!(from.port() != to.port(), "slot {slot} is already there");
        let slot = slot.to_string();
        // In this order: the old node must not send clients to one that turns them away.
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &Member::itself(from).id])
            .expect_ok();
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &Member::itself(to).id])
            .expect_ok();
        Self { cluster, slot, from, to }
    }

    /// Moves every key of the slot.
    pub fn move_keys(&self) {
        loop {
            let listing =
                self.from.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, KEYS_PER_MOVE]);
            let keys: Vec<String> = listing.array().into_iter().map(Reply::text).collect();
            if keys.is_empty() {
                return;
            }
            self.send(&keys);
        }
    }

    /// Makes the new node the owner, which every primary learns at once. The keys have been moved.
    pub fn finish(self) {
        let id = Member::itself(self.to).id;
        // The new owner first: if the old one gave the slot up before, no node would serve it.
        let others = self.cluster.awake().filter(|node| node.port() != self.to.port());
        let primaries = others.filter(|node| Member::itself(node).is("master"));
        for node in [self.to].into_iter().chain(primaries) {
            node.command(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]).expect_ok();
        }
    }

    fn send(&self, keys: &[String]) {
        let port = self.to.port().to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", MOVE_TIMEOUT_MS];
        if let Some(password) = self.cluster.password() {
            command.extend(["AUTH", password]);
        }
        command.push("KEYS");
        command.extend(keys.iter().map(String::as_str));
        // NOKEY if all of them have expired or been deleted since they were listed.
        let reply = self.from.command(&command).text();
        assert!(reply == "OK" || reply == "NOKEY", "{command:?}: {reply}");
    }
}
