//! Bans that policies begin, shared by all gateways on one Redis.
//!
//! Every gateway appends the bans that begin at it to a log in Redis, and applies those that
//! the others have appended. No decision waits for it: one that begins a ban leaves it in a bounded
//! queue. While Redis is unreachable, bans hold where they began, and are appended when it is back.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slidegate::policy::ActiveBan;
use slidegate::{Account, Gate, Limiter, Quota, StoreError, Timestamp};
use slidegate_redis::{EventLog, EventLogError, LoggedEvent, Position, RedisStoreError};
use tokio::sync::Mutex;

use super::outage::Outage;
use crate::observe::Observer;
use crate::store::AnyStore;

/// The bans that begin at one gate, until [`SharedBans`] takes them.
#[derive(Debug, Default)]
pub(crate) struct BanQueue(parking_lot::Mutex<QueuedBans>);

#[derive(Debug, Default)]
struct QueuedBans {
    bans: Vec<ActiveBan>,
    /// Bans that found no room.
    dropped: u64,
}

/// Exchanges bans with the other gateways on one Redis.
#[derive(Debug)]
pub(crate) struct SharedBans {
    gate: Arc<Gate<AnyStore>>,
    log: EventLog,
    queue: Arc<BanQueue>,
    observer: Observer,
    /// Marks the events of this process, which knows of its own bans.
    origin: String,
    state: Mutex<SharedBansState>,
    /// Limits the warning about bans that are not shared.
    warnings: Limiter,
}

#[derive(Debug, Default)]
struct SharedBansState {
    /// Bans that Redis does not have yet, and when they end.
    pending: VecDeque<(ActiveBan, Timestamp)>,
    position: Option<Position>,
    outage: Outage,
    /// Bans that are not shared and not logged yet.
    unlogged: u64,
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

/// How often the log is read: a ban holds at the other gateways after this and two round trips.
const PAUSE: Duration = Duration::from_millis(250);
/// Bans that begin between two readings.
const MAX_QUEUED: usize = 4096;
/// Bans queued while Redis is unreachable: at most the log's capacity.
const MAX_PENDING: usize = EventLog::MAX_EVENTS;

impl BanQueue {
    /// A ban that finds no room holds at this gateway alone, and is counted.
    pub(crate) fn push(&self, ban: &ActiveBan) {
        let mut queued = self.0.lock();
        match queued.bans.len() < MAX_QUEUED {
            true => queued.bans.push(ban.clone()),
            false => queued.dropped += 1,
        }
    }
}

impl SharedBans {
    pub(crate) fn new(
        gate: Arc<Gate<AnyStore>>,
        log: EventLog,
        queue: Arc<BanQueue>,
        observer: Observer,
    ) -> Self {
        let origin = format!("{:016x}", fastrand::u64(..));
        let warnings = Limiter::new(Quota::per_minute(1));
        Self { gate, log, queue, observer, origin, state: Mutex::default(), warnings }
    }

