//! What an operator overrides about an identity: which identities it applies to, against what, and until when.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::now;
use http::{HeaderMap, Method};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use slidegate::limit::{AccountReading, Charge, Charges, Receipt, Settled, Settlement, Spent};
use slidegate::policy::{Action, Override, Overrides, PoliciesBuilder, TooManyOverrides};
use slidegate::{
    AccessList, Account, AccountError, Ban, Block, Clock, Consistency, Decision, Facts, Gate,
    Identity, Inspection, ManualClock, MemoryStore, NamedCharge, OnStoreError, Plan, Policies,
    Policy, Quota, Scope, Source, Standing, Store, StoreError, Timestamp, Verdict,
};

use crate::model::{Charge as ModelCharge, Kind, Limit, Model};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
const NANO: Duration = Duration::from_nanos(1);

/// A gate in virtual time, which begins at zero.
struct Stage {
    gate: Gate<Counted>,
    clock: ManualClock,
    start: Timestamp,
}

impl Stage {
    fn new(list: impl IntoIterator<Item = Policy>) -> Self {
        Self::of(list.into_iter().fold(Policies::builder(), PoliciesBuilder::policy))
    }

    fn of(policies: PoliciesBuilder) -> Self {
        let clock = ManualClock::default();
        let store = || MemoryStore::builder().clock(clock.clone()).build();
        let shared = Counted { store: store(), calls: AtomicUsize::new(0) };
        let gate = Gate::with_local(policies.build().unwrap(), shared, store());
        let start = clock.now();
        Self { gate, clock, start }
    }

    fn at(&self, at: Duration) -> &Self {
        self.clock.set(self.start + at);
        self
    }

    /// Puts these in force until a time: an identity, a policy or none, and the action.
    fn apply<'a>(&self, list: impl IntoIterator<Item = (&'a str, &'a str, Action, Duration)>) {
        let overrides = list.into_iter().map(|(identity, policy, action, until)| Override {
            identity: identity.parse().unwrap(),
            policy: (!policy.is_empty()).then(|| policy.parse().unwrap()),
            action,
            until: self.start + until,
        });
        self.gate.admin().replace_overrides(Overrides::new(overrides).unwrap());
    }

    fn decide(&self, facts: Facts<'_>) -> Decision {
        let peeked = now(self.gate.peek(&facts)).unwrap();
        let decision = now(self.gate.decide(&facts)).unwrap();
        // But for the denial that begins a ban, which a peek cannot.
        let denied = |verdict| matches!(verdict, Verdict::Deny { .. });
        let alike = peeked.verdict() == decision.verdict() || denied(peeked.verdict());
        assert!(alike, "a peek tells what is decided, {peeked:?}, {decision:?}");
        assert_eq!(denied(peeked.verdict()), denied(decision.verdict()));
        assert_eq!(peeked.banned_by(), decision.banned_by());
        decision
    }

    fn verdict(&self, facts: Facts<'_>) -> Verdict {
        self.decide(facts).verdict()
    }

    fn is_allowed(&self, facts: Facts<'_>) -> bool {
        self.verdict(facts) == Verdict::Allow
    }

    /// How many units of cost one are allowed in a row.
    fn allowed(&self, facts: Facts<'_>) -> usize {
        (0..1000).take_while(|_| self.is_allowed(facts)).count()
    }

    fn inspect(&self, policy: &str, identity: &str) -> Inspection {
        now(self.gate.admin().inspect(&account(policy, identity), None)).unwrap()
    }

    fn calls(&self) -> usize {
        self.gate.store().calls.load(Ordering::Relaxed)
    }
}

/// A store that tells how often it was asked.
#[derive(Debug)]
struct Counted {
    store: MemoryStore,
    calls: AtomicUsize,
}

impl Counted {
    fn store(&self) -> &MemoryStore {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &self.store
    }
}

impl Store for Counted {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.store().spend_now(charges)
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.store().peek_now(charges)
    }

    async fn read(&self, charge: Charge<'_>) -> Result<AccountReading, StoreError> {
        Ok(self.store().read_now(charge))
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        self.store().refund_now(charges, spent);
        Ok(())
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        self.store().settle_now(charges, settlement)
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.store().reset_now(charges);
        Ok(())
    }
}

fn get(path: &str) -> Facts<'_> {
    static GET: Method = Method::GET;
    Facts::new(&GET, path)
}

fn ip(text: &str) -> Facts<'static> {
    get("/").client(text.parse().unwrap())
}

fn user(name: &str) -> Facts<'_> {
    ip("203.0.113.7").user(name)
}

fn account(policy: &str, identity: &str) -> Account {
    Account { policy: policy.parse().unwrap(), identity: identity.parse().unwrap() }
}

fn grant(units: u32) -> Action {
    Action::Grant { units: units.try_into().unwrap(), window: None }
}

fn grant_for(units: u32, window: Duration) -> Action {
    Action::Grant { units: units.try_into().unwrap(), window: Some(window) }
}

fn banned(retry_after: Duration) -> Verdict {
    Verdict::Block(Block::Banned { retry_after })
}

fn suspended(retry_after: Duration) -> Verdict {
    Verdict::Block(Block::Suspended { retry_after })
}

fn cost(units: u32) -> NonZeroU32 {
    NonZeroU32::new(units).unwrap()
}

/// Three a minute for each user, or each address of those who are none.
fn api() -> Policy {
    Policy::new("api").identity([Source::User, Source::ip()]).quota(Quota::per_minute(3))
}

#[test]
fn a_ban_refuses_to_the_instant_and_costs_nothing() {
    let stage = Stage::new([api()]);
    stage.apply([("user:ann", "api", Action::Ban, MINUTE)]);
    let before = stage.calls();
    let decision = stage.decide(user("ann"));
    assert_eq!(decision.verdict(), suspended(MINUTE));
    assert_eq!(decision.banned_by().map(|name| &**name), Some("api"));
    assert_eq!(decision.policies().len(), 0);
    assert_eq!(stage.at(MINUTE - NANO).verdict(user("ann")), suspended(NANO));
    assert_eq!(stage.calls(), before, "no store is asked");
    assert!(stage.is_allowed(user("bob")));
    assert_eq!(stage.at(MINUTE).allowed(user("ann")), 3, "and nothing was spent");
}

