//! What a gate does around its store: scopes, failures, peeking, refunds, changes of policy.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::now;
use http::Method;
use slidegate::limit::{AccountReading, Charge, Charges, Receipt, Settled, Settlement, Spent};
use slidegate::{
    Account, AccountError, Ban, Decision, Facts, Gate, Identity, ManualClock, MemoryStore,
    OnStoreError, Policies, Policy, Quota, Scope, Source, Store, StoreError, Verdict,
};

const MINUTE: Duration = Duration::from_secs(60);

fn client() -> Facts<'static> {
    static GET: Method = Method::GET;
    Facts::new(&GET, "/").client(IpAddr::from([203, 0, 113, 7]))
}

fn policies(list: impl IntoIterator<Item = Policy>) -> Policies {
    let builder = Policies::builder();
    list.into_iter().fold(builder, |builder, policy| builder.policy(policy)).build().unwrap()
}

fn gate(clock: &ManualClock, list: impl IntoIterator<Item = Policy>) -> Gate {
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    Gate::with_local(policies(list), store(), store())
}

fn remaining(gate: &Gate, policy: &str) -> u32 {
    let decision = gate.peek_now(&client()).unwrap();
    let own = decision.policies().iter().find(|own| *own.policy == *policy).unwrap();
    own.standings[0].remaining()
}

fn account(policy: &str) -> Account {
    Account { policy: policy.parse().unwrap(), identity: "ip:203.0.113.7".parse().unwrap() }
}

/// A store that is down, and counts how often it was asked.
#[derive(Default)]
struct Down {
    asked: AtomicUsize,
}

impl Down {
    fn fail<T>(&self) -> Result<T, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Err(StoreError::Unavailable("connection refused".into()))
    }
}

impl Store for Down {
    async fn spend(&self, _: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.fail()
    }

    async fn peek(&self, _: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.fail()
    }

    async fn read(&self, _: Charge<'_>) -> Result<AccountReading, StoreError> {
        self.fail()
    }

    async fn refund(&self, _: &Charges<'_>, _: Spent) -> Result<(), StoreError> {
        self.fail()
    }

    async fn settle(&self, _: &Charges<'_>, _: Settlement<'_>) -> Result<Settled, StoreError> {
        self.fail()
    }

    async fn reset(&self, _: &Charges<'_>) -> Result<(), StoreError> {
        self.fail()
    }
}

#[test]
fn a_decision_reports_every_quota_and_the_tightest() {
    let clock = ManualClock::default();
    let gate = gate(
        &clock,
        [
            Policy::new("api").quota(Quota::per_minute(3)).quota(Quota::per_day(100)),
            Policy::new("all").identity([Source::Everyone]).quota(Quota::per_minute(50)),
        ],
    );
    let decision = gate.decide_now(&client()).unwrap();
    assert_eq!(decision.verdict(), Verdict::Allow);
    let counts: Vec<usize> = decision.policies().iter().map(|p| p.standings.len()).collect();
    assert_eq!(counts, [2, 1]);
    let (policy, standing) = decision.tightest().unwrap();
    assert_eq!((&*policy.policy, standing.remaining()), ("api", 2));
    assert_eq!(standing.quota(), Quota::per_minute(3));

    clock.advance(Duration::from_secs(1));
    while gate.decide_now(&client()).unwrap().is_allowed() {}
    let denied = gate.decide_now(&client()).unwrap();
    assert_eq!(denied.retry_after(), Some(MINUTE - Duration::from_secs(1)));
    let (policy, standing) = denied.tightest().unwrap();
    assert_eq!((&*policy.policy, standing.remaining()), ("api", 0));
    assert!(policy.is_violated());
    assert!(!denied.policies()[1].is_violated());
    assert_eq!(denied.policies()[1].standings[0].remaining(), 47, "and it was not charged");
}

