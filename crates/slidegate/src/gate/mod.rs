//! The engine: facts in, decision out.

mod admin;
mod by_address;
mod caller;
mod caller_windows;
mod touches;
mod uncounted;

use std::borrow::Cow;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use self::caller_windows::CallerWindows;
use self::uncounted::Uncounted;
use crate::chosen::{ChosenIdentities, ChosenStats};
use crate::decision::{Decision, PolicyStanding};
use crate::hold::{HeldCharge, Hold, SpentIn};
use crate::limit::clock::{Clock, Timestamp, Warning};
use crate::limit::memory::{Commit, MemoryStore};
use crate::limit::{
    Charge, Charges, Name, Once, Quotas, Settled, Settlement, Spent, Store, StoreError,
};
use crate::policy::bad_request::{check_credentials, credentials_headers};
use crate::policy::ban::{ActiveBan, Bans};
use crate::policy::matching::{AccountError, Match, Matches, NamedCharge, Policies};
use crate::policy::overrides::{Overrides, OverridesAt};
use crate::policy::{
    BadRequest, CheckedPolicy, Explanation, Facts, Identity, OnStoreError, PathReadings, Scope,
};
use crate::verdict::Block;

pub use self::admin::{Admin, Inspection};
pub use self::caller::{CallerAccount, CallerBan, CallerStanding};

/// Decides requests by policies, with accounts in a store.
///
/// Policies of [`Scope::Local`] are decided first, in a memory store of the gate's own; what they
/// deny never reaches the shared store, and what they allow is taken back if the shared store
/// denies. Share a gate behind an [`Arc`]; the [crate's documentation](crate) has an example.
#[derive(Debug)]
pub struct Gate<S = MemoryStore> {
    pub(crate) active: ArcSwap<ActivePolicies>,
    pub(crate) store: S,
    pub(crate) local: MemoryStore,
    pub(crate) bans: Bans,
    pub(crate) uncounted: Uncounted,
    pub(crate) caller_windows: CallerWindows,
    unknown_plans: Warning,
    chosen: ChosenIdentities,
}

/// The policies and overrides in force. One pointer to both, so that a decision without overrides
/// pays nothing for looking them up.
#[derive(Debug)]
pub(crate) struct ActivePolicies {
    pub(crate) policies: Arc<Policies>,
    pub(crate) overrides: Arc<Overrides>,
}

impl<S: Store> Gate<S> {
    /// A gate with accounts in `store`.
    pub fn new(policies: Policies, store: S) -> Self {
        Self::with_local(policies, store, MemoryStore::new())
    }

    /// A gate with accounts in `store`, and with `local` for local policies and for when `store`
    /// fails. Bans use the clock of `local`, and the ban table has the same capacity.
    pub fn with_local(policies: Policies, store: S, local: MemoryStore) -> Self {
        let bans = Bans::new(local.capacity, Arc::new(local.clock.clone()));
        let active = ActivePolicies { policies: Arc::new(policies), overrides: Arc::default() };
        Self {
            active: ArcSwap::from_pointee(active),
            store,
            local,
            bans,
            uncounted: Uncounted::default(),
            caller_windows: CallerWindows::default(),
            unknown_plans: Warning::default(),
            chosen: ChosenIdentities::new(),
        }
    }

