//! The store on Redis or Valkey.

mod batch;
mod builder;
mod connection;
mod cross_slot;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{FromRedisValue, RedisError, ToRedisArgs, Value};
use slidegate::limit::{
    AccountReading, Charge, Charges, OnDenial, Receipt, Settled, Settlement, Spent,
};
use slidegate::{Name, Policies, Scope, Store, StoreError, Timestamp};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use self::batch::Batcher;
use self::connection::RedisConnection;
use self::cross_slot::{CrossSlotSpend, slot_of};
use crate::address::Address;
use crate::checkup::{ServerReport, ServerWarning};
use crate::collision::KeyCollisions;
use crate::error::RedisStoreError;
use crate::key::{KeyTemplate, escaped};
use crate::layout::Layout;
use crate::owned::OwnedCharge;
use crate::script::{AnswerReader, Mode, Request, ScriptCall, Scripts};

pub use self::builder::{BuildError, RedisStoreBuilder, RedisTls};

/// Keeps accounts in Redis or Valkey, exactly, for any number of processes.
///
/// A decision is one round trip and at most one call of one script, whatever the number of policies
/// and windows; decisions that would wait anyway share a call. The server's clock is the only one.
///
/// In a cluster one round trip is for the charges of one identity. Charges of several identities may
/// be in several slots, and are spent one after the other and taken back if a later one is denied.
/// In between, other requests may be denied that would have been allowed; none is ever allowed that
/// should not be.
///
/// Calls end by the [deadline](RedisStoreBuilder::deadline). A spend whose answer comes later is
/// taken back, because its request has been decided otherwise by then. A spend whose future is
/// dropped stays spent if it has been sent.
///
/// Most programs use it inside a [`ResilientStore`](crate::ResilientStore).
///
/// ```
/// use slidegate_redis::RedisStore;
///
/// let store = RedisStore::builder("redis://127.0.0.1:6379").build()?;
/// assert_eq!(store.to_string(), "127.0.0.1:6379");
/// # Ok::<(), slidegate_redis::BuildError>(())
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<StoreInner>);

struct StoreInner {
    connection: Arc<RedisConnection>,
    batcher: Arc<Batcher>,
    layout: Layout,
    template: KeyTemplate,
    policy_templates: HashMap<Name, KeyTemplate>,
    shared_prefix: String,
    /// Bounds the calls that are past their deadline and still awaited.
    late: Arc<Semaphore>,
}

/// How many late calls are awaited at once. One more stays spent, should it have been.
const MAX_LATE: usize = 4096;

/// The shortest deadline of calls that no request waits for.
const BACKGROUND_DEADLINE: Duration = Duration::from_secs(1);

/// How long a call that missed its deadline is awaited.
pub(crate) const LATE_CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Between attempts to take back a late spend: Redis is nearly always overloaded when one is late.
const TAKE_BACK_WAITS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1600),
    Duration::from_millis(6400),
    Duration::ZERO,
];

