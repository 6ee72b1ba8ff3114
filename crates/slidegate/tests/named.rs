//! Charges that are named instead of found by a request's facts.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::support::now;
use http::Method;
use slidegate::limit::Quotas;
use slidegate::{
    Account, AccountError, Ban, Block, Decision, Facts, Gate, Identity, ManualClock, MemoryStore,
    NamedCharge, Plan, Policies, Policy, Quota, Scope, Source, Timestamp, Verdict,
};

fn charge<'a>(policy: &'a str, identity: &str, cost: u32) -> NamedCharge<'a> {
    let identity = identity.parse().unwrap();
    NamedCharge { policy, identity, plan: None, cost: NonZeroU32::new(cost), quotas: None }
}

fn gate(list: impl IntoIterator<Item = Policy>) -> Gate {
    let clock = ManualClock::new(Timestamp::from_millis(1_000_000));
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    let plans =
        [("free", 2), ("pro", 20)].map(|(name, units)| Plan::new(name, [Quota::per_minute(units)]));
    let builder = plans.into_iter().fold(Policies::builder(), |builder, plan| builder.plan(plan));
    let builder = list.into_iter().fold(builder, |builder, policy| builder.policy(policy));
    Gate::with_local(builder.build().unwrap(), store(), store())
}

fn decide(gate: &Gate, charges: &[NamedCharge<'_>]) -> Decision {
    now(gate.decide_named(charges)).unwrap()
}

fn remaining(gate: &Gate, charge: NamedCharge<'_>) -> u32 {
    let decision = now(gate.peek_named(&[charge])).unwrap();
    decision.policies()[0].standings[0].remaining()
}

#[test]
fn named_charges_are_spent_all_or_none_whatever_their_scope() {
    let gate = gate([
        Policy::new("burst").scope(Scope::Local).quota(Quota::per_second(9)),
        Policy::new("tenant").quota(Quota::per_minute(10)),
        Policy::new("mailbox").quota(Quota::per_minute(3)),
    ]);
    let charges = [
        charge("burst", "user:42", 1),
        charge("tenant", "x-tenant:acme", 2),
        charge("mailbox", "user:42", 2),
    ];
    assert!(decide(&gate, &charges).is_allowed());
    let denied = decide(&gate, &charges);
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(60)));
    assert_eq!(charges.map(|charge| remaining(&gate, charge)), [8, 8, 1]);
}

#[test]
fn recorded_charges_refuse_nothing_by_themselves() {
    let ban = Ban::after(Quota::per_minute(1));
    let gate = gate([Policy::new("tokens").quota(Quota::per_minute(10)).ban(ban)]);
    let record = |identity, cost| {
        let decision = now(gate.record_named(&[charge("tokens", identity, cost)])).unwrap();
        (decision.verdict(), decision.is_recorded(), decision.policies()[0].recorded)
    };
    assert_eq!(record("user:1", 10), (Verdict::Allow, true, true));
    let closed = Verdict::Deny { retry_after: Duration::from_secs(60) };
    for _ in 0..3 {
        assert_eq!(record("user:1", 10), (closed, true, true), "and no ban begins");
    }
    // As one with a denial, it is a denial.
    let recorded = || now(gate.record_named(&[charge("tokens", "user:1", 10)])).unwrap();
    let allowed = now(gate.peek_named(&[charge("tokens", "user:2", 1)])).unwrap();
    assert!(recorded().and(allowed).is_recorded());
    let denied = now(gate.peek_named(&[charge("tokens", "user:1", 1)])).unwrap();
    assert!(!denied.is_recorded() && !recorded().and(denied).is_recorded());
    assert!(!now(gate.record_named(&[])).unwrap().is_recorded());

    // A ban keeps nothing from being written down, and the verdict says that it is in force.
    let account =
        Account { policy: "tokens".parse().unwrap(), identity: "user:3".parse().unwrap() };
    gate.admin().ban(&account, Duration::from_secs(5)).unwrap();
    let banned = Verdict::Block(Block::Banned { retry_after: Duration::from_secs(5) });
    assert_eq!(record("user:3", 4), (banned, false, true));
    gate.admin().lift_ban(&account);
    assert_eq!(remaining(&gate, charge("tokens", "user:3", 1)), 6);
}

