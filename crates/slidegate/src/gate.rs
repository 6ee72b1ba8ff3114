//! The engine: facts in, decision out.

mod admin;
mod named;

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::decision::{Block, Decision, Verdict};
use crate::limit::charge::{Account, Charge, Charges};
use crate::limit::clock::Timestamp;
use crate::limit::memory::MemoryStore;
use crate::limit::name::Name;
use crate::limit::quota::Quotas;
use crate::limit::store::{Receipt, Spent, Store, StoreError};
use crate::limit::warning::Warning;
use crate::policy::bad_request::BadRequest;
use crate::policy::ban::ActiveBan;
use crate::policy::bans::{BanStats, Bans};
use crate::policy::explain::Explanation;
use crate::policy::facts::Facts;
use crate::policy::identity::Identity;
use crate::policy::matching::{CheckedPolicy, Matches, Policies, Resolution};
use crate::policy::overrides::{Overrides, OverridesAt};
use crate::policy::{OnStoreError, Scope};

/// Decides requests by policies, with accounts in a store.
///
/// Policies of [`Scope::Local`] are decided first, in a memory store of the gate's own; what they
/// deny never reaches the shared store, and what they allow is taken back if the shared store
/// denies. Share a gate behind an [`Arc`].
///
/// ```
/// use slidegate::{Facts, Gate, MemoryStore, Policies, Policy, Quota};
///
/// let policies = Policies::builder()
///     .policy(Policy::new("api").quota(Quota::per_minute(2)))
///     .build()?;
/// let gate = Gate::new(policies, MemoryStore::new());
///
/// let method = http::Method::GET;
/// let facts = Facts::new(&method, "/").client("203.0.113.7".parse()?);
/// assert!(gate.decide_now(&facts)?.is_allowed());
/// assert!(gate.decide_now(&facts)?.is_allowed());
/// assert!(!gate.decide_now(&facts)?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Gate<S = MemoryStore> {
    rules: ArcSwap<Rules>,
    store: S,
    local: MemoryStore,
    bans: Bans,
    unknown_plans: Warning,
}

/// What a gate goes by. One pointer to both, so that a decision without overrides pays nothing for
/// looking.
#[derive(Debug)]
struct Rules {
    policies: Arc<Policies>,
    overrides: Arc<Overrides>,
}

impl<S: Store> Gate<S> {
    /// A gate with accounts in `store`.
    pub fn new(policies: Policies, store: S) -> Self {
        Self::with_local(policies, store, MemoryStore::new())
    }

    /// A gate whose own store, for local policies and for when `store` fails, is given too. Bans
    /// go by its clock, and as many accounts as it has room for can be on the way to one.
    pub fn with_local(policies: Policies, store: S, local: MemoryStore) -> Self {
        let bans = Bans::new(local.capacity());
        let rules = Rules { policies: Arc::new(policies), overrides: Arc::default() };
        let unknown_plans = Warning::default();
        Self { rules: ArcSwap::from_pointee(rules), store, local, bans, unknown_plans }
    }

