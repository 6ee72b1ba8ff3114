//! Charges that a caller names.

use std::borrow::Cow;
use std::num::NonZeroU32;

use slidegate::{Identity, NamedCharge, Policies};

use super::ask::check_members;
use super::identity;
use super::json::{Json, JsonMembers, shortened};
use super::request;
use super::validation::{JsonPath, ValidationErrors};

/// One account that a caller wants to spend from.
#[derive(Debug)]
pub(super) struct ChargeAsk<'a> {
    policy: Cow<'a, str>,
    identity: Identity,
    plan: Option<Cow<'a, str>>,
    cost: Option<NonZeroU32>,
}

const MEMBERS: &str = "unknown member; expected policy, identity, plan and cost";

/// The most accounts that one question can charge.
pub(super) const MOST_CHARGES: usize = 16;

impl ChargeAsk<'_> {
    pub(super) fn named(&self) -> NamedCharge<'_> {
        NamedCharge {
            policy: &self.policy,
            identity: self.identity,
            plan: self.plan.as_deref(),
            cost: self.cost,
        }
    }
}

/// Reads a question that has charges, and nothing else.
pub(super) fn read<'a>(
    members: JsonMembers<'a>,
    place: &JsonPath<'_>,
    problems: &mut ValidationErrors,
) -> Option<Vec<ChargeAsk<'a>>> {
    let mut charges = None;
    for (name, value) in members {
        let at = place.member(&name);
        if name == "charges" {
            charges = list(value, &at, problems);
        } else {
            problems.add(&at, "not together with charges");
        }
    }
    charges
}

/// Reports charges under unknown policies, and several under one policy.
pub(super) fn check(
    charges: &[ChargeAsk<'_>],
    policies: &Policies,
    place: &JsonPath<'_>,
    problems: &mut ValidationErrors,
) {
    let place = place.member("charges");
    for (i, charge) in charges.iter().enumerate() {
        let item = place.item(i);
        let policy = item.member("policy");
        if !policies.names().any(|name| **name == *charge.policy) {
            let name = shortened(&charge.policy);
            problems.add(&policy, format_args!("there is no policy {name:?}"));
        }
        if charges[..i].iter().any(|other| other.policy == charge.policy) {
            problems.add(&policy, "charged twice; a question has one account under each policy");
        }
    }
}

fn list<'a>(
    value: Json<'a>,
    place: &JsonPath<'_>,
    problems: &mut ValidationErrors,
) -> Option<Vec<ChargeAsk<'a>>> {
    match value {
        Json::List(items) if (1..=MOST_CHARGES).contains(&items.len()) => {
            let mut charges = Vec::with_capacity(items.len());
            for (i, item) in items.into_iter().enumerate() {
                charges.extend(charge(item, &place.item(i), problems));
            }
            Some(charges)
        }
        Json::List(items) => {
            let count = items.len();
            problems.add(place, format_args!("{count} charges; expected 1 to {MOST_CHARGES}"));
            None
        }
        other => {
            problems.expected(place, "a list of charges", &other);
            None
        }
    }
}

fn charge<'a>(
    value: Json<'a>,
    place: &JsonPath<'_>,
    problems: &mut ValidationErrors,
) -> Option<ChargeAsk<'a>> {
    let Json::Object(members) = value else {
        problems.expected(place, "an object", &value);
        return None;
    };
    if !check_members(&members, place, problems) {
        return None;
    }
    let (mut policy, mut payer, mut plan, mut cost) = (None, None, None, None);
    for required in ["policy", "identity"] {
        if !members.iter().any(|(name, _)| name == required) {
            problems.add(&place.member(required), "missing");
        }
    }
    for (name, value) in members {
        let at = place.member(&name);
        match (&*name, value) {
            ("policy", Json::Text(text)) => policy = Some(text),
            ("plan", Json::Text(text)) => plan = Some(text),
            ("plan", Json::Null) => {}
            ("policy" | "plan", value) => problems.expected(&at, "a string", &value),
            ("cost", value) => cost = request::cost(&value, &at, problems),
            ("identity", value) => payer = identity::read(&value, &at, problems),
            _ => problems.add(&at, MEMBERS),
        }
    }
    Some(ChargeAsk { policy: policy?, identity: payer?, plan, cost })
}