impl RedisStore {
    /// Begins to make a store. Nothing is connected until the first call.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url.into())
    }

    pub(crate) fn new(address: Address, builder: RedisStoreBuilder) -> Self {
        let shared_prefix = builder.shared_prefix();
        let template = builder.in_namespace(&builder.template.clone().unwrap_or_default());
        let templates = builder.policy_templates.iter();
        let policy_templates = templates
            .map(|(policy, template)| (policy.clone(), builder.in_namespace(template)))
            .collect();
        let scripts = Scripts::new(builder.layout, builder.score_unit.unwrap_or_default());
        let (tls, connector) = (builder.tls, builder.connector);
        let (deadline, runtime) = (builder.deadline, builder.runtime);
        let connection = RedisConnection::new(address, tls, connector, scripts, deadline, runtime);
        let connection = Arc::new(connection);
        Self(Arc::new(StoreInner {
            batcher: Arc::new(Batcher::new(connection.clone())),
            connection,
            layout: builder.layout,
            shared_prefix,
            template,
            policy_templates,
            late: Arc::new(Semaphore::new(MAX_LATE)),
        }))
    }

    /// How ledgers are kept.
    pub fn layout(&self) -> Layout {
        self.0.layout
    }

    /// How long a call may take.
    pub fn deadline(&self) -> Duration {
        self.0.connection.deadline
    }

    /// How many connections this store has made in its life.
    pub fn connections(&self) -> u64 {
        self.0.connection.made.load(Ordering::Relaxed)
    }

    /// What the keys of the [shared state](Self::shared_state) begin with.
    pub(crate) fn shared_prefix(&self) -> &str {
        &self.0.shared_prefix
    }

    /// A name that no other store has, but for clones of this one.
    pub(crate) fn process(&self) -> &str {
        &self.0.connection.process
    }

    /// Looks for settings of the server that would make it forget what it has counted. The same is
    /// done, and logged, whenever a connection is made.
    pub async fn checkup(&self) -> Result<Vec<ServerWarning>, StoreError> {
        self.server_report().await.map(|report| report.warnings)
    }

    /// What the server says of itself: a [`checkup`](Self::checkup), and the keys that it has evicted.
    pub async fn server_report(&self) -> Result<ServerReport, StoreError> {
        let command = redis::cmd("INFO");
        let info = self.within(self.deadline(), self.0.connection.send(&command)).await?;
        Ok(ServerReport::read(&info))
    }

    /// Checks that no two ledgers of these policies can share a key: two windows of one policy, or
    /// two policies, under the key templates of this store. Call it before policies are put in
    /// force on the store, and again before they are replaced. The default template never fails.
    ///
    /// It considers the identities that policies find in requests, and assumes that every request
    /// has a client address. An identity that a caller names, as in
    /// [`Gate::decide_named`](slidegate::Gate::decide_named), may be of any kind; should two charges
    /// of one request then have one key, the request is a store's error.
    ///
    /// ```
    /// use slidegate::{Policies, Policy, Quota};
    /// use slidegate_redis::RedisStore;
    ///
    /// let template = "ratelimit:<kind>:<identity>".parse()?;
    /// let redis = RedisStore::builder("redis://127.0.0.1:6379").key_template(template).build()?;
    /// let api = Policy::new("api").quota(Quota::per_minute(100));
    /// let login = Policy::new("login").quota(Quota::per_minute(5));
    ///
    /// let one = Policies::builder().policy(api.clone()).build()?;
    /// assert!(redis.check_policies(&one).is_ok());
    /// let both = Policies::builder().policy(api).policy(login).build()?;
    /// assert!(redis.check_policies(&both).is_err(), "both would count in ratelimit:ip:203.0.113.7");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_policies(&self, policies: &Policies) -> Result<(), KeyCollisions> {
        KeyCollisions::check(policies, |policy| self.template_of(policy))
    }

    /// The patterns of all keys that are touched for these policies, as `~` has them in the
    /// permissions of a Redis user: those of the shared policies, and of the
    /// [shared state](Self::shared_state) beside them.
    pub fn key_patterns(&self, policies: &Policies) -> Vec<String> {
        let shared = policies.iter().filter(|policy| policy.scope == Scope::Shared);
        let mut patterns: Vec<String> =
            shared.map(|policy| self.template_of(&policy.name).pattern(&policy.name)).collect();
        patterns.push(self.shared_pattern());
        patterns.sort_unstable();
        patterns.dedup();
        patterns
    }

    fn shared_pattern(&self) -> String {
        escaped(&self.0.shared_prefix) + "*"
    }

    /// The permission that a Redis user needs for the keys of a policy.
    pub(crate) fn pattern_of(&self, policy: &Name) -> String {
        format!("~{}", self.template_of(policy).pattern(policy))
    }

    fn template_of(&self, policy: &Name) -> &KeyTemplate {
        self.0.policy_templates.get(policy).unwrap_or(&self.0.template)
    }

    /// The keys of the charges' ledgers, in order.
    pub(crate) fn keys(&self, charges: &[Charge<'_>]) -> Result<Vec<String>, RedisStoreError> {
        let mut keys: Vec<String> = Vec::with_capacity(charges.len());
        for charge in charges {
            let template = self.template_of(charge.policy());
            for quota in charge.quotas().as_slice() {
                let key = template.key(charge.policy(), charge.identity(), *quota);
                if keys.contains(&key) {
                    return Err(RedisStoreError::SameKey { key, template: template.to_string() });
                }
                keys.push(key);
            }
        }
        Ok(keys)
    }

    /// Decides, or fails when the limit has passed.
    pub(crate) async fn decide_within(
        &self,
        limit: Duration,
        mode: Mode,
        charges: &[Charge<'_>],
    ) -> Result<Receipt, StoreError> {
        if charges.is_empty() {
            return Ok(Receipt { spent: true, ..Receipt::default() });
        }
        let keys = self.keys(charges)?;
        if self.0.connection.address.is_cluster() {
            let parts = CrossSlotSpend::new(charges, &keys, slot_of);
            if parts.0.len() > 1 {
                return self.decide_cross_slot(limit, mode, parts).await;
            }
        }
        let mut queued = self.0.batcher.enqueue(Request::new(mode, charges, keys));
        if let Ok(answer) = tokio::time::timeout(limit, queued.answer()).await {
            return Ok(answer?);
        }
        if !queued.cancel() && mode == Mode::Spend {
            let owned: Vec<OwnedCharge> = charges.iter().map(OwnedCharge::from).collect();
            let store = self.clone();
            self.spawn_late(async move {
                if let Ok(receipt) = queued.answer().await {
                    let charges: Vec<_> = owned.iter().map(OwnedCharge::as_charge).collect();
                    store.take_back(&charges, &receipt).await;
                }
            });
        }
        Err(self.missed(limit))
    }

    /// Spawns a task beside the connection.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.connection.spawn(task)
    }

    /// Awaits a late answer in the background, to take back what it says was spent.
    fn spawn_late(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Ok(permit) = self.0.late.clone().try_acquire_owned() else { return };
        self.spawn(async move {
            // What is not answered by then was lost with its connection.
            let _ = tokio::time::timeout(LATE_CALL_TIMEOUT, task).await;
            drop(permit);
        });
    }

    fn missed(&self, deadline: Duration) -> StoreError {
        self.0.connection.missed();
        StoreError::Deadline(deadline)
    }

    /// Undoes a spend whose request was decided otherwise.
    pub(crate) async fn take_back(&self, charges: &[Charge<'_>], receipt: &Receipt) {
        let written: Vec<Charge<'_>> = written_by(charges, receipt).collect();
        if written.is_empty() {
            return;
        }
        let Ok(call) = self.refund_call(&written, Some(receipt.at)) else { return };
        for wait in TAKE_BACK_WAITS {
            match self.0.connection.run(&call).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "late spend not taken back yet"),
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// A name that no other call has.
    pub(crate) fn unique_name(&self) -> String {
        self.0.connection.unique_name()
    }

    pub(crate) async fn refund_at_once(
        &self,
        charges: &[Charge<'_>],
        at: Option<Timestamp>,
    ) -> Result<(), RedisStoreError> {
        if charges.is_empty() {
            return Ok(());
        }
        self.0.connection.run(&self.refund_call(charges, at)?).await?;
        Ok(())
    }

    /// A call that refunds once, however often it is sent.
    fn refund_call(
        &self,
        charges: &[Charge<'_>],
        at: Option<Timestamp>,
    ) -> Result<ScriptCall<'_>, RedisStoreError> {
        let mut keys = self.keys(charges)?;
        keys.push(mark_beside(&keys[0], &format!("refund-{}", self.0.connection.unique_name())));
        Ok(ScriptCall::refund(&self.0.connection.scripts, charges, &keys, at))
    }

    /// A call that settles once, however often it is sent. If the settlement has a name, it is done once
    /// by all processes together.
    fn settle_call(
        &self,
        charges: &[Charge<'_>],
        settlement: Settlement<'_>,
    ) -> Result<ScriptCall<'_>, RedisStoreError> {
        let mut keys = self.keys(charges)?;
        let connection = &self.0.connection;
        let name = match settlement.once {
            Some(once) => format!("settle-{}", once.id),
            None => format!("settle-{}", connection.unique_name()),
        };
        keys.push(mark_beside(&keys[0], &name));
        Ok(ScriptCall::settle(&connection.scripts, charges, &keys, settlement))
    }

    /// Decides charges that a cluster keeps in several slots. Once begun it is not left halfway, even
    /// if the caller's future is dropped.
    async fn decide_cross_slot(
        &self,
        limit: Duration,
        mode: Mode,
        request: CrossSlotSpend,
    ) -> Result<Receipt, StoreError> {
        let request = Arc::new(request);
        let (store, parts) = (self.clone(), request.clone());
        let mut task = self.spawn(async move { parts.decide(&store, mode).await });
        if let Ok(receipts) = tokio::time::timeout(limit, &mut task).await {
            let receipts = receipts.unwrap_or(Err(RedisStoreError::Reply))?;
            return Ok(request.whole(&receipts));
        }
        let store = self.clone();
        self.spawn_late(async move {
            if let (Ok(Ok(receipts)), Mode::Spend) = (task.await, mode) {
                request.take_back(&store, &receipts).await;
            }
        });
        Err(self.missed(limit))
    }

    /// Decides charges that are in one slot, without a deadline.
    pub(crate) async fn decide_at_once(
        &self,
        mode: Mode,
        charges: &[Charge<'_>],
    ) -> Result<Receipt, RedisStoreError> {
        let request = Request::new(mode, charges, self.keys(charges)?);
        self.0.batcher.enqueue(request).answer().await
    }

    /// Adds what an account spent elsewhere, how long ago, oldest first. It is added once, however
    /// often this process sends it under the same number.
    pub(crate) async fn merge(
        &self,
        charge: Charge<'_>,
        spends: &[(Duration, u32)],
        number: u64,
    ) -> Result<(), RedisStoreError> {
        let mut keys = self.keys(&[charge])?;
        let process = &self.0.connection.process;
        keys.push(mark_beside(&keys[0], &format!("merge-{process}-{number}")));
        let windows = charge.quotas().as_slice().iter().map(|quota| quota.window());
        let mark_for = windows.max().unwrap_or_default() + Duration::from_secs(60);
        let call = ScriptCall::merge(&self.0.connection.scripts, charge, &keys, spends, mark_for);
        let limit = self.deadline().max(BACKGROUND_DEADLINE);
        let Ok(reply) = tokio::time::timeout(limit, self.0.connection.run(&call)).await else {
            self.0.connection.missed();
            return Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)).into());
        };
        reply.map(drop)
    }

    /// Runs a script on keys of the shared state, which no request waits for. Its text is sent only to a
    /// server that does not know it, as after a restart: every gateway asks several times a second.
    pub(crate) async fn eval<T: FromRedisValue>(
        &self,
        script: &redis::Script,
        text: &str,
        keys: &[impl ToRedisArgs + Sync],
        args: impl ToRedisArgs + Sync,
    ) -> Result<T, StoreError> {
        let command = |name, script: &str| {
            let mut command = redis::cmd(name);
            command.arg(script).arg(keys.len()).arg(keys).arg(&args);
            command
        };
        self.within(self.deadline().max(BACKGROUND_DEADLINE), async {
            let connection = &self.0.connection;
            let reply = match connection.send(&command("EVALSHA", script.get_hash())).await {
                Err(error) if error.is_unknown_script() => {
                    connection.send(&command("EVAL", text)).await
                }
                reply => reply,
            };
            let reply = reply.map_err(|error| error.at_keys(self.shared_pattern()))?;
            T::from_redis_value(reply).map_err(|_| RedisStoreError::Reply)
        })
        .await
    }

    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = Result<T, RedisStoreError>> + Send,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(limit, future).await {
            Ok(output) => Ok(output?),
            Err(_) => Err(self.missed(limit)),
        }
    }

    /// The charges, in parts that are each in one slot; a server that is no cluster has one.
    fn in_slots(&self, charges: &Charges<'_>) -> Result<CrossSlotSpend, RedisStoreError> {
        let charges = charges.as_slice();
        let is_cluster = self.0.connection.address.is_cluster();
        let slot = |key: &str| if is_cluster { slot_of(key) } else { 0 };
        Ok(CrossSlotSpend::new(charges, &self.keys(charges)?, slot))
    }
}

