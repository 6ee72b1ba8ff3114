//! Why a request was refused, and what that is called in each protocol.

use http::StatusCode;
use slidegate::{Block, Decision, Verdict};

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
    /// Why the request may not pass; `None` if it may. There is no decision if the store could not
    /// count.
    pub(super) fn of(decision: Option<&Decision>) -> Option<Self> {
        let Some(decision) = decision else { return Some(Self::StoreUnavailable) };
        match decision.verdict() {
            Verdict::Allow => None,
            Verdict::Deny { .. } => Some(Self::QuotaExceeded),
            Verdict::Block(Block::CostAboveUnits) => Some(Self::CostAboveUnits),
            Verdict::Block(Block::Banned { .. }) => Some(Self::Banned),
            Verdict::Block(Block::Suspended { .. }) => Some(Self::Suspended),
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
            Self::StoreUnavailable => Wording {
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
