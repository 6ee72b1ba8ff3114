//! A request that was refused: why, and what there is to say about it.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use slidegate::policy::CheckedPlan;
use slidegate::{Block, Decision, Name, PolicyStanding, Standing, StoreError, Verdict};

use crate::headers::{QuotaName, reset};
use crate::refusal::body::{BodyTerms, wait_s};

/// A request that was refused, and what there is to say about it.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    reason: Reason,
    decision: Option<&'a Decision>,
    retry_after: Option<Duration>,
}

/// When to try again after a store's error: its breaker will have probed by then.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

impl<'a> Refused<'a> {
    /// What was refused; `None` if the request may pass.
    pub fn of(outcome: &'a Result<Decision, StoreError>) -> Option<Self> {
        let (reason, decision) = (Reason::of(outcome)?, outcome.as_ref().ok());
        Some(Self { reason, decision, retry_after: retry_after(reason, decision) })
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The status that says so.
    pub fn status(&self) -> StatusCode {
        self.reason.wording().status
    }

    /// The gate's decision; `None` if the store could not count.
    pub fn decision(&self) -> Option<&'a Decision> {
        self.decision
    }

    /// How long to wait, if waiting helps. Not before the effective window of any violated quota
    /// has ended.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// How long to wait in whole seconds, rounded up and at least one, if waiting helps.
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after().map(wait_s)
    }

    /// The policy that binds the client most.
    pub fn policy(&self) -> Option<&'a PolicyStanding> {
        Some(self.decision?.tightest()?.0)
    }

    /// The policy whose ban is in force, or that an operator has banned the client under.
    pub fn banned_by(&self) -> Option<&'a Name> {
        self.decision?.banned_by()
    }

    /// The name of the policy that refused the request: by its ban, or because it binds the client
    /// most.
    fn policy_name(&self) -> Option<&'a str> {
        let name = self.banned_by().or_else(|| self.policy().map(|policy| &policy.policy));
        name.map(|name| &**name)
    }

    /// The units of the violated quota that binds the client most. None if only policies were
    /// violated that are kept out of the headers: their quotas are not shown here either.
    pub fn limit(&self) -> Option<u32> {
        Some(self.violated_in_headers()?.1.quota().units().get())
    }

    /// The plan that the same quota came from.
    pub fn plan(&self) -> Option<&'a CheckedPlan> {
        self.violated_in_headers()?.0.plan.as_deref()
    }

    fn violated_in_headers(&self) -> Option<(&'a PolicyStanding, &'a Standing)> {
        self.decision?.tightest_in_headers().filter(|(policy, _)| policy.is_violated())
    }

    /// The names of the violated quotas, as `RateLimit-Policy` has them; of a ban, the name of its
    /// policy.
    pub fn violated_policies(&self) -> Vec<String> {
        self.violated_names().map(Cow::into_owned).collect()
    }

    fn violated_names(&self) -> impl Iterator<Item = Cow<'a, str>> + use<'a> {
        let name = |(policy, standing)| QuotaName::of(policy, standing, 1).text();
        let banned_by = self.banned_by().filter(|_| self.reason == Reason::Banned);
        self.violated().map(name).chain(banned_by.map(|policy| Cow::Borrowed(&**policy)))
    }

    /// One or two sentences for people.
    pub fn message(&self) -> String {
        let message = self.body_terms().message().with_wait(self.retry_after);
        String::from_utf8_lossy(&message).into_owned()
    }

    /// What a body says besides the time to wait.
    pub(crate) fn body_terms(&self) -> BodyTerms<'a> {
        BodyTerms {
            reason: self.reason,
            has_wait: self.retry_after.is_some(),
            limit: self.limit(),
            policy: self.policy_name(),
            plan: self.plan(),
            violated: self.violated_names().collect(),
        }
    }

    /// The violated quota, by its place among those of its policy, if it is the only one and nothing else
    /// refused the request.
    pub(crate) fn sole_violation(&self) -> Option<(&'a PolicyStanding, usize)> {
        if self.reason != Reason::QuotaExceeded || self.banned_by().is_some() {
            return None;
        }
        let mut violated = self.violated();
        let (policy, sole) = violated.next().filter(|_| violated.next().is_none())?;
        let place = policy.standings.iter().position(|standing| std::ptr::eq(standing, sole))?;
        Some((policy, place))
    }

    fn violated(&self) -> impl Iterator<Item = (&'a PolicyStanding, &'a Standing)> + use<'a> {
        violated(self.decision)
    }
}

fn retry_after(reason: Reason, decision: Option<&Decision>) -> Option<Duration> {
    match reason {
        Reason::StoreUnavailable | Reason::KeysUnavailable => Some(STORE_RETRY_AFTER),
        Reason::CostAboveUnits | Reason::UnknownKey | Reason::InvalidToken | Reason::Blocked => {
            None
        }
        Reason::QuotaExceeded
        | Reason::Banned
        | Reason::Suspended
        | Reason::UncheckedCredentials => {
            let own = decision?.retry_after()?;
            violated(decision).map(|(_, standing)| reset(standing)).chain([own]).max()
        }
    }
}