impl Store for RedisStore {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.decide_within(self.deadline(), Mode::Spend, charges.as_slice()).await
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.decide_within(self.deadline(), Mode::Peek, charges.as_slice()).await
    }

    async fn read(&self, charge: Charge<'_>) -> Result<AccountReading, StoreError> {
        let (connection, keys) = (&self.0.connection, self.keys(&[charge])?);
        let call = ScriptCall::read(&connection.scripts, charge, &keys);
        self.within(self.deadline().max(BACKGROUND_DEADLINE), async {
            let reply = connection.run(&call).await?;
            AnswerReader::new(&reply).ledgers(charge.quotas().as_slice())
        })
        .await
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        let CrossSlotSpend(parts) = self.in_slots(charges)?;
        let at = match spent {
            Spent::At(at) => Some(at),
            Spent::Newest => None,
        };
        self.within(self.deadline(), async {
            for part in &parts {
                self.refund_at_once(&part.charges(), at).await?;
            }
            Ok(())
        })
        .await
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        let CrossSlotSpend(parts) = self.in_slots(charges)?;
        self.within(self.deadline(), async {
            let mut settled = Settled::Before;
            for part in &parts {
                let call = self.settle_call(&part.charges(), settlement)?;
                settled = settled.or(match self.0.connection.run(&call).await? {
                    Value::Int(1) => Settled::Now,
                    _ => Settled::Before,
                });
            }
            Ok(settled)
        })
        .await
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        let CrossSlotSpend(parts) = self.in_slots(charges)?;
        self.within(self.deadline(), async {
            for part in &parts {
                self.0.connection.send(redis::cmd("DEL").arg(self.keys(&part.charges())?)).await?;
            }
            Ok(())
        })
        .await
    }
}

