//! What is in a line of the audit trail.

use std::borrow::Cow;
use std::net::IpAddr;
use std::num::NonZeroU32;

use serde::Serialize;
use slidegate::{Hold, Policies, PolicyStanding, Standing, Timestamp};

use crate::calendar::{Rfc3339, ceil_ms};
use crate::observe::request_log::shortened;
use crate::observe::{
    BlockReason, Operation, OperationOutcome, RequestOutcome, SettlementOutcome, VerdictLabel,
};
use crate::visible::visible;

/// What happened. Fields that a line has no use for are left out.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(in crate::observe) enum AuditEvent<'a> {
    Decision(DecisionEvent<'a>),
    /// The server began, with these policies.
    Start {
        version: &'static str,
        in_force: Vec<&'a str>,
    },
    /// Another configuration is in force, or could not be read.
    Reload {
        outcome: OperationOutcome,
        #[serde(skip_serializing_if = "Option::is_none")]
        changes: Option<&'a [String]>,
        #[serde(skip_serializing_if = "Option::is_none")]
        problems: Option<&'a [String]>,
        in_force: Vec<&'a str>,
    },
    /// An operator did something, or tried to.
    Operator(&'a Operation),
    /// Units that were held have turned out to cost this many, each policy's.
    Settlement {
        source: &'static str,
        outcome: SettlementOutcome,
        units: u32,
        policies: Vec<SettledPolicy<'a>>,
    },
    /// The server is about to end.
    Stop {},
}

/// A request and what became of it.
#[derive(Debug, Serialize)]
pub(in crate::observe) struct DecisionEvent<'a> {
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
    policies: Vec<AuditedPolicy<'a>>,
}

/// How one policy took part.
#[derive(Debug, Serialize)]
struct AuditedPolicy<'a> {
    policy: &'a str,
    identity: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    shadow: bool,
    quotas: Vec<AuditedQuota>,
}

#[derive(Debug, Serialize)]
struct AuditedQuota {
    quota: String,
    remaining: u32,
    retry_after_ms: u64,
}

/// What was held under one policy.
#[derive(Debug, Serialize)]
pub(in crate::observe) struct SettledPolicy<'a> {
    policy: &'a str,
    identity: Cow<'a, str>,
    held: NonZeroU32,
}

impl<'a> SettledPolicy<'a> {
    pub(in crate::observe) fn all(hold: &'a Hold, policies: &Policies) -> Vec<Self> {
        let settled = hold.charges.iter().map(|charge| Self {
            policy: &charge.policy,
            identity: policies.shown(&charge.identity),
            held: charge.units,
        });
        settled.collect()
    }
}

impl AuditEvent<'_> {
    /// The event as a line of JSON, with its end.
    pub(super) fn to_line(&self, at: Timestamp) -> Vec<u8> {
        #[derive(Serialize)]
        struct Line<'a> {
            time: Rfc3339,
            #[serde(flatten)]
            event: &'a AuditEvent<'a>,
        }
        let line = Line { time: Rfc3339(at), event: self };
        let line = serde_json::to_string(&line).expect("maps with names for keys");
        let mut line = visible(&line).into_owned();
        line.push('\n');
        line.into_bytes()
    }
}

impl<'a> DecisionEvent<'a> {
    pub(in crate::observe) fn new(
        outcome: &RequestOutcome<'a>,
        verdict: VerdictLabel,
        policies: &Policies,
    ) -> Self {
        let decision = outcome.decision;
        let standings = decision.map_or(&[][..], |decision| decision.policies());
        Self {
            listener: outcome.listener.as_str(),
            method: outcome.method.as_str(),
            path: shortened(outcome.path),
            client: outcome.client,
            status: outcome.status.as_u16(),
            verdict: verdict.as_str(),
            reason: decision.and_then(BlockReason::of).map(BlockReason::as_str),
            banned_by: decision.and_then(|decision| decision.banned_by()).map(|policy| &**policy),
            retry_after_ms: decision.and_then(|decision| decision.retry_after()).map(ceil_ms),
            policies: standings.iter().map(|policy| AuditedPolicy::new(policy, policies)).collect(),
        }
    }
}

impl<'a> AuditedPolicy<'a> {
    fn new(policy: &'a PolicyStanding, policies: &Policies) -> Self {
        let quota = |standing: &Standing| AuditedQuota {
            quota: standing.quota().to_string(),
            remaining: standing.remaining(),
            retry_after_ms: ceil_ms(standing.retry_after()),
        };
        Self {
            policy: &policy.policy,
            identity: policies.shown(&policy.identity),
            plan: policy.plan.as_deref().map(|plan| &*plan.name),
            shadow: policy.shadow,
            quotas: policy.standings.iter().map(quota).collect(),
        }
    }
}
