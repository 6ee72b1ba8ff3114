//! Temporary bans: who is refused, from when, until when, and what that costs.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::support::now;
use http::Method;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use slidegate::limit::{AccountReading, Charge, Charges, Receipt, Settled, Settlement, Spent};
use slidegate::policy::ActiveBan;
use slidegate::{
    Account, AccountError, Ban, Block, Clock, Decision, Facts, Gate, Identity, ManualClock,
    MemoryStore, OnStoreError, Plan, Policies, Policy, Quota, Scope, Source, Store, StoreError,
    Timestamp, Verdict,
};

use Expected::{Allow, Banned, Deny};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const NANO: Duration = Duration::from_nanos(1);

/// A gate in virtual time, which begins at zero.
struct Stage {
    gate: Gate,
    clock: ManualClock,
    start: Timestamp,
}

impl Stage {
    fn new(list: impl IntoIterator<Item = Policy>) -> Self {
        Self::with_capacity(1000, list)
    }

    /// With so much room in the gate's own store, and so for bans.
    fn with_capacity(capacity: usize, list: impl IntoIterator<Item = Policy>) -> Self {
        let clock = ManualClock::default();
        let store = || MemoryStore::builder().clock(clock.clone());
        let (shared, local) = (store().build(), store().capacity(capacity).build());
        let start = clock.now();
        Self { gate: Gate::with_local(policies(list), shared, local), clock, start }
    }

    fn at(&self, at: Duration) -> &Self {
        self.clock.set(self.start + at);
        self
    }

    fn decide(&self, user: &str) -> Decision {
        self.gate.decide_now(&get("/").user(user)).unwrap()
    }

    fn verdict(&self, user: &str) -> Verdict {
        self.decide(user).verdict()
    }

    fn peek(&self, user: &str) -> Verdict {
        self.gate.peek_now(&get("/").user(user)).unwrap().verdict()
    }

    fn reset(&self, user: &str) {
        now(self.gate.admin().reset(&account("login", user))).unwrap();
    }

    fn is_denied(&self, user: &str) -> bool {
        matches!(self.verdict(user), Verdict::Deny { .. })
    }

    /// Is allowed what the quota of [`login`] has, and then denied so often.
    fn deny(&self, user: &str, times: usize) {
        while self.peek(user) == Verdict::Allow {
            assert_eq!(self.verdict(user), Verdict::Allow);
        }
        assert!((0..times).all(|_| self.is_denied(user)), "{user} is banned or allowed");
    }
}

fn policies(list: impl IntoIterator<Item = Policy>) -> Policies {
    let builder = Policies::builder();
    list.into_iter().fold(builder, |builder, policy| builder.policy(policy)).build().unwrap()
}

fn get(path: &str) -> Facts<'_> {
    static GET: Method = Method::GET;
    Facts::new(&GET, path).client(IpAddr::from([203, 0, 113, 7]))
}

fn account(policy: &str, user: &str) -> Account {
    Account { policy: policy.parse().unwrap(), identity: Identity::user(user) }
}

/// Two an hour for each user. The third denial in any ten seconds bans for a minute.
fn login() -> Policy {
    unbanned().ban(ten_seconds(3).lasting(MINUTE))
}

fn unbanned() -> Policy {
    Policy::new("login").identity([Source::User]).quota(Quota::per_hour(2))
}

fn ten_seconds(denials: u32) -> Ban {
    Ban::after(format!("{denials}/10s").parse().unwrap())
}

fn banned(retry_after: Duration) -> Verdict {
    Verdict::Block(Block::Banned { retry_after })
}

/// What a request is to be answered with.
#[derive(Debug, Clone, Copy)]
enum Expected {
    Allow,
    Deny,
    /// Banned, and told to come back after this long.
    Banned(Duration),
}