impl fmt::Display for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.connection.address.fmt(f)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({self}, {}, {:?})", self.0.layout, self.deadline())
    }
}

/// The charges that a request has left in their ledgers: those that it spent, or those that are recorded
/// in any case.
pub(crate) fn written_by<'r, 'a>(
    charges: &'r [Charge<'a>],
    receipt: &'r Receipt,
) -> impl Iterator<Item = Charge<'a>> + use<'r, 'a> {
    let is_recorded = |charge: &Charge<'a>| charge.on_denial() == OnDenial::Record;
    let spent =
        spent_by(charges, receipt).filter(move |charge| receipt.spent && !is_recorded(charge));
    spent.chain(charges.iter().copied().filter(is_recorded))
}

/// The charges that an allowed request has spent: all but those in shadow that found no room.
pub(crate) fn spent_by<'r, 'a>(
    charges: &'r [Charge<'a>],
    receipt: &'r Receipt,
) -> impl Iterator<Item = Charge<'a>> + use<'r, 'a> {
    let mut standings = receipt.standings.iter();
    charges.iter().copied().filter(move |charge| {
        let own = standings.by_ref().take(charge.quotas().as_slice().len());
        own.fold(true, |fits, standing| fits & !standing.is_violated())
    })
}

/// The key of a mark: in the slot of another key, and under the same permissions. In a cluster a key
/// has its slot in braces, and what follows does not matter.
fn mark_beside(key: &str, name: &str) -> String {
    format!("{key}:done:{name}")
}
