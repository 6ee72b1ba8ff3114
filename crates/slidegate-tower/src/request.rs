//! What is known of a request: its head, and what the application says of it in the extensions.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::slice;

use http::{Extensions, HeaderMap, Method, Request, request};
use slidegate::policy::PathReadings;
use slidegate::{Bearer, Cost, Facts, Identity};

use crate::client_address::{ClientAddress, ResolvedClient};

/// The address of the peer that holds the connection, for servers other than axum's.
///
/// With the feature `axum`, `ConnectInfo<SocketAddr>` is read too; this one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub IpAddr);

/// The user that the application has authenticated, for policies that count per user. It takes
/// precedence over the policies' [`user_header`](slidegate::policy::PoliciesBuilder::user_header).
///
/// ```
/// use http::Request;
/// use slidegate_tower::User;
///
/// // In a middleware outside of the limiter's, which has checked a session:
/// let mut request = Request::new(());
/// request.extensions_mut().insert(User("42".to_owned()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct User(pub String);

/// The customer that the application knows the client to be, for policies that count by customer or API
/// key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Customer(pub String);

/// Identities of the application's own kinds, for policies that count by
/// [`Source::named`](slidegate::Source::named): a tenant, a team and a device at once, beside the
/// [`User`]. A request with one only may have the [`Identity`] itself in its extensions instead; if
/// it has both, only those in this list count.
///
/// ```
/// use slidegate::Identity;
/// use slidegate_tower::{Identities, User};
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(User("42".to_owned()));
/// let identities = request.extensions_mut().get_or_insert_default::<Identities>();
/// identities.0.push(Identity::new("tenant", "acme"));
/// identities.0.push(Identity::new("team", "research"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identities(pub Vec<Identity>);

/// The plan that the application knows the client to have, for policies that use plans.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserPlan(pub String);

/// The request passes without being counted, and its response gets no headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Exempt;

/// The head of a request, borrowed, with what the application says of the request: whatever
/// [`Facts`] are made of.
///
/// Made from an [`http::Request`] or its parts, or from what a proxy says about a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'r> {
    /// Without the client's address.
    facts: Facts<'r>,
    pub(crate) headers: &'r HeaderMap,
    origin: HeadOrigin,
    pub(crate) is_exempt: bool,
    pub(crate) described_by_proxy: bool,
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
enum HeadOrigin {
    /// The peer that holds the connection.
    Peer(Option<IpAddr>),
    Resolved(ResolvedClient),
}

impl<'r> RequestHead<'r> {
    /// A request for a path, with or without its query.
    pub fn new(method: &'r Method, path: &'r str, headers: &'r HeaderMap) -> Self {
        Self {
            facts: Facts::new(method, path).headers(headers),
            headers,
            origin: HeadOrigin::Peer(None),
            is_exempt: false,
            described_by_proxy: false,
        }
    }

    /// The peer that holds the connection. The client is resolved from it by the limiter's
    /// [`ClientAddress`].
    #[must_use]
    pub fn peer(self, peer: IpAddr) -> Self {
        Self { origin: HeadOrigin::Peer(Some(peer)), ..self }
    }

    /// The client, if it has been resolved already.
    #[must_use]
    pub fn client(self, client: ResolvedClient) -> Self {
        Self { origin: HeadOrigin::Resolved(client), ..self }
    }

    /// The path with its readings, if it has been read already: by the limiter's policies, or by a proxy
    /// that routes by it.
    #[must_use]
    pub fn readings(self, readings: &'r PathReadings<'r>) -> Self {
        Self { facts: self.facts.readings(readings), ..self }
    }

    /// The authenticated user, as [`User`] has it.
    #[must_use]
    pub fn user(self, id: &'r str) -> Self {
        Self { facts: self.facts.user(id), ..self }
    }

    /// The customer, as [`Customer`] has it.
    #[must_use]
    pub fn customer(self, name: &'r str) -> Self {
        Self { facts: self.facts.customer(name), ..self }
    }