#[test]
fn a_ban_under_one_policy_is_no_ban_under_another() {
    let stage = Stage::new([
        Policy::new("read").identity([Source::User]).path("/read").quota(Quota::per_minute(3)),
        Policy::new("write").identity([Source::User]).path("/write").quota(Quota::per_minute(3)),
    ]);
    stage.apply([("user:ann", "write", Action::Ban, MINUTE)]);
    assert!(stage.is_allowed(get("/read").user("ann")));
    assert!(!stage.is_allowed(get("/write").user("ann")));
    assert!(stage.is_allowed(get("/elsewhere").user("ann")));
    stage.apply([("user:ann", "", Action::Ban, MINUTE)]);
    for path in ["/read", "/write", "/elsewhere"] {
        let decision = stage.decide(get(path).user("ann"));
        assert_eq!(decision.verdict(), suspended(MINUTE), "{path}, even where no policy counts");
        assert_eq!(decision.banned_by(), None);
    }
    stage.apply([("user:ann", "gone", Action::Ban, MINUTE)]);
    assert!(stage.is_allowed(get("/read").user("ann")), "of a policy that is not there");
}

#[test]
fn an_override_for_all_policies_holds_whatever_they_count_by() {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", "k-1".parse().unwrap());
    headers.insert("authorization", "Bearer t-1".parse().unwrap());
    headers.insert("x-tenant", "acme".parse().unwrap());
    headers.insert("cookie", "s=1".parse().unwrap());
    let facts = user("ann").headers(&headers).headers_trusted();
    let tenant = http::HeaderName::from_static("x-tenant");
    let cookie = http::header::COOKIE;
    let everything = [
        Identity::user("ann").to_string(),
        Identity::api_key(b"k-1").to_string(),
        Identity::authorization(b"Bearer t-1").to_string(),
        Identity::header(&tenant, b"acme").to_string(),
        Identity::header(&cookie, b"s=1").to_string(),
        "ip:203.0.113.7".to_owned(),
        "ip:203.0.113.0/24".to_owned(),
        "ip:::ffff:203.0.113.7".to_owned(),
        "everyone".to_owned(),
    ];
    let sources = [Source::User, Source::ApiKey, Source::Authorization, Source::ip()];
    for source in sources.into_iter().chain([Source::Header(tenant), Source::Everyone]) {
        let policy = Policy::new("api").identity([source.clone()]).quota(Quota::per_minute(1));
        for identity in everything.iter().map(String::as_str) {
            let stage = Stage::new([policy.clone()]);
            stage.apply([(identity, "", Action::Ban, MINUTE)]);
            assert_eq!(stage.verdict(facts), suspended(MINUTE), "{identity} counted by {source}");
            stage.apply([(identity, "", Action::Exempt, MINUTE)]);
            assert_eq!(stage.allowed(facts), 1000, "{identity} counted by {source}");
            assert_eq!(stage.decide(facts).policies().len(), 0);
            stage.at(MINUTE);
            assert_eq!(stage.allowed(facts), 1, "{identity} counted by {source}");
        }
        let stage = Stage::new([policy]);
        let others = ["user:bob", "ip:203.0.114.0/24", "ip:203.0.113.8", "x-tenant:other"];
        stage.apply(others.map(|identity| (identity, "", Action::Ban, MINUTE)));
        assert_eq!(stage.allowed(facts), 1, "these are others");
    }
}

#[test]
fn what_cannot_be_found_in_requests_holds_where_policies_count_by_it() {
    let source = Source::Header(http::HeaderName::from_static("user"));
    let by_header = Policy::new("api").identity([source]).quota(Quota::per_minute(1));
    let stage = Stage::new([by_header]);
    let mut headers = HeaderMap::new();
    headers.insert("user", "ann".parse().unwrap());
    let facts = get("/").headers(&headers).headers_trusted();
    let named = Identity::header(&http::HeaderName::from_static("user"), b"ann").to_string();
    assert!(named.starts_with("header:~"));
    for (identity, facts) in [(named.as_str(), facts), ("anonymous", get("/"))] {
        stage.apply([(identity, "", Action::Ban, MINUTE)]);
        assert_eq!(stage.verdict(facts), suspended(MINUTE), "{identity}");
        stage.apply([(identity, "api", grant(4), MINUTE)]);
        assert_eq!(stage.allowed(facts), 5, "{identity}");
    }
}

#[test]
fn a_header_sent_twice_neither_evades_a_ban_nor_gains_an_exemption() {
    let stage = Stage::new([Policy::new("api").quota(Quota::per_minute(1))]);
    let mut headers = HeaderMap::new();
    headers.append("x-api-key", "k-1".parse().unwrap());
    headers.append("x-api-key", "k-2".parse().unwrap());
    headers.append("x-tenant", "acme".parse().unwrap());
    let facts = ip("203.0.113.7").headers(&headers);
    let key = Identity::api_key(b"k-2").to_string();
    stage.apply([
        (&*key, "", Action::Exempt, MINUTE),
        ("x-tenant:acme", "", Action::Exempt, MINUTE),
    ]);
    assert_eq!(stage.allowed(facts), 1, "neither is beyond doubt");
    stage.apply([("x-tenant:acme", "", Action::Ban, MINUTE)]);
    assert!(matches!(stage.verdict(facts), Verdict::Deny { .. }), "the header is not trusted");
    stage.apply([(&*key, "", Action::Ban, MINUTE)]);
    assert_eq!(stage.verdict(facts), suspended(MINUTE));
}

