//! The layer on axum routers: for a whole router, per route, several at once.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use slidegate_tower::{Peer, RateLimitLayer};
use tower::ServiceExt;

fn request(path: &str) -> Request<Body> {
    let peer = Peer("203.0.113.7".parse().unwrap());
    Request::builder().uri(path).extension(peer).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn one_line_limits_a_router() {
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::per_ip("2/min".parse().unwrap()));
    for status in [200, 200, 429, 429] {
        let response = app.clone().oneshot(request("/")).await.unwrap();
        assert_eq!(response.status(), status);
    }
}