/// The violated quotas of a decision, with their policies.
fn violated(decision: Option<&Decision>) -> impl Iterator<Item = (&PolicyStanding, &Standing)> {
    let policies = decision.map_or(&[][..], Decision::policies).iter();
    policies.filter(|policy| !policy.shadow).flat_map(|policy| {
        let violated = policy.standings.iter().filter(|standing| standing.is_violated());
        violated.map(move |standing| (policy, standing))
    })
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A quota is used up.
    QuotaExceeded,
    /// The request costs more than a quota allows in a whole window: it can never pass.
    CostAboveUnits,
    /// The client was denied so often that it is kept out for a while.
    Banned,
    /// An operator has banned the client for a time.
    Suspended,
    /// The operator has listed the client as blocked.
    Blocked,
    /// The request has an API key that was not issued.
    UnknownKey,
    /// The request has a token that is not valid.
    InvalidToken,
    /// The request has an API key that was not looked up or a token that was not checked, because too
    /// many of its address were.
    UncheckedCredentials,
    /// The source of API keys, or the issuer of tokens, cannot be reached.
    KeysUnavailable,
    /// The store could not count, and a policy says `deny` to that.
    StoreUnavailable,
}

/// What a reason is called.
pub(super) struct Wording {
    pub(super) status: StatusCode,
    pub(super) grpc_status: u8,
    /// Types and titles are those of draft-ietf-httpapi-ratelimit-headers-11.
    pub(super) problem: &'static str,
    pub(super) title: &'static str,
    pub(super) code: &'static str,
    pub(super) message: &'static str,
}

impl Reason {
    /// Why the request may not pass; `None` if it may.
    fn of(outcome: &Result<Decision, StoreError>) -> Option<Self> {
        let Ok(decision) = outcome else { return Some(Self::StoreUnavailable) };
        match decision.verdict() {
            Verdict::Allow => None,
            Verdict::Deny { .. } => Some(Self::QuotaExceeded),
            Verdict::Block(Block::CostAboveUnits) => Some(Self::CostAboveUnits),
            Verdict::Block(Block::Banned { .. }) => Some(Self::Banned),
            Verdict::Block(Block::Suspended { .. }) => Some(Self::Suspended),
            Verdict::Block(Block::UnknownKey) => Some(Self::UnknownKey),
            Verdict::Block(Block::InvalidToken) => Some(Self::InvalidToken),
            Verdict::Block(Block::UncheckedCredentials { .. }) => Some(Self::UncheckedCredentials),
            Verdict::Block(Block::KeysUnavailable) => Some(Self::KeysUnavailable),
            Verdict::Block(_) => Some(Self::Blocked),
            _ => Some(Self::QuotaExceeded),
        }
    }

    pub(super) const fn wording(self) -> Wording {
        match self {
            Self::QuotaExceeded => Wording {
                status: StatusCode::TOO_MANY_REQUESTS,
                grpc_status: RESOURCE_EXHAUSTED,
                problem: "https://iana.org/assignments/http-problem-types#quota-exceeded",
                title: "Request cannot be satisfied as assigned quota has been exceeded",
                code: "RATE_LIMIT_EXCEEDED",
                message: "Too many requests.",
            },
            Self::CostAboveUnits => Wording {
                message: "This request costs more than is allowed in a whole window. It cannot \
                          pass later either.",
                ..Self::QuotaExceeded.wording()
            },
            Self::Banned => Wording {
                status: StatusCode::TOO_MANY_REQUESTS,
                grpc_status: RESOURCE_EXHAUSTED,
                problem: "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
                // The draft's own spelling.
                title: "Request not satisifed due to detection of abnormal request pattern",
                code: "RATE_LIMIT_EXCEEDED",
                message: "Too many requests were denied, so none is accepted for a while.",
            },
            // Whatever the client sent was not too much: it is refused as those on the list are, but
            // for the time that it lasts.
            Self::Suspended => Wording {
                code: "ACCESS_SUSPENDED",
                message: "Access was suspended by the operator.",
                ..Self::Blocked.wording()
            },
            Self::Blocked => Wording {
                status: StatusCode::FORBIDDEN,
                grpc_status: PERMISSION_DENIED,
                problem: "about:blank",
                title: "Forbidden",
                code: "FORBIDDEN",
                message: "Requests of this client are not accepted.",
            },
            Self::UnknownKey => Wording {
                status: StatusCode::UNAUTHORIZED,
                grpc_status: UNAUTHENTICATED,
                problem: "about:blank",
                title: "Unauthorized",
                code: "UNAUTHORIZED",
                message: "The API key is unknown.",
            },
            Self::InvalidToken => {
                Wording { message: "The token is not valid.", ..Self::UnknownKey.wording() }
            }
            Self::UncheckedCredentials => Wording {
                message: "Too many API keys or tokens from this address had to be checked.",
                ..Self::Banned.wording()
            },
            Self::StoreUnavailable | Self::KeysUnavailable => Wording {
                status: StatusCode::SERVICE_UNAVAILABLE,
                grpc_status: UNAVAILABLE,
                problem: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                title: "Request cannot be satisfied due to temporary server capacity constraints",
                code: "SERVICE_UNAVAILABLE",
                message: "The service cannot accept this request at the moment.",
            },
        }
    }
}

const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNAVAILABLE: u8 = 14;
const UNAUTHENTICATED: u8 = 16;
