//! What is to be written down.

use std::net::IpAddr;
use std::sync::Arc;

use http::{Method, StatusCode};
use slidegate::{Decision, Name, Policies, Timestamp};

use crate::observe::denial_log::shortened;
use crate::observe::report::GateReport;
use crate::observe::verdict::VerdictLabel;
use crate::observe::{ListenerKind, Operation, RequestOutcome};

/// Something that happened.
#[derive(Debug)]
pub(super) struct AuditRecord {
    /// By the calendar.
    pub(super) at: Timestamp,
    pub(super) event: Event,
}

/// What happened.
#[derive(Debug)]
pub(in crate::observe) enum Event {
    Decision(Box<AuditedDecision>),
    /// The server began, with these policies.
    Start {
        policies: Vec<Name>,
    },
    /// Another configuration is in force, with these policies; what is different, in words.
    Reload {
        policies: Vec<Name>,
        changes: Vec<String>,
    },
    /// A configuration or certificate could not be read again, for these reasons. The policies in
    /// force are the same as before.
    ReloadFailed {
        policies: Vec<Name>,
        problems: Vec<String>,
    },
    /// An operator did something, or tried to.
    Operator(Box<Operation>),
    /// The server is about to end.
    Stop,
}

/// A request and what became of it.
#[derive(Debug)]
pub(in crate::observe) struct AuditedDecision {
    pub(super) listener: ListenerKind,
    pub(super) method: Method,
    pub(super) path: Box<str>,
    pub(super) client: Option<IpAddr>,
    pub(super) status: StatusCode,
    pub(super) verdict: VerdictLabel,
    pub(super) decision: Option<Decision>,
    /// Those that name the API keys, if the decision has any.
    pub(super) policies: Option<Arc<Policies>>,
}

impl AuditedDecision {
    pub(super) fn of(
        answered: &RequestOutcome<'_>,
        verdict: VerdictLabel,
        gate: &dyn GateReport,
    ) -> Self {
        let standings = answered.decision.map_or(&[][..], |decision| decision.policies());
        let has_keys = standings.iter().any(|standing| standing.identity().kind() == "api-key");
        Self {
            policies: has_keys.then(|| gate.policies()),
            listener: answered.listener,
            method: answered.method.clone(),
            path: shortened(answered.path).into(),
            client: answered.client,
            status: answered.status,
            verdict,
            decision: answered.decision.cloned(),
        }
    }
}