#[test]
fn networks_and_addresses_are_meant_as_they_are_written() {
    let banned_of = |entry: &str, client: &str| {
        let stage = Stage::new([Policy::new("api").quota(Quota::per_minute(1))]);
        stage.apply([(entry, "", Action::Ban, MINUTE)]);
        !stage.is_allowed(ip(client))
    };
    for (entry, inside, outside) in [
        ("ip:203.0.113.0/24", "203.0.113.200", "203.0.112.200"),
        ("ip:203.0.113.7/32", "203.0.113.7", "203.0.113.8"),
        ("ip:::ffff:203.0.113.0/120", "203.0.113.200", "203.0.112.200"),
        ("ip:10.0.0.0/8", "::ffff:10.9.8.7", "11.0.0.1"),
        ("ip:2001:db8:1:2::/64", "2001:db8:1:2:3::4", "2001:db8:1:3::4"),
        ("ip:2001:DB8:1:2:0:0:0:9", "2001:db8:1:2::9", "2001:db8:1:2::8"),
        ("ip:2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
    ] {
        assert!(banned_of(entry, inside), "{entry} has {inside}");
        assert!(!banned_of(entry, outside), "{entry} has not {outside}");
    }
    for nonsense in [
        "ip:10.0.0.0/33",
        "ip:10.0.0.0/0",
        "ip:10.0.0.1/8",
        "ip:here",
        "ip:::/0",
        "ip:::ffff:1.2.3.4/20",
    ] {
        assert!(!banned_of(nonsense, "10.0.0.1") && !banned_of(nonsense, "::1"), "{nonsense}");
    }
}

#[test]
fn lists_and_overrides_have_a_fixed_order_of_precedence() {
    let listed = |name| AccessList::new().user(name);
    let policies = Policies::builder()
        .policy(api().exempt(listed("passed-over")))
        .exempt(listed("exempt"))
        .blocked(listed("blocked"));
    let stage = Stage::of(policies);
    let overrides = |action| {
        let users = ["user:exempt", "user:blocked", "user:passed-over", "user:ann"];
        users.into_iter().flat_map(move |user| [(user, "", action), (user, "api", action)])
    };
    let apply = |list: Vec<(&'static str, &'static str, Action)>| {
        stage.apply(list.into_iter().map(|(who, policy, action)| (who, policy, action, MINUTE)));
    };
    let listed = Verdict::Block(Block::Listed);

    apply(overrides(Action::Exempt).collect());
    assert_eq!(stage.verdict(user("blocked")), listed, "the blocked stay blocked");
    assert_eq!(stage.allowed(user("ann")), 1000);

    apply(overrides(Action::Ban).collect());
    assert_eq!(stage.verdict(user("blocked")), listed);
    assert_eq!(stage.verdict(user("exempt")), Verdict::Allow, "as with other bans");
    assert_eq!(stage.verdict(user("passed-over")), suspended(MINUTE), "for all policies");
    apply(vec![("user:passed-over", "api", Action::Ban)]);
    assert_eq!(stage.verdict(user("passed-over")), Verdict::Allow, "by the only one that would");

    for exempt in ["", "api"] {
        for ban in ["", "api"] {
            apply(vec![("user:ann", exempt, Action::Exempt), ("user:ann", ban, Action::Ban)]);
            assert_eq!(stage.verdict(user("ann")), suspended(MINUTE), "{exempt:?} against {ban:?}");
            apply(vec![("ip:203.0.113.7", "", Action::Exempt), ("user:ann", ban, Action::Ban)]);
            assert_eq!(stage.verdict(user("ann")), suspended(MINUTE), "even of another identity");
        }
    }
}

#[test]
fn of_several_bans_the_longest_is_reported() {
    let begun = Ban::after(Quota::per_minute(1)).lasting(10 * MINUTE);
    let stage = Stage::new([
        api().ban(begun),
        Policy::new("other").identity([Source::User]).quota(Quota::per_minute(100)),
    ]);
    stage.apply([
        ("user:ann", "", Action::Ban, MINUTE),
        ("user:ann", "other", Action::Ban, 3 * MINUTE),
        ("user:ann", "other", Action::Ban, 2 * MINUTE),
        ("ip:203.0.113.0/24", "", Action::Ban, 2 * MINUTE),
    ]);
    let decision = stage.decide(user("ann"));
    assert_eq!(decision.verdict(), suspended(3 * MINUTE));
    assert_eq!(decision.banned_by().map(|name| &**name), Some("other"));

    // One that has begun by itself goes on beside it.
    stage.apply([]);
    stage.gate.admin().ban(&account("api", "user:ann"), 10 * MINUTE).unwrap();
    stage.apply([("user:ann", "", Action::Ban, MINUTE)]);
    let decision = stage.decide(user("ann"));
    assert_eq!(decision.verdict(), banned(10 * MINUTE));
    assert_eq!(decision.banned_by().map(|name| &**name), Some("api"));
    stage.apply([("user:ann", "", Action::Ban, HOUR)]);
    assert_eq!(stage.verdict(user("ann")), suspended(HOUR));
}

#[test]
fn a_reset_lifts_what_began_by_itself_and_no_override() {
    let begun = Ban::after(Quota::per_minute(1)).lasting(10 * MINUTE);
    let stage = Stage::new([api().ban(begun)]);
    stage.gate.admin().ban(&account("api", "user:ann"), HOUR).unwrap();
    stage.apply([("user:ann", "api", Action::Ban, MINUTE)]);
    now(stage.gate.admin().reset(&account("api", "user:ann"))).unwrap();
    stage.gate.admin().lift_ban(&account("api", "user:ann"));
    assert_eq!(stage.verdict(user("ann")), suspended(MINUTE));
    stage.apply([("user:ann", "api", grant(2), MINUTE)]);
    assert_eq!(stage.allowed(user("ann")), 5);
    now(stage.gate.admin().reset(&account("api", "user:ann"))).unwrap();
    assert_eq!(stage.allowed(user("ann")), 5, "the grant is still in force");
}

#[test]
fn an_exemption_lets_pass_who_is_banned_by_a_policy() {
    let begun = Ban::after(Quota::per_minute(1)).lasting(10 * MINUTE);
    let stage = Stage::new([api().ban(begun)]);
    stage.gate.admin().ban(&account("api", "user:ann"), HOUR).unwrap();
    for policy in ["", "api"] {
        stage.apply([("user:ann", policy, Action::Exempt, MINUTE)]);
        assert_eq!(stage.at(Duration::ZERO).verdict(user("ann")), Verdict::Allow);
        assert_eq!(stage.at(MINUTE).verdict(user("ann")), banned(HOUR - MINUTE));
    }
}

#[test]
fn an_exemption_from_one_policy_leaves_the_others() {
    let both = |scope| {
        [
            api().scope(scope),
            Policy::new("address").quota(Quota::per_minute(5)).scope(Scope::Shared),
        ]
    };
    for scope in [Scope::Shared, Scope::Local] {
        let stage = Stage::new(both(scope));
        stage.apply([("user:ann", "api", Action::Exempt, MINUTE)]);
        let decision = stage.decide(user("ann"));
        let policies: Vec<&str> = decision.policies().iter().map(|own| &*own.policy).collect();
        assert_eq!(policies, ["address"]);
        assert_eq!(stage.allowed(user("ann")), 4, "as many as the address has left");
        assert_eq!(stage.at(MINUTE).allowed(user("ann")), 3, "nothing was spent under the policy");
    }
}

#[test]
fn a_cost_that_no_quota_has_is_exempt_or_granted_or_refused() {
    let stage = Stage::new([api()]);
    let costly = user("ann").cost(cost(5));
    let refused = Verdict::Block(Block::CostAboveUnits);
    for (policy, action, expected) in [
        ("api", grant(1), refused),
        ("api", grant(2), Verdict::Allow),
        ("", Action::Exempt, Verdict::Allow),
        ("api", Action::Exempt, Verdict::Allow),
        ("", Action::Ban, suspended(MINUTE)),
        ("api", Action::Ban, suspended(MINUTE)),
    ] {
        stage.apply([("user:ann", policy, action, MINUTE)]);
        assert_eq!(stage.verdict(costly), expected, "{action:?} of {policy:?}");
    }
    assert_eq!(stage.at(MINUTE).verdict(costly), refused);
}

#[test]
fn a_grant_gives_room_at_once_and_is_paid_off_when_it_ends() {
    let stage = Stage::new([api().quota(Quota::per_hour(100))]);
    assert_eq!(stage.allowed(user("ann")), 3);
    stage.apply([
        ("user:ann", "api", grant(4), 30 * Duration::from_secs(1)),
        ("user:ann", "", grant(2), 10 * Duration::from_secs(1)),
        ("user:bob", "api", grant(50), HOUR),
    ]);
    let decision = stage.decide(user("ann"));
    let quotas: Vec<Quota> = decision.policies()[0].standings.iter().map(Standing::quota).collect();
    assert_eq!(quotas, [Quota::per_minute(9), Quota::per_hour(106)], "every quota, and all grants");
    assert_eq!(decision.tightest().unwrap().1.remaining(), 5);
    assert_eq!(stage.allowed(user("ann")), 5);
    // One grant has ended: 9 are spent of 7.
    let denied = stage.at(Duration::from_secs(10)).decide(user("ann"));
    assert_eq!(denied.tightest().unwrap().1.quota(), Quota::per_minute(7));
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(50)));
    // And the other: until they have left the window, nothing.
    assert_eq!(stage.at(MINUTE - NANO).allowed(user("ann")), 0);
    assert_eq!(stage.at(MINUTE).allowed(user("ann")), 3);
}

