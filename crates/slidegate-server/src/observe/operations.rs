//! What operators did, and the overrides that are in force.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use slidegate::policy::Action;
use slidegate::{Name, Timestamp};

use super::exposition::Page;
use super::per_thread::count;
use super::report::GateReport;
use crate::calendar::Rfc3339;

/// Something that an operator did, or tried to do.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) action: &'static str,
    /// The operator's address; one on a Unix socket has none.
    pub(crate) by: Option<IpAddr>,
    /// The id of the override that it is about.
    pub(crate) override_id: Option<String>,
    /// What that override does; unknown if there is no override of that id.
    pub(crate) kind: Option<&'static str>,
    /// As operators read it.
    pub(crate) identity: Option<String>,
    pub(crate) policy: Option<Name>,
    pub(crate) units: Option<NonZeroU32>,
    /// The end of the override, in Unix milliseconds.
    pub(crate) until_ms: Option<u64>,
    pub(crate) reason: String,
    pub(crate) outcome: OperationOutcome,
    /// What was wrong, if it was not done.
    pub(crate) problem: Option<String>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationOutcome {
    Done,
    /// It could not be meant so.
    Refused,
    /// It could not be done now.
    Failed,
}

/// The numbers of what operators did.
#[derive(Debug, Default)]
pub(super) struct Operations([[AtomicU64; OUTCOMES.len()]; ACTIONS.len()]);

const ACTIONS: [&str; 5] = ["reset", "grant", "exempt", "ban", "lift"];
const OUTCOMES: [OperationOutcome; 3] =
    [OperationOutcome::Done, OperationOutcome::Refused, OperationOutcome::Failed];

impl OperationOutcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl Operation {
    pub(super) fn until(&self) -> Option<Rfc3339> {
        self.until_ms.map(|ms| Rfc3339(Timestamp::from_millis(ms)))
    }

    /// Logs the operation.
    pub(super) fn log(&self) {
        tracing::info!(
            target: "slidegate::operator",
            action = self.action,
            outcome = self.outcome.as_str(),
            by = self.by.map(tracing::field::display),
            id = self.override_id,
            kind = self.kind,
            identity = self.identity.as_deref(),
            policy = self.policy.as_deref(),
            units = self.units.map(NonZeroU32::get),
            until = self.until().map(tracing::field::display),
            reason = self.reason,
            problem = self.problem,
            "operator"
        );
    }
}

impl Operations {
    pub(super) fn count(&self, operation: &Operation) {
        let action = ACTIONS.iter().position(|action| *action == operation.action);
        let outcome = OUTCOMES.iter().position(|outcome| *outcome == operation.outcome);
        if let (Some(action), Some(outcome)) = (action, outcome) {
            count(&self.0[action][outcome]);
        }
    }

    pub(super) fn expose(&self, gate: &dyn GateReport, page: &mut Page<'_>) -> fmt::Result {
        let numbers = ACTIONS.iter().zip(&self.0).flat_map(|(action, counters)| {
            OUTCOMES.iter().zip(counters).map(|(outcome, counter)| {
                let labels = [("action", *action), ("outcome", outcome.as_str())];
                (labels, counter.load(Ordering::Relaxed))
            })
        });
        page.counters(
            "slidegate_operator_actions",
            "Operator actions, by outcome: done, refused (invalid) or failed (the store or disk \
             failed).",
            numbers,
        )?;
        let in_force = gate.active_overrides();
        let of = |is_one: fn(&Action) -> bool| in_force.iter().filter(|m| is_one(m)).count() as f64;
        page.gauges(
            "slidegate_overrides",
            "Overrides in force at this gateway, by action.",
            [
                ([("action", "grant")], of(|action| matches!(action, Action::Grant(_)))),
                ([("action", "exempt")], of(|action| *action == Action::Exempt)),
                ([("action", "ban")], of(|action| *action == Action::Ban)),
            ],
        )
    }
}
