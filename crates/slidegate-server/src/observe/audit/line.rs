//! A record as a line of JSON.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;
use slidegate::{Name, PolicyStanding, Standing};

use super::record::{AuditRecord, AuditedDecision, Event};
use crate::calendar::Rfc3339;
use crate::observe::verdict::{BlockReason, VerdictLabel};
use crate::observe::{Operation, OperationOutcome};

/// Fields that a line has no use for are left out.
#[derive(Serialize)]
struct Line<'a> {
    time: Rfc3339,
    event: &'static str,
    /// How many records are missing before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
    #[serde(flatten)]
    rest: Rest<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Rest<'a> {
    Decision(DecisionLine<'a>),
    Start { version: &'static str, in_force: Vec<&'a str> },
    Reload { outcome: &'static str, changes: &'a [String], in_force: Vec<&'a str> },
    FailedReload { outcome: &'static str, problems: &'a [String], in_force: Vec<&'a str> },
    Operator(OperatorLine<'a>),
    Stop {},
}

/// What an operator did.
#[derive(Serialize)]
struct OperatorLine<'a> {
    action: &'static str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<IpAddr>,
    /// The override that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    units: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Rfc3339>,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

#[derive(Serialize)]
struct DecisionLine<'a> {
    listener: &'static str,
    method: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    status: u16,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    banned_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    policies: Vec<PolicyLine<'a>>,
}

/// How one policy took part.
#[derive(Serialize)]
struct PolicyLine<'a> {
    policy: &'a str,
    identity: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    shadow: bool,
    quotas: Vec<QuotaLine>,
}

#[derive(Serialize)]
struct QuotaLine {
    quota: String,
    remaining: u32,
    retry_after_ms: u64,
}

/// Adds the record's line to the text, with its end.
pub(super) fn append(text: &mut Vec<u8>, record: &AuditRecord, dropped: u64) {
    let (event, rest) = match &record.event {
        Event::Decision(seen) => ("decision", Rest::Decision(decision(seen))),
        Event::Start { policies } => {
            let version = env!("CARGO_PKG_VERSION");
            ("start", Rest::Start { version, in_force: names(policies) })
        }
        Event::Reload { policies, changes } => {
            let outcome = OperationOutcome::Done.as_str();
            ("reload", Rest::Reload { outcome, changes, in_force: names(policies) })
        }
        Event::ReloadFailed { policies, problems } => {
            let outcome = OperationOutcome::Failed.as_str();
            ("reload", Rest::FailedReload { outcome, problems, in_force: names(policies) })
        }
        Event::Operator(operation) => ("operator", Rest::Operator(operator(operation))),
        Event::Stop => ("stop", Rest::Stop {}),
    };
    let dropped = (dropped > 0).then_some(dropped);
    let line = Line { time: Rfc3339(record.at), event, dropped, rest };
    serde_json::to_writer(&mut *text, &line).expect("maps with names for keys, to memory");
    text.push(b'\n');
}

fn operator(operation: &Operation) -> OperatorLine<'_> {
    OperatorLine {
        action: operation.action,
        outcome: operation.outcome.as_str(),
        by: operation.by,
        id: operation.override_id.as_deref(),
        kind: operation.kind,
        identity: operation.identity.as_deref(),
        policy: operation.policy.as_deref(),
        units: operation.units.map(u32::from),
        until: operation.until(),
        reason: &operation.reason,
        problem: operation.problem.as_deref(),
    }
}

fn decision(seen: &AuditedDecision) -> DecisionLine<'_> {
    let decision = seen.decision.as_ref();
    let policies = decision.map_or(&[][..], |decision| decision.policies());
    DecisionLine {
        listener: seen.listener.as_str(),
        method: seen.method.as_str(),
        path: &seen.path,
        client: seen.client,
        status: seen.status.as_u16(),
        verdict: seen.verdict.as_str(),
        reason: match seen.verdict {
            VerdictLabel::Block(reason) => Some(BlockReason::NAMES[reason.index()]),
            _ => None,
        },
        banned_by: decision.and_then(|decision| decision.banned_by()).map(|policy| &**policy),
        retry_after_ms: decision.and_then(|decision| decision.retry_after()).map(rounded_up_ms),
        policies: policies.iter().map(|standing| policy(standing, seen)).collect(),
    }
}

fn policy<'a>(policy: &'a PolicyStanding, seen: &AuditedDecision) -> PolicyLine<'a> {
    let identity = policy.identity();
    let shown = seen.policies.as_ref().map(|policies| policies.shown(identity));
    let quota = |standing: &Standing| QuotaLine {
        quota: standing.quota().to_string(),
        remaining: standing.remaining(),
        retry_after_ms: rounded_up_ms(standing.retry_after()),
    };
    PolicyLine {
        policy: policy.policy(),
        identity: shown.unwrap_or(Cow::Borrowed(identity.as_str())),
        plan: policy.plan().map(|plan| &**plan.name()),
        shadow: policy.is_shadow(),
        quotas: policy.standings().iter().map(quota).collect(),
    }
}

fn names(policies: &[Name]) -> Vec<&str> {
    policies.iter().map(|policy| &**policy).collect()
}

fn rounded_up_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
