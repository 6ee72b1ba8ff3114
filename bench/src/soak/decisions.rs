//! A program that asks the decision API, holds units and settles them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use fastrand::Rng;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::client::{Client, address};
use super::log::{Log, Outcome};
use super::rules::Rule;
use super::upstream::{Body, full};

/// A connection to the decision API, for the decisions on one account.
pub struct Decisions {
    sender: SendRequest<Body>,
    endpoint: SocketAddr,
    client: Client,
    log: Log,
}

/// The most units that a decision holds: less than the quota.
const MAX_HOLD: u32 = 300;
/// While Redis is away, units cannot be settled; the program tries again for as long as this.
const SETTLE_ATTEMPTS: u32 = 30;
const SETTLE_PAUSE: Duration = Duration::from_millis(500);

impl Decisions {
    pub async fn open(log: &Log, endpoint: SocketAddr, client: Client) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(endpoint).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, endpoint, client, log: log.clone() })
    }

    /// Asks for a decision that holds units, and settles it with fewer some time later.
    pub async fn hold_and_settle(&mut self, random: &mut Rng) -> anyhow::Result<()> {
        let hold = random.u32(1..MAX_HOLD);
        let Client { rule, account, address: from } = self.client;
        let question = json!({
            "path": rule.path(),
            "client": address(from),
            "user": account.to_string(),
            "hold": hold,
        });
        let number = self.log.sends(Rule::Tokens, account, from);
        self.log.costs(number, hold);
        let Ok((status, answer)) = self.post("/v1/decide", &question).await else {
            self.log.ended(number, Outcome::Broken);
            return Ok(());
        };
        let is_allowed = answer["verdict"] == "allow";
        if is_allowed {
            self.log.arrived(number);
        }
        // The status of the answer says nothing of the verdict.
        let refused = answer["status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let verdict = if is_allowed { 200 } else { refused.unwrap_or_default() };
        let status = if status == StatusCode::OK { verdict } else { status.as_u16() };
        self.log.ended(number, Outcome::Answered(status));
        if !is_allowed {
            return Ok(());
        }
        sleep(Duration::from_millis(random.u64(..500))).await;
        let units = random.u32(..=hold);
        let settlement = json!({ "id": answer["id"], "units": units });
        for attempt in 0..SETTLE_ATTEMPTS {
            let (status, answer) = self.post("/v1/settle", &settlement).await?;
            match status {
                StatusCode::OK => {
                    self.log.costs(number, units);
                    return self.settle_again(&settlement, random).await;
                }
                StatusCode::SERVICE_UNAVAILABLE => sleep(SETTLE_PAUSE).await,
                // An attempt that was answered with 503 may have been made all the same.
                StatusCode::CONFLICT if attempt > 0 => {
                    self.log.costs(number, units);
                    return Ok(());
                }
                status => {
                    let text = format!("the units of request {number} are not settled");
                    self.log.complain(format!("{text}: {status} {answer}"));
                    return Ok(());
                }
            }
        }
        self.log.complain(format!("the units of request {number} could not be settled"));
        Ok(())
    }

    /// A second settlement must change nothing.
    async fn settle_again(&mut self, settlement: &Value, random: &mut Rng) -> anyhow::Result<()> {
        if random.u32(..10) > 0 {
            return Ok(());
        }
        let (status, answer) = self.post("/v1/settle", settlement).await?;
        // Without Redis it cannot be known.
        let is_right = matches!(status, StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE);
        ensure!(is_right, "units were settled twice: {status} {answer}");
        Ok(())
    }

    async fn post(&mut self, path: &str, question: &Value) -> anyhow::Result<(StatusCode, Value)> {
        self.sender.ready().await?;
        let request = Request::post(path)
            .header(header::HOST, self.endpoint.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .body(full(question.to_string()))?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let answer = serde_json::from_slice(&body).with_context(|| format!("{status}: no JSON"))?;
        Ok((status, answer))
    }
}