/// Sends requests of one user at their instants.
fn check(policy: Policy, requests: impl IntoIterator<Item = (Duration, Expected)>) {
    let stage = Stage::new([policy]);
    for (at, expected) in requests {
        let verdict = stage.at(at).verdict("ann");
        let as_expected = match expected {
            Expected::Allow => verdict == Verdict::Allow,
            Expected::Deny => matches!(verdict, Verdict::Deny { .. }),
            Expected::Banned(retry_after) => verdict == banned(retry_after),
        };
        assert!(as_expected, "at {at:?}: {verdict:?}, expected {expected:?}");
    }
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_third_denial_bans_for_exactly_a_minute() {
    check(
        login(),
        [
            (s(0), Allow),
            (s(0), Allow),
            (s(1), Deny),
            (s(2), Deny),
            (s(3), Deny),
            (s(3), Banned(HOUR - s(3))),
            (s(40), Banned(HOUR - s(40))),
            (s(63) - NANO, Banned(HOUR - s(63) + NANO)),
            (s(63), Deny),
        ],
    );
}

#[test]
fn denials_that_are_spread_out_do_not_ban() {
    let every_five_seconds = (1..100).map(|i| (s(5 * i), Deny));
    check(login(), [(s(0), Allow), (s(0), Allow)].into_iter().chain(every_five_seconds));
    check(
        login(),
        [
            (s(0), Allow),
            (s(0), Allow),
            (s(1), Deny),
            (s(2), Deny),
            (s(11), Deny),
            (s(12) - NANO, Deny),
            (s(12) - NANO, Banned(HOUR - s(12) + NANO)),
        ],
    );
}

#[test]
fn after_a_ban_counting_begins_afresh() {
    let brief = unbanned().ban(ten_seconds(3).lasting(s(2)));
    check(
        brief,
        [
            (s(0), Allow),
            (s(0), Allow),
            (s(1), Deny),
            (s(1), Deny),
            (s(1), Deny),
            (s(2), Banned(HOUR - s(2))),
            (s(3), Deny),
            (s(3), Deny),
            (s(3), Deny),
            (s(3), Banned(HOUR - s(3))),
            (s(5), Deny),
        ],
    );
}

#[test]
fn requests_that_a_ban_refuses_do_not_prolong_it_and_are_counted_nowhere() {
    let stage = Stage::new([login().count_denied()]);
    stage.deny("ann", 3);
    for second in 0..60 {
        assert_eq!(stage.at(s(second)).verdict("ann"), banned(HOUR - s(second)));
    }
    let since_the_third_denial = Verdict::Deny { retry_after: MINUTE * 59 };
    assert_eq!(stage.at(MINUTE).peek("ann"), since_the_third_denial);
}

#[test]
fn a_single_denial_bans_if_the_policy_says_so_and_as_long_as_its_window_by_default() {
    let strict = unbanned().ban(Ban::after(Quota::per_minute(1)));
    let expected = [(s(0), Allow), (s(0), Allow), (s(0), Deny), (s(59), Banned(HOUR - s(59)))];
    check(strict, expected.into_iter().chain([(s(60), Deny), (s(61), Banned(HOUR - s(61)))]));
}

#[test]
fn a_denial_that_begins_a_ban_reports_its_length() {
    let stage = Stage::new([login().quota(Quota::per_second(1))]);
    assert_eq!(stage.verdict("ann"), Verdict::Allow);
    assert_eq!(stage.decide("ann").retry_after(), Some(SECOND));
    assert_eq!(stage.decide("ann").retry_after(), Some(SECOND));
    assert_eq!(stage.verdict("ann"), Verdict::Deny { retry_after: MINUTE });
    assert_eq!(stage.decide("ann").retry_after(), Some(MINUTE));
    assert_eq!(stage.at(MINUTE).verdict("ann"), Verdict::Allow);

    let stage = Stage::new([unbanned().ban(ten_seconds(1))]);
    stage.deny("ann", 0);
    assert_eq!(stage.decide("ann").retry_after(), Some(HOUR), "the quota takes longer");
}

#[test]
fn a_ban_remembers_the_quota_that_takes_longer() {
    let day = HOUR * 24;
    let daily = || Policy::new("daily").identity([Source::User]).quota(Quota::per_day(2));
    let brief = Policy::new("brief").identity([Source::User]).quota(Quota::per_hour(2));
    for list in [
        vec![daily().ban(ten_seconds(3).lasting(MINUTE))],
        vec![daily(), brief.ban(ten_seconds(3).lasting(MINUTE))],
    ] {
        let stage = Stage::new(list);
        stage.deny("ann", 2);
        assert_eq!(stage.at(s(1)).verdict("ann"), Verdict::Deny { retry_after: day - s(1) });
        for at in [s(1), s(30), s(61) - NANO] {
            assert_eq!(stage.at(at).verdict("ann"), banned(day - at));
        }
        assert_eq!(stage.at(s(61)).peek("ann"), Verdict::Deny { retry_after: day - s(61) });
        assert!(matches!(stage.at(day - NANO).peek("ann"), Verdict::Deny { .. }));
        assert_eq!(stage.at(day).peek("ann"), Verdict::Allow, "not before, and then");
    }
}

#[test]
fn a_quota_that_has_room_before_the_ban_ends_prolongs_nothing() {
    let brief = Policy::new("login").identity([Source::User]).quota("2/30s");
    let stage = Stage::new([brief.ban(ten_seconds(1).lasting(MINUTE))]);
    stage.deny("ann", 1);
    for at in [s(0), s(40), MINUTE - NANO] {
        assert_eq!(stage.at(at).verdict("ann"), banned(MINUTE - at));
    }
    assert_eq!(stage.at(MINUTE).verdict("ann"), Verdict::Allow);
}

#[test]
fn a_refusal_names_the_policy_that_has_banned() {
    let stage = Stage::new([Policy::new("open").quota(Quota::per_day(999)), login()]);
    assert_eq!(stage.decide("ann").banned_by(), None);
    stage.deny("ann", 2);
    assert_eq!(stage.decide("ann").banned_by(), None, "a denial is not yet a ban");
    assert_eq!(stage.decide("ann").banned_by().map(|name| &**name), Some("login"));
    assert_eq!(stage.at(MINUTE).decide("ann").banned_by(), None);
}

#[test]
fn other_identities_and_other_policies_go_on() {
    let read = Policy::new("read").identity([Source::User]).path("/read").quota("9/s");
    let stage = Stage::new([login().path("/"), read]);
    stage.deny("ann", 3);
    assert_eq!(stage.verdict("ann"), banned(HOUR));
    assert_eq!(stage.verdict("bob"), Verdict::Allow);
    assert!(stage.gate.decide_now(&get("/read").user("ann")).unwrap().is_allowed());
}

#[test]
fn only_the_policy_that_had_no_room_counts_a_denial() {
    let tight = Policy::new("tight").identity([Source::User]).quota(Quota::per_hour(1));
    let wide = Policy::new("wide").identity([Source::User]).quota(Quota::per_hour(9));
    let stage = Stage::new([wide.clone().ban(ten_seconds(1)), tight.clone()]);
    stage.deny("ann", 50);
    let stage = Stage::new([wide, tight.ban(ten_seconds(1))]);
    stage.deny("ann", 1);
    assert_eq!(stage.verdict("ann"), banned(HOUR));
}

#[test]
fn of_two_bans_the_longer_is_reported() {
    let policy = |name| Policy::new(name).identity([Source::User]).quota(Quota::per_second(2));
    let short = || policy("short").ban(ten_seconds(1));
    let long = || policy("long").ban(ten_seconds(1).lasting(MINUTE));
    for list in [[short(), long()], [long(), short()]] {
        let stage = Stage::new(list);
        stage.deny("ann", 1);
        assert_eq!(stage.gate.admin().ban_stats().begun, 2);
        let decision = stage.decide("ann");
        assert_eq!(decision.verdict(), banned(MINUTE));
        assert_eq!(decision.banned_by().map(|name| &**name), Some("long"));
    }
}

#[test]
fn local_policies_ban_too_and_a_ban_takes_nothing_from_them() {
    let flood = Policy::new("flood").identity([Source::User]).scope(Scope::Local).count_denied();
    let stage = Stage::new([flood.quota(Quota::per_second(1)).ban(ten_seconds(2)), unbanned()]);
    stage.deny("ann", 2);
    assert_eq!(stage.at(s(5)).verdict("ann"), banned(s(5)));
    assert_eq!(stage.at(s(10)).verdict("ann"), Verdict::Allow);
}

#[test]
fn a_shadow_policy_never_bans() {
    let stage = Stage::new([login().shadow()]);
    assert!((0..50).all(|_| stage.verdict("ann") == Verdict::Allow));
    assert_eq!(stage.gate.admin().ban_stats().accounts, 0);

    let stage = Stage::new([login()]);
    stage.deny("ann", 3);
    stage.gate.replace_policies(policies([login().shadow()]));
    assert_eq!(stage.verdict("ann"), Verdict::Allow, "nor does it keep to a ban that there was");
}

#[test]
fn a_peek_sees_a_ban_and_causes_none() {
    let stage = Stage::new([login()]);
    stage.deny("ann", 2);
    assert!((0..50).all(|_| matches!(stage.peek("ann"), Verdict::Deny { .. })));
    assert!(stage.is_denied("ann"));
    assert_eq!(stage.at(s(1)).peek("ann"), banned(HOUR - s(1)));
    assert_eq!(stage.at(MINUTE).peek("ann"), Verdict::Deny { retry_after: s(59 * 60) });
}

#[test]
fn a_reset_lifts_a_ban_and_forgets_the_denials() {
    let stage = Stage::new([login()]);
    for denials in [3, 2] {
        stage.deny("ann", denials);
        stage.reset("ann");
        assert_eq!(stage.gate.admin().ban_stats().accounts, 0);
    }
    stage.deny("ann", 3);
    assert_eq!(stage.verdict("ann"), banned(HOUR));
}

#[test]
fn operators_ban_and_lift_by_hand() {
    let stage = Stage::new([login(), Policy::new("open").quota(Quota::per_day(999))]);
    let (gate, ann) = (&stage.gate, account("login", "ann"));
    gate.admin().ban(&ann, s(5)).unwrap();
    assert_eq!(stage.verdict("ann"), banned(s(5)));
    gate.admin().ban(&ann, MINUTE * 60).unwrap();
    assert_eq!(stage.verdict("ann"), banned(MINUTE * 60), "the last word counts");
    assert_eq!(stage.verdict("bob"), Verdict::Allow);
    gate.admin().lift_ban(&ann);
    assert_eq!(stage.verdict("ann"), Verdict::Allow);
    stage.deny("ann", 2);
    gate.admin().lift_ban(&ann);
    stage.deny("ann", 3);
    gate.admin().ban(&ann, Duration::ZERO).unwrap();
    assert!(stage.is_denied("ann"), "a ban for no time is none");

    let unable = gate.admin().ban(&account("open", "ann"), MINUTE);
    assert!(matches!(unable, Err(AccountError::NoBan(name)) if name == "open"));
    let unknown = gate.admin().ban(&account("nobody", "ann"), MINUTE);
    assert!(matches!(unknown, Err(AccountError::UnknownPolicy(name)) if name == "nobody"));
}

#[test]
fn a_ban_outlives_a_change_of_policies_while_its_policy_has_one() {
    let stage = Stage::new([login()]);
    stage.deny("ann", 3);
    let other = unbanned().ban(Ban::after(Quota::per_hour(100)));
    stage.gate.replace_policies(policies([other, Policy::new("more").quota(Quota::per_day(999))]));
    assert_eq!(stage.at(s(59)).verdict("ann"), banned(HOUR - s(59)), "as was said then");
    stage.gate.replace_policies(policies([unbanned()]));
    assert!(stage.is_denied("ann"));
    stage.gate.replace_policies(policies([login()]));
    assert!(stage.is_denied("ann"), "and it does not come back");
}

#[test]
fn denials_outlive_a_change_of_policies_in_the_same_window() {
    let nine_seconds = Ban::after("3/9s".parse().unwrap());
    for (ban, more) in [(ten_seconds(4), 2), (ten_seconds(2), 1), (nine_seconds, 3)] {
        let stage = Stage::new([login()]);
        stage.deny("ann", 2);
        stage.gate.replace_policies(policies([unbanned().ban(ban)]));
        stage.deny("ann", more);
        assert_eq!(stage.verdict("ann"), banned(HOUR), "{ban}");
        let last = ban.length - NANO;
        assert_eq!(stage.at(last).verdict("ann"), banned(HOUR - last), "{ban}");
        assert!(stage.at(ban.length).is_denied("ann"), "{ban}");
    }
}

#[test]
fn a_full_table_bans_no_newcomer_and_says_so() {
    let stage = Stage::with_capacity(2, [login()]);
    stage.deny("ann", 3);
    stage.deny("bob", 1);
    stage.deny("cho", 50);
    let stats = stage.gate.admin().ban_stats();
    assert_eq!((stats.accounts, stats.capacity, stats.begun, stats.over_capacity), (2, 2, 1, 50));
    let full = stage.gate.admin().ban(&account("login", "cho"), MINUTE);
    assert!(matches!(full, Err(AccountError::Store(StoreError::Full))));
    assert_eq!(stage.verdict("ann"), banned(HOUR));
    stage.deny("bob", 2);
    assert_eq!(stage.verdict("bob"), banned(HOUR), "who is there stays there");

    stage.at(MINUTE).deny("cho", 3);
    assert_eq!(stage.verdict("cho"), banned(HOUR - MINUTE), "there is room again");
}

#[test]
fn a_flood_of_denied_identities_stays_within_the_table() {
    let stage = Stage::with_capacity(5000, [login()]);
    let flood = |names: std::ops::Range<u32>| {
        names.for_each(|i| stage.deny(&format!("stranger-{i}"), 1));
    };
    stage.deny("ann", 3);
    flood(0..20_000);
    let full = stage.gate.admin().ban_stats();
    assert!(full.accounts <= 5000 && full.accounts > 4500, "{full:?}");
    assert_eq!(full.accounts as u64 + full.over_capacity, 20_001);
    assert_eq!(stage.verdict("ann"), banned(HOUR));
    stage.at(s(10));
    flood(20_000..22_000);
    let stats = stage.gate.admin().ban_stats();
    assert!(stats.accounts < 4000, "those that are over make way: {stats:?}");
    assert_eq!(stats.over_capacity, full.over_capacity, "they need no new records");
}

#[test]
fn an_identity_whose_ban_is_over_leaves_nothing_behind() {
    let stage = Stage::new([login()]);
    assert_eq!(stage.verdict("ann"), Verdict::Allow);
    assert_eq!(stage.gate.admin().ban_stats().accounts, 0, "nothing is kept of who is not denied");
    stage.deny("ann", 3);
    assert_eq!(stage.gate.admin().ban_stats().accounts, 1);
    assert!(matches!(stage.at(MINUTE).peek("ann"), Verdict::Deny { .. }));
    assert_eq!(stage.gate.admin().ban_stats().accounts, 0);
}

#[test]
fn a_clock_that_steps_back_prolongs_a_ban_by_no_more_than_its_length() {
    let stage = Stage::new([login()]);
    stage.at(MINUTE * 600).deny("ann", 3);
    assert_eq!(stage.at(s(0)).verdict("ann"), banned(HOUR), "nor is the quota's wait");
    assert_eq!(stage.at(MINUTE - NANO).verdict("ann"), banned(HOUR - MINUTE + NANO));
    assert!(stage.at(MINUTE).is_denied("ann"));
}

#[test]
fn a_reset_elsewhere_ends_a_ban_and_the_way_to_one_but_not_what_is_spent() {
    let stage = Stage::new([login()]);
    let forget = || stage.gate.admin().forget(&account("login", "ann"), Duration::ZERO).unwrap();
    stage.deny("ann", 3);
    assert_eq!(stage.gate.admin().ban_stats().accounts, 1);
    forget();
    assert_eq!(stage.gate.admin().ban_stats().accounts, 0);
    stage.deny("ann", 2);
    forget();
    stage.deny("ann", 2);
}

/// A memory store that counts how often it was asked.
struct Counting {
    store: MemoryStore,
    asked: AtomicUsize,
}

impl Counting {
    fn ask(&self) -> &MemoryStore {
        self.asked.fetch_add(1, Ordering::Relaxed);
        &self.store
    }
}

impl Store for Counting {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.ask().spend_now(charges)
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.ask().peek_now(charges)
    }

    async fn read(&self, charge: Charge<'_>) -> Result<AccountReading, StoreError> {
        Ok(self.ask().read_now(charge))
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        self.ask().refund_now(charges, spent);
        Ok(())
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        self.ask().settle_now(charges, settlement)
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.ask().reset_now(charges);
        Ok(())
    }
}

