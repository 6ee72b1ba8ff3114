//! Quotas that are counted beside those in force and never enforced.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use http::Method;
use proptest::prelude::*;
use slidegate::policy::PoliciesBuilder;
use slidegate::policy::{Action, Override, Overrides};
use slidegate::{
    Account, CandidateStanding, Consistency, Decision, Facts, Gate, ManualClock, MemoryStore, Plan,
    Policies, Policy, PolicyErrors, Quota,
};

use crate::support::now;

const SECOND: Duration = Duration::from_secs(1);

fn client() -> Facts<'static> {
    static GET: Method = Method::GET;
    Facts::new(&GET, "/").client(IpAddr::from([203, 0, 113, 7]))
}

fn gate(clock: &ManualClock, policy: Policy) -> Gate {
    let policies = Policies::builder()
        .plan(Plan::new("free", [Quota::per_minute(2)]))
        .plan(Plan::new("pro", [Quota::per_minute(4), Quota::per_hour(100)]))
        .policy(policy);
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    Gate::with_local(policies.build().unwrap(), store(), store())
}

/// The quota, what is left of it, and whether the request did not fit.
fn candidate(decision: &Decision) -> Vec<(String, u32, bool)> {
    let parts = |standing: &CandidateStanding| {
        (standing.quota.to_string(), standing.remaining, standing.violated)
    };
    decision.policies()[0].candidate.iter().map(parts).collect()
}

fn parts_of(quota: &str, remaining: u32, violated: bool) -> (String, u32, bool) {
    (quota.to_owned(), remaining, violated)
}

#[test]
fn a_candidate_reports_what_it_would_deny_and_denies_nothing() {
    let clock = ManualClock::default();
    let policy = Policy::new("api").quota("4/min").candidate("2/min").candidate("3/h");
    let gate = gate(&clock, policy);
    for (minute, hour) in [((1, false), (2, false)), ((0, false), (1, false))] {
        let decision = gate.decide_now(&client()).unwrap();
        let expected = [parts_of("2/min", minute.0, minute.1), parts_of("3/h", hour.0, hour.1)];
        assert_eq!(candidate(&decision), expected);
        assert!(!decision.policies()[0].is_denied_by_candidate());
    }
    let decision = gate.decide_now(&client()).unwrap();
    assert!(decision.is_allowed() && decision.policies()[0].is_denied_by_candidate());
    assert_eq!(candidate(&decision), [parts_of("2/min", 0, true), parts_of("3/h", 0, false)]);
    let standings = &decision.policies()[0].standings;
    assert_eq!(standings.len(), 1, "the standings are those of the quotas in force");
    assert_eq!((standings[0].quota(), standings[0].remaining()), (Quota::per_minute(4), 1));

    assert!(gate.decide_now(&client()).unwrap().is_allowed());
    let denied = gate.decide_now(&client()).unwrap();
    assert!(!denied.is_allowed());
    assert_eq!(candidate(&denied), [parts_of("2/min", 0, true), parts_of("3/h", 0, true)]);
    assert!(!denied.policies()[0].is_denied_by_candidate(), "the policy has denied it already");

    clock.advance(SECOND * 61);
    let decision = gate.decide_now(&client()).unwrap();
    assert_eq!(candidate(&decision), [parts_of("2/min", 1, false), parts_of("3/h", 0, true)]);
}

#[test]
fn each_plan_is_compared_by_the_ledgers_that_it_has() {
    let clock = ManualClock::default();
    let gate = gate(&clock, Policy::new("api").plans("free").candidate("1/h"));
    let of = |plan: &str| candidate(&gate.decide_now(&client().plan(plan)).unwrap());
    assert_eq!(of("free"), [parts_of("1/h", 0, false)]);
    assert_eq!(of("pro"), [parts_of("1/h", 0, true)], "the hour's ledger is the same account's");
    assert_eq!(of("free").len(), 1);
}

#[test]
fn peeking_counts_nothing_and_a_refund_takes_all_windows_back() {
    let clock = ManualClock::default();
    let gate = gate(&clock, Policy::new("api").quota("4/min").candidate("1/h"));
    let decision = gate.decide_now(&client()).unwrap();
    for _ in 0..2 {
        let peeked = gate.peek_now(&client()).unwrap();
        assert_eq!(candidate(&peeked), [parts_of("1/h", 0, true)], "one more would not fit");
    }
    now(gate.refund(&decision)).unwrap();
    assert_eq!(candidate(&gate.peek_now(&client()).unwrap()), [parts_of("1/h", 1, false)]);
}

#[test]
fn an_operator_sees_a_candidate_and_resets_and_grants_apply_to_it() {
    let clock = ManualClock::default();
    let gate = gate(&clock, Policy::new("api").quota("4/min").candidate("1/min").candidate("2/h"));
    let account =
        Account { policy: "api".parse().unwrap(), identity: "ip:203.0.113.7".parse().unwrap() };
    assert!(gate.decide_now(&client()).unwrap().is_allowed());
    let seen = now(gate.admin().inspect(&account, None)).unwrap();
    let violated: Vec<bool> = seen.candidate.iter().map(|standing| standing.violated).collect();
    assert_eq!((seen.standings.len(), violated), (1, vec![true, false]));
    let reading = now(gate.admin().read(&account, None)).unwrap();
    assert_eq!(reading.ledgers.len(), 1, "a window that limits nothing is not drawn");

    now(gate.admin().reset(&account)).unwrap();
    assert!(now(gate.admin().is_untouched(&account)).unwrap());
    let grant = Override {
        identity: account.identity,
        policy: None,
        action: Action::Grant { units: NonZeroU32::MIN, window: None },
        until: gate.now() + SECOND,
    };
    gate.admin().replace_overrides(Overrides::new([grant]).unwrap());
    let decision = gate.decide_now(&client()).unwrap();
    assert_eq!(candidate(&decision), [parts_of("2/min", 1, false), parts_of("3/h", 2, false)]);
}

