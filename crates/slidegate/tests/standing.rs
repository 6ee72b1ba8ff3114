//! Where a caller stands, whatever it asks for.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::support::now;
use http::{HeaderMap, Method};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use slidegate::policy::{
    Action, ApiKey, Override, Overrides, PathReading, PoliciesBuilder, UnknownKeys,
};
use slidegate::{
    AccessList, Ban, Block, CallerAccount, CallerStanding, Clock, Facts, Gate, Identity,
    ManualClock, MemoryStore, Plan, Policies, Policy, Quota, Scope, Source, Store, Timestamp,
    Verdict,
};

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

fn gate(policies: PoliciesBuilder) -> (Gate, ManualClock) {
    let clock = ManualClock::default();
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    (Gate::with_local(policies.build().unwrap(), store(), store()), clock)
}

fn get(path: &str) -> Facts<'_> {
    Facts::new(&Method::GET, path).client("203.0.113.7".parse().unwrap())
}

fn units(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

#[track_caller]
fn accounts<S: Store>(gate: &Gate<S>, facts: &Facts<'_>) -> Vec<CallerAccount> {
    match now(gate.standing(facts)).unwrap() {
        CallerStanding::Counted { accounts, .. } => accounts,
        other => panic!("{other:?}"),
    }
}

fn names(accounts: &[CallerAccount]) -> Vec<String> {
    let name = |own: &CallerAccount| format!("{} of {}", own.policy, own.identity);
    accounts.iter().map(name).collect()
}

#[test]
fn a_policy_counts_whatever_its_method_and_path() {
    let hidden = Policy::new("hidden").quota("9/min").not_in_headers();
    let (gate, _) = gate(
        Policies::builder()
            .policy(Policy::new("login").method("POST").path("/login").quota("5/min"))
            .policy(Policy::new("guard").quota("100/s").scope(Scope::Local))
            .policy(Policy::new("seen").quota("100/s").scope(Scope::Local).in_headers())
            .policy(Policy::new("trial").quota("1/s").shadow())
            .policy(Policy::new("envoy").descriptors("edge", [("a", "*")]).quota("1/s"))
            .policy(Policy::new("users").identity(Source::User).skip_anonymous().quota("7/h"))
            .policy(hidden),
    );
    let seen = names(&accounts(&gate, &get("/rate-limits")));
    assert_eq!(seen, ["login of ip:203.0.113.7", "seen of ip:203.0.113.7"]);
    let seen = names(&accounts(&gate, &get("/rate-limits").user("ann")));
    assert_eq!(seen[2..], ["users of user:ann"]);
    let CallerStanding::Counted { hidden, .. } = now(gate.standing(&get("/"))).unwrap() else {
        panic!()
    };
    assert_eq!(names(&hidden), ["guard of ip:203.0.113.7", "hidden of ip:203.0.113.7"]);
    let own = accounts(&gate, &get("/"));
    assert_eq!([0, 1].map(|i: usize| own[i].counts_every_request), [false, true]);
}

#[test]
fn it_spends_nothing_and_agrees_with_the_next_decision() {
    let api = Policy::new("api").quota("5/min").quota("8/h").identity(Source::User).request_cost();
    let (gate, clock) = gate(Policies::builder().policy(api));
    let ann = get("/").user("ann");
    for (pause, cost) in [(0, 2), (7, 1), (11, 1)] {
        clock.advance(pause * SECOND);
        for _ in 0..30 {
            accounts(&gate, &ann);
        }
        let before = &accounts(&gate, &ann)[0];
        let decision = gate.decide_now(&ann.cost(units(cost))).unwrap();
        assert!(decision.is_allowed());
        let left = decision.policies()[0].standings.iter().map(|own| own.remaining() + cost);
        let said = before.reading.ledgers.iter().map(|ledger| ledger.remaining());
        assert_eq!(said.collect::<Vec<_>>(), left.collect::<Vec<_>>());
    }
    let own = &accounts(&gate, &ann)[0];
    let next = |i: usize| own.reading.ledgers[i].next_unit_at(own.reading.at).unwrap();
    let after = |i| next(i).saturating_since(own.reading.at);
    assert_eq!([after(0), after(1)], [42 * SECOND, 3582 * SECOND], "the first two leave");
    let fresh = &accounts(&gate, &get("/").user("bob"))[0];
    assert_eq!(fresh.reading.ledgers[0].next_unit_at(fresh.reading.at), None);
}

#[test]
fn units_above_a_lowered_quota_leave_without_a_unit_coming_back() {
    let policies = |quota: &str| Policies::builder().policy(Policy::new("api").quota(quota));
    let (gate, clock) = gate(policies("5/min"));
    for _ in 0..4 {
        assert!(gate.decide_now(&get("/")).unwrap().is_allowed());
        clock.advance(SECOND);
    }
    gate.replace_policies(policies("2/min").build().unwrap());
    let own = &accounts(&gate, &get("/"))[0];
    let (ledger, at) = (&own.reading.ledgers[0], own.reading.at);
    assert_eq!((ledger.spent(), ledger.remaining()), (4, 0));
    assert_eq!(ledger.next_unit_at(at), Some(at + 58 * SECOND), "the third");
    assert_eq!(own.passes_at(units(2)), Some(at + 59 * SECOND));
    assert_eq!(own.passes_at(units(3)), None);
}

#[test]
fn the_plan_and_what_is_granted_are_those_of_the_caller() {
    let (gate, _) = gate(
        Policies::builder()
            .plan(Plan::new("free", ["5/min"]))
            .plan(Plan::new("pro", ["50/min"]))
            .api_keys([ApiKey::new("k-1", "pro")])
            .policy(Policy::new("api").identity([Source::ApiKey, Source::ip()]).plans("free")),
    );
    let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), "k-1".parse().unwrap())]);
    let key = get("/").headers(&headers);
    let grant = Override {
        identity: Identity::api_key(b"k-1"),
        policy: None,
        action: Action::Grant { units: units(7), window: None },
        until: gate.now() + SECOND,
    };
    gate.admin().replace_overrides(Overrides::new([grant]).unwrap());
    let shown = |facts: &Facts<'_>| {
        let own = accounts(&gate, facts).remove(0);
        (own.plan.unwrap().name.to_string(), own.reading.ledgers[0].remaining())
    };
    assert_eq!(shown(&key), ("pro".to_owned(), 57));
    assert_eq!(shown(&get("/")), ("free".to_owned(), 5));
}

