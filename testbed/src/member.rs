//! What one node of a cluster says of another, or of itself.

use std::ops::RangeInclusive;

use crate::server::RedisServer;

/// A line of `CLUSTER NODES`.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) epoch: u64,
    /// The id of its primary if it is a replica, else `-`.
    pub(crate) follows: String,
    flags: Vec<String>,
    slots: Vec<RangeInclusive<u16>>,
}

impl Member {
    /// All members that the node knows.
    pub(crate) fn all_known_to(node: &RedisServer) -> Vec<Self> {
        node.command(&["CLUSTER", "NODES"]).text().lines().map(Self::parse).collect()
    }

    /// What the node says of itself.
    pub(crate) fn itself(node: &RedisServer) -> Self {
        let mut members = Self::all_known_to(node).into_iter();
        members.find(|member| member.is("myself")).expect("a node lists itself")
    }

    /// Whether it has the flag, such as `master`, `slave`, `handshake` or `fail`.
    pub(crate) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }

    pub(crate) fn owns(&self, slot: u16) -> bool {
        self.is("master") && self.slots.iter().any(|range| range.contains(&slot))
    }

    /// Parses `id ip:port@bus flags primary ping pong epoch link slots…`.
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, _, flags, follows, _, _, epoch, _, slots @ ..] = &words[..] else {
            panic!("not a line of CLUSTER NODES: {line}")
        };
        Self {
            id: (*id).to_owned(),
            epoch: epoch.parse().unwrap_or_else(|_| panic!("no epoch in {line}")),
            follows: (*follows).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            slots: slots.iter().filter_map(|word| slot_range(word)).collect(),
        }
    }
}

/// None for a slot on its way, which is in brackets and also in a plain range of its owner.
fn slot_range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}
