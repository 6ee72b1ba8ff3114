//! Problem details (RFC 9457): the body of error responses.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

/// The body of an error response as RFC 9457 has it, with further members.
///
/// ```
/// use http::StatusCode;
/// use slidegate_tower::ProblemDetails;
///
/// let response = ProblemDetails::new(StatusCode::NOT_FOUND, "there is no such key").response();
/// assert_eq!(response.headers()["content-type"], "application/problem+json");
/// ```
#[derive(Debug, Clone, Serialize)]
pub struct ProblemDetails<'a, D, M = ()> {
    r#type: &'a str,
    title: &'a str,
    #[serde(serialize_with = "code")]
    status: StatusCode,
    detail: D,
    #[serde(flatten)]
    members: M,
}

/// Room for the problem details of one violated policy.
const USUAL_BYTES: usize = 512;

/// Room for a refusal's own headers and for those that say where the client stands.
const USUAL_HEADERS: usize = 12;

pub(crate) const CONTENT_TYPE: &str = "application/problem+json";
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

impl<D: Serialize> ProblemDetails<'static, D> {
    /// A problem that its status describes, with this detail.
    pub fn new(status: StatusCode, detail: D) -> Self {
        let title = status.canonical_reason().unwrap_or_default();
        Self { r#type: "about:blank", title, status, detail, members: () }
    }
}

impl<'a, D: Serialize, M: Serialize> ProblemDetails<'a, D, M> {
    /// The same problem of a registered type.
    #[must_use]
    pub fn typed(self, r#type: &'a str, title: &'a str) -> Self {
        Self { r#type, title, ..self }
    }

    /// The same problem with the members of this struct or map, in place of others.
    #[must_use]
    pub fn with<N: Serialize>(self, members: N) -> ProblemDetails<'a, D, N> {
        let Self { r#type, title, status, detail, .. } = self;
        ProblemDetails { r#type, title, status, detail, members }
    }

    /// The whole response, which must not be stored.
    pub fn response(&self) -> Response<Bytes> {
        let mut response = Response::new(self.body());
        *response.status_mut() = self.status;
        *response.headers_mut() = HeaderMap::with_capacity(USUAL_HEADERS);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        response
    }

    fn body(&self) -> Bytes {
        let mut body = Vec::with_capacity(USUAL_BYTES);
        serde_json::to_writer(&mut body, self).expect("strings and numbers can be JSON");
        body.into()
    }
}

fn code<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}
