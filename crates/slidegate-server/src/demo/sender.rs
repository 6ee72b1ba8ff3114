//! A client's connection to the gateway: requests over real TCP, one after the other.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use slidegate::Clock;
use slidegate::limit::SystemClock;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::log::{LoggedRequest, Outcome, RequestLog};

/// What a client asks for.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) key: Option<&'static str>,
    /// The client address, sent as a load balancer would send it.
    pub(super) address: Ipv4Addr,
}

/// Sends requests over one connection, and writes down what becomes of them.
pub(super) struct RequestSender {
    gateway: SocketAddr,
    clock: Arc<SystemClock>,
    log: Arc<RequestLog>,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

/// Long enough for a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(5);

impl RequestSender {
    pub(super) fn new(gateway: SocketAddr, clock: Arc<SystemClock>, log: Arc<RequestLog>) -> Self {
        Self { gateway, clock, log, connection: None }
    }

    /// Makes the connection, so that the first request need not wait for it. If it cannot be made,
    /// the first request will say so.
    pub(super) async fn connect(&mut self) {
        if let Ok(Ok(connection)) = timeout(PATIENCE, connect(self.gateway)).await {
            self.connection = Some(connection);
        }
    }

    /// Sends one request and waits for its answer.
    pub(super) async fn send(&mut self, call: &Call) {
        let sent = self.clock.now();
        let outcome = timeout(PATIENCE, self.exchange(call)).await;
        let outcome = match outcome {
            Ok(Ok(outcome)) => outcome,
            _ => {
                self.connection = None;
                Outcome::Failed
            }
        };
        let (address, answered) = (call.address, self.clock.now());
        self.log.add(LoggedRequest { address, sent, answered, outcome });
    }

    async fn exchange(&mut self, call: &Call) -> anyhow::Result<Outcome> {
        let mut connection = match self.connection.take().filter(SendRequest::is_ready) {
            Some(connection) => connection,
            None => connect(self.gateway).await?,
        };
        let response = connection.send_request(request(self.gateway, call)?).await?;
        let outcome = outcome(&response);
        response.into_body().collect().await?;
        connection.ready().await?;
        self.connection = Some(connection);
        Ok(outcome)
    }
}

async fn connect(gateway: SocketAddr) -> anyhow::Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(gateway).await.context("the gateway cannot be reached")?;
    stream.set_nodelay(true)?;
    let (requests, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(requests)
}

fn request(gateway: SocketAddr, call: &Call) -> anyhow::Result<Request<Empty<Bytes>>> {
    let request = Request::builder()
        .method(&call.method)
        .uri(call.path)
        .header(header::HOST, gateway.to_string())
        .header("x-forwarded-for", call.address.to_string());
    let request = match call.key {
        Some(key) => request.header("x-api-key", key),
        None => request,
    };
    Ok(request.body(Empty::new())?)
}

/// Only the flood guard refuses without problem details.
fn outcome<B>(response: &http::Response<B>) -> Outcome {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let is_problem = content_type.is_some_and(|kind| kind == "application/problem+json");
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS if is_problem => Outcome::Refused,
        StatusCode::TOO_MANY_REQUESTS => Outcome::Flood,
        status if status.is_server_error() || is_problem => Outcome::Failed,
        _ => Outcome::Admitted,
    }
}
