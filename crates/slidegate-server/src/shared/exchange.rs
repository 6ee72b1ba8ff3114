//! The task that exchanges overrides, bans, heartbeats and a key with the other gateways on one Redis.
//!
//! Four times a second it makes one call that reads what is new and, when it is due, writes this
//! gateway's heartbeat. No decision waits for it. While Redis is unreachable, the overrides last read
//! stay in force, bans hold where they began and are queued, and heartbeats expire. What Redis has
//! lost when it is back is written again.

use std::error::Error;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use slidegate::{Account, StoreError, Timestamp};
use slidegate_redis::{RedisStoreError, SharedCursor, SharedState, SharedStateError};
use tokio::sync::Mutex;

use super::bans::{BanQueue, SharedBans};
use super::heartbeats::Heartbeats;
use super::overrides::{OverrideRecord, OverrideState};
use crate::holds::Holds;
use crate::observe::Observer;

/// Exchanges with the other gateways on one Redis.
#[derive(Debug)]
pub(crate) struct Exchange {
    redis: SharedState,
    observer: Observer,
    heartbeats: Arc<Heartbeats>,
    /// Which gets the key that the gateways have in common.
    holds: Arc<Holds>,
    /// The overrides that it brings up to date. Locked before the state of the exchange.
    pub(super) overrides: Arc<Mutex<OverrideState>>,
    /// Held during a call, so that none overtakes another.
    state: Mutex<ExchangeState>,
}

#[derive(Debug)]
struct ExchangeState {
    cursor: SharedCursor,
    bans: SharedBans,
    presence: Presence,
    /// Whether the last exchange failed.
    is_outage: bool,
}

/// Whether Redis has a heartbeat of this gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Unknown,
    Written {
        next_at: Timestamp,
    },
    /// And no other is written.
    Removed,
}

/// An override or a ban holds at the other gateways after this and a round trip or two.
const INTERVAL: Duration = Duration::from_millis(250);
/// How much longer the process may live to remove its heartbeat.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

impl Exchange {
    pub(crate) fn new(
        redis: SharedState,
        queue: Arc<BanQueue>,
        observer: Observer,
        heartbeats: Arc<Heartbeats>,
        holds: Arc<Holds>,
    ) -> Self {
        let overrides = Arc::new(Mutex::new(OverrideState::new(observer.gate().now())));
        let state = Mutex::new(ExchangeState {
            cursor: SharedCursor::default(),
            bans: SharedBans::new(queue, observer.clone()),
            presence: Presence::Unknown,
            is_outage: false,
        });
        Self { redis, observer, heartbeats, holds, overrides, state }
    }