    /// The client's plan, as [`UserPlan`] has it.
    #[must_use]
    pub fn plan(self, name: &'r str) -> Self {
        Self { facts: self.facts.plan(name), ..self }
    }

    /// What the request costs, for policies that do not fix a cost themselves.
    #[must_use]
    pub fn cost(self, units: NonZeroU32) -> Self {
        Self { facts: self.facts.cost(units), ..self }
    }

    /// Identities of the application's own kinds, as [`Identities`] has them.
    #[must_use]
    pub fn identities(self, identities: &'r [Identity]) -> Self {
        Self { facts: self.facts.identities(identities), ..self }
    }

    /// Who bears the request's credentials, as a [`Bearer`] in the extensions has it.
    #[must_use]
    pub fn bearer(self, bearer: &'r Bearer) -> Self {
        Self { facts: self.facts.bearer(bearer), ..self }
    }

    /// The request's headers.
    pub fn headers(&self) -> &'r HeaderMap {
        self.headers
    }

    /// Marks a request that a proxy asks about, as in forward-auth.
    ///
    /// It is refused in plain HTTP even if it is a gRPC call: a gRPC refusal has the status 200, which
    /// a proxy that acts on the status takes for permission. And the caller has read the forwarding
    /// headers, so that there is no warning that they were ignored.
    #[must_use]
    pub fn described_by_proxy(self) -> Self {
        Self { described_by_proxy: true, ..self }
    }

    /// Where the request comes from.
    pub fn resolve(&self, client_address: &ClientAddress) -> ResolvedClient {
        match self.origin {
            HeadOrigin::Peer(peer) => client_address.resolve_client(peer, self.headers),
            HeadOrigin::Resolved(client) => client,
        }
    }

    /// The facts that policies match, of a request that comes from there: see
    /// [`resolve`](Self::resolve). The headers of a trusted peer are trusted.
    pub fn facts(&self, from: ResolvedClient) -> Facts<'r> {
        let facts = from.client.map_or(self.facts, |client| self.facts.client(client));
        if from.is_trusted { facts.headers_trusted() } else { facts }
    }

    fn extensions(mut self, extensions: &'r Extensions) -> Self {
        if let Some(User(id)) = extensions.get() {
            self = self.user(id);
        }
        if let Some(Customer(name)) = extensions.get() {
            self = self.customer(name);
        }
        if let Some(Identities(list)) = extensions.get() {
            self = self.identities(list);
        } else if let Some(identity) = extensions.get() {
            self = self.identities(slice::from_ref(identity));
        }
        if let Some(UserPlan(name)) = extensions.get() {
            self = self.plan(name);
        }
        if let Some(bearer) = extensions.get() {
            self = self.bearer(bearer);
        }
        if let Some(Cost::Units(units)) = extensions.get() {
            self = self.cost(*units);
        }
        let is_exempt = extensions.get::<Exempt>().is_some();
        Self { origin: HeadOrigin::Peer(peer(extensions)), is_exempt, ..self }
    }
}

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    match extensions.get() {
        Some(Peer(address)) => Some(*address),
        None => connect_info(extensions),
    }
}

#[cfg(feature = "axum")]
fn connect_info(extensions: &Extensions) -> Option<IpAddr> {
    use std::net::SocketAddr;

    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    let real = || extensions.get().map(|ConnectInfo::<SocketAddr>(address)| address);
    let mock = || extensions.get().map(|MockConnectInfo::<SocketAddr>(address)| address);
    real().or_else(mock).map(SocketAddr::ip)
}

#[cfg(not(feature = "axum"))]
fn connect_info(_: &Extensions) -> Option<IpAddr> {
    None
}

impl<'r, B> From<&'r Request<B>> for RequestHead<'r> {
    fn from(request: &'r Request<B>) -> Self {
        let head = Self::new(request.method(), request.uri().path(), request.headers());
        head.extensions(request.extensions())
    }
}

impl<'r> From<&'r request::Parts> for RequestHead<'r> {
    fn from(parts: &'r request::Parts) -> Self {
        let head = Self::new(&parts.method, parts.uri.path(), &parts.headers);
        head.extensions(&parts.extensions)
    }
}
