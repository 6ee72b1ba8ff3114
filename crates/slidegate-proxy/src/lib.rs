//! The hardened HTTP server and reverse proxy of [Slidegate](https://github.com/slidegate/slidegate),
//! on hyper. It does not depend on rate limits.
//!
//! [`serve`] accepts connections and calls a [`Handler`] for each request, within [`Bounds`] and
//! [`Timeouts`]. A handler forwards an allowed request with [`ReverseProxy::forward`].
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response, StatusCode};
//! use http_body_util::Full;
//! use slidegate_proxy::{Accepted, Handler, RequestBody};
//!
//! struct Teapot;
//!
//! impl Handler for Teapot {
//!     type Body = Full<Bytes>;
//!
//!     async fn answer(&self, _: Accepted, _: Request<RequestBody>) -> Response<Full<Bytes>> {
//!         let mut response = Response::new(Full::from("short and stout"));
//!         *response.status_mut() = StatusCode::IM_A_TEAPOT;
//!         response
//!     }
//! }
//! ```

// docs.rs builds with a nightly compiler, and labels what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod listen_address;
mod net;
mod per_address;
mod proxy;
mod settings;

pub use crate::listen_address::ListenAddress;
pub use crate::net::{
    Accepted, ConnectionCounts, ConnectionTable, Handler, InFlight, Listeners, RawConnection,
    RawHandler, RequestBody, RequestBodyError, Settings, Sockets, Tls, TlsError, TlsPem,
    TrustedPeers, serve, serve_raw,
};
pub use crate::proxy::{
    ProxyBody, ProxyError, RequestFields, RequestOrigin, ReverseProxy, UpstreamBody,
    UpstreamBodyError, UpstreamError, UpstreamOutcome,
};
pub use crate::settings::{
    Bounds, ForwardingHeader, HeaderRules, HostRule, ProxyConfig, RouteConfig, Timeouts,
};