    /// Tells whether a request can be read in one way only, as far as the policies in force are
    /// concerned. One that fails is to be refused with `400 Bad Request` instead of being decided:
    /// the application may read it as a request that a policy would have counted.
    ///
    /// ```
    /// use slidegate::{Facts, Gate, MemoryStore, Policies, Policy};
    ///
    /// let login = Policy::new("login").method("POST").quota("5/min");
    /// let gate = Gate::new(Policies::builder().policy(login).build()?, MemoryStore::new());
    ///
    /// let method = http::Method::from_bytes(b"post")?; // not for the policy, but perhaps a login
    /// assert!(gate.check(&Facts::new(&method, "/login")).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self, facts: &Facts<'_>) -> Result<(), BadRequest> {
        let active = self.active.load();
        active.policies.check(facts)?;
        check_credentials(&credentials_headers(active.overrides.sources().iter()), facts)
    }

    /// The readings of a request's path, for [`Facts::readings`]: several calls about one request then
    /// read its path once.
    pub fn readings<'f>(&self, facts: &Facts<'f>) -> Cow<'f, PathReadings<'f>> {
        self.active.load().policies.readings(facts)
    }

    /// Calls `listener` whenever denials begin a ban, so that the ban can be shared with other
    /// gates. It is not called for bans by [`Admin::ban`] and [`Admin::adopt_ban`].
    ///
    /// It is called by the decision that begins the ban, which waits for it: it should hand the ban
    /// to a queue and return. [`Admin::adopt_ban`] puts the ban in force at another gate.
    ///
    /// ```
    /// use std::sync::mpsc::sync_channel;
    ///
    /// use slidegate::{Gate, MemoryStore, Policies};
    ///
    /// let (sender, begun) = sync_channel(1000);
    /// let gate = Gate::new(Policies::default(), MemoryStore::new()).on_ban(move |ban| {
    ///     // A ban that finds no room in the queue holds at this gate only.
    ///     let _ = sender.try_send(ban.clone());
    /// });
    /// ```
    #[must_use]
    pub fn on_ban(mut self, listener: impl Fn(&ActiveBan) + Send + Sync + 'static) -> Self {
        self.bans.listener = Some(Box::new(listener));
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
        let active = self.active.load();
        self.charge(&self.resolve(&active, facts, Commit::Spend), Commit::Spend).await
    }

    /// Tells what would be decided now, and spends nothing. Standings are as they are.
    pub async fn peek(&self, facts: &Facts<'_>) -> Result<Decision, StoreError> {
        let active = self.active.load();
        self.charge(&self.resolve(&active, facts, Commit::Nothing), Commit::Nothing).await
    }

    /// Takes back what a decision spent, on a request or on named charges, for instance because the
    /// work was not done.
    ///
    /// It is for the caller to do so once: what others spent at the same instant cannot be told
    /// apart.
    pub async fn refund(&self, decision: &Decision) -> Result<(), StoreError> {
        self.settle(&decision.hold(), |_| 0, None).await.map(drop)
    }

    /// Settles what a decision has spent: `cost_of` says what each charge turned out to cost. Units that
    /// were held and not used are refunded at the instant at which they were held; units above the hold
    /// are recorded, also beyond the quota.
    ///
    /// Without `once` it is for the caller to settle once. With it, a second settlement under the same
    /// name changes nothing, at whichever gate that shares the store, and returns
    /// [`Settled::Before`]. After an error, what is not settled yet can be settled by the same call.
    ///
    /// ```
    /// use slidegate::{Facts, Gate, MemoryStore, Policies, Policy};
    ///
    /// # async fn generate() -> Result<(), Box<dyn std::error::Error>> {
    /// let tokens = Policy::new("tokens").quota("100000/min").cost(1000);
    /// let gate = Gate::new(Policies::builder().policy(tokens).build()?, MemoryStore::new());
    ///
    /// let decision = gate.decide(&Facts::new(&http::Method::POST, "/chat")).await?;
    /// if decision.is_allowed() {
    ///     let used = 1370; // as the model says afterwards
    ///     gate.settle(&decision.hold(), |_| used, None).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn settle(
        &self,
        hold: &Hold,
        cost_of: impl Fn(&HeldCharge) -> u32,
        once: Option<Once<'_>>,
    ) -> Result<Settled, StoreError> {
        let active = self.active.load();
        let (mut settled, mut outcome) = (Settled::Before, Ok(()));
        // One call for each account: a store remembers the name of a call, and a second one under the
        // same name may bring other costs.
        for held in &hold.charges {
            let ledgers = held_ledgers(held, &active.policies);
            let charges = held_charge(held, &ledgers, &active.policies).into();
            let units = cost_of(held);
            let done = match held.spent {
                SpentIn::Local(at) => {
                    self.local.settle_now(&charges, Settlement { at, units, once })
                }
                SpentIn::Shared(at) => {
                    self.store.settle(&charges, Settlement { at, units, once }).await
                }
            };
            match done {
                Ok(done) => settled = settled.or(done),
                Err(error) => outcome = Err(error),
            }
        }
        outcome.map(|()| settled)
    }

    /// Spends every one of these charges, or none.
    ///
    /// This is [`decide`](Self::decide) for callers that name the accounts. Quotas, bans and
    /// overrides apply. Match conditions and the lists of exempt and blocked identities do not,
    /// because there is no request.
    ///
    /// ```
    /// use slidegate::{Gate, Identity, MemoryStore, NamedCharge, Policies, Policy};
    ///
    /// # async fn send() -> Result<(), Box<dyn std::error::Error>> {
    /// let policies = Policies::builder()
    ///     .policy(Policy::new("tenant").quota("10000/day"))
    ///     .policy(Policy::new("mailbox").quota("20/min"))
    ///     .build()?;
    /// let gate = Gate::new(policies, MemoryStore::new());
    ///
    /// let charge =
    ///     |policy, identity| NamedCharge { policy, identity, plan: None, cost: None, quotas: None };
    /// let tenant = charge("tenant", Identity::new("tenant", "acme"));
    /// let mailbox = charge("mailbox", Identity::user("42"));
    /// assert!(gate.decide_named(&[tenant, mailbox]).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn decide_named(
        &self,
        charges: &[NamedCharge<'_>],
    ) -> Result<Decision, AccountError> {
        self.run_named(charges, NamedCall::Decide).await
    }

    /// Writes down what these charges cost whether it fits or not, because it is already used. The
    /// verdict says whether it fitted, and until when the accounts are closed if not; a cost above a
    /// quota closes an account for one window. It also says if a ban is in force, which keeps nothing
    /// from being written down; and what does not fit counts towards no ban.
    pub async fn record_named(
        &self,
        charges: &[NamedCharge<'_>],
    ) -> Result<Decision, AccountError> {
        self.run_named(charges, NamedCall::Record).await
    }

    /// Tells what would be decided now, and spends nothing. Standings are as they are.
    pub async fn peek_named(&self, charges: &[NamedCharge<'_>]) -> Result<Decision, AccountError> {
        self.run_named(charges, NamedCall::Peek).await
    }

    /// Takes back the newest units of these accounts: in each window as many as there are, up to the
    /// cost and to the units in force.
    pub async fn refund_named(&self, charges: &[NamedCharge<'_>]) -> Result<(), AccountError> {
        let active = self.active.load();
        for charge in charges {
            let policy = active.policies.find(charge.policy)?;
            let now = self.calendar(&active.policies);
            let mut matched = active.policies.match_named(policy, charge, now);
            let overrides = active.overrides.at(self.now());
            matched.raise(overrides.grants(&policy.name, &matched.identity));
            let (identity, ledgers) = (&matched.identity, matched.ledger_quotas());
            self.refund_newest(policy, identity, ledgers, matched.cost).await?;
        }
        Ok(())
    }

    /// Tells which policies a request falls under, for which identity, and why not the others.
    pub fn explain(&self, facts: &Facts<'_>) -> Explanation {
        let active = self.active.load();
        active.policies.explain(&self.dated(&active, facts))
    }

    /// Puts other policies in force. Accounts keep their history wherever the policy's name and
    /// the window stay the same, and bans wherever the policy still has a [`Ban`](crate::Ban).
    pub fn replace_policies(&self, policies: Policies) {
        let policies = Arc::new(policies);
        self.active.rcu(|active| ActivePolicies {
            policies: Arc::clone(&policies),
            overrides: Arc::clone(&active.overrides),
        });
        let active = self.active.load();
        self.bans.keep(&active.policies.banning());
        let names = active.policies.names().collect();
        self.uncounted.keep(&names);
        self.caller_windows.keep(&names);
    }

    /// The policies in force.
    pub fn policies(&self) -> Arc<Policies> {
        Arc::clone(&self.active.load().policies)
    }

    /// Whether the policies' own list has this API key, so that it need not be looked up elsewhere.
    pub fn lists_key(&self, key: &[u8]) -> bool {
        let active = self.active.load();
        active.policies.lists_key(key, self.local.clock.wall())
    }

    /// What an operator can do to accounts, bans and overrides.
    pub fn admin(&self) -> Admin<'_, S> {
        Admin { gate: self }
    }

    /// The current instant on the gate's clock, which is its own store's.
    pub fn now(&self) -> Timestamp {
        self.local.clock.now()
    }

    /// The store that the accounts are in.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The gate's own store, which has the accounts of local policies.
    pub fn local_store(&self) -> &MemoryStore {
        &self.local
    }

    /// How many identities that clients chose this gate knows, and how many it gave no account.
    pub fn chosen_identities(&self) -> ChosenStats {
        self.chosen.stats()
    }

    /// What becomes of a request, with identities that clients chose as far as their addresses and
    /// the stores have room for them.
    fn resolve<'r>(
        &self,
        active: &'r ActivePolicies,
        facts: &Facts<'_>,
        commit: Commit,
    ) -> Matches<'r> {
        let policies = &active.policies;
        let overrides = self.overrides_now(active);
        let facts = &self.dated(active, facts);
        policies.resolve(facts, overrides, self.admits(policies, facts, commit))
    }

    /// Tells whether an identity that a client chose counts under a policy.
    fn admits<'a>(
        &'a self,
        policies: &'a Policies,
        facts: &Facts<'_>,
        commit: Commit,
    ) -> impl Fn(&CheckedPolicy, &Identity) -> bool + use<'a, S> {
        let client = facts.client;
        move |policy, identity| {
            // Of a client without an address, nothing can be counted instead.
            let Some(address) = client else { return true };
            let has_room = || match policy.scope {
                Scope::Local => self.local.has_room_for(&policy.name, identity),
                Scope::Shared => self.store.has_room_for(&policy.name, identity),
            };
            let (now, remember) = (self.now(), commit == Commit::Spend);
            self.chosen.admit(identity, address, policies.bound, now, remember, has_room)
        }
    }

    /// The facts with the time, if there are keys that expire.
    fn dated<'f>(&self, active: &ActivePolicies, facts: &Facts<'f>) -> Facts<'f> {
        match active.policies.has_expiring_keys {
            true => facts.at(self.calendar(&active.policies)),
            false => *facts,
        }
    }

    /// The time that keys expire by: that of the calendar, which other systems go by too. It is read only
    /// if there are such keys.
    pub(crate) fn calendar(&self, policies: &Policies) -> Timestamp {
        match policies.has_expiring_keys {
            true => self.local.clock.wall(),
            false => Timestamp::default(),
        }
    }

    async fn run_named(
        &self,
        charges: &[NamedCharge<'_>],
        call: NamedCall,
    ) -> Result<Decision, AccountError> {
        let active = self.active.load();
        let mut matches = Matches { records: call == NamedCall::Record, ..Matches::default() };
        let overrides = self.overrides_now(&active);
        let now = self.calendar(&active.policies);
        active.policies.resolve_named(charges, overrides, now, &mut matches)?;
        let commit = if call == NamedCall::Peek { Commit::Nothing } else { Commit::Spend };
        Ok(self.charge(&matches, commit).await?)
    }

    /// Takes back the newest units of an account: in each ledger as many as there are, up to the cost
    /// and to the ledger's units.
    pub(crate) async fn refund_newest(
        &self,
        policy: &CheckedPolicy,
        identity: &Identity,
        ledgers: &Quotas,
        units: NonZeroU32,
    ) -> Result<(), StoreError> {
        for quota in ledgers.as_slice() {
            let quotas = Quotas::from(*quota);
            let charge = Charge::new(&policy.name, identity, &quotas);
            let cost = units.min(quotas.fewest_units());
            let charges = charge.with_cost(cost).expect("no more than its units").into();
            match policy.scope {
                Scope::Local => self.local.refund_now(&charges, Spent::Newest),
                Scope::Shared => self.store.refund(&charges, Spent::Newest).await?,
            }
        }
        Ok(())
    }

    /// A quota for each window that this account may have a ledger for.
    pub(crate) fn windows_of(&self, policy: &CheckedPolicy, identity: &Identity) -> Quotas {
        self.caller_windows.beside(policy, policy.windows_of(identity))
    }

    /// The overrides as of now, if there are any.
    fn overrides_now<'r>(&self, active: &'r ActivePolicies) -> Option<OverridesAt<'r>> {
        let is_any = !active.overrides.as_slice().is_empty();
        is_any.then(|| active.overrides.at(self.now()))
    }

    /// Charges one group of policies after the other, until one denies. What those before it have
    /// spent is taken back then.
    async fn charge(&self, matches: &Matches<'_>, commit: Commit) -> Result<Decision, StoreError> {
        if let Some(decision) = self.decide_uncharged(matches) {
            let is_for_credentials = commit == Commit::Spend && matches.refused.is_some();
            let guarded = is_for_credentials.then(|| self.charge_by_address(matches)).flatten();
            return Ok(guarded.unwrap_or(decision));
        }
        for matched in matches.iter().filter(|matched| matched.caller_quotas) {
            self.caller_windows.note(matched.policy, &matched.quotas);
        }
        self.warn_of_unknown_plan(matches);
        let mut decision = Decision::with_capacity(matches.iter().count());
        let mut outcome = Ok(());
        let leases = self.store.leases();
        for group in Group::all(matches, leases) {
            let charges = matches.charges(|matched| group.has(matched, leases));
            if charges.is_empty() {
                continue;
            }
            let answer = match (group, commit) {
                (Group::Local, _) => self.local.attempt(&charges, commit),
                (_, Commit::Spend) => self.store.spend(&charges).await,
                (_, Commit::Nothing) => self.store.peek(&charges).await,
            };
            let is_uncounted = answer.as_ref().map_or(true, |receipt| receipt.degraded);
            if is_uncounted && commit == Commit::Spend {
                let uncounted = matches.iter().filter(|matched| group.has(matched, leases));
                self.uncounted.add(uncounted.map(|matched| &matched.policy.name));
            }
            match answer {
                Ok(receipt) => {
                    let spent = commit.spent(group.spent_in());
                    decision.add(&receipt, matches, |matched| group.has(matched, leases), spent);
                }
                Err(error) if charges.deny_on_store_error() => outcome = Err(error),
                Err(error) => {
                    tracing::debug!(%error, "decided without the store");
                    outcome = self.fall_back(matches, group, commit, &mut decision);
                }
            }
            if outcome.is_err() || !(decision.is_allowed() || matches.records) {
                break;
            }
        }
        if matches.records {
            decision.recorded = !decision.policies.is_empty();
            return outcome.map(|()| match self.ban_in_force(matches) {
                Some(ban) => decision.and(ban),
                None => decision,
            });
        }
        let is_refused = outcome.is_err() || !decision.is_allowed();
        if is_refused && decision.policies().iter().any(|policy| policy.spent.is_some()) {
            self.undo(matches, &mut decision).await;
        }
        outcome?;
        if commit == Commit::Spend && !decision.is_allowed() {
            self.count_denial(matches, &mut decision);
        }
        Ok(decision)
    }

    /// The decision on a request that is not to be charged.
    fn decide_uncharged(&self, matches: &Matches<'_>) -> Option<Decision> {
        if matches.records {
            return matches.exempt.then(Decision::default);
        }
        if matches.blocked {
            return Some(Decision::blocked(Block::Listed, None));
        }
        if matches.banned.is_some() {
            return self.ban_in_force(matches);
        }
        if matches.exempt {
            return Some(Decision::default());
        }
        if let Some(block) = matches.refused {
            return Some(Decision::blocked(block, None));
        }
        if matches.too_costly {
            return Some(Decision::blocked(Block::CostAboveUnits, None));
        }
        self.ban_in_force(matches)
    }

    /// The refusal of a request whose identity is banned, by an operator or by denials: of both, by the
    /// ban that takes longer.
    fn ban_in_force(&self, matches: &Matches<'_>) -> Option<Decision> {
        let own = self.ban_on(matches);
        let Some((retry_after, policy)) = matches.banned else { return own.map(banned) };
        let suspended = Decision::blocked(Block::Suspended { retry_after }, policy.cloned());
        Some(own.filter(|own| own.1 > retry_after).map_or(suspended, banned))
    }

    /// Decides charges that the store could not count, each by its policy's `on_store_error`.
    fn fall_back(
        &self,
        matches: &Matches<'_>,
        group: Group<'_, '_>,
        commit: Commit,
        decision: &mut Decision,
    ) -> Result<(), StoreError> {
        decision.degraded = true;
        let falls_back = |matched: &Match<'_>| {
            group.has(matched, self.store.leases())
                && matched.policy.on_store_error == OnStoreError::Local
        };
        let fallback = matches.charges(falls_back);
        if !fallback.is_empty() {
            let receipt = self.local.attempt(&fallback, commit)?;
            let spent = commit.spent(SpentIn::Local as fn(Timestamp) -> SpentIn);
            decision.add(&receipt, matches, falls_back, spent);
        }
        Ok(())
    }

    /// Undoes what a request has spent that was denied after all, but for policies that count it.
    async fn undo(&self, matches: &Matches<'_>, decision: &mut Decision) {
        let is_undone = |policy: &CheckedPolicy| !policy.count_denied;
        for spent in spends(decision) {
            if let SpentIn::Local(at) = spent {
                let charges = spent_charges(matches, decision, spent, is_undone);
                self.local.refund_now(&charges, Spent::At(at));
            } else {
                // Rare, and its state is large.
                let charges = Box::new(spent_charges(matches, decision, spent, is_undone));
                if let Err(error) = Box::pin(self.take_back(&charges, spent)).await {
                    tracing::debug!(%error, "a denied request's units were not taken back");
                }
            }
        }
        // If it cannot be told how they stand now, what was true a moment ago has to do.
        if let Ok(receipt) = self.local.peek_now(&matches.charges(is_local)) {
            decision.renew_first(&receipt, matches.iter().filter(|matched| is_local(matched)));
        }
        decision.policies.iter_mut().for_each(|policy| policy.spent = None);
    }

    /// Refunds charges that were spent together.
    async fn take_back(&self, charges: &Charges<'_>, spent: SpentIn) -> Result<(), StoreError> {
        match spent {
            SpentIn::Local(at) => {
                self.local.refund_now(charges, Spent::At(at));
                Ok(())
            }
            SpentIn::Shared(at) => self.store.refund(charges, Spent::At(at)).await,
        }
    }

    /// The policy that bans one of a request's identities, and when to come back: of several, the
    /// one that takes longest.
    fn ban_on(&self, matches: &Matches<'_>) -> Option<(Name, Duration)> {
        if self.bans.is_empty() {
            return None;
        }
        let in_force = matches.bans().filter_map(|(account, _)| {
            let retry_after = self.bans.retry_after(&account)?;
            Some((account.policy, retry_after))
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
        for (account, ban) in matches.bans() {
            let own = decision.of(&account.policy, &account.identity);
            if own.is_some_and(PolicyStanding::is_violated)
                && let Some(wait) = self.bans.count(account, ban, denied_for)
            {
                decision.deny(wait);
            }
        }
    }

    /// Logs, once a minute at most, that a policy uses its default plan because the request's plan
    /// is unknown.
    fn warn_of_unknown_plan(&self, matches: &Matches<'_>) {
        if let Some(matched) = matches.iter().find(|matched| matched.unknown_plan.is_some())
            && let Match { policy, unknown_plan: Some(plan), plan: Some(default), .. } = matched
            && self.unknown_plans.is_due(self.now())
        {
            let (policy, default) = (&*policy.name, &*default.name);
            tracing::warn!(
                policy,
                plan,
                default,
                "unknown plan: the policy's default plan applies"
            );
        }
    }
}

/// What to do with charges that are named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamedCall {
    Decide,
    Peek,
    Record,
}

