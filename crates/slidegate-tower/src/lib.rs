//! A Tower middleware for [Slidegate](slidegate), the exact sliding-window rate limiter: for axum,
//! hyper, tonic, and whatever else is a [`Service`](tower_service::Service) of HTTP requests.
//!
//! [`RateLimitLayer`] turns each request into [`Facts`](slidegate::Facts) and asks a
//! [`Gate`](slidegate::Gate). What may pass goes to the inner service, whose response gets headers
//! that tell the client where it stands. The rest is refused: `429`, with `Retry-After`.
//!
//! One line is enough for so many requests a minute from each address:
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
//! // What only the application knows, it tells in the request's extensions.
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
//! - [`RateLimitLayer`] is the layer, [`ClientAddress`] finds the client behind proxies,
//!   [`PathReading`] knows the paths that are written in a roundabout way.
//! - [`User`], [`UserPlan`], [`Cost`], [`Exempt`] and [`Peer`] are what an application can tell in
//!   the extensions of a request. The [`Decision`](slidegate::Decision) is in the extensions of the
//!   response, for logging; if several layers decided, the one that refused, else the outermost.
//! - [`Headers`] says which headers a response gets, [`Refusal`] how a refused request is answered.
//!   Both are in [`Responder`], which needs no Tower.
//! - [`RateLimit::for_server`] is for servers that call the service themselves: what they send and log
//!   is then [`Aside`], with [`SharedRefusal`] among it.
//! - [`OutgoingLayer`] is for clients: it keeps outgoing calls within a quota. Its [`OutgoingQueue`] can
//!   be used without Tower too.
//!
//! # Several layers
//! A layer on the router and one on a route both count, and neither hides what the other says:
//! the lists in `RateLimit` and `RateLimit-Policy` have the items of both, and `X-RateLimit-*`
//! shows the quota with less remaining.

mod aside;
mod bad_request;
mod body;
mod client_address;
mod decided;
mod detector;
mod extension;
mod facts;
mod future;
mod headers;
mod kept;
mod layer;
mod limiter;
mod outgoing;
mod path;
mod refusal;
mod responder;
mod seconds;
mod service;
mod shared;

pub use crate::aside::Aside;
pub use crate::bad_request::bad_request;
pub use crate::body::ResponseBody;
pub use crate::client_address::{AddressSource, AddressSourceError, ClientAddress, ResolvedClient};
pub use crate::extension::{Cost, Exempt, Peer, User, UserPlan};
pub use crate::future::ResponseFuture;
pub use crate::headers::{Dialect, DialectError, Fields, Headers, Text};
pub use crate::layer::RateLimitLayer;
pub use crate::outgoing::{
    OutgoingError, OutgoingLayer, OutgoingQueue, OutgoingService, RateLimited,
};
pub use crate::path::PathReading;
pub use crate::refusal::{Reason, Refusal, Refused, Shape, ShapeError, TemplateError};
pub use crate::responder::Responder;
pub use crate::service::RateLimit;
pub use crate::shared::SharedRefusal;

/// The page on HTTP, whose examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/http.md")]
struct HttpPage;
