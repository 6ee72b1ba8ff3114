//! Decisions whose cost is known afterwards: holds, settlements and records of a gate.

use std::time::Duration;

use slidegate::limit::{Once, Settled};
use slidegate::{
    Decision, Facts, Gate, HeldCharge, Identity, ManualClock, MemoryStore, NamedCharge, Policies,
    Policy, Scope, Source, StoreError,
};

use crate::support::now;

const MINUTE: Duration = Duration::from_secs(60);

fn set(list: impl IntoIterator<Item = Policy>) -> Policies {
    let policies = list.into_iter().fold(Policies::builder(), |all, policy| all.policy(policy));
    policies.build().unwrap()
}

fn gate(clock: &ManualClock, list: impl IntoIterator<Item = Policy>) -> Gate {
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    Gate::with_local(set(list), store(), store())
}

fn facts(user: &str) -> Facts<'_> {
    Facts::new(&http::Method::POST, "/chat").user(user)
}

fn tokens() -> Policy {
    Policy::new("tokens").identity([Source::User]).skip_anonymous().quota("10000/min").cost(1000)
}

fn requests() -> Policy {
    let policy = Policy::new("requests").identity([Source::User]).skip_anonymous();
    policy.scope(Scope::Local).quota("60/min")
}

/// What is left under each policy, in the order in which they decide.
fn left(gate: &Gate, user: &str) -> Vec<u32> {
    let decision = gate.peek_now(&facts(user)).unwrap();
    decision.policies().iter().map(|policy| policy.standings[0].remaining()).collect()
}

fn settle(
    gate: &Gate,
    decision: &Decision,
    cost_of: impl Fn(&HeldCharge) -> u32,
    id: Option<&str>,
) -> Result<Settled, StoreError> {
    let once = id.map(|id| Once { id, within: MINUTE });
    now(gate.settle(&decision.hold(), cost_of, once))
}

#[test]
fn each_charge_is_settled_at_its_own_cost_in_its_own_store() {
    let gate = gate(&ManualClock::default(), [tokens(), requests()]);
    let decision = gate.decide_now(&facts("ann")).unwrap();
    assert_eq!(left(&gate, "ann"), [59, 9000]);
    let cost_of = |charge: &HeldCharge| if *charge.policy == *"tokens" { 1370 } else { 0 };
    assert_eq!(settle(&gate, &decision, cost_of, None).unwrap(), Settled::Now);
    assert_eq!(left(&gate, "ann"), [60, 8630]);
    assert_eq!(left(&gate, "bob"), [60, 10_000]);
}

#[test]
fn a_settlement_under_a_name_is_made_once_in_both_stores() {
    let gate = gate(&ManualClock::default(), [tokens(), requests()]);
    let decision = gate.decide_now(&facts("ann")).unwrap();
    assert_eq!(settle(&gate, &decision, |_| 20, Some("a")).unwrap(), Settled::Now);
    let settled = left(&gate, "ann");
    assert_eq!(settled, [40, 9980]);
    for units in [0, 20, 5000] {
        assert_eq!(settle(&gate, &decision, |_| units, Some("a")).unwrap(), Settled::Before);
        assert_eq!(left(&gate, "ann"), settled);
    }
}

#[test]
fn a_denied_request_holds_nothing() {
    let gate = gate(&ManualClock::default(), [tokens().cost(10_000)]);
    assert!(gate.decide_now(&facts("ann")).unwrap().is_allowed());
    let denied = gate.decide_now(&facts("ann")).unwrap();
    assert!(denied.hold().is_empty() && denied.response_hold().is_none());
    assert_eq!(settle(&gate, &denied, |_| 0, None).unwrap(), Settled::Before);
    assert_eq!(left(&gate, "ann"), [0]);
}

#[test]
fn a_hold_outlives_its_policy() {
    let clock = ManualClock::default();
    let gate = gate(&clock, [tokens()]);
    let hold = || gate.decide_now(&facts("ann")).unwrap();
    let (first, second, third) = (hold(), hold(), hold());
    gate.replace_policies(set([tokens().quota("100000/day")]));
    settle(&gate, &first, |_| 200, None).unwrap();
    assert_eq!(left(&gate, "ann")[0], 7800, "another window beside");
    gate.replace_policies(set([]));
    settle(&gate, &second, |_| 0, None).unwrap();
    gate.replace_policies(set([tokens()]));
    assert_eq!(left(&gate, "ann"), [8800], "it was settled while there was no such policy");
    clock.advance(MINUTE + MINUTE);
    settle(&gate, &third, |_| 0, None).unwrap();
    assert_eq!(left(&gate, "ann"), [10_000], "nothing was left of it");
}

#[test]
fn a_refund_is_a_settlement_at_nothing() {
    let gate = gate(&ManualClock::default(), [tokens(), requests()]);
    let decision = gate.decide_now(&facts("ann")).unwrap();
    now(gate.refund(&decision)).unwrap();
    assert_eq!(left(&gate, "ann"), [60, 10_000]);
}

#[test]
fn what_a_response_costs_is_noted_in_the_standings() {
    let gate = gate(&ManualClock::default(), [tokens().count_statuses(["401"])]);
    let mut decision = gate.decide_now(&facts("ann")).unwrap();
    let hold = decision.response_hold().unwrap();
    for (units, remaining) in [(1000, 9000), (0, 10_000), (9999, 1), (u32::MAX, 0)] {
        let mut decision = decision.clone();
        decision.note_cost(&hold.charges[0], units);
        assert_eq!(decision.policies()[0].standings[0].remaining(), remaining);
    }
    decision.note_cost(&hold.charges[0], 0);
    let standing = decision.policies()[0].standings[0];
    assert_eq!(standing.reset_after(), Duration::ZERO, "nothing is spent then");
}

#[test]
fn records_are_written_under_every_policy_whatever_one_says() {
    let clock = ManualClock::default();
    let gate = gate(&clock, [tokens(), requests()]);
    let identity = Identity::user("ann");
    let charge = |policy, cost: u32| NamedCharge {
        policy,
        identity,
        plan: None,
        cost: cost.try_into().ok(),
        quotas: None,
    };
    let both = [charge("requests", 500), charge("tokens", 700)];
    let recorded = now(gate.record_named(&both)).unwrap();
    assert!(recorded.is_recorded() && !recorded.is_allowed(), "500 of 60 are too many");
    assert_eq!(recorded.retry_after(), Some(MINUTE));
    let standings = recorded.policies().iter().map(|policy| policy.standings[0].remaining());
    let standings: Vec<u32> = standings.collect();
    assert_eq!(standings, [0, 9300], "a local denial keeps nothing from being recorded");
    assert!(recorded.hold().is_empty(), "there is nothing to settle");
    clock.advance(MINUTE - Duration::from_millis(1));
    assert!(!gate.decide_now(&facts("ann")).unwrap().is_allowed());
    clock.advance(Duration::from_millis(20));
    assert!(gate.decide_now(&facts("ann")).unwrap().is_allowed());
}
