//! The server as a client sees it, over a socket.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use reqwest::{Client, Response, StatusCode, redirect};
use serde_json::{Value, json};
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
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopping) = oneshot::channel();
        let shutdown = async { stopping.await.unwrap_or_default() };
        let stopped = tokio::spawn(url_shortener::serve(listener, shutdown));
        let client = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        Self { url, client, stop, stopped }
    }

    async fn shorten(&self, url: &str) -> Response {
        let request = self.client.post(format!("{}/shorten", self.url));
        request.json(&json!({ "url": url })).send().await.unwrap()
    }

    async fn follow(&self, slug: &str) -> Response {
        self.client.get(format!("{}/{slug}", self.url)).send().await.unwrap()
    }

    async fn stop(self) {
        drop(self.client);
        self.stop.send(()).unwrap();
        self.stopped.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn of_fifteen_posts_ten_are_allowed() {
    let server = Server::start().await;
    for i in 1..=15 {
        let response = server.shorten("https://example.com/").await;
        if i <= 10 {
            assert_eq!(response.status(), StatusCode::CREATED, "post {i}");
            assert_eq!(response.headers()["x-ratelimit-remaining"], (10 - i).to_string());
        } else {
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "post {i}");
            let retry_after = response.headers()["retry-after"].to_str().unwrap();
            assert!((1..=60).contains(&retry_after.parse().unwrap()), "{retry_after}");
            assert_eq!(response.text().await.unwrap(), r#"{"error":"Too Many Requests"}"#);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn links_are_followed_as_often_as_one_likes() {
    let server = Server::start().await;
    let made: Value = server.shorten("https://example.com/far/away").await.json().await.unwrap();
    for _ in 0..30 {
        let response = server.follow(made["slug"].as_str().unwrap()).await;
        assert_eq!(response.status(), StatusCode::TEMPORARY_REDIRECT);
        assert_eq!(response.headers()["location"], "https://example.com/far/away");
        assert!(!response.headers().contains_key("x-ratelimit-limit"));
    }
    assert_eq!(server.follow("unknown").await.status(), StatusCode::NOT_FOUND);
    server.stop().await;
}

#[tokio::test]
async fn only_web_addresses_are_shortened() {
    let server = Server::start().await;
    let response = server.shorten("javascript:alert(1)").await;
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
    server.stop().await;
}
