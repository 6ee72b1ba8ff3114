//! Requests that policies cannot be applied to with certainty, because other programs may read them
//! in another way.

use http::Method;

use crate::facts::Facts;
use crate::policies::Policies;

/// Why a request is to be refused with `400 Bad Request` before it is counted.
///
/// See [`Gate::check`](crate::Gate::check).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// The method is a known one in another case. Policies for the known one would not count it,
    /// and some servers accept it all the same.
    #[error("the method differs from {known} only in case; methods are case-sensitive")]
    MethodCase {
        /// The method that it looks like.
        known: Method,
    },
}

/// The methods that every server knows.
const STANDARD_METHODS: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::CONNECT,
    Method::OPTIONS,
    Method::TRACE,
    Method::PATCH,
];

impl Policies {
    /// See [`Gate::check`](crate::Gate::check).
    pub fn check(&self, facts: &Facts<'_>) -> Result<(), BadRequest> {
        self.check_method(facts.method)
    }

    fn check_method(&self, method: &Method) -> Result<(), BadRequest> {
        if STANDARD_METHODS.contains(method) {
            return Ok(());
        }
        let is_case_of = |known: &&Method| known.as_str().eq_ignore_ascii_case(method.as_str());
        let named = || self.policies.iter().flat_map(|policy| &policy.methods);
        let known = match STANDARD_METHODS.iter().find(is_case_of) {
            Some(standard) => Some(standard),
            None if named().any(|known| known == method) => None,
            None => named().find(is_case_of),
        };
        match known {
            Some(known) => Err(BadRequest::MethodCase { known: known.clone() }),
            None => Ok(()),
        }
    }
}