#[test]
fn a_refund_gives_back_what_each_charge_cost() {
    let gate = gate([
        Policy::new("burst").scope(Scope::Local).quota(Quota::per_second(9)),
        Policy::new("api").identity([Source::User]).plans("free"),
    ]);
    let api = NamedCharge { plan: Some("pro"), ..charge("api", "user:42", 5) };
    let charges = [charge("burst", "user:42", 3), api];
    let kept = decide(&gate, &charges);
    let refunded = decide(&gate, &[charge("burst", "user:42", 2), api]);
    assert!(kept.has_spent() && refunded.has_spent());
    now(gate.refund(&refunded)).unwrap();
    assert_eq!(charges.map(|charge| remaining(&gate, charge)), [6, 15]);
    assert!(!now(gate.peek_named(&charges)).unwrap().has_spent());
    let denied = decide(&gate, &[charge("burst", "user:42", 7), api]);
    assert!(!denied.is_allowed() && !denied.has_spent());
}

#[test]
fn an_address_is_the_account_that_a_request_would_have() {
    let gate = gate([Policy::new("api").identity([Source::ip()]).quota(Quota::per_minute(2))]);
    let method = Method::GET;
    let facts = Facts::new(&method, "/").client("2001:db8::1".parse::<IpAddr>().unwrap());
    assert!(gate.decide_now(&facts).unwrap().is_allowed());
    for text in ["ip:2001:db8::2", "ip:2001:db8::/64"] {
        assert_eq!(remaining(&gate, charge("api", text, 1)), 1, "{text}");
    }
}

#[test]
fn a_named_charge_can_name_a_plan() {
    let gate = gate([Policy::new("api").plans("free")]);
    let api = charge("api", "user:42", 1);
    for (plan, units) in [(None, 2), (Some("pro"), 20), (Some("unheard-of"), 2)] {
        assert_eq!(remaining(&gate, NamedCharge { plan, ..api }), units);
    }
}

#[test]
fn a_named_charge_without_a_cost_has_that_of_the_policy() {
    let gate = gate([
        Policy::new("export").cost(5).quota(Quota::per_minute(10)),
        Policy::new("api").quota(Quota::per_minute(10)),
    ]);
    let charges = [charge("export", "user:42", 0), charge("api", "user:42", 0)];
    assert!(decide(&gate, &charges).is_allowed());
    assert_eq!(charges.map(|charge| remaining(&gate, charge)), [5, 9]);
}

#[test]
fn what_can_never_be_paid_is_blocked_and_a_watching_policy_blocks_nothing() {
    let gate = gate([
        Policy::new("api").quota(Quota::per_minute(10)),
        Policy::new("watch").quota(Quota::per_minute(1)).shadow(),
    ]);
    let costly = decide(&gate, &[charge("api", "user:42", 11)]);
    assert_eq!(costly.verdict(), Verdict::Block(Block::CostAboveUnits));
    let watched = [charge("api", "user:42", 2), charge("watch", "user:42", 2)];
    assert!(decide(&gate, &watched).is_allowed());
}

#[test]
fn denials_lead_to_a_ban_and_a_ban_holds() {
    let ban = Ban::after(Quota::per_minute(1)).lasting(Duration::from_secs(3600));
    let gate = gate([Policy::new("login").quota(Quota::per_minute(1)).ban(ban)]);
    let login = [charge("login", "user:42", 1)];
    assert!(decide(&gate, &login).is_allowed());
    assert!(!decide(&gate, &login).is_allowed());
    let banned = decide(&gate, &login);
    assert!(matches!(banned.verdict(), Verdict::Block(Block::Banned { .. })), "{banned:?}");
}

#[test]
fn an_unknown_policy_is_an_error_and_spends_nothing() {
    let gate = gate([Policy::new("api").quota(Quota::per_minute(10))]);
    let api = charge("api", "user:42", 1);
    let unknown = now(gate.decide_named(&[api, charge("apo", "user:42", 1)]));
    assert!(matches!(unknown, Err(AccountError::UnknownPolicy(name)) if name == "apo"));
    assert_eq!(remaining(&gate, api), 10);
}

