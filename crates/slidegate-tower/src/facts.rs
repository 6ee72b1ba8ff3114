//! From a request to the facts about it.

use std::net::IpAddr;

use http::{Extensions, HeaderMap, Method, Request, Uri, request};
use slidegate::Facts;

use crate::extension::{Cost, Peer, User, UserPlan};

/// The head of a request, whole or taken apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestHead<'r> {
    pub(crate) method: &'r Method,
    pub(crate) uri: &'r Uri,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) extensions: &'r Extensions,
}

impl<'r, B> From<&'r Request<B>> for RequestHead<'r> {
    fn from(request: &'r Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<'r> From<&'r request::Parts> for RequestHead<'r> {
    fn from(parts: &'r request::Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}

impl<'r> RequestHead<'r> {
    /// What the head itself says.
    pub(crate) fn plain_facts(&self) -> Facts<'r> {
        Facts::new(self.method, self.uri.path()).headers(self.headers)
    }

    /// The facts but for the client, who is found otherwise.
    pub(crate) fn facts(&self) -> Facts<'r> {
        let mut facts = self.plain_facts();
        if let Some(User(id)) = self.extensions.get() {
            facts = facts.user(id);
        }
        if let Some(UserPlan(name)) = self.extensions.get() {
            facts = facts.plan(name);
        }
        if let Some(Cost(units)) = self.extensions.get() {
            facts = facts.cost(*units);
        }
        facts
    }

    /// The address of whoever holds the connection.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        match self.extensions.get() {
            Some(Peer(address)) => Some(*address),
            None => connected(self.extensions),
        }
    }
}

#[cfg(feature = "axum")]
fn connected(extensions: &Extensions) -> Option<IpAddr> {
    use std::net::SocketAddr;

    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    let real = || extensions.get().map(|ConnectInfo::<SocketAddr>(address)| address);
    let mock = || extensions.get().map(|MockConnectInfo::<SocketAddr>(address)| address);
    real().or_else(mock).map(SocketAddr::ip)
}

#[cfg(not(feature = "axum"))]
fn connected(_: &Extensions) -> Option<IpAddr> {
    None
}