#[test]
fn a_quota_with_the_smallest_part_of_its_units_left_is_the_tightest() {
    let quota = |text: &str| text.parse::<Quota>().unwrap();
    // Two quotas of one policy, how many requests have passed, and the one that binds first.
    for (one, other, requests, expected) in [
        ("50/s", "60/min", 30, "50/s"),
        ("1000/min", "10/h", 1, "10/h"),
        ("1000/min", "100000/day", 10, "1000/min"),
        ("100/min", "1000/h", 10, "100/min"),
        ("4294967295/min", "4294967294/h", 1, "4294967294/h"),
        // The same part: the longer window.
        ("10/min", "10/h", 3, "10/h"),
        ("10/h", "10/min", 3, "10/h"),
    ] {
        let clock = ManualClock::default();
        let gate = gate(&clock, [Policy::new("api").quota(quota(one)).quota(quota(other))]);
        let mut decision = Decision::default();
        for _ in 0..requests {
            decision = gate.decide_now(&client()).unwrap();
        }
        let (_, standing) = decision.tightest().unwrap();
        assert_eq!(standing.quota(), quota(expected), "{one} and {other} after {requests}");
    }
}

#[test]
fn fewer_units_left_of_a_larger_part_do_not_bind_first() {
    let clock = ManualClock::default();
    let list = [
        Policy::new("login").path("/login").quota(Quota::per_minute(5)),
        Policy::new("api").quota(Quota::per_minute(60)),
    ];
    let gate = gate(&clock, list);
    for _ in 0..50 {
        assert!(gate.decide_now(&client()).unwrap().is_allowed());
    }
    let login = Facts::new(&Method::POST, "/login").client(IpAddr::from([203, 0, 113, 7]));
    let decision = gate.decide_now(&login).unwrap();
    // 4 of 5 are left of one and 9 of 60 of the other.
    assert_eq!(&*decision.tightest().unwrap().0.policy, "api");
}

#[test]
fn headers_show_shared_policies_unless_policies_say_otherwise() {
    let clock = ManualClock::default();
    let minute = |name, units| Policy::new(name).quota(Quota::per_minute(units));
    let gate = gate(
        &clock,
        [
            minute("guard", 2).scope(Scope::Local),
            minute("shown", 20).scope(Scope::Local).in_headers(),
            minute("secret", 4).not_in_headers(),
            minute("watched", 3).shadow().in_headers(),
            minute("api", 10),
        ],
    );
    let decision = gate.decide_now(&client()).unwrap();
    let shown: Vec<&str> =
        decision.policies().iter().filter(|own| own.in_headers).map(|own| &*own.policy).collect();
    assert_eq!(shown, ["shown", "api"]);
    assert_eq!(&*decision.tightest().unwrap().0.policy, "guard");
    assert_eq!(&*decision.tightest_in_headers().unwrap().0.policy, "api");
    let in_headers: Vec<bool> = gate.policies().iter().map(|own| own.in_headers).collect();
    assert_eq!(in_headers, [false, true, false, true, true]);

    let _ = gate.decide_now(&client()).unwrap();
    let denied = gate.decide_now(&client()).unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(&*denied.tightest().unwrap().0.policy, "guard");
    assert_eq!(&*denied.tightest_in_headers().unwrap().0.policy, "shown", "local, and known");
}

#[test]
fn local_policies_are_decided_before_the_store_is_asked() {
    let list = [
        Policy::new("flood").scope(Scope::Local).quota(Quota::per_second(2)),
        Policy::new("api").quota(Quota::per_minute(100)).on_store_error(OnStoreError::Allow),
    ];
    let gate = Gate::new(policies(list), Down::default());
    let passed: Vec<bool> =
        (0..5).map(|_| now(gate.decide(&client())).unwrap().is_allowed()).collect();
    assert_eq!(passed, [true, true, false, false, false]);
    assert_eq!(gate.store().asked.load(Ordering::Relaxed), 2, "what is denied here costs nothing");
}

