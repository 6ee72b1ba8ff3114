//! What only the application knows of a request, and tells in the request's extensions.

use std::net::IpAddr;
use std::num::NonZeroU32;

/// The address of the peer that holds the connection, for servers other than axum's.
///
/// With the feature `axum`, `ConnectInfo<SocketAddr>` is read too; this one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub IpAddr);

/// The user that the application has authenticated, for policies that count per user. It takes
/// precedence over the policies' [`user_header`](slidegate::policy::PoliciesBuilder::user_header).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct User(pub String);

/// The plan that the application knows the client to have, for policies that go by plans.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserPlan(pub String);

/// What the request costs, for policies that do not fix a cost themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cost(pub NonZeroU32);

/// The request passes without being counted, and its response gets no headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Exempt;
