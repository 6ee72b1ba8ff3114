//! Error responses of the gateway: upstream failed, or the request is invalid.

use http::{HeaderName, HeaderValue, StatusCode, header};

/// Whether upstream answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpstreamOutcome {
    /// The request was not sent to upstream.
    #[default]
    NotCalled,
    /// The response is upstream's.
    Answered,
    /// There is no response, or it is incomplete.
    Failed(UpstreamError),
}

/// Why there is no response from upstream, or only a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamError {
    /// No server accepted a connection.
    Connect,
    /// The head of a response did not arrive in time.
    Timeout,
    /// The connection closed before the head of a response, or the response was invalid.
    Broken,
    /// A limit of requests in flight was reached.
    Overloaded,
    /// The response's body ended early or stalled.
    Body,
}

impl UpstreamError {
    /// The value of the metric label `reason` for each variant, in order.
    pub const NAMES: [&str; 5] = ["connect", "timeout", "broken", "crowded", "body"];

    /// The value of the metric label `reason`.
    pub fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Why the gateway answers instead of upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyError {
    /// The request is ambiguous or incomplete.
    BadRequest(&'static str),
    /// `CONNECT` requests a tunnel, which the gateway does not support.
    ConnectNotAllowed,
    /// The configuration refuses `TRACE`.
    TraceNotAllowed,
    /// The request's body stalled, or was slower than the minimum rate.
    BodyTimeout,
    /// The request's body exceeds the limit.
    BodyTooLarge,
    /// No route matches the path.
    NoRoute,
    /// No server accepted a connection.
    UpstreamUnreachable,
    /// Upstream closed the connection before it answered, or sent an invalid response.
    UpstreamFailed,
    /// Upstream did not answer in time.
    UpstreamTimeout,
    /// A limit of requests in flight was reached.
    Overloaded,
}

impl ProxyError {
    /// How upstream failed. `None` if upstream was not involved.
    pub fn upstream_error(self) -> Option<UpstreamError> {
        match self {
            Self::BadRequest(_)
            | Self::ConnectNotAllowed
            | Self::TraceNotAllowed
            | Self::BodyTimeout
            | Self::BodyTooLarge
            | Self::NoRoute => None,
            Self::UpstreamUnreachable => Some(UpstreamError::Connect),
            Self::UpstreamFailed => Some(UpstreamError::Broken),
            Self::UpstreamTimeout => Some(UpstreamError::Timeout),
            Self::Overloaded => Some(UpstreamError::Overloaded),
        }
    }

    /// The status of a response that says so.
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::ConnectNotAllowed | Self::TraceNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::UpstreamUnreachable | Self::UpstreamFailed => StatusCode::BAD_GATEWAY,
            Self::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// A sentence for the client.
    pub fn detail(self) -> &'static str {
        match self {
            Self::BadRequest(why) => why,
            Self::ConnectNotAllowed => "CONNECT is not allowed.",
            Self::TraceNotAllowed => "TRACE is not allowed.",
            Self::BodyTimeout => "The request's body did not arrive in time.",
            Self::BodyTooLarge => "The request's body exceeds the size limit.",
            Self::NoRoute => "The gateway has no upstream for this path.",
            Self::UpstreamUnreachable => "The service behind the gateway cannot be reached.",
            Self::UpstreamFailed => {
                "The service behind the gateway closed the connection before it answered."
            }
            Self::UpstreamTimeout => "The service behind the gateway did not answer in time.",
            Self::Overloaded => {
                "Too many requests are in flight to the service behind the gateway."
            }
        }
    }

    /// Headers of a response that says so.
    pub fn headers(self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let retry = (self == Self::Overloaded)
            .then_some((header::RETRY_AFTER, HeaderValue::from_static("1")));
        // The rest of the request is not read.
        let closes = matches!(self, Self::BadRequest(_) | Self::BodyTimeout | Self::BodyTooLarge);
        let close = closes.then_some((header::CONNECTION, HeaderValue::from_static("close")));
        retry.into_iter().chain(close)
    }
}
