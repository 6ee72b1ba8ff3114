//! Bans that policies begin, shared by all gateways on one Redis.
//!
//! Every gateway appends the bans that begin at it to a log in Redis, and applies those that
//! the others have appended. No decision waits for it: one that begins a ban leaves it in a bounded
//! queue.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slidegate::policy::ActiveBan;
use slidegate::{Account, Limiter, Quota, Timestamp};
use slidegate_redis::{SharedEntry, SharedState};

use crate::observe::Observer;

/// The bans that begin at one gate, until the next exchange.
#[derive(Debug, Default)]
pub(crate) struct BanQueue(parking_lot::Mutex<QueuedBans>);

#[derive(Debug, Default)]
struct QueuedBans {
    bans: Vec<ActiveBan>,
    /// Bans that found no room.
    dropped: u64,
}

/// Applies the bans of other gateways, and holds those that Redis does not have yet.
#[derive(Debug)]
pub(super) struct SharedBans {
    queue: Arc<BanQueue>,
    observer: Observer,
    /// Marks the events of this process, which knows of its own bans.
    origin: String,
    /// Bans that Redis does not have yet, and when they end.
    pub(super) pending: VecDeque<(ActiveBan, Timestamp)>,
    /// Bans that are not shared and not logged yet.
    unlogged: u64,
    /// Limits the warning about bans that are not shared.
    warnings: Limiter,
}

/// An entry of the log. Others are passed over: a newer version may write them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BanEvent {
    origin: String,
    policy: String,
    identity: String,
    kind: BanEventKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BanEventKind {
    /// Banned until the event ends; a retry is pointless for this much longer.
    Ban { wait_ms: u64 },
    /// Its ban was lifted.
    Lift,
}

/// Bans queued while Redis is unreachable: at most the log's capacity.
const MAX_PENDING: usize = SharedState::MAX_EVENTS;

impl BanQueue {
    /// Bans that can begin between two exchanges.
    pub(super) const MAX: usize = 4096;

    /// A ban that finds no room holds at this gateway alone, and is counted.
    pub(crate) fn push(&self, ban: &ActiveBan) {
        let mut queued = self.0.lock();
        match queued.bans.len() < Self::MAX {
            true => queued.bans.push(ban.clone()),
            false => queued.dropped += 1,
        }
    }
}

impl SharedBans {
    pub(super) fn new(queue: Arc<BanQueue>, observer: Observer) -> Self {
        let origin = format!("{:016x}", fastrand::u64(..));
        let (pending, warnings) = (VecDeque::new(), Limiter::new(Quota::per_minute(1)));
        Self { queue, observer, origin, pending, unlogged: 0, warnings }
    }

    /// Drains the queue. What waited there ends a little later at the other gateways, by the time
    /// between two exchanges at most.
    pub(super) fn take_begun(&mut self) {
        let QueuedBans { bans, dropped: mut unshared } = mem::take(&mut *self.queue.0.lock());
        for ban in bans {
            unshared += u64::from(!self.add_pending(ban));
        }
        if unshared > 0 {
            self.unlogged += unshared;
            self.observer.bans_not_shared(unshared);
        }
    }

    /// Warns of bans that found no room, once a minute.
    pub(super) fn log_unshared(&mut self) {
        if self.unlogged > 0 && self.warnings.check("not shared").is_ok() {
            tracing::warn!(
                bans = mem::take(&mut self.unlogged),
                queued = BanQueue::MAX,
                pending = MAX_PENDING,
                "ban queue for Redis is full; these bans apply at this gateway only"
            );
        }
    }

    /// Lifts the bans of these accounts here. Returns the events that tell the other gateways.
    pub(super) fn lift(&mut self, accounts: &[Account]) -> Vec<String> {
        let gate = self.observer.gate();
        // Others' bans may have been read since the caller lifted those that it knew of.
        accounts.iter().for_each(|account| gate.admin().lift_ban(account));
        let policies = gate.policies();
        self.take_begun();
        self.pending.retain(|(ban, _)| !accounts.contains(&ban.account));
        let can_ban = |account: &&Account| {
            policies.iter().any(|policy| policy.name == account.policy && policy.ban.is_some())
        };
        let lifted = accounts.iter().filter(can_ban);
        lifted.map(|account| self.event_text(account, BanEventKind::Lift)).collect()
    }

    /// The events of the first pending bans that have not ended, and how long each lasts.
    pub(super) fn first_events(&self, bans: usize) -> Vec<(String, Duration)> {
        let now = self.observer.gate().now();
        let event = |(ban, until): &(ActiveBan, Timestamp)| {
            let wait = ban.retry_after.saturating_sub(ban.rest).as_millis();
            let wait_ms = u64::try_from(wait).unwrap_or(u64::MAX);
            let rest = until.saturating_since(now).min(SharedState::MAX_TTL);
            (self.event_text(&ban.account, BanEventKind::Ban { wait_ms }), rest)
        };
        let events = self.pending.iter().take(bans).map(event);
        events.filter(|(_, rest)| !rest.is_zero()).collect()
    }

    /// Puts the bans of the other gateways in force, and lifts those that they have lifted. If the log
    /// has restarted, what was in force before is appended again.
    pub(super) fn apply(&mut self, events: &[SharedEntry], now_ms: u64, restarted: bool) {
        let known = match restarted {
            true => self.observer.gate().admin().active_bans(),
            false => Vec::new(),
        };
        self.apply_events(events, now_ms);
        if !known.is_empty() {
            tracing::warn!(bans = known.len(), "Redis lost the log of bans; appending them again");
        }
        for ban in known {
            self.adopt(&ban);
            self.add_pending(ban);
        }
    }