#[test]
fn a_banned_identity_costs_the_stores_nothing() {
    let clock = ManualClock::default();
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    let guard = Policy::new("guard").scope(Scope::Local).quota(Quota::per_hour(100)).count_denied();
    let list = policies([guard.clone(), login().count_denied()]);
    let counting = Counting { store: store(), asked: AtomicUsize::new(0) };
    let gate = Gate::with_local(list, counting, store());
    let ann = get("/").user("ann");
    for _ in 0..5 {
        let _ = now(gate.decide(&ann)).unwrap();
    }
    for _ in 0..1000 {
        let decision = now(gate.decide(&ann)).unwrap();
        assert_eq!(decision.verdict(), banned(HOUR));
        assert!(decision.policies().is_empty() && !decision.is_degraded());
        now(gate.refund(&decision)).unwrap();
        assert_eq!(now(gate.peek(&ann)).unwrap().verdict(), banned(HOUR));
    }
    assert_eq!(gate.store().asked.load(Ordering::Relaxed), 5);
    gate.replace_policies(policies([guard]));
    let left = now(gate.peek(&ann)).unwrap().tightest().unwrap().1.remaining();
    assert_eq!(left, 95, "the local store was not asked either");
}

#[test]
fn denials_for_a_stores_trouble_do_not_ban() {
    let clock = ManualClock::default();
    let store = |accounts| MemoryStore::builder().capacity(accounts).clock(clock.clone()).build();
    // There is no room, so all share an account and deny each other.
    let gate = Gate::with_local(policies([login()]), store(0), store(1000));
    let verdict = |user: &str| gate.decide_now(&get("/").user(user)).unwrap().verdict();
    assert_eq!((verdict("ann"), verdict("ann")), (Verdict::Allow, Verdict::Allow));
    assert!((0..20).all(|_| matches!(verdict("bob"), Verdict::Deny { .. })));
    assert_eq!(gate.admin().ban_stats().accounts, 0);

    let failing = login().on_store_error(OnStoreError::Deny);
    let gate = Gate::with_local(policies([failing]), store(0), store(1000));
    assert!((0..20).all(|_| gate.decide_now(&get("/").user("ann")).is_err()));
    assert_eq!(gate.admin().ban_stats().accounts, 0);
}