    /// Exchanges for the life of the process.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.refresh().await;
        }
    }

    /// Exchanges once.
    pub(crate) async fn refresh(&self) {
        // `exchange` has logged the error.
        let _ = self.exchange(&mut *self.overrides.lock().await).await;
    }

    /// Brings the overrides, which are this exchange's, and the bans up to date with Redis, and Redis
    /// with what is in force here and was not there.
    pub(super) async fn exchange(
        &self,
        overrides: &mut OverrideState,
    ) -> Result<(), SharedStateError> {
        let mut state = self.state.lock().await;
        let gate = self.observer.gate();
        let is_heartbeat_due = state.presence.is_heartbeat_due(gate.now());
        state.bans.take_begun();
        let result = self.read_and_append(&mut state, overrides).await;
        if is_heartbeat_due {
            let conflicts = self.heartbeats.conflicts(&gate.policies(), gate.now());
            self.observer.policy_conflicts(conflicts);
        }
        self.observer.redis_replied(is_reply(&result));
        state.log_outage(result.as_ref().err());
        state.bans.log_unshared();
        result
    }

    /// Writes an override, a reset or a lift for all gateways.
    pub(super) async fn write(
        &self,
        record: &OverrideRecord,
        lasting: Duration,
    ) -> Result<(), SharedStateError> {
        self.redis.insert(&record.id, &record.text(), lasting).await
    }

    /// Lifts the bans of these accounts: here at once, and at all gateways that read of it, now or when
    /// they start.
    pub(super) async fn lift_bans(&self, accounts: &[Account]) -> Result<(), SharedStateError> {
        let mut state = self.state.lock().await;
        let texts = state.bans.lift(accounts);
        for texts in texts.chunks(SharedState::MAX_BATCH) {
            self.redis.append(texts.iter().map(|text| (&**text, Duration::ZERO))).await?;
        }
        Ok(())
    }

    /// Lets the other gateways know that this one goes. If that takes too long, its heartbeat expires.
    pub(crate) async fn leave(&self) {
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, self.remove_heartbeat()).await;
    }

    /// If the last heartbeat could not be written, it is left to expire, because Redis would not
    /// answer.
    async fn remove_heartbeat(&self) {
        let mut state = self.state.lock().await;
        let presence = mem::replace(&mut state.presence, Presence::Removed);
        if let Presence::Written { .. } = presence
            && let Err(error) = self.redis.leave().await
        {
            tracing::debug!(%error, "heartbeat not removed from Redis");
        }
    }

    async fn read_and_append(
        &self,
        state: &mut ExchangeState,
        overrides: &mut OverrideState,
    ) -> Result<(), SharedStateError> {
        // In this order, so that a ban which another gateway has lifted meanwhile is not appended.
        self.read(state, overrides).await?;
        if state.bans.pending.is_empty() {
            return Ok(());
        }
        while !state.bans.pending.is_empty() {
            let batch = state.bans.pending.len().min(SharedState::MAX_BATCH);
            let events = state.bans.first_events(batch);
            self.redis.append(events.iter().map(|(text, rest)| (&**text, *rest))).await?;
            state.bans.pending.drain(..batch);
        }
        // So that this gateway notices if Redis loses what it has appended.
        self.read(state, overrides).await
    }

    async fn read(
        &self,
        state: &mut ExchangeState,
        overrides: &mut OverrideState,
    ) -> Result<(), SharedStateError> {
        let gate = self.observer.gate();
        let asked_at = gate.now();
        if overrides.is_full_read_due(asked_at) {
            state.cursor.forget_entries();
        }
        let mut heartbeat = None;
        if state.presence.is_heartbeat_due(asked_at) {
            state.presence = Presence::Unknown;
            heartbeat = Some(self.heartbeats.next(&gate.policies()));
        }
        let heartbeat = heartbeat.as_ref().map(|(text, lasting)| (&**text, *lasting));
        let changes = self.redis.exchange(&state.cursor, heartbeat).await?;
        state.cursor = changes.cursor;
        if let Some(secret) = &changes.secret {
            self.holds.share(secret);
        }
        if let Some(members) = changes.members {
            self.heartbeats.replace_others(&members, changes.now_ms, gate.now());
            state.presence = Presence::Written { next_at: asked_at + self.heartbeats.pause() };
        }
        state.bans.apply(&changes.events, changes.now_ms, changes.restarted);
        if let Some(entries) = changes.entries {
            for record in overrides.apply(&entries, changes.now_ms, asked_at, gate) {
                let rest = record.until_ms.saturating_sub(changes.now_ms);
                match self.write(&record, Duration::from_millis(rest)).await {
                    Err(SharedStateError::Full) => {
                        tracing::warn!(id = record.id, "no room in Redis for an override it lost");
                    }
                    written => written?,
                }
            }
            overrides.fully_read_at = Some(asked_at);
        }
        overrides.read_at = Some(gate.now());
        Ok(())
    }
}

impl Presence {
    fn is_heartbeat_due(self, now: Timestamp) -> bool {
        match self {
            Self::Unknown => true,
            Self::Written { next_at } => now >= next_at,
            Self::Removed => false,
        }
    }
}

impl ExchangeState {
    /// Logs that an outage begins or ends.
    fn log_outage(&mut self, error: Option<&SharedStateError>) {
        let was_outage = mem::replace(&mut self.is_outage, error.is_some());
        match error {
            Some(error) if !was_outage => {
                let cause = error.source().map(tracing::field::display);
                tracing::warn!(
                    %error,
                    cause,
                    "cannot exchange with other gateways through Redis; overrides last read stay in \
                     force, and each ban applies only at the gateway where it began"
                );
            }
            None if was_outage => {
                tracing::info!("exchanging with other gateways through Redis again");
            }
            _ => {}
        }
    }
}

/// Whether Redis replied, be it that this user may not touch the keys.
fn is_reply(result: &Result<(), SharedStateError>) -> bool {
    let Err(error) = result else { return true };
    let SharedStateError::Store(StoreError::Unavailable(cause)) = error else { return false };
    cause.downcast_ref::<RedisStoreError>().is_some_and(|error| error.key_error().is_some())
}

#[cfg(test)]
mod tests {
    use slidegate::policy::{Action, ActiveBan};
    use slidegate::{
        Ban, Clock, Gate, Identity, ManualClock, MemoryStore, NamedCharge, Policies, Policy, Quota,
    };
    use slidegate_redis::RedisStore;
    use slidegate_testbed::{CommandCounts, ManualTime, RedisServer};

    use super::*;
    use crate::config::{LogConfig, LogFormat};
    use crate::observe::MetricsFormat;
    use crate::shared::{Actor, Expiry, OverrideService, Persistence, Target};
    use crate::store::AnyStore;

    const LOG: LogConfig =
        LogConfig { format: LogFormat::Json, level: String::new(), access: false };