    fn apply_events(&mut self, events: &[SharedEntry], now_ms: u64) {
        let events: Vec<_> = events.iter().filter_map(parse).collect();
        // What this gateway has lifted was lifted here before it was appended, and may have been
        // banned again since. So its lifts are not applied: events before them are left out instead.
        let mut own_lifts = HashMap::new();
        for (index, (event, account, _)) in events.iter().enumerate() {
            if event.kind == BanEventKind::Lift && event.origin == self.origin {
                own_lifts.insert(account.clone(), index);
            }
        }
        let mut lifted = HashSet::new();
        for (index, (event, account, until_ms)) in events.into_iter().enumerate() {
            if own_lifts.get(&account).is_some_and(|lift| index <= *lift) {
                continue;
            }
            match event.kind {
                BanEventKind::Lift => {
                    self.observer.gate().admin().lift_ban(&account);
                    self.pending.retain(|(ban, _)| ban.account != account);
                    lifted.insert(account);
                }
                // A ban that began here is in force already, unless it was lifted just now and
                // began again before this was read.
                BanEventKind::Ban { .. }
                    if event.origin == self.origin && !lifted.contains(&account) => {}
                BanEventKind::Ban { wait_ms } => {
                    let rest = Duration::from_millis(until_ms.saturating_sub(now_ms));
                    let retry_after = rest.saturating_add(Duration::from_millis(wait_ms));
                    self.adopt(&ActiveBan { account, rest, retry_after });
                }
            }
        }
    }

    fn adopt(&self, ban: &ActiveBan) {
        // Another gateway may have policies that this one has not, and a full table warns itself.
        if let Err(error) = self.observer.gate().admin().adopt_ban(ban) {
            tracing::debug!(account = %ban.account, %error, "ban not adopted");
        }
    }

    fn event_text(&self, account: &Account, kind: BanEventKind) -> String {
        let event = BanEvent {
            origin: self.origin.clone(),
            policy: account.policy.to_string(),
            identity: account.identity.to_string(),
            kind,
        };
        serde_json::to_string(&event).expect("strings and numbers can be JSON")
    }

    /// Queues a ban to be appended; false if there is no room.
    fn add_pending(&mut self, ban: ActiveBan) -> bool {
        let has_room = self.pending.len() < MAX_PENDING;
        if has_room {
            let until = self.observer.gate().now() + ban.rest;
            self.pending.push_back((ban, until));
        }
        has_room
    }
}

/// An event with its account and its end.
fn parse(logged: &SharedEntry) -> Option<(BanEvent, Account, u64)> {
    let parse = || {
        let event: BanEvent = serde_json::from_str(&logged.text).ok()?;
        let (policy, identity) = (event.policy.parse().ok()?, event.identity.parse().ok()?);
        Some((event, Account { policy, identity }, logged.until_ms))
    };
    let parsed = parse();
    if parsed.is_none() {
        tracing::debug!(text = logged.text, "unknown event in the log of bans");
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: BanEventKind, identity: &str) -> BanEvent {
        let (origin, policy) = ("0123456789abcdef".to_owned(), "p".repeat(64));
        BanEvent { origin, policy, identity: identity.to_owned(), kind }
    }

    fn logged(text: &str) -> SharedEntry {
        SharedEntry { id: String::new(), text: text.to_owned(), until_ms: 7 }
    }

    #[test]
    fn texts_of_ban_events_read_back_and_fit() {
        let longest = format!("user:{}", "u".repeat(58));
        for kind in [BanEventKind::Lift, BanEventKind::Ban { wait_ms: u64::MAX }] {
            for identity in ["ip:2001:db8:1:2::/64", "anonymous", "everyone", &longest] {
                let text = serde_json::to_string(&event(kind, identity)).unwrap();
                assert!(text.len() <= SharedState::MAX_TEXT_BYTES, "{}", text.len());
                let (read, account, until_ms) = parse(&logged(&text)).unwrap();
                assert_eq!((read, until_ms), (event(kind, identity), 7));
                assert_eq!(account.identity.as_str(), identity);
            }
        }
    }

    #[test]
    fn what_is_no_event_of_this_version_is_passed_over() {
        let text = serde_json::to_string(&event(BanEventKind::Lift, "user:42")).unwrap();
        assert!(parse(&logged(&text)).is_some());
        for text in [
            String::new(),
            "hello".to_owned(),
            text.replacen('{', "{\"format\":2,", 1),
            text.replace("lift", "pardon"),
            text.replace("user:42", "nobody"),
            format!("{text}x"),
        ] {
            assert_eq!(parse(&logged(&text)), None, "{text}");
        }
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let queue = BanQueue::default();
        let account =
            Account { policy: "api".parse().unwrap(), identity: "user:1".parse().unwrap() };
        let rest = Duration::from_secs(60);
        let ban = ActiveBan { account, rest, retry_after: rest };
        for _ in 0..BanQueue::MAX + 7 {
            queue.push(&ban);
        }
        assert_eq!(queue.0.lock().dropped, 7);
        assert!(queue.0.lock().bans.pop().is_some());
        queue.push(&ban);
        assert_eq!(queue.0.lock().dropped, 7, "there was room again");
    }
}