#[test]
fn a_charge_can_bring_quotas_in_place_of_the_policys() {
    let gate = gate([Policy::new("api").quota(Quota::per_minute(10))]);
    let api = charge("api", "user:42", 1);
    assert!(decide(&gate, &[api]).is_allowed());
    let tighter = Quotas::from(Quota::per_minute(3));
    let given = NamedCharge { quotas: Some(&tighter), ..api };
    assert_eq!(remaining(&gate, given), 2, "one history, whatever the units");
    assert!(decide(&gate, &[given]).policies()[0].caller_quotas);
    assert_eq!(remaining(&gate, api), 8);
}

/// The window in seconds, as in `job:60`.
fn quotas_of(identity: &Identity) -> Quotas {
    let seconds = identity.value().parse().unwrap_or(1);
    Quota::new(u32::MAX.try_into().unwrap(), Duration::from_secs(seconds)).unwrap().into()
}

#[test]
fn a_policy_of_given_quotas_is_for_charges_alone_and_its_accounts_can_be_named() {
    let gate = gate([Policy::new("job").caller_quotas(quotas_of)]);
    let method = Method::GET;
    assert!(gate.decide_now(&Facts::new(&method, "/")).unwrap().policies().is_empty());
    let explained = gate.explain(&Facts::new(&method, "/")).to_string();
    assert_eq!(explained, "job: not for requests, only for charges by name\n");

    let bare = charge("job", "job:60", 2);
    let refused = now(gate.decide_named(&[bare]));
    assert!(matches!(refused, Err(AccountError::NoQuotas(policy)) if policy == "job"));
    let quotas = Quotas::from(Quota::per_minute(3));
    let given = NamedCharge { quotas: Some(&quotas), ..bare };
    assert!(decide(&gate, &[given]).is_allowed());
    assert!(!decide(&gate, &[given]).is_allowed());

    let account = Account { policy: "job".parse().unwrap(), identity: bare.identity };
    let admin = gate.admin();
    let inspected = now(admin.inspect(&account, None)).unwrap();
    assert_eq!(inspected.standings[0].remaining(), u32::MAX - 2);
    let inspected = now(admin.inspect_by(&account, None, Some(&quotas))).unwrap();
    assert_eq!(inspected.standings[0].remaining(), 1);
    assert!(!now(admin.is_untouched(&account)).unwrap());
    now(admin.reset(&account)).unwrap();
    assert!(now(admin.is_untouched(&account)).unwrap());
    assert!(decide(&gate, &[given]).is_allowed());
}

#[test]
fn several_accounts_of_one_policy_are_one_decision() {
    for scope in [Scope::Shared, Scope::Local] {
        let gate = gate([Policy::new("api").scope(scope).quota(Quota::per_minute(3))]);
        let [one, other] = [charge("api", "user:1", 2), charge("api", "user:2", 2)];
        assert!(decide(&gate, &[one, other]).is_allowed());
        let third = charge("api", "user:3", 1);
        assert!(!decide(&gate, &[third, other]).is_allowed());
        assert_eq!([one, other, third].map(|charge| remaining(&gate, charge)), [1, 1, 3]);
        // One account twice is one charge with both costs.
        assert!(!decide(&gate, &[third, charge("api", "user:3", 3)]).is_allowed());
        assert!(decide(&gate, &[third, charge("api", "user:3", 2)]).is_allowed());
        assert_eq!(remaining(&gate, third), 0);
    }
}

#[test]
fn quotas_in_place_of_the_policys_count_in_their_window() {
    let gate = gate([Policy::new("api").quota(Quota::per_minute(3))]);
    let api = charge("api", "user:42", 2);
    let (five, by_day) = (Quota::per_minute(5).into(), Quota::per_day(5).into());
    let more = NamedCharge { quotas: Some(&five), ..api };
    assert!(decide(&gate, &[more]).is_allowed());
    assert!(decide(&gate, &[more]).is_allowed());
    assert!(!decide(&gate, &[more]).is_allowed(), "four of five are spent");
    assert!(!decide(&gate, &[api]).is_allowed(), "and more than three");
    assert_eq!(remaining(&gate, NamedCharge { quotas: Some(&by_day), ..api }), 5);
    now(gate.refund_named(&[NamedCharge { cost: NonZeroU32::new(100), ..more }])).unwrap();
    assert_eq!(remaining(&gate, api), 3);
}