/// Charges that are made in one call.
#[derive(Clone, Copy)]
enum Group<'m, 'p> {
    /// Those of this process.
    Local,
    /// One whose units the store leases: it is decided in this process, nearly always without
    /// waiting.
    Leased(&'m Match<'p>),
    /// All others; of a store that does not lease, with those.
    Shared,
}

impl<'m, 'p> Group<'m, 'p> {
    /// The groups of a request, in the order in which they are charged.
    fn all(matches: &'m Matches<'p>, leases: bool) -> impl Iterator<Item = Self> {
        let leased = matches.iter().filter(move |matched| leases && matched.is_leased());
        std::iter::once(Self::Local).chain(leased.map(Self::Leased)).chain([Self::Shared])
    }

    /// Whether a match is charged with the group, in a store that leases or not.
    fn has(self, matched: &Match<'_>, leases: bool) -> bool {
        match self {
            Self::Local => is_local(matched),
            Self::Leased(leased) => leased.is_same_account(matched),
            Self::Shared => !(is_local(matched) || leases && matched.is_leased()),
        }
    }

    /// The store of the group, for the instant at which it was spent there.
    fn spent_in(self) -> fn(Timestamp) -> SpentIn {
        match self {
            Self::Local => SpentIn::Local,
            Self::Leased(_) | Self::Shared => SpentIn::Shared,
        }
    }
}

