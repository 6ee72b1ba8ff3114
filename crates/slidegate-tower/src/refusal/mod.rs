//! How requests are refused.

mod body;
mod grpc;
mod refused;
mod shape;
mod template;

use std::fmt;
#[cfg(feature = "axum")]
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "axum")]
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
#[cfg(feature = "axum")]
use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
#[cfg(feature = "axum")]
use http_body::Body as _;
use slidegate::policy::BadRequest;

pub(crate) use self::body::{Body, BodyTerms};
pub(crate) use self::grpc::is_call as is_grpc_call;
pub use self::refused::{Reason, Refused};
pub use self::shape::{Shape, ShapeError};
use self::template::Template;
pub use self::template::TemplateError;
use crate::problem::{NO_STORE, ProblemDetails};

/// How a refused request is answered.
///
/// Whatever the shape, the answer has the right status, `Retry-After` if waiting helps, and
/// `Cache-Control: no-store`. gRPC callers are always answered the gRPC way.
///
/// ```
/// use slidegate_tower::Refusal;
///
/// let refusal = Refusal::template(
///     "application/json",
///     r#"{"error":"slow down","wait":{retry_after},"upgrade":"{upgrade_url}"}"#,
/// )?;
/// # Ok::<(), slidegate_tower::TemplateError>(())
/// ```
#[derive(Clone)]
pub struct Refusal(RefusalKind);

type Function = dyn Fn(&Refused<'_>) -> Response<Bytes> + Send + Sync;

#[derive(Clone)]
enum RefusalKind {
    Shape(Shape),
    Template(Arc<Template>),
    Function(Arc<Function>),
}

/// Room for a refusal's own headers and for those that say where the client stands.
const USUAL_HEADERS: usize = 12;

/// A response with 401 has a challenge (RFC 9110, section 15.5.2). None is registered for API keys;
/// this is what others send.
const API_KEY_CHALLENGE: HeaderValue = HeaderValue::from_static("ApiKey");
/// RFC 6750, section 3.1.
const TOKEN_CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer error=\"invalid_token\"");

impl Refusal {
    /// A ready-made shape.
    pub fn new(shape: Shape) -> Self {
        Self(RefusalKind::Shape(shape))
    }

    /// Only the status in words: [`Shape::Bare`].
    pub fn bare() -> Self {
        Self::new(Shape::Bare)
    }

    /// A text with placeholders: `{status}`, `{error}`, `{message}`, `{retry_after}` in seconds,
    /// `{retry_after_ms}`, `{limit}`, `{policy}`, `{plan}` and `{upgrade_url}`.
    ///
    /// Only a word of small letters in braces is a placeholder, so JSON can be written as it is;
    /// values are escaped if the content type is JSON. What is not known is left empty, a number
    /// in JSON is then `null`.
    pub fn template(content_type: &str, text: &str) -> Result<Self, TemplateError> {
        Template::parse(content_type, text)
            .map(|template| Self(RefusalKind::Template(template.into())))
    }

