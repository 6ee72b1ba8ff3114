//! The server as a client sees it, over a socket.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;
use std::time::Duration;

use reqwest::{Client, Response, StatusCode, redirect};
use serde_json::{Value, json};
use slidegate::{MemoryStore, Store};
use slidegate_redis::{RedisStore, ResilientStore};
use slidegate_testbed::{CommandCounts, RedisServer};
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
        Self::start_with(MemoryStore::new()).await
    }

    async fn start_on(redis: &RedisServer) -> Self {
        // A slow machine is not what this is about.
        let store = RedisStore::builder(redis.url()).deadline(Duration::from_secs(20));
        Self::start_with(ResilientStore::new(store.build().unwrap())).await
    }

    async fn start_with(store: impl Store) -> Self {
        let app = url_shortener::app(store).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopping) = oneshot::channel();
        let shutdown = async { stopping.await.unwrap_or_default() };
        let stopped = tokio::spawn(url_shortener::serve(listener, app, shutdown));
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
        post(&server, i).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn only_posts_are_counted() {
    let server = Server::start().await;
    for _ in 1..=15 {
        let response = server.follow("shorten").await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
    for i in 1..=15 {
        post(&server, i).await;
    }
    server.stop().await;
}

/// Two servers take turns, and one of them is replaced halfway: they have one budget all together.
#[tokio::test]
async fn servers_on_one_redis_share_the_ten_and_a_restart_forgets_none() {
    let redis = RedisServer::start();
    let mut servers = [Server::start_on(&redis).await, Server::start_on(&redis).await];
    for i in 1..=15 {
        if i == 8 {
            let replaced = std::mem::replace(&mut servers[0], Server::start_on(&redis).await);
            replaced.stop().await;
        }
        post(&servers[i % 2], i).await;
    }
    assert!(CommandCounts::of([&redis]).calls("evalsha") >= 11, "Redis was asked");
    for server in servers {
        server.stop().await;
    }
}

/// The `i`th of fifteen posts in a row, of which ten are allowed.
async fn post(server: &Server, i: usize) {
    let response = server.shorten("https://example.com/").await;
    if i <= 10 {
        assert_eq!(response.status(), StatusCode::CREATED, "post {i}");
        assert_eq!(response.headers()["x-ratelimit-remaining"], (10 - i).to_string());
    } else {
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "post {i}");
        let retry_after = response.headers()["retry-after"].to_str().unwrap();
        // A unit may be held for a part of a millisecond more, which is reported as a whole second.
        assert!((1..=61).contains(&retry_after.parse().unwrap()), "{retry_after}");
        assert_eq!(response.text().await.unwrap(), r#"{"error":"Too Many Requests"}"#);
    }
}

#[test]
fn a_bad_redis_url_is_explained_without_its_password() {
    for (url, reason) in [
        ("hunter2@localhost", "no scheme"),
        ("http://:hunter2@localhost", "expected redis, rediss, unix"),
        ("redis://:hunter2@localhost:port", "cannot be read"),
        ("redis-sentinel://:hunter2@localhost", "no master's name"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_url-shortener"));
        let output = command.env("REDIS_URL", url).env("PORT", "0").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{said}");
        assert!(said.contains("REDIS_URL") && said.contains(reason), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
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