    /// Tells whether a request can be read in one way only, as far as the policies in force are
    /// concerned. One that fails is to be refused with `400 Bad Request` instead of being decided:
    /// whoever answers it may take it for a request that a policy would have counted.
    ///
    /// ```
    /// use slidegate::policy::BadRequest;
    /// use slidegate::{Facts, Gate, MemoryStore, Policies, Policy, Quota};
    /// use http::Method;
    ///
    /// let login = Policy::new("login").method(Method::POST).quota(Quota::per_minute(5));
    /// let gate = Gate::new(Policies::builder().policy(login).build()?, MemoryStore::new());
    ///
    /// let method = Method::from_bytes(b"post")?;
    /// let error = gate.check(&Facts::new(&method, "/login")).unwrap_err();
    /// assert_eq!(error, BadRequest::MethodCase { known: "POST".to_owned() });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self, facts: &Facts<'_>) -> Result<(), BadRequest> {
        self.rules.load().policies.check(facts)
    }

    /// Calls `listener` whenever denials begin a ban, so that other gates can be told of it; bans by
    /// [`ban`](Self::ban) and [`adopt_ban`](Self::adopt_ban) are their caller's to tell of.
    ///
    /// It is called by the decision that begins the ban, which waits for it: it should hand the ban
    /// to a queue and return. What it is told, [`adopt_ban`](Self::adopt_ban) puts in force at
    /// another gate.
    ///
    /// ```
    /// use std::sync::mpsc::sync_channel;
    ///
    /// use slidegate::{Ban, Facts, Gate, MemoryStore, Policies, Policy, Quota};
    ///
    /// let ban = Ban::after(Quota::per_minute(1));
    /// let policy = Policy::new("login").quota(Quota::per_minute(1)).ban(ban);
    /// let policies = || Policies::builder().policy(policy.clone()).build();
    /// let (sender, begun) = sync_channel(1000);
    /// let one = Gate::new(policies()?, MemoryStore::new()).on_ban(move |ban| {
    ///     // A ban that finds no room in the queue holds at this gate only.
    ///     let _ = sender.try_send(ban.clone());
    /// });
    /// let other = Gate::new(policies()?, MemoryStore::new());
    ///
    /// let facts = Facts::new(&http::Method::POST, "/login").client("203.0.113.7".parse()?);
    /// let _ = one.decide_now(&facts)?;
    /// let _ = one.decide_now(&facts)?;
    /// other.adopt_ban(&begun.try_recv()?)?;
    /// assert!(!other.decide_now(&facts)?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on_ban(mut self, listener: impl Fn(&ActiveBan) + Send + Sync + 'static) -> Self {
        self.bans.set_listener(Box::new(listener));
        self
    }

    /// Decides a request and, if it is allowed, spends what it costs.
    ///
    /// An error means that the store could not count and a policy says `deny` to that: the
    /// request is to be refused as unavailable, not as one too many.
    ///
    /// If the future is dropped while it waits for the store, what local policies have taken stays
    /// taken.
    pub async fn decide(&self, facts: &Facts<'_>) -> Result<Decision, StoreError> {
        let mut decision = Decision::default();
        self.run(facts, Intent::Spend, &mut decision).await?;
        Ok(decision)
    }

    /// [`decide`](Self::decide) in place of another decision, for whoever knows where the decision
    /// is to be: it is large to move about. After an error it means nothing.
    pub async fn decide_into(
        &self,
        facts: &Facts<'_>,
        decision: &mut Decision,
    ) -> Result<(), StoreError> {
        decision.clear();
        self.run(facts, Intent::Spend, decision).await
    }

    /// Tells what would be decided now, and spends nothing. Standings are as they are.
    pub async fn peek(&self, facts: &Facts<'_>) -> Result<Decision, StoreError> {
        let mut decision = Decision::default();
        self.run(facts, Intent::Peek, &mut decision).await?;
        Ok(decision)
    }

    /// Takes back what a request spent, for instance because its work was not done.
    pub async fn refund(&self, facts: &Facts<'_>, decision: &Decision) -> Result<(), StoreError> {
        let rules = self.rules.load();
        let mut matches = Matches::default();
        rules.policies.find_spent(facts, decision, &mut matches);
        let (local, shared) = (matches.charges(Scope::Local), matches.charges(Scope::Shared));
        if let Some(at) = decision.spent.local {
            self.local.refund_now(&local, Spent::At(at));
        }
        if let Some(at) = decision.spent.fallback {
            self.local.refund_now(&shared.with_action(OnStoreError::Local), Spent::At(at));
        }
        match decision.spent.shared {
            Some(at) => self.store.refund(&shared, Spent::At(at)).await,
            None => Ok(()),
        }
    }

    /// Takes back the newest units of an account: in each window as many as there are, up to `units`
    /// and to the units in force, with those that are granted.
    pub async fn refund_units(
        &self,
        account: &Account,
        units: NonZeroU32,
    ) -> Result<(), AccountError> {
        let rules = self.rules.load();
        let (policy, identity) = Self::policy_of(&rules.policies, account)?;
        let overrides = rules.overrides.at(self.now());
        let granted =
            overrides.everywhere(&identity).and(overrides.under(policy, &identity)).granted;
        for quota in rules.policies.windows_of(policy) {
            let quotas = Quotas::from(quota).raised(granted);
            let charge = Charge::new(&policy.name, &identity, &quotas);
            let cost = units.min(quotas.fewest_units());
            let charge = charge.with_cost(cost).expect("no more than its units");
            match policy.scope {
                Scope::Local => self.local.refund_now(&charge.into(), Spent::Newest),
                Scope::Shared => self.store.refund(&charge.into(), Spent::Newest).await?,
            }
        }
        Ok(())
    }

    /// Forgets everything that an account has spent, and lifts its ban. What somebody without an
    /// account has spent from a full store's shared one cannot be told apart, and stays.
    pub async fn reset(&self, account: &Account) -> Result<(), AccountError> {
        let rules = self.rules.load();
        let (policy, identity) = Self::policy_of(&rules.policies, account)?;
        let quotas = Self::quotas_of(&rules.policies, policy);
        let charges = Charges::from(Charge::new(&policy.name, &identity, &quotas));
        self.bans.forget(&policy.name, &identity);
        // The gate's own store may have spends of a shared policy too, from when the store failed.
        self.local.reset_now(&charges);
        match policy.scope {
            Scope::Local => Ok(()),
            Scope::Shared => self.store.reset(&charges).await.map_err(AccountError::Store),
        }
    }

    /// Does here what is left to do of a [`reset`](Self::reset) that another gate on the same store
    /// has done, so long `ago`: lifts the account's ban, and forgets what only this process knows of
    /// it. The store keeps what was spent since, at whichever gate.
    pub fn forget(&self, account: &Account, ago: Duration) -> Result<(), AccountError> {
        let rules = self.rules.load();
        let (policy, identity) = Self::policy_of(&rules.policies, account)?;
        let quotas = Self::quotas_of(&rules.policies, policy);
        let charges = Charges::from(Charge::new(&policy.name, &identity, &quotas));
        self.bans.forget(&policy.name, &identity);
        match policy.scope {
            // An account of this gate alone, which is reset now.
            Scope::Local => self.local.reset_now(&charges),
            Scope::Shared => {
                self.local.reset_as_of(&charges, self.now() - ago);
                self.store.forget(&charges, ago);
            }
        }
        Ok(())
    }

    /// Bans an account for this long from now on, in place of a ban that it may have. Only a policy
    /// with a [`Ban`](crate::Ban) can ban.
    pub fn ban(&self, account: &Account, length: Duration) -> Result<(), AccountError> {
        let rules = self.rules.load();
        let (policy, identity) = Self::policy_of(&rules.policies, account)?;
        let ban = policy.ban.ok_or_else(|| AccountError::NoBan(account.policy.to_string()))?;
        let clock = || self.local.now();
        Ok(self.bans.begin(&policy.name, &identity, ban.lasting(length), clock)?)
    }

    /// Puts a ban in force that another gate has begun, or this one before a restart. A ban that is
    /// in force here and lasts as long stays as it is.
    pub fn adopt_ban(&self, active: &ActiveBan) -> Result<(), AccountError> {
        let rules = self.rules.load();
        let account = &active.account;
        let (policy, identity) = Self::policy_of(&rules.policies, account)?;
        let ban = policy.ban.ok_or_else(|| AccountError::NoBan(account.policy.to_string()))?;
        let account = Account { policy: policy.name.clone(), identity };
        let active = ActiveBan { account, ..*active };
        Ok(self.bans.adopt(&active, ban, || self.local.now())?)
    }

    /// All bans in force that denials began, here or at a gate that told of them, or that were begun
    /// by hand. An operator's [overrides](Self::overrides) are not among them.
    pub fn active_bans(&self) -> Vec<ActiveBan> {
        self.bans.active(self.rules.load().policies.banning(), self.local.now())
    }

    /// Lifts the ban of an account, if it has one, and forgets the denials that were counted.
    pub fn lift_ban(&self, account: &Account) {
        if let Ok((policy, identity)) = Self::policy_of(&self.rules.load().policies, account) {
            self.bans.forget(&policy.name, &identity);
        }
    }

    /// Tells how many bans there were, and what room there is for more.
    pub fn ban_stats(&self) -> BanStats {
        self.bans.stats()
    }

    /// Tells which policies a request falls under, for which identity, and why not the others.
    pub fn explain(&self, facts: &Facts<'_>) -> Explanation {
        self.rules.load().policies.explain(facts)
    }

    /// The current instant on the gate's clock, which is its own store's.
    pub fn now(&self) -> Timestamp {
        self.local.now()
    }

    /// Replaces all overrides.
    pub fn replace_overrides(&self, overrides: Overrides) {
        let overrides = Arc::new(overrides);
        self.rules.rcu(|rules| Rules {
            policies: Arc::clone(&rules.policies),
            overrides: Arc::clone(&overrides),
        });
    }

    /// The overrides as last replaced, including expired ones.
    pub fn overrides(&self) -> Arc<Overrides> {
        Arc::clone(&self.rules.load().overrides)
    }

    /// Puts other policies in force. Accounts keep their history wherever the policy's name and
    /// the window stay the same, and bans wherever the policy still has a [`Ban`](crate::Ban).
    pub fn replace_policies(&self, policies: Policies) {
        let policies = Arc::new(policies);
        self.rules.rcu(|rules| Rules {
            policies: Arc::clone(&policies),
            overrides: Arc::clone(&rules.overrides),
        });
        self.bans.keep(self.rules.load().policies.banning());
    }

    /// The policies in force.
    pub fn policies(&self) -> Arc<Policies> {
        Arc::clone(&self.rules.load().policies)
    }

    /// The store that the accounts are in.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The gate's own store, which has the accounts of local policies.
    pub fn local_store(&self) -> &MemoryStore {
        &self.local
    }

    /// Decides in place: a decision is large to hand over.
    async fn run(
        &self,
        facts: &Facts<'_>,
        intent: Intent,
        decision: &mut Decision,
    ) -> Result<(), StoreError> {
        let rules = self.rules.load();
        let mut matches = Matches::default();
        let overrides = self.overrides_at_once(&rules);
        let resolution = rules.policies.resolve(facts, overrides, &mut matches);
        self.warn_of_unknown_plan(&matches, |policy| rules.policies.unknown_plan(policy, facts));
        self.conclude(resolution, &matches, intent, decision).await
    }

    /// Logs, once a minute at most, that a policy goes by its default plan because there is none of
    /// the name that was given.
    #[inline]
    fn warn_of_unknown_plan(
        &self,
        matches: &Matches<'_>,
        name: impl Fn(&CheckedPolicy) -> Option<String>,
    ) {
        if let Some(policy) = matches.with_unknown_plan().next()
            && self.unknown_plans.is_due(self.now())
            && let Some(plan) = name(policy)
        {
            policy.warn_of_unknown_plan(&plan);
        }
    }

    /// The overrides as of now, if there are any.
    #[inline]
    fn overrides_at_once<'r>(&self, rules: &'r Rules) -> Option<OverridesAt<'r>> {
        if rules.overrides.is_empty() { None } else { Some(rules.overrides.at(self.now())) }
    }

    /// Decides what the policies have made of a request.
    async fn conclude(
        &self,
        resolution: Resolution<'_>,
        matches: &Matches<'_>,
        intent: Intent,
        decision: &mut Decision,
    ) -> Result<(), StoreError> {
        match resolution {
            Resolution::Matched => return self.run_matches(matches, intent, decision).await,
            Resolution::Exempt => {}
            Resolution::Blocked => decision.verdict = Verdict::Block(Block::Listed),
            Resolution::TooCostly => decision.verdict = Verdict::Block(Block::CostAboveUnits),
            Resolution::Suspended(policy, rest) => {
                // A ban that began by itself may take longer.
                *decision = match self.ban_on(matches) {
                    Some((own, longer)) if longer > rest => Decision::banned(own.clone(), longer),
                    _ => Decision::suspended(policy.cloned(), rest),
                };
            }
        }
        Ok(())
    }

    /// Decides what the matching policies charge.
    async fn run_matches(
        &self,
        matches: &Matches<'_>,
        intent: Intent,
        decision: &mut Decision,
    ) -> Result<(), StoreError> {
        if let Some((policy, retry_after)) = self.ban_on(matches) {
            *decision = Decision::banned(policy.clone(), retry_after);
            return Ok(());
        }
        let (local, shared) = (matches.charges(Scope::Local), matches.charges(Scope::Shared));
        if !local.is_empty() {
            self.run_local(&local, intent, decision)?;
        }
        if decision.is_allowed() && !shared.is_empty() {
            let outcome = self.run_shared(&shared, intent, decision).await;
            if (outcome.is_err() || !decision.is_allowed())
                && let Some(at) = decision.spent.local.take()
            {
                self.take_back(&local, at, decision);
            }
            outcome?;
        }
        if intent == Intent::Spend && !decision.is_allowed() {
            self.count_denial(matches, decision);
        }
        Ok(())
    }

    /// The policy that bans one of a request's identities, and when to come back: of several, the
    /// one that takes longest.
    #[inline]
    fn ban_on<'m>(&self, matches: &'m Matches<'_>) -> Option<(&'m Name, Duration)> {
        if self.bans.is_empty() {
            return None;
        }
        let clock = || self.local.now();
        let in_force = matches.bans().filter_map(|(policy, identity, _)| {
            Some((policy, self.bans.retry_after(policy, identity, clock)?))
        });
        in_force.reduce(|longest, next| if next.1 > longest.1 { next } else { longest })
    }

    /// Counts a denial towards the bans of the policies that had no room for the request. If one
    /// begins, the decision says so, and the ban remembers how long the quotas deny.
    fn count_denial(&self, matches: &Matches<'_>, decision: &mut Decision) {
        // A store in trouble may have denied for what others spent.
        if decision.degraded {
            return;
        }
        let denied_for = decision.retry_after().unwrap_or_default();
        let clock = || self.local.now();
        for (policy, identity, ban) in matches.bans() {
            if decision.violates(policy)
                && let Some(wait) = self.bans.count(policy, identity, ban, denied_for, clock)
            {
                decision.deny(wait);
            }
        }
    }

    /// Decides charges in the gate's own store.
    fn run_local(
        &self,
        charges: &Charges<'_>,
        intent: Intent,
        decision: &mut Decision,
    ) -> Result<(), StoreError> {
        let receipt = self.ask_local(charges, intent)?;
        decision.add(charges, &receipt);
        decision.spent.local = intent.spent(&receipt);
        Ok(())
    }

    fn ask_local(&self, charges: &Charges<'_>, intent: Intent) -> Result<Receipt, StoreError> {
        match intent {
            Intent::Spend => self.local.spend_now(charges),
            Intent::Peek => self.local.peek_now(charges),
        }
    }

    async fn run_shared(
        &self,
        charges: &Charges<'_>,
        intent: Intent,
        decision: &mut Decision,
    ) -> Result<(), StoreError> {
        let receipt = match intent {
            Intent::Spend => self.store.spend(charges).await,
            Intent::Peek => self.store.peek(charges).await,
        };
        match receipt {
            Ok(receipt) => {
                decision.add(charges, &receipt);
                decision.spent.shared = intent.spent(&receipt);
                Ok(())
            }
            Err(error) => self.fall_back(charges, intent, decision, error),
        }
    }

    /// Decides charges that the store could not count, each by its `on_store_error`.
    fn fall_back(
        &self,
        charges: &Charges<'_>,
        intent: Intent,
        decision: &mut Decision,
        error: StoreError,
    ) -> Result<(), StoreError> {
        if charges.deny_on_store_error() {
            return Err(error);
        }
        tracing::debug!(%error, "decided without the store");
        decision.degraded = true;
        let local = charges.with_action(OnStoreError::Local);
        if local.is_empty() {
            return Ok(());
        }
        let receipt = self.ask_local(&local, intent)?;
        decision.add(&local, &receipt);
        decision.spent.fallback = intent.spent(&receipt);
        Ok(())
    }

    /// Undoes a local spend whose request was denied after all, but for charges that count it.
    fn take_back(&self, local: &Charges<'_>, at: Timestamp, decision: &mut Decision) {
        self.local.refund_now(&local.not_counting_denied().spent_by(decision), Spent::At(at));
        // If it cannot be told how they stand now, what was true a moment ago has to do.
        if let Ok(receipt) = self.local.peek_now(local) {
            decision.renew_first(&receipt);
        }
    }

    /// The policy of an account, and the identity as this policy counts it: an address by its
    /// network.
    fn policy_of<'p>(
        policies: &'p Policies,
        account: &Account,
    ) -> Result<(&'p CheckedPolicy, Identity), AccountError> {
        let policy = policies.find(&account.policy);
        let policy =
            policy.ok_or_else(|| AccountError::UnknownPolicy(account.policy.to_string()))?;
        Ok((policy, policy.account_of(account.identity)))
    }

    /// A quota for each window that an account may have a ledger for.
    fn quotas_of(policies: &Policies, policy: &CheckedPolicy) -> Quotas {
        Quotas::new(policies.windows_of(policy))
            .expect("a policy has quotas, and these windows differ")
    }
}

