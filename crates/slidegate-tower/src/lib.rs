//! A Tower middleware for [Slidegate](slidegate), the exact sliding-window rate limiter: for axum,
//! hyper, tonic, and whatever else is a [`Service`](tower_service::Service) of HTTP requests.
//!
//! [`RateLimitLayer`] turns each request into [`Facts`](slidegate::Facts), which a
//! [`Gate`](slidegate::Gate) decides. Requests that may pass go to the inner service, whose response
//! gets headers that say where the client stands. The others are refused: `429`, with `Retry-After`.
//!
//! One line is enough for 100 requests a minute from each address:
//!
//! ```
//! # use slidegate_tower::RateLimitLayer;
//! # fn router() -> Result<axum::Router, slidegate::QuotaError> {
//! let app = axum::Router::new().layer(RateLimitLayer::per_ip("100/min".parse()?));
//! # Ok(app)
//! # }
//! ```
//!
//! # An axum service
//! Users are counted by their plan, everybody else by address, and logging in has a policy of its
//! own. The service is behind a proxy in `10.0.0.0/8`.
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::extract::Request;
//! use axum::middleware::{self, Next};
//! use axum::response::Response;
//! use axum::routing::{get, post};
//! use axum::Router;
//! use slidegate::{Gate, MemoryStore, Plan, Policies, Policy, Quota, Source};
//! use slidegate_tower::{AddressSource, ClientAddress, RateLimitLayer, User, UserPlan};
//!
//! // What only the application knows, it puts into the request's extensions.
//! async fn authenticate(mut request: Request, next: Next) -> Response {
//!     if request.headers().contains_key("authorization") {
//!         request.extensions_mut().insert(User("42".to_owned()));
//!         request.extensions_mut().insert(UserPlan("pro".to_owned()));
//!     }
//!     next.run(request).await
//! }
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let policies = Policies::builder()
//!     .plan(Plan::new("free", [Quota::per_minute(60), Quota::per_day(10_000)]))
//!     .plan(Plan::new("pro", [Quota::per_minute(600), Quota::per_day(100_000)]))
//!     .policy(Policy::new("api").identity([Source::User, Source::ip()]).plans("free"))
//!     .policy(Policy::new("login").path("/login").quota(Quota::per_minute(5)))
//!     .build()?;
//! let proxies = ["10.0.0.0/8".parse()?];
//! let limits = RateLimitLayer::new(Gate::new(policies, MemoryStore::new()))
//!     .client_address(ClientAddress::new(AddressSource::XForwardedFor, proxies));
//!
//! let app = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .route("/login", post(|| async { "welcome" }))
//!     .layer(limits)
//!     // Layers that are added later come first.
//!     .layer(middleware::from_fn(authenticate));
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! // With the peer's address, which the feature `axum` of this crate reads.
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is where
//! - [`RequestLimiter`] is all of it without Tower: the head of a request in, out comes that it may
//!   pass or the response that refuses it. [`RateLimitLayer`] is the middleware around it.
//! - [`ClientAddress`] finds the client behind proxies. How paths are read is a part of the policies:
//!   [`PathReading`](slidegate::policy::PathReading).
//! - [`User`], [`Identity`], [`Identities`], [`UserPlan`], [`Cost`], [`Exempt`] and [`Peer`] are what
//!   an application can put into the extensions of a request. With
//!   [`expose_decision`](RateLimitLayer::expose_decision), the [`Decision`](slidegate::Decision) is in
//!   the extensions of the response, for logging; if several layers decided, the one that refused,
//!   else the outermost.
//! - [`ResponseCost`] and [`NotCounted`] are what it can put into the extensions of a response, for
//!   policies whose cost is known only then.
//! - [`Headers`] says which headers a response gets, [`Refusal`] how a request is refused;
//!   [`Responder`] has both.
//! - [`OutgoingLayer`] is for clients: it keeps outgoing calls within a quota. Its
//!   [`OutgoingQueue`] can be used without Tower too.
//!
//! # Several layers
//! A layer on the router and one on a route both count, and neither hides what the other says:
//! the lists in `RateLimit` and `RateLimit-Policy` have the items of both, and `X-RateLimit-*`
//! shows the quota with less remaining.

// docs.rs builds with a nightly compiler, and labels what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client_address;
mod detector;
mod future;
mod headers;
mod layer;
mod limiter;
mod outgoing;
mod prepared;
mod problem;
mod refusal;
mod request;
mod responder;
mod settle;

pub use slidegate::{Cost, Identity};

pub use crate::client_address::{AddressSource, AddressSourceError, ClientAddress, ResolvedClient};
pub use crate::future::{ResponseBody, ResponseFuture};
pub use crate::headers::{Dialect, DialectError, Headers, StandingFields};
pub use crate::layer::{RateLimit, RateLimitLayer};
pub use crate::limiter::{LimiterOutcome, RequestLimiter};
pub use crate::outgoing::{
    OutgoingError, OutgoingLayer, OutgoingQueue, OutgoingService, RateLimited,
};
pub use crate::problem::ProblemDetails;
pub use crate::refusal::{Reason, Refusal, Refused, Shape, ShapeError, TemplateError, bad_request};
pub use crate::request::{Customer, Exempt, Identities, Peer, RequestHead, User, UserPlan};
pub use crate::responder::Responder;
pub use crate::settle::{
    NotCounted, PendingCost, ResponseCost, SettleOutcome, SettlingBody, Unanswered, UnreadReason,
};

/// The page on HTTP, whose examples are tests.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../docs/http.md")]
struct HttpPage;

/// The recipes, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to.md")]
struct HowToPage;

/// The crate's README, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct TowerReadme;