#[test]
fn a_grant_is_for_an_account_and_not_for_who_has_another() {
    let stage = Stage::new([api()]);
    stage.apply([("ip:203.0.113.7", "", grant(5), MINUTE), ("everyone", "", grant(5), MINUTE)]);
    assert_eq!(stage.allowed(user("ann")), 3, "she is counted as a user");
    assert_eq!(stage.allowed(ip("203.0.113.7")), 8);
}

#[test]
fn a_grant_for_one_window_raises_that_quota_alone() {
    let quotas = |policy: Policy| policy.quota(Quota::per_minute(3)).quota(Quota::per_hour(4));
    let leased = Policy::new("leased").identity([Source::User]).consistency(Consistency::ASYNC);
    let stage = Stage::new([quotas(Policy::new("api").identity([Source::User])), quotas(leased)]);
    stage.apply([
        ("user:ann", "", grant_for(5, HOUR), DAY),
        ("user:ann", "api", grant_for(1, MINUTE), DAY),
        ("user:ann", "api", grant_for(90, DAY), DAY),
    ]);
    let granted = |policy| {
        let found = stage.inspect(policy, "user:ann");
        let quotas = found.standings.iter().map(|standing| standing.quota().to_string());
        (found.granted, quotas.collect::<Vec<_>>().join(" "))
    };
    assert_eq!(granted("api"), (vec![1, 5], "4/min 9/h".to_owned()));
    assert_eq!(granted("leased"), (vec![0, 5], "3/min 9/h".to_owned()));
    let allowed = |at| stage.at(at).allowed(user("ann"));
    let minutes = [0, 2, 4, 6].map(|minute| allowed(minute * MINUTE));
    assert_eq!(minutes, [3, 3, 3, 0], "nine in an hour, three a minute");
    now(stage.gate.admin().refund_units(&account("leased", "user:ann"), cost(9))).unwrap();
    let room = |policy| stage.inspect(policy, "user:ann").standings[1].remaining();
    assert_eq!((room("api"), room("leased")), (0, 9));
}

#[test]
fn grants_without_measure_stop_at_what_can_be_counted() {
    let stage = Stage::new([api()]);
    stage.apply([
        ("user:ann", "", grant(u32::MAX), MINUTE),
        ("user:ann", "api", grant(u32::MAX), MINUTE),
    ]);
    let decision = stage.decide(user("ann").cost(cost(u32::MAX)));
    assert!(decision.is_allowed());
    let standing = decision.policies()[0].standings[0];
    assert_eq!((standing.quota().units().get(), standing.remaining()), (u32::MAX, 0));
    assert_eq!(stage.inspect("api", "user:ann").granted, [u32::MAX]);
    assert_eq!(stage.at(MINUTE - NANO).allowed(user("ann")), 0);
    assert_eq!(stage.at(2 * MINUTE).allowed(user("ann")), 3);
}