#[test]
fn with_plans_a_ban_goes_by_the_policy() {
    let clock = ManualClock::default();
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    let list = Policies::builder()
        .plan(Plan::new("free", [Quota::per_hour(1)]))
        .plan(Plan::new("pro", [Quota::per_hour(50)]))
        .policy(Policy::new("api").identity([Source::User]).plans("free").ban(ten_seconds(2)));
    let gate = Gate::with_local(list.build().unwrap(), store(), store());
    let verdict = |plan| gate.decide_now(&get("/").user("ann").plan(plan)).unwrap().verdict();
    assert_eq!(verdict("free"), Verdict::Allow);
    assert!(matches!(verdict("free"), Verdict::Deny { .. }));
    assert!(matches!(verdict("free"), Verdict::Deny { .. }));
    assert_eq!(verdict("pro"), banned(HOUR), "as was known when it began");
    clock.advance(s(10));
    assert_eq!(verdict("pro"), Verdict::Allow);
}

/// A memory store that makes every spend wait once.
struct Slow(MemoryStore);

impl Store for Slow {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        let mut waited = false;
        let wait = |_: &mut Context<'_>| match std::mem::replace(&mut waited, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        poll_fn(wait).await;
        self.0.spend_now(charges)
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.0.peek_now(charges)
    }

    async fn read(&self, charge: Charge<'_>) -> Result<AccountReading, StoreError> {
        Ok(self.0.read_now(charge))
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        self.0.refund_now(charges, spent);
        Ok(())
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        self.0.settle_now(charges, settlement)
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.0.reset_now(charges);
        Ok(())
    }
}

