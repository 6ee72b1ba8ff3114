//! Bans that policies begin, shared by all gateways on one Redis.
//!
//! Every gateway appends the bans that begin at it to a log in Redis, and applies those that
//! the others have appended. Nothing that a decision does waits for it: the decision that begins a
//! ban leaves it in a bounded queue. While Redis is gone, bans hold where they began, and are
//! appended when it is back.

use std::collections::{HashMap, HashSet, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slidegate::policy::ActiveBan;
use slidegate::{Account, Gate, Store, Timestamp};
use slidegate_redis::{EventLog, EventLogError, LoggedEvent, Position};
use tokio::sync::{Mutex, mpsc};

use crate::observe::Observer;

/// Takes the bans that begin, for [`SharedBans`].
#[derive(Debug)]
pub(crate) struct BanQueue {
    sender: mpsc::Sender<ActiveBan>,
    dropped: Arc<AtomicU64>,
}

/// The other end of a [`BanQueue`].
#[derive(Debug)]
pub(crate) struct BegunBans {
    receiver: mpsc::Receiver<ActiveBan>,
    /// Bans that found the queue full, and are not counted yet.
    dropped: Arc<AtomicU64>,
}

/// Exchanges bans with the other gateways on one Redis.
#[derive(Debug)]
pub(crate) struct SharedBans<S> {
    gate: Arc<Gate<S>>,
    log: EventLog,
    observer: Observer,
    /// Marks the events of this process, which knows of its own bans.
    origin: String,
    state: Mutex<SharedBansState>,
}

#[derive(Debug)]
struct SharedBansState {
    begun: BegunBans,
    /// Bans that Redis does not have yet.
    pending: VecDeque<PendingBan>,
    position: Option<Position>,
    is_cut_off: bool,
    /// Bans that are not shared, and when that was last logged.
    unlogged: u64,
    logged_at: Option<Timestamp>,
}

#[derive(Debug)]
struct PendingBan {
    account: Account,
    until: Timestamp,
    /// How much longer than the ban it is no use to come back.
    wait: Duration,
}

/// An event about an account.
#[derive(Debug, PartialEq, Eq)]
struct BanEvent {
    origin: String,
    account: Account,
    kind: BanEventKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BanEventKind {
    /// Banned until the event ends, and so much longer is no use to come back.
    Ban { wait: Duration },
    /// Its ban was lifted.
    Lift,
}

/// How often the log is read: a ban holds at the other gateways after this and two round trips.
const PAUSE: Duration = Duration::from_millis(250);
/// Bans that begin between two readings.
const MAX_QUEUED: usize = 4096;
/// Bans queued while Redis is unreachable: at most the log's capacity.
const MAX_PENDING: usize = EventLog::MAX_EVENTS;
const LOG_EVERY: Duration = Duration::from_secs(60);
/// The format of the texts. Events in another are passed over: a newer version may write them.
const FORMAT: &str = "1";

/// A queue for the bans that begin at one gate.
pub(crate) fn queue() -> (BanQueue, BegunBans) {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED);
    let dropped = Arc::new(AtomicU64::new(0));
    (BanQueue { sender, dropped: dropped.clone() }, BegunBans { receiver, dropped })
}

impl BanQueue {
    /// Never waits. A ban that finds no room holds at this gateway alone, and is counted.
    pub(crate) fn push(&self, ban: &ActiveBan) {
        if self.sender.try_send(ban.clone()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: Store> SharedBans<S> {
    pub(crate) fn new(
        gate: Arc<Gate<S>>,
        log: EventLog,
        begun: BegunBans,
        observer: Observer,
    ) -> Self {
        let state = SharedBansState {
            begun,
            pending: VecDeque::new(),
            position: None,
            is_cut_off: false,
            unlogged: 0,
            logged_at: None,
        };
        let origin = format!("{:016x}", fastrand::u64(..));
        Self { gate, log, observer, origin, state: Mutex::new(state) }
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
        // In this order, so that a ban which another gateway has lifted meanwhile is not appended.
        let mut result = self.read(&mut state).await;
        if result.is_ok() && !state.pending.is_empty() {
            result = self.publish(&mut state).await;
            // So that this gateway notices if Redis loses what it has appended.
            if result.is_ok() {
                result = self.read(&mut state).await;
            }
        }
        state.note_trouble(result.err().as_ref());
        state.log_unshared(self.gate.now());
    }

    /// Lifts the bans of these accounts: here at once, and at all gateways that read the log, now
    /// or when they start.
    pub(crate) async fn lift(&self, accounts: &[Account]) -> Result<(), EventLogError> {
        let mut state = self.state.lock().await;
        // Others' bans may have been read since the caller lifted those that it knew of.
        accounts.iter().for_each(|account| self.gate.admin().lift_ban(account));
        self.take_begun(&mut state);
        state.pending.retain(|pending| !accounts.contains(&pending.account));
        let policies = self.gate.policies();
        let banning: HashSet<_> = policies
            .iter()
            .filter(|policy| policy.ban.is_some())
            .map(|policy| &policy.name)
            .collect();
        let lifted = accounts.iter().filter(|account| banning.contains(&account.policy));
        let texts: Vec<String> =
            lifted.map(|account| self.message(account, BanEventKind::Lift).text()).collect();
        for texts in texts.chunks(EventLog::MAX_BATCH) {
            self.log.append(texts.iter().map(|text| (&**text, Duration::ZERO))).await?;
        }
        Ok(())
    }

    fn take_begun(&self, state: &mut SharedBansState) {
        let unshared = state.take_begun(self.gate.now());
        if unshared > 0 {
            self.observer.bans_not_shared(unshared);
        }
    }

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
        for ban in &known {
            self.adopt(ban);
            if state.pending.len() < MAX_PENDING {
                state.pending.push_back(PendingBan::of(ban, now));
            }
        }
        Ok(())
    }

    /// Applies the log's events from the last position to its end.
    fn apply(&self, events: &[LoggedEvent], now_ms: u64, state: &mut SharedBansState) {
        let messages: Vec<(&LoggedEvent, BanEvent)> =
            events.iter().filter_map(read_message).collect();
        // What this gateway has lifted was lifted here before it was appended, and may have been
        // banned again since. So its lifts are not applied: bans before them are left out instead.
        let mut own_lifts = HashMap::new();
        for (place, (_, message)) in messages.iter().enumerate() {
            if message.kind == BanEventKind::Lift && message.origin == self.origin {
                own_lifts.insert(message.account.clone(), place);
            }
        }
        let mut lifted = HashSet::new();
        for (place, (event, message)) in messages.into_iter().enumerate() {
            let BanEvent { origin, account, kind } = message;
            if own_lifts.get(&account).is_some_and(|lift| place <= *lift) {
                continue;
            }
            match kind {
                BanEventKind::Lift => {
                    self.gate.admin().lift_ban(&account);
                    state.pending.retain(|pending| pending.account != account);
                    lifted.insert(account);
                }
                // A ban that began here is in force already, unless it was lifted just now and
                // began again before this was read.
                BanEventKind::Ban { .. } if origin == self.origin && !lifted.contains(&account) => {
                }
                BanEventKind::Ban { wait } => {
                    let rest = Duration::from_millis(event.until_ms.saturating_sub(now_ms));
                    self.adopt(&ActiveBan { account, rest, retry_after: rest + wait });
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

    async fn publish(&self, state: &mut SharedBansState) -> Result<(), EventLogError> {
        while !state.pending.is_empty() {
            let now = self.gate.now();
            let batch = state.pending.len().min(EventLog::MAX_BATCH);
            let event = |pending: &PendingBan| {
                let kind = BanEventKind::Ban { wait: pending.wait };
                let rest = pending.until.saturating_since(now).min(EventLog::LONGEST);
                (self.message(&pending.account, kind).text(), rest)
            };
            let events: Vec<_> = state.pending.iter().take(batch).map(event).collect();
            let in_force = events.iter().filter(|(_, rest)| !rest.is_zero());
            self.log.append(in_force.map(|(text, rest)| (&**text, *rest))).await?;
            state.pending.drain(..batch);
        }
        Ok(())
    }

    fn message(&self, account: &Account, kind: BanEventKind) -> BanEvent {
        BanEvent { origin: self.origin.clone(), account: account.clone(), kind }
    }
}

fn read_message(event: &LoggedEvent) -> Option<(&LoggedEvent, BanEvent)> {
    let message = BanEvent::parse(&event.text);
    if message.is_none() {
        tracing::debug!(text = event.text, "unknown event in the log of bans");
    }
    Some((event, message?))
}

impl SharedBansState {
    /// Drains the queue, and returns how many bans will not be shared. What waited
    /// there ends a little later at the other gateways, by [`PAUSE`] at most.
    #[must_use]
    fn take_begun(&mut self, now: Timestamp) -> u64 {
        let mut unshared = self.begun.dropped.swap(0, Ordering::Relaxed);
        while let Ok(ban) = self.begun.receiver.try_recv() {
            if self.pending.len() < MAX_PENDING {
                self.pending.push_back(PendingBan::of(&ban, now));
            } else {
                unshared += 1;
            }
        }
        self.unlogged += unshared;
        unshared
    }

    fn note_trouble(&mut self, error: Option<&EventLogError>) {
        let was_cut_off = std::mem::replace(&mut self.is_cut_off, error.is_some());
        match error {
            Some(error) if !was_cut_off => tracing::warn!(
                %error,
                cause = error.source().map(tracing::field::display),
                "cannot share bans through Redis; each applies only at the gateway where it began"
            ),
            None if was_cut_off => tracing::info!("sharing bans through Redis again"),
            _ => {}
        }
    }

    fn log_unshared(&mut self, now: Timestamp) {
        let is_due = self.logged_at.is_none_or(|at| now.saturating_since(at) >= LOG_EVERY);
        if self.unlogged > 0 && is_due {
            let bans = std::mem::take(&mut self.unlogged);
            self.logged_at = Some(now);
            tracing::warn!(
                bans,
                queued = MAX_QUEUED,
                pending = MAX_PENDING,
                "ban queue for Redis is full; these bans apply at this gateway only"
            );
        }
    }
}

impl PendingBan {
    fn of(ban: &ActiveBan, now: Timestamp) -> Self {
        let wait = ban.retry_after.saturating_sub(ban.rest);
        Self { account: ban.account.clone(), until: now + ban.rest, wait }
    }
}

impl BanEvent {
    /// Lines, because none of the parts can have a line's end in it.
    fn text(&self) -> String {
        let Account { policy, identity } = &self.account;
        let (word, wait_ms) = match self.kind {
            BanEventKind::Ban { wait } => ("ban", wait.as_millis()),
            BanEventKind::Lift => ("lift", 0),
        };
        let (origin, wait_ms) = (&self.origin, wait_ms.to_string());
        [FORMAT, word, origin, policy, identity.as_str(), &wait_ms].join("\n")
    }

    /// Reads what [`text`](Self::text) wrote; none if it is something else.
    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('\n').collect();
        let [FORMAT, word, origin, policy, identity, wait_ms] = parts[..] else { return None };
        let account = Account { policy: policy.parse().ok()?, identity: identity.parse().ok()? };
        let wait = Duration::from_millis(wait_ms.parse().ok()?);
        let kind = match word {
            "ban" => BanEventKind::Ban { wait },
            "lift" => BanEventKind::Lift,
            _ => return None,
        };
        Some(Self { origin: origin.to_owned(), account, kind })
    }
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

    fn message(kind: BanEventKind, identity: &str) -> BanEvent {
        let account = Account {
            policy: "p".repeat(64).parse().unwrap(),
            identity: identity.parse().unwrap(),
        };
        BanEvent { origin: "0123456789abcdef".to_owned(), account, kind }
    }

    #[test]
    fn texts_read_back_and_fit() {
        let longest = format!("user:{}", "u".repeat(58));
        for kind in [BanEventKind::Lift, BanEventKind::Ban { wait: Duration::MAX / 1_000_000 }] {
            for identity in ["ip:2001:db8:1:2::/64", "anonymous", "everyone", &longest] {
                let message = message(kind, identity);
                let text = message.text();
                assert!(text.len() <= EventLog::MAX_TEXT_BYTES, "{}", text.len());
                let read = BanEvent::parse(&text).unwrap();
                assert_eq!((read.origin, read.account), (message.origin, message.account));
                assert_eq!(read.kind == BanEventKind::Lift, kind == BanEventKind::Lift);
            }
        }
        let wait = Duration::from_millis(1500);
        let ban = message(BanEventKind::Ban { wait }, "user:42");
        assert_eq!(BanEvent::parse(&ban.text()), Some(ban));
    }

    #[test]
    fn what_is_no_event_of_this_version_is_passed_over() {
        let text = message(BanEventKind::Lift, "user:42").text();
        for text in [
            String::new(),
            "hello".to_owned(),
            text.replacen('1', "2", 1),
            text.replace("lift", "pardon"),
            text.replace("user:42", "nobody"),
            format!("{text}\nmore"),
            format!("{text}x"),
        ] {
            assert_eq!(BanEvent::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_full_queue_drops_counts_and_never_waits() {
        let (queue, mut begun) = queue();
        let account =
            Account { policy: "api".parse().unwrap(), identity: "user:1".parse().unwrap() };
        let rest = Duration::from_secs(60);
        let ban = ActiveBan { account, rest, retry_after: rest };
        for _ in 0..MAX_QUEUED + 7 {
            queue.push(&ban);
        }
        assert_eq!(begun.dropped.load(Ordering::Relaxed), 7);
        assert!(begun.receiver.try_recv().is_ok());
        queue.push(&ban);
        assert_eq!(begun.dropped.load(Ordering::Relaxed), 7, "there was room again");
    }

    const LOG: LogConfig =
        LogConfig { format: LogFormat::Json, level: String::new(), access: false };

    fn gateway(redis: &RedisServer) -> (SharedBans<MemoryStore>, BanQueue) {
        let policy =
            Policy::new("api").quota(Quota::per_minute(1)).ban(Ban::after(Quota::per_hour(3)));
        let policies = Policies::builder().policy(policy).build().unwrap();
        let gate = Arc::new(Gate::new(policies, MemoryStore::new()));
        let observer = Observer::new(gate.clone(), &LOG, None, Arc::new(SystemClock::new()));
        let store = RedisStore::builder(redis.url()).deadline(Duration::from_secs(2));
        let (queue, begun) = queue();
        (SharedBans::new(gate, store.build().unwrap().event_log(), begun, observer), queue)
    }

    fn ban() -> ActiveBan {
        let account =
            Account { policy: "api".parse().unwrap(), identity: "ip:10.0.0.1".parse().unwrap() };
        let rest = Duration::from_secs(3600);
        ActiveBan { account, rest, retry_after: rest }
    }

    /// As a denial does that begins a ban.
    fn begin(bans: &SharedBans<MemoryStore>, queue: &BanQueue) {
        bans.gate.admin().adopt_ban(&ban()).unwrap();
        queue.push(&ban());
    }

    fn in_force(bans: &SharedBans<MemoryStore>) -> usize {
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