#[test]
fn what_a_local_policy_took_is_given_back_when_the_store_denies() {
    let clock = ManualClock::default();
    let gate = gate(
        &clock,
        [
            Policy::new("guard").scope(Scope::Local).quota(Quota::per_minute(50)),
            Policy::new("counting").scope(Scope::Local).quota(Quota::per_minute(50)).count_denied(),
            Policy::new("api").quota(Quota::per_minute(10)),
        ],
    );
    let passed = (0..30).filter(|_| gate.decide_now(&client()).unwrap().is_allowed()).count();
    assert_eq!(passed, 10);
    assert_eq!(remaining(&gate, "guard"), 40, "a denied request consumes nothing");
    assert_eq!(remaining(&gate, "counting"), 20, "unless the policy counts denied requests");
}

#[test]
fn a_failing_store_is_answered_as_each_policy_says() {
    let api = || Policy::new("api").quota(Quota::per_minute(2));
    let decide = |list: Vec<Policy>| {
        let gate = Gate::new(policies(list), Down::default());
        let answers: Vec<Result<bool, String>> = (0..4)
            .map(|_| now(gate.decide(&client())))
            .map(|answer| {
                answer.map(|d| {
                    assert!(d.is_degraded());
                    d.is_allowed()
                })
            })
            .map(|answer| answer.map_err(|error| error.to_string()))
            .collect();
        answers
    };
    let local = decide(vec![api()]);
    assert_eq!(local, [Ok(true), Ok(true), Ok(false), Ok(false)], "this process's own limiter");
    let allow = decide(vec![api().on_store_error(OnStoreError::Allow)]);
    assert_eq!(allow, [Ok(true), Ok(true), Ok(true), Ok(true)]);
    let deny = decide(vec![api().on_store_error(OnStoreError::Deny)]);
    assert!(deny.iter().all(|answer| answer == &Err("the store is unavailable".to_owned())));
    let other = Policy::new("other").quota(Quota::per_minute(9)).on_store_error(OnStoreError::Deny);
    assert!(decide(vec![api(), other]).iter().all(Result::is_err), "one that denies is enough");
}