#[test]
fn requests_under_way_when_a_ban_begins_do_not_count_towards_the_next() {
    let clock = ManualClock::default();
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    let ban = Ban::after(Quota::per_hour(3)).lasting(MINUTE);
    let gate = Gate::with_local(policies([unbanned().ban(ban)]), Slow(store()), store());
    let ann = get("/").user("ann");
    let answers = |requests: usize| -> Vec<Verdict> {
        let mut under_way: Vec<_> = (0..requests).map(|_| Box::pin(gate.decide(&ann))).collect();
        let mut context = Context::from_waker(Waker::noop());
        for request in &mut under_way {
            assert!(request.as_mut().poll(&mut context).is_pending());
        }
        under_way.into_iter().map(|request| now(request).unwrap().verdict()).collect()
    };
    let hour = MINUTE * 60;
    let deny = |retry_after| Verdict::Deny { retry_after };
    assert_eq!(answers(2), [Verdict::Allow; 2]);
    assert_eq!(answers(5), [deny(hour); 5], "the third begins a ban");
    clock.advance(MINUTE);
    assert_eq!(answers(2), [deny(hour - MINUTE); 2]);
    assert_eq!(gate.admin().ban_stats().begun, 1);
    assert_eq!(answers(1), [deny(hour - MINUTE)]);
    assert_eq!(gate.admin().ban_stats().begun, 2);
}