#[test]
fn policies_that_only_watch_or_are_local_go_by_overrides_too() {
    let watching =
        Policy::new("watch").identity([Source::User]).quota(Quota::per_minute(2)).shadow();
    let stage = Stage::new([watching]);
    stage.apply([("user:ann", "watch", Action::Ban, HOUR)]);
    assert!(stage.is_allowed(user("ann")), "a shadow policy bans no identity");
    assert_eq!(stage.inspect("watch", "user:ann").banned, None);
    stage.apply([("user:ann", "watch", grant(2), HOUR)]);
    let decisions: Vec<Decision> = (0..4).map(|_| stage.decide(user("ann"))).collect();
    let violated = |decision: &Decision| decision.policies()[0].is_violated();
    assert_eq!(decisions.iter().map(violated).collect::<Vec<_>>(), [false, false, false, true]);
    stage.apply([("user:ann", "watch", Action::Exempt, HOUR)]);
    assert_eq!(stage.decide(user("ann")).policies().len(), 0);
    stage.apply([("user:ann", "", Action::Ban, HOUR)]);
    assert_eq!(stage.verdict(user("ann")), suspended(HOUR), "for all policies is for everything");

    let stage = Stage::new([api().scope(Scope::Local)]);
    stage.apply([("user:ann", "api", grant(2), MINUTE), ("user:bob", "api", Action::Ban, MINUTE)]);
    assert_eq!(stage.allowed(user("ann")), 5);
    assert_eq!(stage.verdict(user("bob")), suspended(MINUTE));
    assert_eq!(stage.calls(), 0);
}

#[test]
fn overrides_hold_for_charges_that_are_named() {
    let stage = Stage::new([
        api(),
        Policy::new("address").identity([Source::ip()]).quota(Quota::per_minute(9)),
    ]);
    let charge = |policy, identity: &str, cost| NamedCharge {
        policy,
        identity: identity.parse().unwrap(),
        plan: None,
        cost: NonZeroU32::new(cost),
        quotas: None,
    };
    let decide = |charges: &[NamedCharge<'_>]| {
        let peeked = now(stage.gate.peek_named(charges)).unwrap();
        let decision = now(stage.gate.decide_named(charges)).unwrap();
        assert_eq!(peeked.verdict(), decision.verdict());
        decision
    };
    let both = [charge("api", "user:ann", 2), charge("address", "ip:2001:db8::7", 2)];
    for (identity, policy) in [
        ("user:ann", ""),
        ("user:ann", "api"),
        ("ip:2001:db8::/64", "address"),
        ("ip:2001:db8::/32", ""),
        ("ip:2001:db8::7", ""),
        ("everyone", ""),
    ] {
        stage.apply([(identity, policy, Action::Ban, MINUTE)]);
        assert_eq!(decide(&both).verdict(), suspended(MINUTE), "{identity} under {policy:?}");
        stage.apply([(identity, policy, Action::Exempt, MINUTE)]);
        let left = decide(&both).policies().len();
        assert_eq!(left, usize::from(!policy.is_empty()), "{identity} under {policy:?}");
    }
    stage.apply([]);
    now(stage.gate.admin().reset(&account("api", "user:ann"))).unwrap();
    let costly = [charge("api", "user:ann", 4)];
    assert_eq!(decide(&costly).verdict(), Verdict::Block(Block::CostAboveUnits));
    stage.apply([("user:ann", "api", grant(3), MINUTE)]);
    assert_eq!(decide(&costly).policies()[0].standings[0].remaining(), 2);
    let other = [charge("address", "ip:2001:db9::7", 1)];
    stage.apply([("ip:2001:db8::/32", "", Action::Ban, MINUTE)]);
    assert_eq!(decide(&other).verdict(), Verdict::Allow);
}

#[test]
fn what_a_grant_paid_for_can_be_refunded_when_it_has_ended() {
    // With ticks of a millisecond, and with coarser ones as long as the grant lasts.
    for (units, granted, cost_of_it) in [(3, 4, 6), (4000, 1000, 4800)] {
        let stage = Stage::new([
            Policy::new("api").identity([Source::User]).quota(Quota::per_hour(units)),
            Policy::new("local")
                .identity([Source::User])
                .quota(Quota::per_hour(units))
                .scope(Scope::Local)
                .request_cost(),
        ]);
        stage.at(Duration::from_micros(1_234_567));
        stage.apply([("user:ann", "", grant(granted), MINUTE)]);
        let facts = user("ann").cost(cost(cost_of_it));
        let decision = stage.decide(facts);
        assert!(decision.is_allowed());
        stage.at(2 * MINUTE);
        assert_eq!(stage.allowed(user("ann")), 0);
        now(stage.gate.refund(&decision)).unwrap();
        let room = |policy| stage.inspect(policy, "user:ann").standings[0].remaining();
        assert_eq!((room("api"), room("local")), (units, units));
    }
}

#[test]
fn a_refund_is_of_what_was_spent_whatever_has_been_ordered_since() {
    let stage = Stage::new([api()]);
    let spent = stage.decide(user("ann"));
    stage.apply([("user:ann", "", Action::Exempt, MINUTE)]);
    let exempt = stage.decide(user("ann"));
    now(stage.gate.refund(&exempt)).unwrap();
    assert_eq!(stage.inspect("api", "user:ann").standings[0].remaining(), 2, "it cost nothing");
    now(stage.gate.refund(&spent)).unwrap();
    assert_eq!(stage.inspect("api", "user:ann").standings[0].remaining(), 3);
    stage.apply([]);
    let spent = stage.decide(user("ann"));
    stage.apply([("user:ann", "", Action::Ban, MINUTE)]);
    now(stage.gate.refund(&spent)).unwrap();
    assert_eq!(stage.inspect("api", "user:ann").standings[0].remaining(), 3);
}

#[test]
fn an_operator_can_take_back_what_a_grant_paid_for() {
    let stage = Stage::new([api()]);
    stage.apply([("user:ann", "api", grant(4), MINUTE)]);
    assert_eq!(stage.allowed(user("ann")), 7);
    now(stage.gate.admin().refund_units(&account("api", "user:ann"), cost(6))).unwrap();
    assert_eq!(stage.inspect("api", "user:ann").standings[0].remaining(), 6);
}

