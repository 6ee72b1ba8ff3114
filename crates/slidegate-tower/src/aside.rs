//! What a response for a server has beside its headers and its body.

use std::sync::Arc;

use slidegate::Decision;

use crate::shared::SharedRefusal;

/// What the response to a request has beside its headers and its body, if the service was called
/// [for a server](crate::RateLimit::for_server).
#[derive(Debug, Default)]
pub struct Aside {
    /// The gate's decision; none if the store could not count.
    pub decision: Option<Decision>,
    /// The fields that tell where the client stands, if the request was of HTTP/1: lines, each with
    /// its end, that belong to the head of the response. There are none if the inner service has
    /// sent such fields itself: then ours are with them among the headers.
    pub lines: Vec<u8>,
    /// The refusal that the response is, if many are told the same. Then it is all that there is of
    /// the response but for the status: there are no headers, and the body is empty.
    pub refusal: Option<Arc<SharedRefusal>>,
}