impl Gate<MemoryStore> {
    /// [`decide`](Self::decide) for callers that are not async: a memory store never waits.
    pub fn decide_now(&self, facts: &Facts<'_>) -> Result<Decision, StoreError> {
        let mut decision = Decision::default();
        ready_now(pin!(self.run(facts, Intent::Spend, &mut decision)))?;
        Ok(decision)
    }

    /// [`decide_into`](Self::decide_into) for callers that are not async.
    pub fn decide_now_into(
        &self,
        facts: &Facts<'_>,
        decision: &mut Decision,
    ) -> Result<(), StoreError> {
        decision.clear();
        ready_now(pin!(self.run(facts, Intent::Spend, decision)))
    }

    /// [`peek`](Self::peek) for callers that are not async.
    pub fn peek_now(&self, facts: &Facts<'_>) -> Result<Decision, StoreError> {
        let mut decision = Decision::default();
        ready_now(pin!(self.run(facts, Intent::Peek, &mut decision)))?;
        Ok(decision)
    }
}

/// The output of a future that never waits.
fn ready_now<T>(future: Pin<&mut impl Future<Output = T>>) -> T {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a memory store's futures are ready at once"),
    }
}

/// Whether a decision is for real.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Intent {
    Spend,
    Peek,
}

impl Intent {
    /// When the charges were spent, if they were.
    fn spent(self, receipt: &Receipt) -> Option<Timestamp> {
        (self == Self::Spend && receipt.spent).then_some(receipt.at)
    }
}

/// Why something could not be done to an account.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    /// No policy in force has this name.
    #[error("there is no policy {0:?}")]
    UnknownPolicy(String),
    /// The policy does not ban.
    #[error("policy {0:?} has no ban")]
    NoBan(String),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}
