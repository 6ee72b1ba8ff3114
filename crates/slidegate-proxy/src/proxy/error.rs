//! What the gateway itself has to say: upstream is gone, late, or the request makes no sense.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::body::ProxyBody;

/// What upstream did for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpstreamOutcome {
    /// The request was not for it.
    #[default]
    NotCalled,
    /// The response is upstream's.
    Answered,
    /// There is no response, or not all of it.
    Failed(UpstreamError),
}

/// Why there is no response of upstream, or not all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamError {
    /// No server took a connection.
    Connect,
    /// There was no connection, or no head of a response, in time.
    Timeout,
    /// The connection broke before the head of a response.
    Broken,
    /// Too many requests are waiting for upstream.
    Crowded,
    /// The response began and did not end.
    Body,
}

impl UpstreamError {
    /// In the order of the variants.
    pub const NAMES: [&str; 5] = ["connect", "timeout", "broken", "crowded", "body"];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Why the gateway answers in place of upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyError {
    /// The request cannot be read in one way only.
    BadRequest(&'static str),
    /// `CONNECT` asks for a tunnel, and this is none.
    NoTunnels,
    /// `TRACE` is refused by the configuration.
    NoTrace,
    /// The client stopped sending its body.
    BodyLate,
    /// The client's body is larger than may be.
    BodyTooLarge,
    /// No route fits the path.
    NoRoute,
    /// No server takes a connection.
    Unreachable,
    /// Upstream broke the connection before it answered.
    Broken,
    /// Upstream does not answer in time.
    Late,
    /// Too many requests wait for upstream already.
    Crowded,
}

impl ProxyError {
    /// What upstream did, if it is upstream's doing or for its sake.
    pub fn upstream_error(self) -> Option<UpstreamError> {
        match self {
            Self::BadRequest(_)
            | Self::NoTunnels
            | Self::NoTrace
            | Self::BodyLate
            | Self::BodyTooLarge
            | Self::NoRoute => None,
            Self::Unreachable => Some(UpstreamError::Connect),
            Self::Broken => Some(UpstreamError::Broken),
            Self::Late => Some(UpstreamError::Timeout),
            Self::Crowded => Some(UpstreamError::Crowded),
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::NoTunnels | Self::NoTrace => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyLate => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Unreachable | Self::Broken => StatusCode::BAD_GATEWAY,
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
            Self::Crowded => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Self::BadRequest(why) => why,
            Self::NoTunnels => "This is a gateway to one service and opens no tunnels.",
            Self::NoTrace => "TRACE is not allowed.",
            Self::BodyLate => "The rest of the request did not arrive.",
            Self::BodyTooLarge => "The request's body is larger than the gateway passes on.",
            Self::NoRoute => "The gateway has no upstream for this path.",
            Self::Unreachable => "The service behind the gateway cannot be reached.",
            Self::Broken => {
                "The service behind the gateway closed the connection before it answered."
            }
            Self::Late => "The service behind the gateway did not answer in time.",
            Self::Crowded => "Too many requests wait for the service behind the gateway.",
        }
    }

    /// Problem details of RFC 9457.
    pub fn response(self) -> Response<ProxyBody> {
        let status = self.status();
        let title = status.canonical_reason().unwrap_or_default();
        let body = serde_json::json!({
            "type": "about:blank",
            "title": title,
            "status": status.as_u16(),
            "detail": self.detail(),
        });
        let mut response = Response::new(ProxyBody::full(Bytes::from(body.to_string())));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self == Self::Crowded {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // What is left of the request is not read.
        if matches!(self, Self::BadRequest(_) | Self::BodyLate | Self::BodyTooLarge) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
