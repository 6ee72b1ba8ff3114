//! What is to be written down.

use std::net::IpAddr;

use http::{Method, StatusCode};
use slidegate::{Decision, Name, Timestamp};

use crate::observe::denial_log::shortened;
use crate::observe::verdict::Verdict;
use crate::observe::{Answered, Door, Operation};

/// Something that happened.
#[derive(Debug)]
pub(super) struct Record {
    /// By the calendar.
    pub(super) at: Timestamp,
    pub(super) event: Event,
}

/// What happened.
#[derive(Debug)]
pub(in crate::observe) enum Event {
    Decision(Box<Seen>),
    /// The server began, with these policies.
    Start {
        policies: Vec<Name>,
    },
    /// Another configuration is in force, with these policies; what is different, in words.
    Reload {
        policies: Vec<Name>,
        changes: Vec<String>,
    },
    /// An operator did something, or tried to.
    Operator(Box<Operation>),
    /// The server is about to end.
    Stop,
}

/// A request and what became of it.
#[derive(Debug)]
pub(in crate::observe) struct Seen {
    pub(super) door: Door,
    pub(super) method: Method,
    pub(super) path: Box<str>,
    pub(super) client: Option<IpAddr>,
    pub(super) status: StatusCode,
    pub(super) verdict: Verdict,
    pub(super) decision: Option<Decision>,
}

impl Seen {
    pub(super) fn of(answered: &Answered<'_>, verdict: Verdict) -> Self {
        Self {
            door: answered.door,
            method: answered.method.clone(),
            path: shortened(answered.path).into(),
            client: answered.client,
            status: answered.status,
            verdict,
            decision: answered.decision.cloned(),
        }
    }
}