#[test]
fn threads_ban_once_and_leave_no_denial_behind() {
    const THREADS: usize = 8;
    const DENIALS: usize = 100;
    let ban = Ban::after(Quota::per_hour(DENIALS as u32)).lasting(MINUTE);
    let stage = Stage::new([unbanned().ban(ban)]);
    stage.deny("ann", 0);
    let (denied, barrier) = (AtomicUsize::new(0), Barrier::new(THREADS));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                let own = (0..2 * DENIALS).filter(|_| stage.is_denied("ann")).count();
                denied.fetch_add(own, Ordering::Relaxed);
            });
        }
    });
    let denied = denied.into_inner();
    // Those that were under way when the ban began are denied as well.
    assert!((DENIALS..DENIALS + THREADS).contains(&denied), "{denied}");
    assert_eq!(stage.gate.admin().ban_stats().begun, 1);
    assert_eq!(stage.verdict("ann"), banned(HOUR));
    stage.at(MINUTE).deny("ann", DENIALS);
    assert_eq!(stage.verdict("ann"), banned(HOUR - MINUTE));
}

#[test]
fn an_impossible_ban_is_reported_with_all_else_that_is_wrong() {
    let day = MINUTE * 60 * 24;
    let said = Policies::builder()
        .policy(login().ban(ten_seconds(3).lasting(Duration::ZERO)))
        .policy(Policy::new("long").ban(Ban::after(Quota::per_day(1)).lasting(day * 367)))
        .policy(
            Policy::new("longest")
                .quota(Quota::per_day(1))
                .ban(ten_seconds(1).lasting(Ban::MAX_LENGTH)),
        )
        .build()
        .unwrap_err()
        .to_string();
    let lines: Vec<&str> = said.lines().collect();
    let problem = "expected to last more than no time and at most 366 days";
    assert_eq!(
        lines[0],
        format!("policy \"login\": ban = \"0s after 3 denials in 10s\": {problem}")
    );
    assert!(lines[1].starts_with("policy \"long\": quotas"), "{said}");
    let long = "policy \"long\": ban = \"367d after 1 denial in 1d\"";
    assert_eq!(lines[2], format!("{long}: {problem}"));
    assert_eq!(lines.len(), 3, "{said}");
}

#[test]
fn an_explanation_reports_a_ban() {
    let watched = Policy::new("watched").identity([Source::User]).quota(Quota::per_hour(2));
    let stage = Stage::new([login(), watched.ban(ten_seconds(3)).shadow()]);
    let said = stage.gate.explain(&get("/").user("ann")).to_string();
    let takes = "takes 1 unit of 2/h from user:ann";
    let (login, watched) = ("bans for 1min after 3 denials in 10s", "shadow");
    assert_eq!(said, format!("login: {takes}, {login}\nwatched: {takes}, {watched}\n"));
}

const MILLI_NS: u64 = 1_000_000;

/// What a client's requests are to be answered with, worked out by looking at all that ever
/// happened. Everything is in nanoseconds since the start, which is a whole millisecond.
#[derive(Debug, Default)]
struct Model {
    spent_ns: Vec<u64>,
    denied_ns: Vec<u64>,
    banned_until_ns: u64,
    /// The `retry_after` of banned requests: not before the ban ends.
    retry_at_ns: u64,
}

/// At most `units` in `window_ns`; bans after `denials` in `within_ns`, for `length_ns`.
#[derive(Debug, Clone, Copy)]
struct Rules {
    units: usize,
    window_ns: u64,
    denials: usize,
    within_ns: u64,
    length_ns: u64,
}

impl Model {
    fn decide(&mut self, rules: Rules, now_ns: u64) -> Verdict {
        let verdict = self.peek(rules, now_ns);
        match verdict {
            Verdict::Allow => self.spent_ns.push(now_ns),
            Verdict::Deny { retry_after } => {
                self.denied_ns.push(now_ns);
                if live(&self.denied_ns, rules.within_ns, now_ns).count() >= rules.denials {
                    self.ban(rules.length_ns, now_ns);
                    let retry_after = retry_after.max(Duration::from_nanos(rules.length_ns));
                    self.retry_at_ns = now_ns + retry_after.as_nanos() as u64;
                    return Verdict::Deny { retry_after };
                }
            }
            _ => {}
        }
        verdict
    }