#[test]
fn overrides_can_be_looked_at_and_replaced() {
    let stage = Stage::new([api()]);
    assert!(stage.gate.admin().overrides().as_slice().is_empty());
    stage.apply([("user:ann", "", Action::Ban, MINUTE), ("user:bob", "api", grant(1), NANO)]);
    let overrides = stage.at(HOUR).gate.admin().overrides();
    assert_eq!(overrides.as_slice().len(), 2, "expired ones too");
    assert!(overrides.as_slice().iter().any(|entry| entry.action == grant(1)
        && entry.identity == Identity::user("bob")
        && entry.policy == Some("api".parse().unwrap())
        && entry.until == stage.start + NANO));
    stage.at(Duration::ZERO).gate.replace_policies(
        Policies::builder().policy(api().quota(Quota::per_day(9))).build().unwrap(),
    );
    assert_eq!(stage.verdict(user("ann")), suspended(MINUTE), "other policies, the same overrides");
    stage.apply([]);
    assert!(stage.is_allowed(user("ann")));
    assert_eq!(stage.gate.policies().names().count(), 1);
    assert_eq!(stage.gate.now(), stage.start);
}

#[test]
fn more_overrides_than_the_maximum_are_an_error() {
    let entry = |number: usize| Override {
        identity: Identity::user(&number.to_string()),
        policy: None,
        action: Action::Ban,
        until: Timestamp::from_millis(1),
    };
    assert_eq!(Overrides::new((0..Overrides::MAX).map(entry)).unwrap().as_slice().len(), 10_000);
    let error = Overrides::new((0..).map(entry)).unwrap_err();
    assert_eq!(error, TooManyOverrides);
    assert_eq!(error.to_string(), "too many overrides: expected at most 10000");
}

#[test]
fn an_inspection_reports_everything_and_spends_nothing() {
    let begun = Ban::after(Quota::per_minute(1)).lasting(10 * MINUTE);
    let stage = Stage::new([api().quota(Quota::per_hour(50)).ban(begun)]);
    for _ in 0..2 {
        let fresh = stage.inspect("api", "user:ann");
        let untouched = [Quota::per_minute(3), Quota::per_hour(50)].map(Standing::untouched);
        assert_eq!(fresh.standings, untouched);
        assert_eq!((fresh.banned, fresh.exempt, fresh.granted), (None, None, vec![0, 0]));
        assert_eq!((fresh.degraded, fresh.plan), (false, None));
    }
    assert_eq!(stage.allowed(user("ann")), 3);
    let spent = stage.at(Duration::from_secs(1)).inspect("api", "user:ann");
    assert_eq!(spent.banned, Some(10 * MINUTE - Duration::from_secs(1)), "the denial began one");
    assert_eq!(spent.standings[0].remaining(), 0);
    assert_eq!(spent.standings[0].retry_after(), Duration::from_secs(59));
    assert_eq!(spent.standings[1].remaining(), 47);
    assert!(spent.standings[1].retry_after().is_zero());
    stage.apply([
        ("user:ann", "", Action::Ban, HOUR),
        ("user:ann", "other", Action::Ban, 2 * HOUR),
        ("user:ann", "api", Action::Exempt, MINUTE),
        ("user:ann", "", Action::Exempt, 2 * MINUTE),
        ("user:ann", "api", grant(2), MINUTE),
        ("user:ann", "", grant(5), MINUTE),
        ("user:ann", "other", grant(90), MINUTE),
    ]);
    let effect = stage.inspect("api", "user:ann");
    assert_eq!(effect.banned, Some(HOUR - Duration::from_secs(1)));
    assert_eq!(effect.exempt, Some(2 * MINUTE - Duration::from_secs(1)));
    assert_eq!((effect.granted, effect.standings[0].quota()), (vec![7, 7], Quota::per_minute(10)));
    assert_eq!(effect.standings[0].remaining(), 7);
    let later = stage.at(2 * HOUR).inspect("api", "user:ann");
    assert_eq!((later.banned, later.exempt, later.granted), (None, None, vec![0, 0]));
}

#[test]
fn an_inspection_goes_by_plan_scope_and_network() {
    let policies = Policies::builder()
        .plan(Plan::new("free", [Quota::per_minute(2)]))
        .plan(Plan::new("pro", [Quota::per_minute(20)]))
        .policy(Policy::new("api").identity([Source::ApiKey, Source::ip()]).plans("free"))
        .policy(Policy::new("flood").scope(Scope::Local).quota(Quota::per_second(5)))
        .api_key("k-1", "pro");
    let stage = Stage::of(policies);
    let inspect = |identity: &Identity, plan| {
        let account = Account { policy: "api".parse().unwrap(), identity: *identity };
        let found = now(stage.gate.admin().inspect(&account, plan)).unwrap();
        (found.plan.unwrap().to_string(), found.standings[0].quota().units().get())
    };
    let (key, other) = (Identity::api_key(b"k-1"), Identity::api_key(b"k-2"));
    assert_eq!(inspect(&key, None), ("pro".to_owned(), 20));
    assert_eq!(inspect(&key, Some("free")), ("free".to_owned(), 2));
    assert_eq!(inspect(&other, None), ("free".to_owned(), 2));
    assert_eq!(inspect(&other, Some("pro")), ("pro".to_owned(), 20));
    assert_eq!(inspect(&other, Some("unheard-of")), ("free".to_owned(), 2));

    assert!(stage.is_allowed(ip("2001:db8::1")));
    for text in ["ip:2001:db8::/64", "ip:2001:db8::1", "ip:2001:db8::2"] {
        assert_eq!(stage.inspect("api", text).standings[0].remaining(), 1, "{text}");
        assert_eq!(stage.inspect("flood", text).standings[0].remaining(), 4, "{text}");
    }
    stage.apply([("ip:2001:db8::/32", "", Action::Ban, MINUTE)]);
    assert_eq!(stage.inspect("api", "ip:2001:db8::1").banned, Some(MINUTE));

    let unknown = now(stage.gate.admin().inspect(&account("gone", "user:ann"), None)).unwrap_err();
    assert!(matches!(&unknown, AccountError::UnknownPolicy(name) if name == "gone"), "{unknown}");
}

