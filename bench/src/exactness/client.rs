//! A connection of the client, and how it reads an answer.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use tokio::time::sleep;

use super::tally::Call;

/// No answer is to fail because the machine is busy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
const PAUSE_BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// How a limiter is asked.
#[derive(Debug, Clone, Copy)]
pub enum Ask {
    /// It stands in front of something, and answers 429 itself.
    Get,
    /// It is asked for a decision, which is JSON with `allowed` and `retry_after`.
    Post { path: &'static str, body: &'static str },
}

/// One connection of its own, opened again when the server has closed it.
#[derive(Clone)]
pub struct Connection {
    client: Client,
    ask: Ask,
    url: String,
}

/// What became of one request.
pub struct Answer {
    pub call: Call,
    /// What a refusal says, if it says anything.
    pub retry_after: Option<Duration>,
}

/// throttlecrab-server's answer.
#[derive(Deserialize)]
struct Decided {
    allowed: bool,
    retry_after: f64,
}

impl Connection {
    pub fn new(ask: Ask, port: u16) -> anyhow::Result<Self> {
        let client = Client::builder().no_proxy().timeout(ANSWER_TIMEOUT).pool_max_idle_per_host(1);
        let path = match ask {
            Ask::Get => "/",
            Ask::Post { path, .. } => path,
        };
        let url = format!("http://127.0.0.1:{port}{path}");
        Ok(Self { client: client.build()?, ask, url })
    }

    /// Sends a request and reads all of its answer. Whatever is neither admitted nor refused is an
    /// error.
    pub async fn ask(&self) -> anyhow::Result<Answer> {
        let request = match self.ask {
            Ask::Get => self.client.get(&self.url),
            Ask::Post { body, .. } => {
                self.client.post(&self.url).header("content-type", "application/json").body(body)
            }
        };
        let sent = Instant::now();
        let response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await?;
        let answered = Instant::now();
        let (is_admitted, seconds) = match (self.ask, status) {
            (Ask::Get, status) if status.is_success() => (true, None),
            (Ask::Get, StatusCode::TOO_MANY_REQUESTS) => {
                let value = headers.get("retry-after").map(|value| value.to_str());
                (false, value.transpose()?.map(str::to_owned))
            }
            (Ask::Post { .. }, StatusCode::OK) => {
                let decided: Decided = serde_json::from_slice(&body)?;
                (decided.allowed, Some(decided.retry_after.to_string()))
            }
            _ => bail!("{} answers {status}: {}", self.url, String::from_utf8_lossy(&body)),
        };
        let retry_after = seconds.filter(|_| !is_admitted).map(|text| parse_seconds(&text));
        let call = Call { sent, answered, is_admitted };
        Ok(Answer { call, retry_after: retry_after.transpose()? })
    }
}

/// Opens all connections, with a request each. A server may listen before it has all of its
/// configuration.
pub async fn wait_until_ready(connections: &[Connection]) -> anyhow::Result<()> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    for connection in connections {
        while let Err(error) = connection.ask().await {
            ensure!(Instant::now() < deadline, error);
            sleep(PAUSE_BETWEEN_LOOKS).await;
        }
    }
    Ok(())
}

/// Whole seconds, by the standard; some send fractions.
fn parse_seconds(text: &str) -> anyhow::Result<Duration> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.with_context(|| format!("Retry-After is '{text}', not a number of seconds"))
}