    struct Gateway {
        exchange: Arc<Exchange>,
        gate: Arc<Gate<AnyStore>>,
        queue: Arc<BanQueue>,
        clock: ManualClock,
    }

    impl Gateway {
        fn on(redis: &RedisServer) -> Self {
            let policy =
                Policy::new("api").quota(Quota::per_minute(1)).ban(Ban::after(Quota::per_hour(3)));
            let policies = Policies::builder().policy(policy).build().unwrap();
            let clock = ManualClock::default();
            let store = || MemoryStore::builder().clock(clock.clone()).build();
            let gate = Arc::new(Gate::with_local(policies, store().into(), store()));
            let observer = Observer::new(gate.clone(), &LOG, None, Arc::new(clock.clone()));
            let redis = RedisStore::builder(redis.url()).deadline(Duration::from_secs(2));
            let shared = redis.build().unwrap().shared_state();
            let heartbeats = Arc::new(Heartbeats::new(Timestamp::from_millis(7_000_000)));
            let queue = Arc::<BanQueue>::default();
            let time = Arc::new(clock.clone());
            let holds = Arc::new(Holds::new(observer.clone(), time, Duration::from_secs(60)));
            let exchange = Exchange::new(shared, queue.clone(), observer, heartbeats, holds);
            Self { exchange: Arc::new(exchange), gate, queue, clock }
        }

        async fn refresh(&self) {
            self.exchange.refresh().await;
        }

        /// As a denial does that begins a ban.
        fn begin_ban(&self) {
            self.gate.admin().adopt_ban(&ban()).unwrap();
            self.queue.push(&ban());
        }

        async fn lift_ban(&self) {
            self.exchange.lift_bans(&[ban().account]).await.unwrap();
        }

        fn bans(&self) -> usize {
            self.gate.admin().active_bans().len()
        }

        fn gateways(&self) -> usize {
            self.exchange.heartbeats.gateways(self.clock.now()).len()
        }

        fn overrides(&self) -> OverrideService {
            let persistence = Persistence::Redis(self.exchange.clone());
            OverrideService::open(self.gate.clone(), persistence).unwrap()
        }
    }

    fn ban() -> ActiveBan {
        let account =
            Account { policy: "api".parse().unwrap(), identity: "ip:10.0.0.1".parse().unwrap() };
        let rest = Duration::from_secs(3600);
        ActiveBan { account, rest, retry_after: rest }
    }

    #[tokio::test]
    async fn an_exchange_is_one_call_with_a_heartbeat_and_without() {
        let redis = RedisServer::start();
        let gateway = Gateway::on(&redis);
        gateway.refresh().await;
        let before = CommandCounts::of([&redis]);
        for _ in 0..240 {
            gateway.clock.advance(INTERVAL);
            gateway.refresh().await;
        }
        let counts = CommandCounts::of([&redis]).since(&before);
        assert_eq!(counts.calls("eval") + counts.calls("evalsha"), 240);
        // Of 30 heartbeats, each in a hash with a head; and the clock of each call.
        assert_eq!((counts.calls("hset"), counts.calls("time")), (60, 240));
        // Of each heartbeat, and a full read after a minute.
        assert!((31..=61).contains(&counts.calls("hgetall")), "{counts:?}");
    }

    #[tokio::test]
    async fn a_ban_that_begins_after_a_lift_stays_in_force_and_is_shared() {
        let redis = RedisServer::start();
        let (one, two) = (Gateway::on(&redis), Gateway::on(&redis));
        for is_banned_elsewhere in [false, true] {
            one.refresh().await;
            two.refresh().await;
            if is_banned_elsewhere {
                two.begin_ban();
                two.refresh().await;
            }
            one.lift_ban().await;
            one.begin_ban();
            one.refresh().await;
            assert_eq!(one.bans(), 1, "the lift was older");
            two.refresh().await;
            assert_eq!(two.bans(), 1, "it is shared");
            one.lift_ban().await;
        }
    }

    #[tokio::test]
    async fn a_lift_ends_bans_of_others_that_were_not_read_before_it() {
        let redis = RedisServer::start();
        let (one, two) = (Gateway::on(&redis), Gateway::on(&redis));
        one.refresh().await;
        two.begin_ban();
        two.refresh().await;
        one.lift_ban().await;
        one.refresh().await;
        two.refresh().await;
        assert_eq!((one.bans(), two.bans()), (0, 0));
    }

    #[tokio::test]
    async fn bans_that_a_lift_finds_unshared_are_counted() {
        let redis = RedisServer::start();
        let gateway = Gateway::on(&redis);
        for _ in 0..BanQueue::MAX + 7 {
            gateway.queue.push(&ban());
        }
        gateway.lift_ban().await;
        let page = gateway.exchange.observer.metrics(MetricsFormat::Text).unwrap();
        assert!(page.contains("slidegate_bans_not_shared_total 7\n"), "{page}");
    }

