//! A client's connection to the gateway, and one request on it.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, Request, Response, Version, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::log::{Log, Outcome};
use super::rules::Rule;
use super::upstream::{Action, Body, NUMBER, full, number};

/// A response that takes longer is lost.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Between the parts of a slow body.
const SLOW: Duration = Duration::from_millis(200);

/// Where a client is, and whose account it spends from.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    pub rule: Rule,
    pub account: u32,
    pub address: u32,
}

/// How a client behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Swift,
    /// It sends its body in small parts.
    SlowBody,
    /// It reads the response in small parts.
    SlowReader,
    /// It is gone after this time.
    Aborts(Duration),
}

/// A connection to the gateway, closed on drop.
pub struct Connection {
    sender: Sender,
    driver: AbortHandle,
    gateway: SocketAddr,
}

enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

/// The address of a client: every address of 127.0.0.0/8 leads to this machine.
pub fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 16, 0, 1).to_bits() + number)
}

/// A TCP connection from this address.
pub async fn connect(from: u32, gateway: SocketAddr) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_nodelay(true)?;
    socket.bind((address(from), 0).into())?;
    Ok(socket.connect(gateway).await?)
}

impl Connection {
    pub async fn open(from: u32, gateway: SocketAddr, version: Version) -> anyhow::Result<Self> {
        let io = TokioIo::new(connect(from, gateway).await?);
        let (sender, driver) = if version == Version::HTTP_2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            (Sender::Http2(sender), tokio::spawn(async move { drop(connection.await) }))
        } else {
            let (sender, connection) = http1::handshake(io).await?;
            let connection = connection.with_upgrades();
            (Sender::Http1(sender), tokio::spawn(async move { drop(connection.await) }))
        };
        Ok(Self { sender, driver: driver.abort_handle(), gateway })
    }

    /// Sends a request and reads the response to its end. Returns the status if it is complete.
    pub async fn exchange(
        &mut self,
        log: &Log,
        client: Client,
        action: Action,
        pace: Pace,
    ) -> Option<u16> {
        // The gateway may have closed it after the last response.
        self.ready().await.ok()?;
        let number = log.sends(client.rule, client.account, client.address);
        let sent = match action {
            Action::Echo => format!("the body of {number}\n").repeat(number % 200),
            _ => String::new(),
        };
        let request = self.request(client, action, pace, number, &sent);
        let expected = action.body(number, sent.as_bytes());
        let exchange = self.receive(request, number, &expected, pace);
        let limit = if let Pace::Aborts(after) = pace { after } else { RESPONSE_TIMEOUT };
        let outcome = match (timeout(limit, exchange).await, pace) {
            (Ok(Ok(outcome)), _) => outcome,
            (Err(_), Pace::Aborts(_)) => Outcome::Aborted,
            (Ok(Err(_)) | Err(_), _) => Outcome::Broken,
        };
        log.ended(number, outcome);
        match outcome {
            Outcome::Answered(status) => Some(status),
            _ => None,
        }
    }

    async fn ready(&mut self) -> hyper::Result<()> {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await,
            Sender::Http2(sender) => sender.ready().await,
        }
    }

    fn request(
        &self,
        client: Client,
        action: Action,
        pace: Pace,
        number: usize,
        body: &str,
    ) -> Request<Body> {
        let Client { rule, account, .. } = client;
        let (path, gateway) = (rule.path(), self.gateway);
        let request = match &self.sender {
            Sender::Http1(_) => {
                let request = Request::builder().uri(format!("{path}?{action:?}"));
                request.header(header::HOST, gateway.to_string())
            }
            Sender::Http2(_) => {
                Request::builder().uri(format!("http://{gateway}{path}?{action:?}"))
            }
        };
        let mut request = request.header(NUMBER, number);
        if rule.is_by_key() {
            request = request.header("x-api-key", rule.key(account));
        }
        if action == Action::Tunnel {
            request = request
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==");
        }
        if action == Action::Echo || rule == Rule::Login {
            request = request.method(Method::POST);
        }
        let body = match pace {
            Pace::SlowBody => slow(body),
            _ => full(body.to_owned()),
        };
        request.body(body).expect("valid headers")
    }

    /// The status of a response that is the right one and complete.
    async fn receive(
        &mut self,
        request: Request<Body>,
        number_sent: usize,
        expected: &[u8],
        pace: Pace,
    ) -> anyhow::Result<Outcome> {
        let response = match &mut self.sender {
            Sender::Http1(sender) => sender.send_request(request).await?,
            Sender::Http2(sender) => sender.send_request(request).await?,
        };
        let status = response.status().as_u16();
        let found = number(response.headers());
        let is_of_upstream = matches!(status, 101 | 200 | 401);
        if status == 101 {
            tunnel(response, number_sent).await?;
            return Ok(Outcome::Answered(status));
        }
        let mut body = response.into_body();
        let mut received = Vec::new();
        while let Some(frame) = body.frame().await {
            received.extend_from_slice(&frame?.into_data().unwrap_or_default());
            if pace == Pace::SlowReader {
                sleep(SLOW / 4).await;
            }
        }
        let is_right = found == Some(number_sent) && received == expected;
        Ok(match is_of_upstream == found.is_some() && (is_right || !is_of_upstream) {
            true => Outcome::Answered(status),
            false => Outcome::Foreign,
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A body in parts, with a pause before each.
fn slow(body: &str) -> Body {
    let parts: Vec<Bytes> =
        body.as_bytes().chunks(body.len() / 6 + 1).map(Bytes::copy_from_slice).collect();
    let parts = stream::iter(parts).then(|part| async {
        sleep(SLOW).await;
        Ok::<_, Infallible>(Frame::data(part))
    });
    BodyExt::boxed_unsync(StreamBody::new(parts))
}

/// Speaks through a tunnel, which sends everything back.
async fn tunnel(response: Response<Incoming>, number: usize) -> anyhow::Result<()> {
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await?);
    for round in 0..5 {
        let message = format!("{number} in round {round}");
        stream.write_all(message.as_bytes()).await?;
        let mut echoed = vec![0; message.len()];
        stream.read_exact(&mut echoed).await?;
        ensure!(echoed == message.as_bytes(), "another message came back");
        sleep(SLOW).await;
    }
    Ok(())
}