    fn peek(&self, rules: Rules, now_ns: u64) -> Verdict {
        if now_ns < self.banned_until_ns {
            return banned(Duration::from_nanos(self.retry_at_ns - now_ns));
        }
        let mut spent = live(&self.spent_ns, rules.window_ns, now_ns);
        if spent.clone().count() < rules.units {
            return Verdict::Allow;
        }
        let free_ns = spent.next().expect("a quota has units") + rules.window_ns;
        Verdict::Deny { retry_after: Duration::from_nanos(free_ns - now_ns) }
    }

    fn ban(&mut self, length_ns: u64, now_ns: u64) {
        self.lift();
        self.banned_until_ns = now_ns + length_ns;
        self.retry_at_ns = self.banned_until_ns;
    }

    fn lift(&mut self) {
        self.denied_ns.clear();
        self.banned_until_ns = 0;
    }

    fn reset(&mut self) {
        self.lift();
        self.spent_ns.clear();
    }
}

/// The stamps of what is still within the window: whole milliseconds, rounded up.
fn live(
    instants_ns: &[u64],
    window_ns: u64,
    now_ns: u64,
) -> impl Iterator<Item = u64> + Clone + '_ {
    let stamps = instants_ns.iter().map(|ns| ns.next_multiple_of(MILLI_NS));
    stamps.filter(move |stamp_ns| now_ns < stamp_ns + window_ns)
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Decide,
    Peek,
    Reset,
    Ban(u64),
    Lift,
}