#[test]
fn an_account_is_read_as_policies_would_count_it_that_are_not_in_force() {
    let policies = |minute, key_plan: &str| {
        let policies = Policies::builder()
            .plan(Plan::new("free", [Quota::per_minute(minute), Quota::per_hour(50)]))
            .plan(Plan::new("pro", [Quota::per_minute(20)]))
            .policy(Policy::new("api").identity([Source::ApiKey, Source::ip()]).plans("free"));
        policies.api_key("k-1", key_plan)
    };
    let stage = Stage::of(policies(10, "pro"));
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", "k-1".parse().unwrap());
    let method = Method::GET;
    for _ in 0..8 {
        assert!(stage.is_allowed(Facts::new(&method, "/").headers(&headers)));
    }
    let account = Account { policy: "api".parse().unwrap(), identity: Identity::api_key(b"k-1") };
    let new = policies(5, "free").build().unwrap();
    let read = |policies: &Policies, plan: Option<&str>| {
        let reading = now(stage.gate.admin().read_under(policies, &account, plan)).unwrap();
        let ledgers = reading.ledgers.iter();
        ledgers.map(|ledger| (ledger.quota.to_string(), ledger.spent())).collect::<Vec<_>>()
    };
    let (kept, anew) = (("5/min".to_owned(), 8), ("50/h".to_owned(), 0));
    assert_eq!(read(&new, None), [kept, anew], "more than the units, and a window that is new");
    assert_eq!(read(&new, Some("pro")), [("20/min".to_owned(), 8)]);
    let of = |plan| {
        let (quotas, plan) = new.quotas_of(&account, plan).unwrap();
        (quotas.as_slice().to_vec(), plan.unwrap().to_string())
    };
    assert_eq!(of(None), (vec![Quota::per_minute(5), Quota::per_hour(50)], "free".to_owned()));
    assert_eq!(of(Some("pro")), (vec![Quota::per_minute(20)], "pro".to_owned()));
    assert_eq!(of(Some("unheard-of")), of(None));

    let key = account.identity.to_string();
    stage.apply([(key.as_str(), "", grant(4), MINUTE)]);
    assert_eq!(read(&new, None)[0], ("9/min".to_owned(), 8), "with what is granted");
    assert_eq!(stage.inspect("api", &key).standings[0].remaining(), 16, "nothing has changed");
    let unknown = self::account("gone", "user:ann");
    assert!(new.quotas_of(&unknown, None).is_none());
}

#[test]
fn an_address_names_the_account_of_its_network_in_every_call() {
    let begun = Ban::after(Quota::per_minute(1)).lasting(10 * MINUTE);
    let stage = Stage::new([Policy::new("api").quota(Quota::per_minute(3)).ban(begun)]);
    let (client, named) = (ip("2001:db8::1"), account("api", "ip:2001:db8::2"));
    assert!(stage.is_allowed(client) && stage.is_allowed(client));
    let remaining = || stage.inspect("api", "ip:2001:db8::3").standings[0].remaining();
    assert_eq!(remaining(), 1);
    now(stage.gate.admin().refund_units(&named, cost(1))).unwrap();
    assert_eq!(remaining(), 2);
    now(stage.gate.admin().reset(&named)).unwrap();
    assert_eq!(remaining(), 3);
    stage.gate.admin().ban(&named, HOUR).unwrap();
    assert_eq!(stage.verdict(client), banned(HOUR));
    stage.gate.admin().lift_ban(&named);
    assert_eq!(stage.verdict(client), Verdict::Allow);
}

/// A store that never answers.
struct Down;

impl Store for Down {
    async fn spend(&self, _: &Charges<'_>) -> Result<Receipt, StoreError> {
        Err(StoreError::Deadline(MINUTE))
    }

    async fn peek(&self, _: &Charges<'_>) -> Result<Receipt, StoreError> {
        Err(StoreError::Deadline(MINUTE))
    }

    async fn read(&self, _: Charge<'_>) -> Result<AccountReading, StoreError> {
        Err(StoreError::Deadline(MINUTE))
    }

    async fn refund(&self, _: &Charges<'_>, _: Spent) -> Result<(), StoreError> {
        Err(StoreError::Deadline(MINUTE))
    }

    async fn settle(&self, _: &Charges<'_>, _: Settlement<'_>) -> Result<Settled, StoreError> {
        Err(StoreError::Deadline(MINUTE))
    }

    async fn reset(&self, _: &Charges<'_>) -> Result<(), StoreError> {
        Err(StoreError::Deadline(MINUTE))
    }
}

#[test]
fn overrides_hold_when_the_store_is_down() {
    let policies = Policies::builder()
        .policy(api().path("/local"))
        .policy(
            Policy::new("deny")
                .path("/deny")
                .quota(Quota::per_minute(1))
                .on_store_error(OnStoreError::Deny),
        )
        .build();
    let gate = Gate::new(policies.unwrap(), Down);
    let entry = |identity: &str, action| Override {
        identity: identity.parse().unwrap(),
        policy: None,
        action,
        until: gate.now() + HOUR,
    };
    let facts = |path, name| get(path).user(name);
    let overrides = [
        entry("user:out", Action::Ban),
        entry("user:free", Action::Exempt),
        entry("user:ann", grant(2)),
    ];
    gate.admin().replace_overrides(Overrides::new(overrides).unwrap());
    assert!(now(gate.decide(&facts("/deny", "bob"))).is_err());
    assert!(now(gate.decide(&facts("/deny", "free"))).unwrap().is_allowed());
    assert!(!now(gate.decide(&facts("/deny", "out"))).unwrap().is_allowed());
    let allowed =
        (0..9).filter(|_| now(gate.decide(&facts("/local", "ann"))).unwrap().is_allowed());
    assert_eq!(allowed.count(), 5);
    let found = now(gate.admin().inspect(&account("api", "user:ann"), None)).unwrap();
    assert!(found.degraded);
    assert_eq!((found.standings[0].remaining(), found.granted), (0, vec![2]));
    let failed = now(gate.admin().inspect(&account("deny", "ip:203.0.113.7"), None));
    assert!(matches!(failed, Err(AccountError::Store(StoreError::Deadline(_)))), "{failed:?}");
}

