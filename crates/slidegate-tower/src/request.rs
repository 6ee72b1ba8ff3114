//! What is known of a request: its head, and what the application says of it in the extensions.

use std::net::IpAddr;
use std::slice;

use http::{Extensions, HeaderMap, Method, Request, request};
use slidegate::{Cost, Facts, Identity};

use crate::client_address::{ClientAddress, ResolvedClient};

/// The address of the peer that holds the connection, for servers other than axum's.
///
/// With the feature `axum`, `ConnectInfo<SocketAddr>` is read too; this one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub IpAddr);

/// The user that the application has authenticated, for policies that count per user. It takes
/// precedence over the policies' [`user_header`](slidegate::policy::PoliciesBuilder::user_header).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct User(pub String);

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

/// The plan that the application knows the client to have, for policies that go by plans.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserPlan(pub String);

/// The request passes without being counted, and its response gets no headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Exempt;

/// The head of a request, borrowed.
///
/// Made from an [`http::Request`] or its parts, or from what a proxy says about a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'r> {
    method: &'r Method,
    path: &'r str,
    pub(crate) headers: &'r HeaderMap,
    extensions: Option<&'r Extensions>,
    client: Option<ResolvedClient>,
    pub(crate) described_by_proxy: bool,
}

impl<'r> RequestHead<'r> {
    /// A request for a path, with or without its query, and no extensions.
    pub fn new(method: &'r Method, path: &'r str, headers: &'r HeaderMap) -> Self {
        Self { method, path, headers, extensions: None, client: None, described_by_proxy: false }
    }

    /// Says where the request comes from, if it is already known. Otherwise the peer is taken from
    /// the extensions, and the client is resolved by the limiter's [`ClientAddress`].
    #[must_use]
    pub fn client(self, client: ResolvedClient) -> Self {
        Self { client: Some(client), ..self }
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

    pub(crate) fn is_exempt(&self) -> bool {
        self.extension::<Exempt>().is_some()
    }

    /// Where the request comes from.
    pub(crate) fn resolve(&self, client_address: &ClientAddress) -> ResolvedClient {
        self.client.unwrap_or_else(|| client_address.resolve_client(self.peer(), self.headers))
    }

    /// The facts, but for where the request comes from.
    pub(crate) fn facts(&self) -> Facts<'r> {
        let mut facts = Facts::new(self.method, self.path).headers(self.headers);
        if let Some(User(id)) = self.extension() {
            facts = facts.user(id);
        }
        if let Some(Identities(list)) = self.extension() {
            facts = facts.identities(list);
        } else if let Some(identity) = self.extension() {
            facts = facts.identities(slice::from_ref(identity));
        }
        if let Some(UserPlan(name)) = self.extension() {
            facts = facts.plan(name);
        }
        if let Some(Cost::Units(units)) = self.extension() {
            facts = facts.cost(*units);
        }
        facts
    }

    fn peer(&self) -> Option<IpAddr> {
        match self.extension() {
            Some(Peer(address)) => Some(*address),
            None => self.connect_info(),
        }
    }

    #[cfg(feature = "axum")]
    fn connect_info(&self) -> Option<IpAddr> {
        use std::net::SocketAddr;

        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

        let real = || self.extension().map(|ConnectInfo::<SocketAddr>(address)| address);
        let mock = || self.extension().map(|MockConnectInfo::<SocketAddr>(address)| address);
        real().or_else(mock).map(SocketAddr::ip)
    }

    #[cfg(not(feature = "axum"))]
    fn connect_info(&self) -> Option<IpAddr> {
        None
    }

    fn extension<T: Send + Sync + 'static>(&self) -> Option<&'r T> {
        self.extensions?.get()
    }
}

impl<'r, B> From<&'r Request<B>> for RequestHead<'r> {
    fn from(request: &'r Request<B>) -> Self {
        let head = Self::new(request.method(), request.uri().path(), request.headers());
        Self { extensions: Some(request.extensions()), ..head }
    }
}

impl<'r> From<&'r request::Parts> for RequestHead<'r> {
    fn from(parts: &'r request::Parts) -> Self {
        let head = Self::new(&parts.method, parts.uri.path(), &parts.headers);
        Self { extensions: Some(&parts.extensions), ..head }
    }
}
