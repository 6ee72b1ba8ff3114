//! What is known of a request.

use std::borrow::Cow;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::identity::Identity;
use crate::limit::Timestamp;
use crate::policy::Bearer;
use crate::policy::found_key::FoundKey;
use crate::policy::path_reading::PathReadings;

/// What is known of a request, borrowed from it.
///
/// ```
/// use slidegate::Facts;
///
/// let facts = Facts::new(&http::Method::POST, "/login")
///     .client("203.0.113.7".parse().unwrap())
///     .user("42");
/// ```
#[must_use]
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    /// Those of the path. Policies set them, unless the caller has.
    pub(crate) readings: Option<&'a PathReadings<'a>>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) headers_trusted: bool,
    pub(crate) client: Option<IpAddr>,
    pub(crate) user: Option<&'a str>,
    pub(crate) user_header: Option<&'a HeaderName>,
    pub(crate) customer: Option<&'a str>,
    pub(crate) identities: &'a [Identity],
    pub(crate) plan: Option<&'a str>,
    pub(crate) bearer: Option<&'a Bearer>,
    /// Set by the policies, which look the key up once.
    pub(crate) key: Option<&'a FoundKey<'a>>,
    pub(crate) now: Option<Timestamp>,
    pub(crate) cost: Option<NonZeroU32>,
}

static NO_HEADERS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);

impl<'a> Facts<'a> {
    /// A request for a path, as the client has sent it, with or without its query. Policies match
    /// all [readings](crate::policy::PathReading) of it.
    pub fn new(method: &'a Method, path: &'a str) -> Self {
        Self {
            method,
            path,
            readings: None,
            headers: &NO_HEADERS,
            headers_trusted: false,
            client: None,
            user: None,
            user_header: None,
            customer: None,
            identities: &[],
            plan: None,
            bearer: None,
            key: None,
            now: None,
            cost: None,
        }
    }

    /// The path with its readings, for callers that have [read](crate::policy::PathReading::read) it
    /// themselves. Policies that read paths in other ways find their own.
    pub fn readings(self, readings: &'a PathReadings<'a>) -> Self {
        Self { path: readings.sent, readings: Some(readings), ..self }
    }

    /// The request's headers. API keys and `Authorization` are read from them, nothing else
    /// unless they are [trusted](Self::headers_trusted).
    pub fn headers(self, headers: &'a HeaderMap) -> Self {
        Self { headers, ..self }
    }

    /// Says that the peer who sent the headers may speak for the client: policies that read an
    /// identity or a plan from a named header then believe it.
    pub fn headers_trusted(self) -> Self {
        Self { headers_trusted: true, ..self }
    }

    /// The client's address.
    pub fn client(self, address: IpAddr) -> Self {
        Self { client: Some(address), ..self }
    }

    /// The user that the application has authenticated. It takes precedence over the policies'
    /// [`user_header`](crate::policy::PoliciesBuilder::user_header).
    pub fn user(self, id: &'a str) -> Self {
        Self { user: Some(id), ..self }
    }

    /// The customer that the application knows the client to be. All its keys, users and tokens spend
    /// from one account, in policies that count by [`Source::Customer`](crate::Source::Customer) or
    /// [`Source::ApiKey`](crate::Source::ApiKey).
    pub fn customer(self, name: &'a str) -> Self {
        Self { customer: Some(name), ..self }
    }

    /// Identities of the application's own [kinds](Identity::new), for policies that count by
    /// [`Source::Named`](crate::Source::Named). One of the kind of a header, such as `api-key`, counts
    /// where the request has no such header. Of several of one kind, the first counts.
    ///
    /// ```
    /// use slidegate::{Facts, Identity, Policy, Source};
    ///
    /// let per_tenant = Policy::new("tenant").identity(Source::named("tenant")).quota("1000/min");
    /// let per_user = Policy::new("user").identity(Source::User).quota("60/min");
    ///
    /// let tenant = [Identity::new("tenant", "acme")];
    /// let facts = Facts::new(&http::Method::GET, "/").user("42").identities(&tenant);
    /// ```
    pub fn identities(self, identities: &'a [Identity]) -> Self {
        Self { identities, ..self }
    }

    /// The plan that the application knows the client to have.
    pub fn plan(self, name: &'a str) -> Self {
        Self { plan: Some(name), ..self }
    }

    /// Who bears the request's credentials, once they have been looked up and checked.
    pub fn bearer(self, bearer: &'a Bearer) -> Self {
        Self { bearer: Some(bearer), ..self }
    }

    /// When it is, for API keys that [expire](crate::policy::ApiKey::expires). A
    /// [`Gate`](crate::Gate) goes by its clock.
    pub fn at(self, now: Timestamp) -> Self {
        Self { now: Some(now), ..self }
    }

    /// What the request costs, for policies that do not fix a cost themselves. Local policies count
    /// requests unless they say [`request_cost`](crate::Policy::request_cost).
    pub fn cost(self, units: NonZeroU32) -> Self {
        Self { cost: Some(units), ..self }
    }

    /// The value of a header without the white space around it, which HTTP/2 and callers of the
    /// library may have left there. None if it is empty or repeated: which of two values another
    /// program would take is anybody's guess, so neither counts.
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&'a [u8]> {
        let mut values = self.headers.get_all(name).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        Some(value.as_bytes().trim_ascii()).filter(|value| !value.is_empty())
    }

    /// The value of a `Cookie` header, whose lines are one value together: HTTP/2 may send it in
    /// several (RFC 9113, section 8.2.3).
    pub(crate) fn cookie(&self) -> Option<Cow<'a, [u8]>> {
        let lines = self.header_values(&header::COOKIE).map(<[u8]>::trim_ascii);
        let mut lines = lines.filter(|line| !line.is_empty());
        let mut cookie = Cow::Borrowed(lines.next()?);
        for line in lines {
            let cookie = cookie.to_mut();
            cookie.extend_from_slice(b"; ");
            cookie.extend_from_slice(line);
        }
        Some(cookie)
    }

    /// All values, so that a block list matches if any is listed.
    pub(crate) fn header_values(&self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        self.headers.get_all(name).into_iter().map(HeaderValue::as_bytes)
    }

    pub(crate) fn key(self, key: &'a FoundKey<'a>) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Names the user if the application does not.
    pub(crate) fn user_header(self, name: Option<&'a HeaderName>) -> Self {
        Self { user_header: name, ..self }
    }

    /// The user that the application names, else the one in the user header of a trusted peer.
    pub(crate) fn user_id(&self) -> Option<&'a [u8]> {
        let named = self.user.map(str::as_bytes).filter(|id| !id.is_empty());
        named.or_else(|| self.trusted_header(self.user_header?))
    }

    /// The identity of this kind that the application has named.
    pub(crate) fn identity(&self, kind: &str) -> Option<Identity> {
        self.identities.iter().find(|identity| identity.kind() == kind).copied()
    }

    pub(crate) fn trusted_header(&self, name: &HeaderName) -> Option<&'a [u8]> {
        self.headers_trusted.then(|| self.header(name)).flatten()
    }
}