#[test]
fn what_the_store_could_not_count_is_reported_by_policy() {
    let policy =
        |name: &str, action| Policy::new(name).quota(Quota::per_minute(9)).on_store_error(action);
    let guard = || policy("guard", OnStoreError::Local).scope(Scope::Local);
    let list = [guard(), policy("api", OnStoreError::Allow), policy("login", OnStoreError::Local)];
    let gate = Gate::new(policies(list), Down::default());
    let counts = |gate: &Gate<Down>| {
        let mut counts: Vec<_> = gate.admin().uncounted().into_iter().collect();
        counts.sort_unstable();
        counts.into_iter().map(|(name, count)| (name.to_string(), count)).collect::<Vec<_>>()
    };
    let expected = |list: &[(&str, u64)]| -> Vec<(String, u64)> {
        list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    assert_eq!(counts(&gate), []);
    for _ in 0..3 {
        assert!(now(gate.decide(&client())).unwrap().is_allowed());
        assert!(now(gate.peek(&client())).unwrap().is_allowed());
    }
    assert_eq!(counts(&gate), expected(&[("api", 3), ("login", 3)]), "spends, and not the guard's");
    gate.replace_policies(policies([guard(), policy("api", OnStoreError::Deny)]));
    assert!(now(gate.decide(&client())).is_err());
    assert_eq!(counts(&gate), expected(&[("api", 4)]), "those that stay count on");
}

#[test]
fn a_failing_store_takes_nothing_from_local_policies() {
    let clock = ManualClock::default();
    let local = MemoryStore::builder().clock(clock).build();
    let list = [
        Policy::new("guard").scope(Scope::Local).quota(Quota::per_minute(5)),
        Policy::new("api").quota(Quota::per_minute(2)).on_store_error(OnStoreError::Deny),
    ];
    let gate = Gate::with_local(policies(list), Down::default(), local);
    for _ in 0..20 {
        assert!(now(gate.decide(&client())).is_err(), "unavailable, and never one too many");
    }
    let list = [Policy::new("guard").scope(Scope::Local).quota(Quota::per_minute(5))];
    gate.replace_policies(policies(list));
    let decision = now(gate.decide(&client())).unwrap();
    assert_eq!(decision.tightest().unwrap().1.remaining(), 4);
}

#[test]
fn a_peek_returns_what_would_be_decided() {
    let clock = ManualClock::default();
    let gate = gate(&clock, [Policy::new("api").quota(Quota::per_minute(1))]);
    for _ in 0..3 {
        assert!(gate.peek_now(&client()).unwrap().is_allowed());
    }
    assert!(gate.decide_now(&client()).unwrap().is_allowed());
    assert_eq!(gate.peek_now(&client()).unwrap().retry_after(), Some(MINUTE));
}

#[test]
fn a_decision_can_be_refunded_once() {
    let clock = ManualClock::default();
    let gate = gate(
        &clock,
        [
            Policy::new("guard").scope(Scope::Local).quota(Quota::per_minute(5)),
            Policy::new("api").quota(Quota::per_minute(5)),
        ],
    );
    let first = gate.decide_now(&client()).unwrap();
    clock.advance(Duration::from_secs(5));
    let second = gate.decide_now(&client()).unwrap();
    now(gate.refund(&first)).unwrap();
    now(gate.refund(&first)).unwrap();
    assert_eq!((remaining(&gate, "guard"), remaining(&gate, "api")), (4, 4));
    now(gate.refund(&second)).unwrap();
    assert_eq!((remaining(&gate, "guard"), remaining(&gate, "api")), (5, 5));
}

#[test]
fn a_refund_leaves_alone_what_the_request_did_not_take() {
    let clock = ManualClock::default();
    let gate = gate(
        &clock,
        [
            Policy::new("watched").quota(Quota::per_minute(1)).shadow(),
            Policy::new("api").quota(Quota::per_minute(5)),
        ],
    );
    let first = gate.decide_now(&client()).unwrap();
    let second = gate.decide_now(&client()).unwrap();
    assert!(second.policies()[0].is_violated(), "the shadow policy had no room for the second");
    now(gate.refund(&second)).unwrap();
    assert_eq!((remaining(&gate, "watched"), remaining(&gate, "api")), (0, 4));
    now(gate.refund(&first)).unwrap();
    assert_eq!((remaining(&gate, "watched"), remaining(&gate, "api")), (1, 5));
}

#[test]
fn a_decision_made_without_the_store_can_be_refunded() {
    let gate =
        Gate::new(policies([Policy::new("api").quota(Quota::per_minute(1))]), Down::default());
    let decision = now(gate.decide(&client())).unwrap();
    assert!(!now(gate.decide(&client())).unwrap().is_allowed());
    now(gate.refund(&decision)).unwrap();
    assert!(now(gate.decide(&client())).unwrap().is_allowed());
}

#[test]
fn accounts_can_be_reset_and_refunded_by_name() {
    let clock = ManualClock::default();
    let gate = gate(
        &clock,
        [
            Policy::new("api").quota(Quota::per_minute(5)).quota(Quota::per_day(9)),
            Policy::new("guard").scope(Scope::Local).quota(Quota::per_minute(5)),
        ],
    );
    for _ in 0..4 {
        assert!(gate.decide_now(&client()).unwrap().is_allowed());
    }
    now(gate.admin().refund_units(&account("api"), NonZeroU32::new(3).unwrap())).unwrap();
    assert_eq!((remaining(&gate, "api"), remaining(&gate, "guard")), (4, 1));
    now(gate.admin().reset(&account("guard"))).unwrap();
    assert_eq!((remaining(&gate, "api"), remaining(&gate, "guard")), (4, 5));
    now(gate.admin().reset(&account("api"))).unwrap();
    let whole = gate.peek_now(&client()).unwrap();
    assert!(whole.policies().iter().flat_map(|p| &p.standings).all(|s| s.reset_after().is_zero()));

    let unknown = now(gate.admin().reset(&account("nobody")));
    assert!(matches!(unknown, Err(AccountError::UnknownPolicy(name)) if name == "nobody"));
}

#[test]
fn an_account_is_untouched_until_something_is_spent_or_it_is_banned() {
    let clock = ManualClock::default();
    let ban = Ban::after(Quota::per_minute(1)).lasting(MINUTE * 10);
    let local = Policy::new("local").scope(Scope::Local).quota(Quota::per_minute(5));
    let api = Policy::new("api").quota(Quota::per_minute(1)).ban(ban);
    let gate = gate(&clock, [local, api]);
    let untouched = |policy| now(gate.admin().is_untouched(&account(policy))).unwrap();
    assert!(untouched("local") && untouched("api"));
    assert!(gate.decide_now(&client()).unwrap().is_allowed());
    assert!(!untouched("local") && !untouched("api"));
    assert!(!gate.decide_now(&client()).unwrap().is_allowed());
    clock.advance(MINUTE * 2);
    assert!(untouched("local") && !untouched("api"), "the ban is still there");
    now(gate.admin().reset(&account("api"))).unwrap();
    assert!(untouched("api"));
    let unknown = now(gate.admin().is_untouched(&account("web")));
    assert!(matches!(unknown, Err(AccountError::UnknownPolicy(_))));
    let down =
        Gate::new(policies([Policy::new("api").quota(Quota::per_minute(1))]), Down::default());
    assert!(now(down.admin().is_untouched(&account("api"))).is_err(), "it is unknown");
}

#[test]
fn an_account_is_not_untouched_while_denials_count_towards_a_ban() {
    let clock = ManualClock::default();
    let ban = Ban::after(Quota::per_hour(2));
    let gate = gate(&clock, [Policy::new("api").quota(Quota::per_minute(1)).ban(ban)]);
    let untouched = || now(gate.admin().is_untouched(&account("api"))).unwrap();
    let deny = || {
        assert!(gate.decide_now(&client()).unwrap().is_allowed());
        assert!(!gate.decide_now(&client()).unwrap().is_allowed());
        clock.advance(MINUTE * 2);
    };
    deny();
    assert!(!untouched(), "the next denial would begin a ban");
    now(gate.admin().reset(&account("api"))).unwrap();
    assert!(untouched());
    deny();
    assert!(gate.decide_now(&client()).unwrap().is_allowed(), "the first denial is forgotten");
    clock.advance(MINUTE * 60);
    assert!(untouched(), "the denial no longer counts");
}

#[test]
fn a_reset_is_seen_at_once_by_a_client_that_was_denied() {
    let clock = ManualClock::default();
    let gate = gate(&clock, [Policy::new("api").quota(Quota::per_minute(1))]);
    for _ in 0..3 {
        assert!(gate.decide_now(&client()).unwrap().is_allowed());
        assert!(!gate.decide_now(&client()).unwrap().is_allowed());
        assert!(!gate.decide_now(&client()).unwrap().is_allowed());
        now(gate.admin().reset(&account("api"))).unwrap();
    }
}

#[test]
fn after_a_reset_elsewhere_a_gate_forgets_its_own_and_leaves_the_store_alone() {
    let clock = ManualClock::default();
    let list = [
        Policy::new("api").quota(Quota::per_minute(5)),
        Policy::new("guard").scope(Scope::Local).quota(Quota::per_minute(5)),
    ];
    let gate = gate(&clock, list);
    for _ in 0..4 {
        assert!(gate.decide_now(&client()).unwrap().is_allowed());
    }
    for policy in ["api", "guard"] {
        gate.admin().forget(&account(policy), Duration::ZERO).unwrap();
    }
    assert_eq!((remaining(&gate, "api"), remaining(&gate, "guard")), (1, 5));
    let unknown = gate.admin().forget(&account("nobody"), Duration::ZERO);
    assert!(matches!(unknown, Err(AccountError::UnknownPolicy(name)) if name == "nobody"));
}

#[test]
fn what_a_gate_counted_for_a_failing_store_since_a_reset_elsewhere_stays_counted() {
    let clock = ManualClock::default();
    let local = MemoryStore::builder().clock(clock.clone()).build();
    let api = policies([Policy::new("api").quota(Quota::per_minute(5))]);
    let gate = Gate::with_local(api, Down::default(), local);
    let pass =
        |n: usize| (0..n).filter(|_| now(gate.decide(&client())).unwrap().is_allowed()).count();
    assert_eq!(pass(3), 3);
    clock.advance(Duration::from_millis(2));
    assert_eq!(pass(9), 2);
    let asked = gate.store().asked.load(Ordering::Relaxed);
    gate.admin().forget(&account("api"), Duration::from_millis(1)).unwrap();
    assert_eq!(gate.store().asked.load(Ordering::Relaxed), asked);
    assert_eq!(pass(9), 3, "those of before the reset");
}

#[test]
fn policies_can_be_replaced_and_history_stays() {
    let clock = ManualClock::default();
    let api = |units| [Policy::new("api").quota(Quota::per_minute(units))];
    let gate = gate(&clock, api(10));
    let pass =
        |n: usize| (0..n).filter(|_| gate.decide_now(&client()).unwrap().is_allowed()).count();
    assert_eq!(pass(20), 10);
    gate.replace_policies(policies(api(15)));
    assert_eq!(pass(20), 5, "raised: room at once");
    gate.replace_policies(policies(api(3)));
    clock.advance(MINUTE - Duration::from_millis(1));
    assert_eq!(pass(20), 0, "lowered: none until the window drains");
    clock.advance(Duration::from_millis(1));
    assert_eq!(pass(20), 3);

    let other_window = [Policy::new("api").quota(Quota::per_hour(3))];
    gate.replace_policies(policies(other_window));
    assert_eq!(pass(20), 3, "another window is another history");
    assert_eq!(gate.policies().names().map(|name| name.to_string()).collect::<Vec<_>>(), ["api"]);
}

#[test]
fn futures_of_a_gate_can_move_between_threads() {
    fn sendable<T: Send>(_: &T) {}
    let gate =
        Gate::new(policies([Policy::new("api").quota(Quota::per_minute(1))]), Down::default());
    let facts = client();
    let future = gate.decide(&facts);
    sendable(&future);
    sendable(&gate.peek(&facts));
    assert!(now(future).unwrap().is_allowed());
}

#[test]
fn no_policies_and_no_matching_policy_allow() {
    let clock = ManualClock::default();
    assert!(gate(&clock, []).decide_now(&client()).unwrap().is_allowed());
    let elsewhere = Policy::new("x").path("/elsewhere").quota(Quota::per_minute(1));
    let decision = gate(&clock, [elsewhere]).decide_now(&client()).unwrap();
    assert!(decision.is_allowed() && decision.tightest().is_none());
}

#[test]
fn identities_of_one_policy_do_not_share() {
    let clock = ManualClock::default();
    let gate =
        gate(&clock, [Policy::new("api").identity([Source::User]).quota(Quota::per_minute(1))]);
    for user in ["ann", "bob", "cho"] {
        assert!(gate.decide_now(&client().user(user)).unwrap().is_allowed());
        assert!(!gate.decide_now(&client().user(user)).unwrap().is_allowed());
    }
    assert_eq!(Identity::user("ann").to_string(), "user:ann");
}

#[test]
fn a_shadow_policy_refuses_no_request_when_the_store_fails() {
    let shadow = Policy::new("watched").quota(Quota::per_minute(1)).shadow();
    let list = [shadow.on_store_error(OnStoreError::Deny)];
    let gate = Gate::new(policies(list), Down::default());
    assert!(now(gate.decide(&client())).unwrap().is_allowed());
}

#[test]
fn a_refund_of_units_goes_by_each_window() {
    let clock = ManualClock::default();
    let gate =
        gate(&clock, [Policy::new("api").quota(Quota::per_second(10)).quota(Quota::per_day(100))]);
    for _ in 0..5 {
        (0..10).for_each(|_| assert!(gate.decide_now(&client()).unwrap().is_allowed()));
        clock.advance(Duration::from_secs(1));
    }
    now(gate.admin().refund_units(&account("api"), NonZeroU32::new(30).unwrap())).unwrap();
    let whole = gate.peek_now(&client()).unwrap();
    let left: Vec<u32> = whole.policies()[0].standings.iter().map(|s| s.remaining()).collect();
    assert_eq!(left, [10, 80]);
}

#[test]
fn a_denied_decision_shows_local_policies_without_the_request() {
    let clock = ManualClock::default();
    let gate = gate(
        &clock,
        [
            Policy::new("guard").scope(Scope::Local).quota(Quota::per_minute(5)),
            Policy::new("watched").scope(Scope::Local).quota(Quota::per_minute(1)).shadow(),
            Policy::new("api").quota(Quota::per_minute(1)),
        ],
    );
    assert!(gate.decide_now(&client()).unwrap().is_allowed());
    for _ in 0..3 {
        let denied = gate.decide_now(&client()).unwrap();
        assert_eq!(denied.retry_after(), Some(MINUTE));
        let left: Vec<u32> = denied.policies().iter().map(|p| p.standings[0].remaining()).collect();
        assert_eq!(left, [4, 0, 0], "and the watched one keeps what the first request took");
    }
}

#[test]
fn a_policy_that_counts_denials_is_not_violated_by_what_another_denied() {
    for scope in [Scope::Local, Scope::Shared] {
        let clock = ManualClock::default();
        let gate = gate(
            &clock,
            [
                Policy::new("counting")
                    .scope(scope)
                    .quota(Quota::per_minute(2))
                    .count_denied()
                    .ban(Ban::after(Quota::per_minute(1))),
                Policy::new("narrow").quota(Quota::per_hour(1)),
            ],
        );
        assert!(gate.decide_now(&client()).unwrap().is_allowed());
        let denied = gate.decide_now(&client()).unwrap();
        let violated: Vec<bool> = denied.policies().iter().map(|p| p.is_violated()).collect();
        assert_eq!(violated, [false, true], "{scope:?}: the first had room");
        assert_eq!(remaining(&gate, "counting"), 0, "{scope:?}: and counted it");
        assert_eq!(&*denied.tightest().unwrap().0.policy, "narrow", "{scope:?}");
        assert_eq!(gate.admin().ban_stats().begun, 0, "{scope:?}: its ban is not on the way");

        let denied = gate.decide_now(&client()).unwrap();
        assert!(denied.policies()[0].is_violated(), "{scope:?}: now it has no room itself");
        assert_eq!(gate.admin().ban_stats().begun, 1, "{scope:?}");
    }
}

#[test]
fn a_wait_that_counting_a_denial_caused_is_reported() {
    let clock = ManualClock::default();
    let list = [
        Policy::new("counting").quota(Quota::per_hour(2)).count_denied(),
        Policy::new("narrow").quota(Quota::per_minute(1)),
    ];
    let gate = gate(&clock, list);
    assert!(gate.decide_now(&client()).unwrap().is_allowed());
    let denied = gate.decide_now(&client()).unwrap();
    assert_eq!(denied.retry_after(), Some(60 * MINUTE), "not a minute: it would be denied then");
    assert_eq!(&*denied.tightest().unwrap().0.policy, "narrow");
    clock.advance(MINUTE);
    assert!(!gate.peek_now(&client()).unwrap().is_allowed());
}