fn rules() -> impl Strategy<Value = Rules> {
    let window_ns = || (1..60_u64).prop_map(|ms| ms * MILLI_NS);
    (1..5_usize, window_ns(), 1..6_usize, window_ns(), 1..60 * MILLI_NS).prop_map(
        |(units, window_ns, denials, within_ns, length_ns)| Rules {
            units,
            window_ns,
            denials,
            within_ns,
            length_ns,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<(u64, usize, Call)>> {
    let wait_ns = prop_oneof![
        4 => Just(0),
        4 => (0..20_u64).prop_map(|ms| ms * MILLI_NS),
        2 => 0..3 * MILLI_NS,
        1 => 0..60 * MILLI_NS,
    ];
    let call = prop_oneof![
        20 => Just(Call::Decide),
        4 => Just(Call::Peek),
        1 => Just(Call::Reset),
        1 => (1..60 * MILLI_NS).prop_map(Call::Ban),
        1 => Just(Call::Lift),
    ];
    prop::collection::vec((wait_ns, 0..3_usize, call), 1..200)
}

fn policy_of(rules: Rules) -> Policy {
    let quota = |units: usize, window_ns: u64| -> Quota {
        format!("{units}/{}ms", window_ns / MILLI_NS).parse().unwrap()
    };
    let ban = Ban::after(quota(rules.denials, rules.within_ns));
    Policy::new("login")
        .identity([Source::User])
        .quota(quota(rules.units, rules.window_ns))
        .ban(ban.lasting(Duration::from_nanos(rules.length_ns)))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_decision_under_bans_matches_brute_force(rules in rules(), steps in steps()) {
        let stage = Stage::new([policy_of(rules)]);
        let mut models = [Model::default(), Model::default(), Model::default()];
        let mut now_ns = 0;
        for (wait_ns, client, call) in steps {
            now_ns += wait_ns;
            stage.at(Duration::from_nanos(now_ns));
            let (user, model) = (["ann", "bob", "cho"][client], &mut models[client]);
            match call {
                Call::Decide => {
                    prop_assert_eq!(stage.verdict(user), model.decide(rules, now_ns));
                }
                Call::Peek => prop_assert_eq!(stage.peek(user), model.peek(rules, now_ns)),
                Call::Reset => {
                    stage.reset(user);
                    model.reset();
                }
                Call::Ban(length_ns) => {
                    let length = Duration::from_nanos(length_ns);
                    stage.gate.admin().ban(&account("login", user), length).unwrap();
                    model.ban(length_ns, now_ns);
                }
                Call::Lift => {
                    stage.gate.admin().lift_ban(&account("login", user));
                    model.lift();
                }
            }
        }
    }
}

/// A gate that tells of its bans.
fn telling(list: impl IntoIterator<Item = Policy>) -> (Stage, Receiver<ActiveBan>) {
    let (sender, begun) = channel();
    let sender = Mutex::new(sender);
    let mut stage = Stage::new(list);
    stage.gate = stage.gate.on_ban(move |ban| sender.lock().unwrap().send(ban.clone()).unwrap());
    (stage, begun)
}

fn active(user: &str, rest: Duration) -> ActiveBan {
    ActiveBan { account: account("login", user), rest, retry_after: rest }
}

#[test]
fn a_ban_begun_by_denials_is_announced_once_and_holds_at_another_gate() {
    let short = unbanned().quota("1/min").ban(ten_seconds(3).lasting(MINUTE));
    let (one, begun) = telling([short.clone()]);
    let other = Stage::new([short]);
    one.deny("ann", 2);
    assert!(begun.try_recv().is_err(), "denials alone are nothing to tell");
    one.deny("ann", 1);
    let ban = begun.try_recv().unwrap();
    assert_eq!(ban, active("ann", MINUTE));
    assert_eq!(one.verdict("ann"), banned(MINUTE));
    assert!(begun.try_recv().is_err(), "once");

    other.gate.admin().adopt_ban(&ban).unwrap();
    assert_eq!(other.verdict("ann"), banned(MINUTE));
    assert_eq!(other.verdict("bob"), Verdict::Allow);
    assert_eq!(other.at(MINUTE - NANO).verdict("ann"), banned(NANO));
    assert_eq!(other.at(MINUTE).verdict("ann"), Verdict::Allow);
    let stats = other.gate.admin().ban_stats();
    assert_eq!((stats.begun, stats.adopted), (0, 1));
    assert_eq!(one.gate.admin().ban_stats().begun, 1);
}

#[test]
fn a_ban_is_announced_with_the_wait_of_the_quotas_that_denied() {
    let (one, begun) = telling([login()]);
    one.deny("ann", 3);
    let ban = begun.try_recv().unwrap();
    assert_eq!((ban.rest, ban.retry_after), (MINUTE, HOUR));
    let other = Stage::new([login()]);
    other.gate.admin().adopt_ban(&ban).unwrap();
    assert_eq!(other.at(SECOND).verdict("ann"), banned(HOUR - SECOND));
    assert_eq!(other.at(MINUTE).verdict("ann"), Verdict::Allow, "the ban itself is over");
}

#[test]
fn bans_by_hand_and_adopted_bans_are_not_announced_again() {
    let (stage, begun) = telling([login()]);
    stage.gate.admin().ban(&account("login", "ann"), HOUR).unwrap();
    stage.gate.admin().adopt_ban(&active("bob", HOUR)).unwrap();
    assert!(begun.try_recv().is_err());
    let mut bans = stage.gate.admin().active_bans();
    bans.sort_by(|a, b| a.account.cmp(&b.account));
    assert_eq!(bans, [active("ann", HOUR), active("bob", HOUR)]);
}

#[test]
fn an_adopted_ban_prolongs_and_never_shortens() {
    let stage = Stage::new([login()]);
    for (rest, expected) in
        [(MINUTE, MINUTE), (SECOND, MINUTE), (Duration::ZERO, MINUTE), (HOUR, HOUR)]
    {
        stage.gate.admin().adopt_ban(&active("ann", rest)).unwrap();
        assert_eq!(stage.verdict("ann"), banned(expected), "{rest:?}");
    }
    assert_eq!(stage.gate.admin().ban_stats().adopted, 2);
    stage.gate.admin().lift_ban(&account("login", "ann"));
    assert_eq!(stage.verdict("ann"), Verdict::Allow);
    stage.gate.admin().adopt_ban(&active("ann", Duration::MAX)).unwrap();
    assert_eq!(stage.gate.admin().active_bans()[0].rest, Ban::MAX_LENGTH);
}

#[test]
fn a_ban_is_adopted_only_by_a_policy_that_bans_and_if_there_is_room() {
    let stage = Stage::with_capacity(2, [login(), Policy::new("api").quota(Quota::per_hour(1))]);
    let of = |policy: &str| ActiveBan { account: account(policy, "ann"), ..active("ann", MINUTE) };
    let error = |policy: &str| stage.gate.admin().adopt_ban(&of(policy)).unwrap_err();
    assert!(matches!(error("api"), AccountError::NoBan(_)));
    assert!(matches!(error("other"), AccountError::UnknownPolicy(_)));
    for user in ["a", "b"] {
        stage.gate.admin().adopt_ban(&active(user, MINUTE)).unwrap();
    }
    let full = stage.gate.admin().adopt_ban(&active("c", MINUTE)).unwrap_err();
    assert!(matches!(full, AccountError::Store(StoreError::Full)), "{full}");
    assert_eq!(stage.gate.admin().active_bans().len(), 2);
    assert_eq!(stage.at(MINUTE).gate.admin().active_bans(), [], "they are over");
    stage.gate.admin().adopt_ban(&active("c", MINUTE)).unwrap();
    stage.gate.replace_policies(policies([unbanned()]));
    assert_eq!(stage.gate.admin().active_bans(), [], "no policy bans any more");
}

#[test]
fn an_address_is_banned_elsewhere_as_its_policy_counts_it() {
    let ban = ten_seconds(1).lasting(MINUTE);
    let stage = Stage::new([Policy::new("login").quota(Quota::per_hour(2)).ban(ban)]);
    let account =
        Account { policy: "login".parse().unwrap(), identity: "ip:2001:db8::7".parse().unwrap() };
    stage
        .gate
        .admin()
        .adopt_ban(&ActiveBan { account, rest: MINUTE, retry_after: MINUTE })
        .unwrap();
    let neighbour = Facts::new(&Method::GET, "/").client("2001:db8::8".parse().unwrap());
    assert_eq!(stage.gate.decide_now(&neighbour).unwrap().verdict(), banned(MINUTE));
}

#[test]
fn of_many_threads_one_begins_the_ban_and_one_announces_it() {
    let (stage, begun) = telling([login()]);
    stage.deny("ann", 0);
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..50 {
                    assert_ne!(stage.verdict("ann"), Verdict::Allow);
                }
            });
        }
    });
    assert_eq!(begun.try_iter().count(), 1);
}
