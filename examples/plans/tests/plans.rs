//! The server as its customers see it, over a socket.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A server on a port of its own, and a client of it.
struct Server {
    url: String,
    client: Client,
    stop: oneshot::Sender<()>,
    stopped: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/reports", listener.local_addr().unwrap());
        let (stop, stopping) = oneshot::channel();
        let shutdown = async { stopping.await.unwrap_or_default() };
        let stopped = tokio::spawn(plans::serve(listener, shutdown));
        Self { url, client: Client::new(), stop, stopped }
    }

    async fn reports(&self, key: &str) -> Response {
        self.client.get(&self.url).header("x-api-key", key).send().await.unwrap()
    }

    async fn stop(self) {
        drop(self.client);
        self.stop.send(()).unwrap();
        self.stopped.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_customer_gets_what_the_plan_says() {
    let server = Server::start().await;
    for (key, minute, day) in
        [("key-of-ann", 60, 10_000), ("key-of-bob", 600, 100_000), ("key-of-cho", 6000, 1_000_000)]
    {
        let response = server.reports(key).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["x-ratelimit-limit"], minute.to_string());
        let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
        assert!(policy.contains(&format!("q={minute};w=60")), "{policy}");
        assert!(policy.contains(&format!("q={day};w=86400")), "{policy}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_refusal_names_where_to_get_more() {
    let server = Server::start().await;
    for i in 1..=60 {
        assert_eq!(server.reports("key-of-ann").await.status(), StatusCode::OK, "request {i}");
    }
    let refusal = server.reports("key-of-ann").await;
    assert_eq!(refusal.status(), StatusCode::TOO_MANY_REQUESTS);
    let retry_after_s: u64 = refusal.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    let body: Value = refusal.json().await.unwrap();
    assert_eq!(body["error"], "Rate limit exceeded");
    assert_eq!(body["limit"], 60);
    assert_eq!(body["plan"], "free");
    assert_eq!(body["upgradeUrl"], "https://app.example.com/upgrade");
    let retry_after_ms = body["retryAfterMs"].as_u64().unwrap();
    assert_eq!(retry_after_ms.div_ceil(1000), retry_after_s);
    assert_eq!(server.reports("key-of-bob").await.status(), StatusCode::OK, "another customer");
    server.stop().await;
}

#[tokio::test]
async fn requests_without_a_key_are_refused() {
    let server = Server::start().await;
    for _ in 0..100 {
        assert_eq!(server.reports("key-of-nobody").await.status(), StatusCode::UNAUTHORIZED);
    }
    let response = server.client.get(&server.url).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    server.stop().await;
}