/// The quotas that the ledgers of a held charge are kept by.
fn held_ledgers(held: &HeldCharge, policies: &Policies) -> Quotas {
    let beside = policies
        .find(&held.policy)
        .ok()
        .and_then(|policy| policy.ledgers_beside(&held.quotas, held.caller_quotas));
    beside.unwrap_or_else(|| held.quotas.clone())
}

/// The charge that was spent: by the quotas of then, and else as its policy is now, if it is still there.
fn held_charge<'h>(held: &'h HeldCharge, ledgers: &'h Quotas, policies: &Policies) -> Charge<'h> {
    let charge = Charge::new(&held.policy, &held.identity, ledgers);
    let charge = charge.with_cost(held.units).unwrap_or(charge);
    match policies.find(&held.policy) {
        Err(_) => charge,
        Ok(policy) => charge
            .shadow(policy.shadow)
            .on_store_error(policy.on_store_error)
            .leased(policy.consistency_of(held.caller_quotas).lease(&held.quotas)),
    }
}

/// Where and when a decision has spent, each once.
fn spends(decision: &Decision) -> SmallVec<[SpentIn; 2]> {
    let mut spends = SmallVec::new();
    for spent in decision.policies().iter().filter_map(|policy| policy.spent) {
        if !spends.contains(&spent) {
            spends.push(spent);
        }
    }
    spends
}