    /// Exchanges bans for as long as the process lives.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PAUSE).await;
            self.exchange().await;
        }
    }

    /// Puts the bans of the others in force, and appends those that have begun here.
    pub(crate) async fn exchange(&self) {
        let mut state = self.state.lock().await;
        self.take_begun(&mut state);
        let result = self.read_and_append(&mut state).await;
        self.observer.redis_replied(is_reply(&result));
        state.outage.log_change(
            result.as_ref().err(),
            "cannot share bans through Redis; each applies only at the gateway where it began",
            "sharing bans through Redis again",
        );
        if state.unlogged > 0 && self.warnings.check("not shared").is_ok() {
            tracing::warn!(
                bans = mem::take(&mut state.unlogged),
                queued = MAX_QUEUED,
                pending = MAX_PENDING,
                "ban queue for Redis is full; these bans apply at this gateway only"
            );
        }
    }

    /// Lifts the bans of these accounts: here at once, and at all gateways that read the log, now
    /// or when they start.
    pub(crate) async fn lift(&self, accounts: &[Account]) -> Result<(), EventLogError> {
        let mut state = self.state.lock().await;
        // Others' bans may have been read since the caller lifted those that it knew of.
        accounts.iter().for_each(|account| self.gate.admin().lift_ban(account));
        self.take_begun(&mut state);
        state.pending.retain(|(ban, _)| !accounts.contains(&ban.account));
        let policies = self.gate.policies();
        let can_ban = |account: &&Account| {
            policies.iter().any(|policy| policy.name == account.policy && policy.ban.is_some())
        };
        let lifted = accounts.iter().filter(can_ban);
        let texts: Vec<String> =
            lifted.map(|account| self.event_text(account, BanEventKind::Lift)).collect();
        for texts in texts.chunks(EventLog::MAX_BATCH) {
            self.log.append(texts.iter().map(|text| (&**text, Duration::ZERO))).await?;
        }
        Ok(())
    }

    /// Drains the queue. What waited there ends a little later at the other gateways, by [`PAUSE`]
    /// at most.
    fn take_begun(&self, state: &mut SharedBansState) {
        let now = self.gate.now();
        let QueuedBans { bans, dropped: mut unshared } = mem::take(&mut *self.queue.0.lock());
        for ban in bans {
            unshared += u64::from(!state.queue(ban, now));
        }
        if unshared > 0 {
            state.unlogged += unshared;
            self.observer.bans_not_shared(unshared);
        }
    }

    async fn read_and_append(&self, state: &mut SharedBansState) -> Result<(), EventLogError> {
        // In this order, so that a ban which another gateway has lifted meanwhile is not appended.
        self.read(state).await?;
        if state.pending.is_empty() {
            return Ok(());
        }
        while !state.pending.is_empty() {
            let now = self.gate.now();
            let batch = state.pending.len().min(EventLog::MAX_BATCH);
            let event = |(ban, until): &(ActiveBan, Timestamp)| {
                let wait = ban.retry_after.saturating_sub(ban.rest).as_millis();
                let wait_ms = u64::try_from(wait).unwrap_or(u64::MAX);
                let rest = until.saturating_since(now).min(EventLog::LONGEST);
                (self.event_text(&ban.account, BanEventKind::Ban { wait_ms }), rest)
            };
            let events: Vec<_> = state.pending.iter().take(batch).map(event).collect();
            let in_force = events.iter().filter(|(_, rest)| !rest.is_zero());
            self.log.append(in_force.map(|(text, rest)| (&**text, *rest))).await?;
            state.pending.drain(..batch);
        }
        // So that this gateway notices if Redis loses what it has appended.
        self.read(state).await
    }

    /// Reads the log from the last position to its end.
    async fn read(&self, state: &mut SharedBansState) -> Result<(), EventLogError> {
        // What was in force before the log turned out to be lost.
        let mut known = Vec::new();
        let mut events = Vec::new();
        let mut position = state.position.clone();
        let now_ms = loop {
            let batch = self.log.read(position.as_ref()).await?;
            if batch.restarted {
                known = self.gate.admin().active_bans();
            }
            position = Some(batch.position);
            let is_last = batch.events.len() < EventLog::MAX_BATCH;
            events.extend(batch.events);
            if is_last {
                break batch.now_ms;
            }
        };
        state.position = position;
        self.apply(&events, now_ms, state);
        if !known.is_empty() {
            tracing::warn!(bans = known.len(), "Redis lost the log of bans; appending them again");
        }
        let now = self.gate.now();
        for ban in known {
            self.adopt(&ban);
            state.queue(ban, now);
        }
        Ok(())
    }

    fn apply(&self, events: &[LoggedEvent], now_ms: u64, state: &mut SharedBansState) {
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
                    self.gate.admin().lift_ban(&account);
                    state.pending.retain(|(ban, _)| ban.account != account);
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
        if let Err(error) = self.gate.admin().adopt_ban(ban) {
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
}

/// Whether Redis replied, be it that this user may not touch the key.
fn is_reply(result: &Result<(), EventLogError>) -> bool {
    let Err(error) = result else { return true };
    let EventLogError::Store(StoreError::Unavailable(cause)) = error else { return false };
    cause.downcast_ref::<RedisStoreError>().is_some_and(|error| error.key_error().is_some())
}

impl SharedBansState {
    /// Queues a ban to be appended; false if there is no room.
    fn queue(&mut self, ban: ActiveBan, now: Timestamp) -> bool {
        let has_room = self.pending.len() < MAX_PENDING;
        if has_room {
            let until = now + ban.rest;
            self.pending.push_back((ban, until));
        }
        has_room
    }
}

/// An event with its account and its end.
fn parse(logged: &LoggedEvent) -> Option<(BanEvent, Account, u64)> {
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
    use slidegate::limit::SystemClock;
    use slidegate::{Ban, MemoryStore, Policies, Policy, Quota};
    use slidegate_redis::RedisStore;
    use slidegate_testbed::RedisServer;

    use super::*;
    use crate::config::{LogConfig, LogFormat};
    use crate::observe::MetricsFormat;

    fn event(kind: BanEventKind, identity: &str) -> BanEvent {
        let (origin, policy) = ("0123456789abcdef".to_owned(), "p".repeat(64));
        BanEvent { origin, policy, identity: identity.to_owned(), kind }
    }

    fn logged(text: &str) -> LoggedEvent {
        LoggedEvent { text: text.to_owned(), until_ms: 7 }
    }

    #[test]
    fn texts_read_back_and_fit() {
        let longest = format!("user:{}", "u".repeat(58));
        for kind in [BanEventKind::Lift, BanEventKind::Ban { wait_ms: u64::MAX }] {
            for identity in ["ip:2001:db8:1:2::/64", "anonymous", "everyone", &longest] {
                let text = serde_json::to_string(&event(kind, identity)).unwrap();
                assert!(text.len() <= EventLog::MAX_TEXT_BYTES, "{}", text.len());
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
        for _ in 0..MAX_QUEUED + 7 {
            queue.push(&ban);
        }
        assert_eq!(queue.0.lock().dropped, 7);
        assert!(queue.0.lock().bans.pop().is_some());
        queue.push(&ban);
        assert_eq!(queue.0.lock().dropped, 7, "there was room again");
    }

    const LOG: LogConfig =
        LogConfig { format: LogFormat::Json, level: String::new(), access: false };

    fn gateway(redis: &RedisServer) -> (SharedBans, Arc<BanQueue>) {
        let policy =
            Policy::new("api").quota(Quota::per_minute(1)).ban(Ban::after(Quota::per_hour(3)));
        let policies = Policies::builder().policy(policy).build().unwrap();
        let gate = Arc::new(Gate::new(policies, MemoryStore::new().into()));
        let observer = Observer::new(gate.clone(), &LOG, None, Arc::new(SystemClock::new()));
        let store = RedisStore::builder(redis.url()).deadline(Duration::from_secs(2));
        let (log, queue) = (store.build().unwrap().event_log(), Arc::<BanQueue>::default());
        (SharedBans::new(gate, log, queue.clone(), observer), queue)
    }

    fn ban() -> ActiveBan {
        let account =
            Account { policy: "api".parse().unwrap(), identity: "ip:10.0.0.1".parse().unwrap() };
        let rest = Duration::from_secs(3600);
        ActiveBan { account, rest, retry_after: rest }
    }

    /// As a denial does that begins a ban.
    fn begin(bans: &SharedBans, queue: &BanQueue) {
        bans.gate.admin().adopt_ban(&ban()).unwrap();
        queue.push(&ban());
    }

    fn in_force(bans: &SharedBans) -> usize {
        bans.gate.admin().active_bans().len()
    }

    #[tokio::test]
    async fn a_ban_that_begins_after_a_lift_stays_in_force_and_is_shared() {
        let redis = RedisServer::start();
        let ((one, queue), (two, other_queue)) = (gateway(&redis), gateway(&redis));
        for is_banned_elsewhere in [false, true] {
            one.exchange().await;
            two.exchange().await;
            if is_banned_elsewhere {
                begin(&two, &other_queue);
                two.exchange().await;
            }
            one.lift(&[ban().account]).await.unwrap();
            begin(&one, &queue);
            one.exchange().await;
            assert_eq!(in_force(&one), 1, "the lift was older");
            two.exchange().await;
            assert_eq!(in_force(&two), 1, "it is shared");
            one.lift(&[ban().account]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_lift_ends_bans_of_others_that_were_not_read_before_it() {
        let redis = RedisServer::start();
        let ((one, _), (two, queue)) = (gateway(&redis), gateway(&redis));
        one.exchange().await;
        begin(&two, &queue);
        two.exchange().await;
        one.lift(&[ban().account]).await.unwrap();
        one.exchange().await;
        two.exchange().await;
        assert_eq!((in_force(&one), in_force(&two)), (0, 0));
    }

    #[tokio::test]
    async fn bans_that_a_lift_finds_unshared_are_counted() {
        let redis = RedisServer::start();
        let (bans, queue) = gateway(&redis);
        for _ in 0..MAX_QUEUED + 7 {
            queue.push(&ban());
        }
        bans.lift(&[ban().account]).await.unwrap();
        let page = bans.observer.metrics(MetricsFormat::Text).unwrap();
        assert!(page.contains("slidegate_bans_not_shared_total 7\n"), "{page}");
    }
}