#[test]
fn overrides_and_policies_replaced_at_once_lose_neither() {
    let gate = Arc::new(Gate::new(Policies::default(), MemoryStore::new()));
    let entry = |number: usize| Override {
        identity: Identity::user(&number.to_string()),
        policy: None,
        action: Action::Ban,
        until: gate.now() + HOUR,
    };
    for round in 1..=200 {
        thread::scope(|scope| {
            scope.spawn(|| {
                gate.admin().replace_overrides(Overrides::new((0..round).map(entry)).unwrap());
            });
            scope.spawn(|| {
                let quota = Quota::per_minute(round as u32);
                let policies = Policies::builder().policy(Policy::new("api").quota(quota));
                gate.replace_policies(policies.build().unwrap());
            });
        });
        assert_eq!(gate.admin().overrides().as_slice().len(), round);
        let policies = gate.policies();
        let policy = policies.iter().next().unwrap();
        assert_eq!(policy.quotas(), [Quota::per_minute(round as u32)]);
    }
}

/// What happens next: time passes, overrides are replaced, a request comes.
#[derive(Debug, Clone)]
struct Step {
    wait_ns: u64,
    /// Units and for how long, in place of all that were.
    grants: Option<Vec<(u32, u64)>>,
    cost: u32,
}

fn steps(
    costs: std::ops::Range<u32>,
    grants: std::ops::Range<u32>,
) -> impl Strategy<Value = Vec<Step>> {
    let wait_ns = prop_oneof![Just(0), 0..3_000_000u64, 0..400_000_000u64];
    let lasting_ns = prop_oneof![0..5_000_000u64, 0..900_000_000u64];
    let list = prop::collection::vec((grants, lasting_ns), 0..4);
    let step = (wait_ns, prop::option::weighted(0.3, list), costs)
        .prop_map(|(wait_ns, grants, cost)| Step { wait_ns, grants, cost });
    prop::collection::vec(step, 1..60)
}

/// A gate under grants that come and go, beside what they must come to.
struct Granting {
    stage: Stage,
    limits: Vec<Limit>,
    now_ns: u64,
    grants: Vec<GrantInForce>,
}

struct GrantInForce {
    units: u32,
    until_ns: u64,
    /// Of the quota that it raises; `None` for both.
    window_ms: Option<u64>,
}

impl Granting {
    fn new(units: [u32; 2]) -> Self {
        let limits = [(units[0], 100), (units[1], 1000)];
        let limits = limits.map(|(units, window_ms)| Limit { units, window_ms }).to_vec();
        let quota = |limit: &Limit| {
            Quota::new(cost(limit.units), Duration::from_millis(limit.window_ms)).unwrap()
        };
        let policy = Policy::new("api").identity([Source::User]);
        let policy = limits.iter().fold(policy, |policy, limit| policy.quota(quota(limit)));
        Self { stage: Stage::new([policy]), limits, now_ns: 0, grants: Vec::new() }
    }

    fn take(&mut self, step: &Step) -> Decision {
        self.now_ns += step.wait_ns;
        self.stage.at(Duration::from_nanos(self.now_ns));
        if let Some(grants) = &step.grants {
            // One in three for both quotas.
            let windows = [Some(100), None, Some(1000)].into_iter().cycle();
            let in_force = grants.iter().zip(windows).map(|((units, ns), window_ms)| {
                GrantInForce { units: *units, until_ns: self.now_ns + ns, window_ms }
            });
            self.grants = in_force.collect();
            // Half of them for all policies.
            let policies = ["api", ""].into_iter().cycle();
            let overrides = self.grants.iter().zip(policies).map(|(granted, policy)| {
                let window = granted.window_ms.map(Duration::from_millis);
                let action = Action::Grant { units: cost(granted.units), window };
                ("user:ann", policy, action, Duration::from_nanos(granted.until_ns))
            });
            self.stage.apply(overrides);
        }
        self.stage.decide(user("ann").cost(cost(step.cost)))
    }

    fn limits_in_force(&self) -> Vec<Limit> {
        let granted = |limit: &Limit| -> u32 {
            let in_force = self.grants.iter().filter(|grant| self.now_ns < grant.until_ns);
            let here = in_force
                .filter(|grant| grant.window_ms.is_none_or(|window| window == limit.window_ms));
            here.map(|grant| grant.units).sum()
        };
        let raised = |limit: &Limit| Limit { units: limit.units + granted(limit), ..*limit };
        self.limits.iter().map(raised).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn under_grants_that_come_and_go_every_answer_is_the_one_that_brute_force_finds(
        units in [1..4u32, 2..7u32],
        steps in steps(1..5, 1..4),
    ) {
        let mut granting = Granting::new(units);
        let mut model = Model::default();
        for step in &steps {
            let decision = granting.take(step);
            let limits = granting.limits_in_force();
            if limits.iter().any(|limit| limit.units < step.cost) {
                prop_assert_eq!(decision.verdict(), Verdict::Block(Block::CostAboveUnits));
                continue;
            }
            let start_ns = granting.stage.start.as_nanos();
            let charge = ModelCharge { account: 0, limits: limits.clone(), cost: step.cost, kind: Kind::Plain };
            let expected = model.spend(&[charge], start_ns + granting.now_ns);
            prop_assert_eq!(decision.is_allowed(), expected.spent);
            for ((standing, limit), expected) in
                decision.policies()[0].standings.iter().zip(&limits).zip(&expected.standings)
            {
                prop_assert_eq!(standing.quota().units().get(), limit.units);
                prop_assert_eq!(standing.remaining(), expected.remaining);
                prop_assert_eq!(standing.retry_after(), Duration::from_nanos(expected.retry_after_ns));
                prop_assert_eq!(standing.reset_after(), Duration::from_nanos(expected.reset_after_ns));
            }
        }
    }

    #[test]
    fn no_window_has_more_than_the_units_with_the_grants_in_force(
        units in [4_000..4_100u32, 4_090..9_000u32],
        steps in steps(1..2_500, 1..4_000),
    ) {
        let mut granting = Granting::new(units);
        let mut spent: Vec<(u64, u32)> = Vec::new();
        for step in &steps {
            if !granting.take(step).is_allowed() {
                continue;
            }
            let now_ns = granting.now_ns;
            spent.push((now_ns, step.cost));
            for limit in granting.limits_in_force() {
                let within = spent.iter().filter(|(at_ns, _)| now_ns < at_ns + limit.window_ns());
                let within: u64 = within.map(|(_, cost)| u64::from(*cost)).sum();
                prop_assert!(within <= u64::from(limit.units), "{within} of {limit:?}");
            }
        }
    }
}