/// What a decision has spent there, under those of its policies that `selects` picks.
fn spent_charges<'m>(
    matches: &'m Matches<'_>,
    decision: &Decision,
    spent: SpentIn,
    selects: impl Fn(&CheckedPolicy) -> bool,
) -> Charges<'m> {
    matches.charges(|matched| {
        let own = decision.of(&matched.policy.name, &matched.identity);
        selects(matched.policy)
            && own.is_some_and(|own| own.spent == Some(spent) && !own.is_violated())
    })
}

fn is_local(matched: &Match<'_>) -> bool {
    matched.policy.scope == Scope::Local
}

impl Gate<MemoryStore> {
    /// [`decide`](Self::decide) for callers that are not async: a memory store never waits.
    pub fn decide_now(&self, facts: &Facts<'_>) -> Result<Decision, StoreError> {
        ready_now(pin!(self.decide(facts)))
    }

    /// [`peek`](Self::peek) for callers that are not async.
    pub fn peek_now(&self, facts: &Facts<'_>) -> Result<Decision, StoreError> {
        ready_now(pin!(self.peek(facts)))
    }

    /// [`settle`](Self::settle) for callers that are not async and settle once.
    pub fn settle_now(
        &self,
        hold: &Hold,
        cost_of: impl Fn(&HeldCharge) -> u32,
    ) -> Result<Settled, StoreError> {
        ready_now(pin!(self.settle(hold, cost_of, None)))
    }
}

/// The output of a future that never waits.
fn ready_now<T>(future: Pin<&mut impl Future<Output = T>>) -> T {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a memory store's futures are ready at once"),
    }
}

fn banned((policy, retry_after): (Name, Duration)) -> Decision {
    Decision::blocked(Block::Banned { retry_after }, Some(policy))
}