#[test]
fn a_policy_that_changes_keeps_what_its_candidate_has_counted() {
    let clock = ManualClock::default();
    let api = || Policy::new("api").quota("4/min");
    let gate = gate(&clock, api().candidate("2/h"));
    assert!(gate.decide_now(&client()).unwrap().is_allowed());
    let enforced = Policy::new("api").quota("4/min").quota("2/h");
    gate.replace_policies(Policies::builder().policy(enforced).build().unwrap());
    assert!(gate.decide_now(&client()).unwrap().is_allowed());
    assert!(!gate.decide_now(&client()).unwrap().is_allowed(), "the hour has its two");
}

#[test]
fn neither_a_candidate_nor_another_plan_moves_the_ledgers_of_leased_units() {
    let api = || Policy::new("api").quota("3/min").consistency(Consistency::ASYNC);
    let by_plan = || Policy::new("api").plans("free").consistency(Consistency::ASYNC);
    let free = || Plan::new("free", [Quota::per_minute(3)]);
    let slow = Plan::new("slow", [Quota::per_hour(2)]);
    let quick = Plan::new("quick", [Quota::per_second(9), Quota::per_minute(9)]);
    let changed = Plan::new("free", [Quota::per_second(9), Quota::per_minute(3)]);
    for (before, after, plans) in [
        (api(), api().candidate("1/20s"), vec![]),
        (api(), api().candidate("2/h"), vec![]),
        (api(), api().quota("9/s"), vec![]),
        (by_plan(), by_plan(), vec![free(), slow]),
        (by_plan(), by_plan(), vec![free(), quick]),
        (by_plan(), by_plan(), vec![changed]),
    ] {
        let clock = ManualClock::default();
        let of = |policy, plans: Vec<Plan>| {
            let policies = Policies::builder().policy(policy);
            plans.into_iter().fold(policies, PoliciesBuilder::plan).build().unwrap()
        };
        let store = || MemoryStore::builder().clock(clock.clone()).build();
        let case = format!("{after:?} {plans:?}");
        let gate = Gate::with_local(of(before, vec![free()]), store(), store());
        let decides = || gate.decide_now(&client()).unwrap().is_allowed();
        assert!(decides() && decides());
        gate.replace_policies(of(after, plans));
        let decided = [decides(), decides()];
        assert_eq!(decided, [true, false], "the third is the last: {case}");
        clock.advance(SECOND * 62);
        assert!(decides(), "{case}");
    }
}

#[test]
fn a_candidate_that_makes_no_sense_is_refused() {
    let build =
        |policy| -> PolicyErrors { Policies::builder().policy(policy).build().unwrap_err() };
    let api = || Policy::new("api").quota("60/min");
    for (policy, expected) in [
        (api().candidate("50 a minute"), "candidate = \"50 a minute\""),
        (api().candidate("5/min").candidate("6/min"), "5/min and 6/min have the same window"),
        (api().cost(7).candidate("5/min"), "no request of 7 units could ever pass 5"),
        (
            api().consistency(Consistency::ASYNC).candidate("5/s"),
            "leases of 2s need windows of at least 20s, and 5/s has less",
        ),
    ] {
        let errors = build(policy).to_string();
        assert!(errors.contains("policy \"api\"") && errors.contains(expected), "{errors}");
    }
}

proptest! {
    /// Whatever comes: what is let pass is what would be without a candidate, and a candidate is
    /// violated if and only if the units that passed in its window, with those of this request, are
    /// more than it has.
    #[test]
    fn a_candidate_counts_what_passed_in_its_window(
        units in 1_u32..6,
        same_window in 1_u32..6,
        other_window in 1_u32..9,
        requests in prop::collection::vec((0_u64..900, 1_u32..3), 1..60),
    ) {
        let clock = ManualClock::default();
        let quota = |units, ms| {
            Quota::new(NonZeroU32::new(units).unwrap(), Duration::from_millis(ms)).unwrap()
        };
        // Windows below 4096 ms are kept to the millisecond, however many units they have.
        let (window, other) = (1000, 3000);
        let watched = [quota(same_window, window), quota(other_window, other)];
        let api = Policy::new("api").quota(quota(units, window)).request_cost();
        let with = watched.into_iter().fold(api.clone(), Policy::candidate);
        let (with, without) = (gate(&clock, with), gate(&clock, api));
        let mut passed: Vec<(u64, u32)> = Vec::new();
        let mut at = 0;
        for (after, cost) in requests {
            clock.advance(Duration::from_millis(after));
            at += after;
            let facts = client().cost(NonZeroU32::new(cost).unwrap());
            let decision = with.decide_now(&facts).unwrap();
            prop_assert_eq!(decision.verdict(), without.decide_now(&facts).unwrap().verdict());
            if cost > units {
                continue;
            }
            let used = |window: u64| -> u32 {
                passed.iter().filter(|(then, _)| at < then + window).map(|(_, units)| units).sum()
            };
            prop_assert_eq!(decision.is_allowed(), used(window) + cost <= units);
            for (standing, window) in decision.policies()[0].candidate.iter().zip([window, other]) {
                let too_many = used(window) + cost > standing.quota.units().get();
                prop_assert_eq!(standing.violated, too_many);
            }
            prop_assert_eq!(decision.policies()[0].candidate.len(), 2);
            if decision.is_allowed() {
                passed.push((at, cost));
            }
        }
    }
}
