//! The clients of the demo: what each sends and when, and its log of what came back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use slidegate::limit::SystemClock;
use slidegate::{Clock, Timestamp};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};

/// A client, and what it sends.
#[derive(Debug)]
pub(super) struct ClientSpec {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// The quota that limits it.
    pub(super) quota: &'static str,
    method: Method,
    path: &'static str,
    /// Empty for none.
    api_key: &'static str,
    /// The client's address, which is sent as a load balancer would send it.
    address: &'static str,
    /// The most requests in flight.
    concurrency: usize,
    /// When it sends, in a run that begins and ends at these times.
    schedule: fn(Timestamp, Timestamp) -> Vec<Timestamp>,
}

pub(super) static CLIENTS: [ClientSpec; 4] = [
    ClientSpec {
        name: "boundary burster",
        about: "20 just before each tenth second, 20 after",
        quota: "20/10s",
        method: Method::GET,
        path: "/v1/search",
        api_key: "burster-key",
        address: "203.0.113.20",
        concurrency: 20,
        schedule: bursts,
    },
    ClientSpec {
        name: "polite free user",
        about: "one request every 1.1 s",
        quota: "60/min",
        method: Method::GET,
        path: "/v1/reports",
        api_key: "free-key",
        address: "203.0.113.7",
        concurrency: 1,
        schedule: |begin, end| every(Duration::from_millis(1100), begin, end).collect(),
    },
    ClientSpec {
        name: "pro script",
        about: "50,000 requests in half a minute",
        quota: "600/min",
        method: Method::GET,
        path: "/v1/reports",
        api_key: "script-key",
        address: "198.51.100.1",
        concurrency: 16,
        schedule: script,
    },
    ClientSpec {
        name: "login guesser",
        about: "70 in a second, a second's rest, and again",
        quota: "5/min",
        method: Method::POST,
        path: "/login",
        api_key: "",
        address: "192.0.2.66",
        concurrency: 1,
        schedule: |begin, end| {
            let waves = every(Duration::from_secs(2), begin, end);
            waves.flat_map(|wave| evenly(70, wave, Duration::from_secs(1))).collect()
        },
    },
];

/// Their places among the [`CLIENTS`].
pub(super) const BURSTER: usize = 0;
pub(super) const POLITE: usize = 1;

/// A whole quota just before each tenth second, when a fixed window restarts, and another just after.
fn bursts(begin: Timestamp, end: Timestamp) -> Vec<Timestamp> {
    let half = Duration::from_millis(500);
    // The first half ends 100 ms early, so that a busy machine does not carry it past the restart.
    let lead_ms = 600;
    let first_ms = (begin.as_millis() + lead_ms).next_multiple_of(10_000);
    let restarts_ms = (first_ms..).step_by(10_000);
    restarts_ms
        .take_while(|&restart_ms| Timestamp::from_millis(restart_ms) + half <= end)
        .flat_map(|restart_ms| {
            let before = evenly(20, Timestamp::from_millis(restart_ms - lead_ms), half);
            before.chain(evenly(20, Timestamp::from_millis(restart_ms), half))
        })
        .collect()
}

/// A run of 30 seconds has all of the script; in a shorter one it gets as far as it would have.
fn script(begin: Timestamp, end: Timestamp) -> Vec<Timestamp> {
    let length = end.saturating_since(begin).max(Duration::from_secs(30));
    evenly(50_000, begin, length).take_while(|at| *at < end).collect()
}

fn every(pause: Duration, begin: Timestamp, end: Timestamp) -> impl Iterator<Item = Timestamp> {
    std::iter::successors(Some(begin), move |at| Some(*at + pause)).take_while(move |at| *at < end)
}

fn evenly(count: u32, start: Timestamp, length: Duration) -> impl Iterator<Item = Timestamp> {
    (0..count).map(move |index| start + length * index / count)
}

/// One request, as its client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoggedRequest {
    pub(super) sent: Timestamp,
    pub(super) answered: Timestamp,
    pub(super) result: RequestResult,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestResult {
    /// The API answered it.
    Admitted,
    Refused,
    /// No answer, or an unexpected one.
    Failed,
}

/// The requests of each of the [`CLIENTS`], in the order of the answers.
pub(super) type ClientLogs = [Vec<LoggedRequest>; CLIENTS.len()];

/// Connects to the gateway over TCP, and keeps connections alive.
type HttpClient = Client<HttpConnector, Empty<Bytes>>;

/// Long enough for a machine that is busy with other things.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the tasks that send one client's requests. They end with the schedule.
pub(super) fn start(
    index: usize,
    gateway: SocketAddr,
    begin: Timestamp,
    length: Duration,
    clock: &Arc<SystemClock>,
    log: &UnboundedSender<(usize, LoggedRequest)>,
) {
    let spec = &CLIENTS[index];
    let schedule: Arc<[Timestamp]> = (spec.schedule)(begin, begin + length).into();
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: HttpClient = Client::builder(TokioExecutor::new()).build(connector);
    for first in 0..spec.concurrency {
        let (client, schedule) = (client.clone(), schedule.clone());
        let (clock, log) = (clock.clone(), log.clone());
        tokio::spawn(async move {
            for &at in schedule.iter().skip(first).step_by(spec.concurrency) {
                sleep(at.saturating_since(clock.now())).await;
                let sent = clock.now();
                let result = timeout(REQUEST_TIMEOUT, spec.send(&client, gateway)).await;
                let result = result.ok().and_then(Result::ok).unwrap_or(RequestResult::Failed);
                let request = LoggedRequest { sent, answered: clock.now(), result };
                if log.send((index, request)).is_err() {
                    return;
                }
            }
        });
    }
}

impl ClientSpec {
    /// Sends one request and waits for the end of its response.
    async fn send(
        &self,
        client: &HttpClient,
        gateway: SocketAddr,
    ) -> anyhow::Result<RequestResult> {
        let mut request = Request::builder()
            .method(&self.method)
            .uri(format!("http://{gateway}{}", self.path))
            .header("x-forwarded-for", self.address);
        if !self.api_key.is_empty() {
            request = request.header("x-api-key", self.api_key);
        }
        let response = client.request(request.body(Empty::new())?).await?;
        let status = response.status();
        response.into_body().collect().await?;
        Ok(match status {
            StatusCode::TOO_MANY_REQUESTS => RequestResult::Refused,
            // What the API answers to a search or a report, and to a wrong password.
            StatusCode::OK | StatusCode::UNAUTHORIZED => RequestResult::Admitted,
            _ => RequestResult::Failed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of each half, for runs that begin and end at these milliseconds.
    fn check(begin: u64, end: u64, expected: &[u64]) {
        let at = Timestamp::from_millis;
        let bursts = bursts(at(begin), at(end));
        let starts: Vec<u64> = bursts.chunks(20).map(|half| half[0].as_millis()).collect();
        assert_eq!(starts, expected, "{begin} to {end}");
    }

    #[test]
    fn bursts_are_around_every_tenth_second_of_the_calendar() {
        check(10_000, 32_000, &[19_400, 20_000, 29_400, 30_000]);
        check(19_400, 29_000, &[19_400, 20_000]);
        check(19_401, 30_500, &[29_400, 30_000]);
        check(19_401, 30_499, &[]);
    }

    #[test]
    fn a_demo_script_takes_half_a_minute_or_the_run_if_that_is_longer() {
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1000);
        let sent = [1, 30, 60].map(|seconds| script(at(0), at(seconds)).len());
        assert_eq!(sent, [1667, 50_000, 50_000]);
    }
}