#[test]
fn blocked_exempt_and_unknown_callers_are_told_so() {
    let (gate, _) = gate(
        Policies::builder()
            .plan(Plan::new("free", ["5/min"]))
            .api_keys([ApiKey::new("k-1", "free")])
            .unknown_keys(UnknownKeys::Refuse)
            .blocked(AccessList::new().user("mallory").path("/secret"))
            .exempt(AccessList::new().user("monitor").path("/rate-limits"))
            .policy(Policy::new("api").path("/api").identity([Source::ApiKey]).quota("5/min"))
            .policy(Policy::new("all").quota("9/min").exempt(AccessList::new().user("ann"))),
    );
    let standing = |facts: &Facts<'_>| now(gate.standing(facts)).unwrap();
    let block = |facts: &Facts<'_>| match standing(facts) {
        CallerStanding::Refused(decision) => decision.verdict(),
        other => panic!("{other:?}"),
    };
    let here = get("/rate-limits");
    assert_eq!(block(&here.user("mallory")), Verdict::Block(Block::Listed));
    assert_eq!(block(&get("/secret")), Verdict::Block(Block::Listed));
    assert!(matches!(standing(&here.user("monitor")), CallerStanding::Exempt));
    assert_eq!(names(&accounts(&gate, &here)).len(), 2, "an exempt path exempts no caller");
    let readings = PathReading::default().read("/rate-limits");
    assert_eq!(names(&accounts(&gate, &here.readings(&readings))).len(), 2);
    assert_eq!(names(&accounts(&gate, &here.user("ann"))), ["api of anonymous"]);
    let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), "k-2".parse().unwrap())]);
    assert_eq!(block(&here.headers(&headers)), Verdict::Block(Block::UnknownKey));
}

#[test]
fn a_ban_is_shown_where_it_holds() {
    let ban = Ban::after(Quota::per_minute(1)).lasting(600 * SECOND);
    let (gate, _) = gate(
        Policies::builder()
            .policy(Policy::new("login").path("/login").quota("1/min").ban(ban))
            .policy(Policy::new("api").quota("9/min")),
    );
    for _ in 0..2 {
        let _ = gate.decide_now(&get("/login")).unwrap();
    }
    let standing = || now(gate.standing(&get("/rate-limits"))).unwrap();
    let CallerStanding::Counted { accounts, bans, .. } = standing() else { panic!() };
    assert_eq!((bans.len(), &*bans[0].policy, bans[0].retry_after), (1, "login", 600 * SECOND));
    let at = gate.now();
    assert_eq!(accounts[0].passes_at(units(1)), Some(at + 600 * SECOND));
    assert_eq!(accounts[1].passes_at(units(1)), Some(at));
    let of = |policy: Option<&str>| Override {
        identity: Identity::ip("203.0.113.7".parse().unwrap(), Default::default()),
        policy: policy.map(|name| name.parse().unwrap()),
        action: Action::Ban,
        until: at + 900 * SECOND,
    };
    gate.admin().replace_overrides(Overrides::new([of(Some("api"))]).unwrap());
    let CallerStanding::Counted { bans, .. } = standing() else { panic!() };
    assert_eq!((&*bans[1].policy, bans[1].retry_after), ("api", 900 * SECOND));
    gate.admin().replace_overrides(Overrides::new([of(None)]).unwrap());
    let CallerStanding::Refused(decision) = standing() else { panic!() };
    let block = Block::Suspended { retry_after: 900 * SECOND };
    assert_eq!(decision.verdict(), Verdict::Block(block));
}