    #[tokio::test]
    async fn a_full_redis_keeps_no_ban_from_being_shared() {
        let redis = RedisServer::start();
        let (one, two) = (Gateway::on(&redis), Gateway::on(&redis));
        let target = Target { identity: "user:ann".parse().unwrap(), policy: None };
        let actor = Actor { by: None, reason: "a test".to_owned() };
        let hour = Expiry::For(3_600_000);
        one.overrides().create(Action::Ban, target, hour, actor).await.unwrap();
        redis.command(&["FLUSHALL"]).expect_ok();
        let minute = Duration::from_secs(60);
        for id in 0..SharedState::MAX_ENTRIES {
            two.exchange.redis.insert(&id.to_string(), "", minute).await.unwrap();
        }
        one.begin_ban();
        one.refresh().await;
        two.refresh().await;
        assert_eq!(two.bans(), 1);
        assert!(one.exchange.observer.redis_replies());
        assert_eq!(one.overrides().list(None).await.overrides.len(), 1, "it holds here");
    }

    #[tokio::test]
    async fn an_id_of_one_gateway_is_settled_by_another_also_after_redis_has_lost_the_key() {
        let redis = RedisServer::start();
        let (one, two) = (Gateway::on(&redis), Gateway::on(&redis));
        let hold = async |gateway: &Gateway, user: &str| {
            let identity = Identity::user(user);
            let charge =
                NamedCharge { policy: "api", identity, plan: None, cost: None, quotas: None };
            let decision = gateway.gate.decide_named(&[charge]).await.unwrap();
            gateway.exchange.holds.id_of(&decision, |_| true).unwrap()
        };
        let settle = async |gateway: &Gateway, id: &str| {
            gateway.exchange.holds.settle("api", id, 0).await.map_err(|error| error.to_string())
        };
        let before = hold(&one, "ann").await;
        one.refresh().await;
        let shared = hold(&one, "bob").await;
        assert!(settle(&two, &shared).await.is_err(), "it has not read the key yet");
        two.refresh().await;
        settle(&two, &shared).await.unwrap();
        assert!(settle(&two, &before).await.is_err(), "sealed before Redis had answered");
        settle(&one, &before).await.unwrap();

        redis.command(&["FLUSHALL"]).expect_ok();
        let newcomer = Gateway::on(&redis);
        newcomer.refresh().await;
        let shared = hold(&one, "eve").await;
        one.clock.advance(Duration::from_secs(2));
        one.refresh().await;
        settle(&one, &shared).await.unwrap();
        settle(&newcomer, &hold(&one, "joe").await).await.unwrap();
    }

    #[tokio::test]
    async fn gateways_on_one_redis_see_each_other_until_one_leaves_or_is_silent() {
        let time = ManualTime::new();
        let redis = RedisServer::options().time(&time).start();
        let gateways = [(); 3].map(|()| Gateway::on(&redis));
        let exchange = async || {
            for gateway in &gateways {
                gateway.refresh().await;
            }
        };
        let advance = |seconds| {
            time.advance(Duration::from_secs(seconds));
            let clocks = gateways.iter().map(|gateway| &gateway.clock);
            clocks.for_each(|clock| clock.advance(Duration::from_secs(seconds)));
        };
        let counts = || gateways.each_ref().map(Gateway::gateways);
        exchange().await;
        assert_eq!(counts(), [1, 2, 3], "in the order of their first heartbeats");
        advance(2);
        exchange().await;
        assert_eq!(counts(), [3, 3, 3]);
        let first = &gateways[0];
        let listed = first.exchange.heartbeats.gateways(first.clock.now());
        let [this, other, _] = &listed[..] else { panic!("three") };
        assert!(this.this && !other.this && this.name.contains(':'), "{this:?}");
        assert_eq!(
            (&other.name, &other.version, other.started),
            (&this.name, &this.version, this.started)
        );
        assert!(other.seen_ms.abs_diff(2000) < 100, "{other:?}");

        gateways[2].exchange.leave().await;
        advance(2);
        exchange().await;
        assert_eq!(counts()[..2], [2, 2], "it has left, and writes no heartbeat any more");
        time.advance(Duration::from_secs(7));
        first.clock.advance(Duration::from_secs(7));
        first.refresh().await;
        assert_eq!(counts()[..2], [1, 2], "the other has been silent");
        gateways[1].clock.advance(Duration::from_secs(7));
        assert_eq!(counts()[1], 1, "it forgets by itself what it has read");
        time.advance(Duration::from_secs(7));
        assert_eq!(redis.command(&["KEYS", "*members*"]).array().len(), 0, "and Redis does too");
    }
}