    /// Whatever the function makes of it, with a body that is complete: a `String`, a `Vec<u8>`, a
    /// `&'static str` or [`Bytes`]. `Retry-After` and `Cache-Control` are added if the response has
    /// none.
    ///
    /// ```
    /// use http::{Response, header};
    /// use slidegate_tower::Refusal;
    ///
    /// let refusal = Refusal::with(|refused| {
    ///     let policy = refused.policy().map_or("", |standing| &*standing.policy);
    ///     let wait_s = refused.retry_after_s().unwrap_or(1);
    ///     Response::builder()
    ///         .status(refused.status())
    ///         .header(header::CONTENT_TYPE, "application/json")
    ///         .body(format!(r#"{{"limited_by":"{policy}","wait":{wait_s}}}"#))
    ///         .expect("a good status and a good header")
    /// });
    /// ```
    ///
    #[cfg_attr(feature = "axum", doc = "Responses of axum fit [`Refusal::with_axum`].")]
    #[cfg_attr(not(feature = "axum"), doc = "With the feature `axum`, `with_axum` takes axum's.")]
    pub fn with<B: Into<Bytes>>(
        function: impl Fn(&Refused<'_>) -> Response<B> + Send + Sync + 'static,
    ) -> Self {
        Self(RefusalKind::Function(Arc::new(move |refused| function(refused).map(Into::into))))
    }

    /// The same for what axum makes a response of: tuples, `Json`, `Html`, a [`Response`]. Its body
    /// is read at once, so it must not be a stream that has to wait.
    ///
    /// ```
    /// use axum::http::header;
    /// use slidegate_tower::Refusal;
    ///
    /// let refusal = Refusal::with_axum(|refused| {
    ///     let json = format!(r#"{{"error":"{}"}}"#, refused.message());
    ///     // With axum's feature `json`: (refused.status(), Json(json!({ "error": … })))
    ///     (refused.status(), [(header::CONTENT_TYPE, "application/json")], json)
    /// });
    /// ```
    #[cfg(feature = "axum")]
    pub fn with_axum<R: axum::response::IntoResponse>(
        function: impl Fn(&Refused<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        Self::with(move |refused| {
            let (mut head, body) = function(refused).into_response().into_parts();
            let body = read_at_once(body).unwrap_or_else(|| {
                tracing::error!("the body of a refusal was not complete, and is left out");
                head.headers.remove(header::CONTENT_LENGTH);
                Bytes::new()
            });
            Response::from_parts(head, body)
        })
    }

    /// The response to a refused request, whose headers say whether it is a gRPC call.
    pub fn respond(&self, refused: &Refused<'_>, request: &HeaderMap) -> Response<Bytes> {
        if grpc::is_call(request) {
            return completed(grpc::response(refused), refused);
        }
        if let RefusalKind::Function(function) = &self.0 {
            return completed(function(refused), refused);
        }
        let mut response = Response::default();
        *response.status_mut() = refused.status();
        *response.headers_mut() = HeaderMap::with_capacity(USUAL_HEADERS);
        if let Some((content_type, body)) = self.text(&refused.body_terms()) {
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
            *response.body_mut() = body.with_wait(refused.retry_after());
        }
        completed(response, refused)
    }

    /// The content type and the body, unless a function makes the response.
    pub(crate) fn text(&self, terms: &BodyTerms<'_>) -> Option<(HeaderValue, Body)> {
        match &self.0 {
            RefusalKind::Shape(shape) => {
                Some((HeaderValue::from_static(shape.content_type()), shape.body(terms)))
            }
            RefusalKind::Template(template) => {
                Some((template.content_type.clone(), template.body(terms)))
            }
            RefusalKind::Function(_) => None,
        }
    }
}

/// Adds the headers that every refusal has, unless the response has them.
fn completed(mut response: Response<Bytes>, refused: &Refused<'_>) -> Response<Bytes> {
    let status = response.status();
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(NO_STORE);
    if status == StatusCode::UNAUTHORIZED {
        let challenge = match refused.reason() {
            Reason::InvalidToken => TOKEN_CHALLENGE,
            _ => API_KEY_CHALLENGE,
        };
        headers.entry(header::WWW_AUTHENTICATE).or_insert(challenge);
    }
    if let Some(after_s) = refused.retry_after_s() {
        headers.entry(header::RETRY_AFTER).or_insert_with(|| after_s.into());
    }
    response
}

/// A whole body; none if it fails or would have to be waited for.
#[cfg(feature = "axum")]
fn read_at_once(mut body: axum::body::Body) -> Option<Bytes> {
    let mut context = Context::from_waker(Waker::noop());
    let mut read = BytesMut::new();
    loop {
        match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => {
                // Trailers are left out: a refusal has none.
                if let Ok(data) = frame.into_data() {
                    read.extend_from_slice(&data);
                }
            }
            Poll::Ready(None) => return Some(read.freeze()),
            Poll::Ready(Some(Err(_))) | Poll::Pending => return None,
        }
    }
}

impl Default for Refusal {
    /// Problem details.
    fn default() -> Self {
        Self::new(Shape::default())
    }
}

impl From<Shape> for Refusal {
    fn from(shape: Shape) -> Self {
        Self::new(shape)
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            RefusalKind::Shape(shape) => f.debug_tuple("Shape").field(shape).finish(),
            RefusalKind::Template(template) => template.fmt(f),
            RefusalKind::Function(_) => f.write_str("Function"),
        }
    }
}

/// The response to a request that [`Gate::check`](slidegate::Gate::check) refuses: `400`, with
/// problem details of RFC 9457. [`RequestLimiter`](crate::RequestLimiter) sends it by itself.
pub fn bad_request(error: &BadRequest) -> Response<Bytes> {
    ProblemDetails::new(StatusCode::BAD_REQUEST, error.to_string()).response()
}