#[test]
fn an_account_without_a_place_in_a_full_store_has_no_numbers() {
    let api = Policy::new("api").identity(Source::User).quota("5/h");
    let store = MemoryStore::builder().capacity(1).build();
    let gate = Gate::new(Policies::builder().policy(api).build().unwrap(), store);
    let users: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let is_counted = |user: &&String| {
        let decision = gate.decide_now(&get("/").user(user)).unwrap();
        !decision.is_degraded()
    };
    let counted: Vec<&String> = users.iter().filter(is_counted).collect();
    assert!(counted.len() < users.len(), "the store is full");
    let is_read = |user: &&String| now(gate.standing(&get("/").user(user))).is_ok();
    assert_eq!(users.iter().filter(is_read).collect::<Vec<_>>(), counted);
}

/// Some quotas, of which a few are kept by coarse ticks.
fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    let units_of = prop_oneof![4 => 3..40u32, 1 => 4097..9000u32];
    prop::collection::btree_map(50..20_000u64, units_of, 1..4).prop_map(|quotas| {
        let quota = |(window_ms, count)| {
            Quota::new(units(count), Duration::from_millis(window_ms)).unwrap()
        };
        quotas.into_iter().map(quota).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    /// Whoever waits for the instant passes, and whoever comes a nanosecond earlier does not.
    #[test]
    fn the_instant_is_exact(
        first in quotas(),
        second in quotas(),
        spends in prop::collection::vec((0..4_000_000_000u64, 1..3000u32), 0..30),
        wanted in 1..60u32,
    ) {
        let policy = |name: &str, quotas: Vec<Quota>| {
            let policy = Policy::new(name).identity(Source::User).request_cost();
            quotas.into_iter().fold(policy, Policy::quota)
        };
        let (gate, clock) = gate(
            Policies::builder()
                .policy(policy("first", first))
                .policy(policy("second", second).path("/elsewhere")),
        );
        let ann = get("/elsewhere").user("ann");
        for (pause_ns, cost) in spends {
            clock.advance(Duration::from_nanos(pause_ns));
            let cost = if cost % 3 == 0 { cost } else { cost % 9 + 1 };
            let path = if cost % 2 == 0 { "/" } else { "/elsewhere" };
            let _ = gate.decide_now(&get(path).user("ann").cost(units(cost))).unwrap();
        }
        let began = clock.now();
        let asked = accounts(&gate, &get("/rate-limits").user("ann"));
        let instants: Option<Vec<Timestamp>> =
            asked.iter().map(|own| own.passes_at(units(wanted))).collect();
        let ann = ann.cost(units(wanted));
        match instants.and_then(|all| all.into_iter().max()) {
            None => {
                let verdict = gate.peek_now(&ann).unwrap().verdict();
                prop_assert_eq!(verdict, Verdict::Block(Block::CostAboveUnits));
            }
            Some(at) => {
                if at > began {
                    clock.set(at - NANO);
                    prop_assert!(!gate.decide_now(&ann).unwrap().is_allowed(), "too early");
                }
                clock.set(at);
                prop_assert!(gate.decide_now(&ann).unwrap().is_allowed(), "at the instant");
            }
        }
    }
}

#[test]
fn a_fixed_cost_is_not_what_units_are_multiplied_by() {
    let upload = Policy::new("upload").quota("10/min").cost(4);
    let (gate, _) = gate(Policies::builder().policy(upload));
    let _ = gate.decide_now(&get("/")).unwrap();
    let own = &accounts(&gate, &get("/"))[0];
    let at = own.reading.at;
    assert_eq!(own.passes_at(units(6)), Some(at));
    assert_eq!(own.passes_at(units(7)), Some(at + 60 * SECOND));
}
