//! Everything that clients do at the same time, until they are stopped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use http::Version;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::client::{Client, Connection, Pace, connect};
use super::decisions::Decisions;
use super::log::{Log, Outcome};
use super::rules::{LISTED_KEYS, Rule};
use super::upstream::{Action, NUMBER};

/// How many clients there are at any time: sessions, unusual ones of each kind, and silent ones; and
/// one that floods.
const SESSIONS: usize = 40;
const UNUSUAL: usize = 3;
const SILENT: usize = 10;
/// Kinds of unusual clients.
const KINDS: usize = 6;
const FIRST_SILENT: usize = SESSIONS + UNUSUAL * KINDS;
const FLOODING: usize = FIRST_SILENT + SILENT;

/// Accounts that several sessions spend from again and again. All others are new.
const HOT: u32 = 4;
/// One client that sends far more than anyone may.
const FLOODER: u32 = HOT;
const FIRST_NEW: u32 = 100;

/// Longer than the gateway waits for the head of a request, or for the next one.
const SILENCE: Duration = Duration::from_secs(30);

/// What all clients share.
pub struct Load {
    gateway: SocketAddr,
    decisions: SocketAddr,
    log: Log,
    stop: AtomicBool,
    newest: AtomicU32,
}

impl Load {
    pub fn new(gateway: SocketAddr, decisions: SocketAddr, log: &Log) -> Arc<Self> {
        let (stop, newest) = (AtomicBool::new(false), AtomicU32::new(FIRST_NEW));
        Arc::new(Self { gateway, decisions, log: log.clone(), stop, newest })
    }

    /// Lets every client finish its request.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs all clients until they are stopped.
    pub async fn run(self: Arc<Self>, seed: u64) {
        let mut tasks = JoinSet::new();
        for number in 0..=FLOODING {
            let (load, random) = (self.clone(), Rng::with_seed(seed ^ number as u64));
            tasks.spawn(async move {
                let mut random = random;
                while !load.is_over() {
                    let result = load.play(number, &mut random).await;
                    if let Err(error) = result {
                        load.log.complain(format!("client {number}: {error:#}"));
                        sleep(Duration::from_secs(1)).await;
                    }
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("clients do not panic");
        }
    }

    /// What the client of this number does, once.
    async fn play(&self, number: usize, random: &mut Rng) -> anyhow::Result<()> {
        match number {
            0..SESSIONS => return self.session(random).await,
            FIRST_SILENT..FLOODING => return self.say_nothing(random).await,
            FLOODING => return self.flood(random).await,
            _ => {}
        }
        match (number - SESSIONS) / UNUSUAL {
            0 => self.abort(random).await,
            1 => self.one(random, Action::Echo, Pace::SlowBody).await,
            2 => self.one(random, Action::Large, Pace::SlowReader).await,
            3 => self.one(random, Action::Tunnel, Pace::Swift).await,
            4 => self.slow_head(random).await,
            _ => self.decide(random).await,
        }
    }

    fn new_number(&self) -> u32 {
        self.newest.fetch_add(1, Ordering::Relaxed)
    }

    /// An account of its own or one that others use, at an address of its own or of others.
    fn client(&self, random: &mut Rng) -> Client {
        let rule = match random.u32(..100) {
            0..20 => Rule::Address,
            20..45 => Rule::Free,
            45..55 => Rule::Pro,
            55..65 => Rule::Leased,
            65..75 => Rule::Login,
            75..85 => Rule::Scrape,
            _ => Rule::Strict,
        };
        let new = self.new_number();
        let is_hot = random.u32(..100) < 40;
        let account = match rule {
            Rule::Pro => random.u32(..LISTED_KEYS),
            Rule::Leased => random.u32(..2),
            _ if is_hot => random.u32(..HOT),
            _ => new,
        };
        let address = if rule.is_by_key() { new } else { account };
        Client { rule, account, address }
    }

    /// A connection with a number of requests.
    async fn session(&self, random: &mut Rng) -> anyhow::Result<()> {
        let client = self.client(random);
        let version = if random.u32(..5) < 2 { Version::HTTP_2 } else { Version::HTTP_11 };
        let mut connection = Connection::open(client.address, self.gateway, version).await?;
        let pause_ms = match client.rule {
            Rule::Leased => 20,
            _ => [60, 100, 150][random.usize(..3)],
        };
        for _ in 0..random.u32(10..60) {
            let action = match (client.rule, random.u32(..100)) {
                (Rule::Login, 0..70) => Action::Deny,
                (_, 0..70) => Action::Plain,
                (_, 70..86) => Action::Echo,
                (_, 86..98) => Action::Stream,
                _ => Action::Large,
            };
            let status = connection.exchange(&self.log, client, action, Pace::Swift).await;
            if status.is_none() || self.is_over() {
                break;
            }
            sleep(Duration::from_millis(random.u64(pause_ms / 2..pause_ms * 3 / 2))).await;
        }
        Ok(())
    }

    /// A connection with one request.
    async fn one(&self, random: &mut Rng, action: Action, pace: Pace) -> anyhow::Result<()> {
        let client = Client { rule: Rule::Address, ..self.client(random) };
        let client = Client { account: client.address, ..client };
        let mut connection =
            Connection::open(client.address, self.gateway, Version::HTTP_11).await?;
        connection.exchange(&self.log, client, action, pace).await;
        drop(connection);
        sleep(Duration::from_millis(random.u64(100..1000))).await;
        Ok(())
    }

    /// Clients that are gone before the response, or leave a stream of their connection.
    async fn abort(&self, random: &mut Rng) -> anyhow::Result<()> {
        let client = self.client(random);
        let version = if random.bool() { Version::HTTP_2 } else { Version::HTTP_11 };
        let mut connection = Connection::open(client.address, self.gateway, version).await?;
        for _ in 0..10 {
            let action = [Action::Delay, Action::Stream, Action::Large][random.usize(..3)];
            let pace = Pace::Aborts(Duration::from_millis(random.u64(..50)));
            let status = connection.exchange(&self.log, client, action, pace).await;
            if (status.is_none() && version != Version::HTTP_2) || self.is_over() {
                break;
            }
            sleep(Duration::from_millis(random.u64(50..300))).await;
        }
        drop(connection);
        sleep(Duration::from_millis(random.u64(50..300))).await;
        Ok(())
    }

    async fn flood(&self, random: &mut Rng) -> anyhow::Result<()> {
        let client = Client { rule: Rule::Free, account: FLOODER, address: FLOODER };
        let mut connection =
            Connection::open(client.address, self.gateway, Version::HTTP_11).await?;
        for _ in 0..300 {
            let status = connection.exchange(&self.log, client, Action::Plain, Pace::Swift).await;
            if status.is_none() || self.is_over() {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        sleep(Duration::from_secs(random.u64(1..5))).await;
        Ok(())
    }

    /// A head that takes more than a second, or has no end.
    async fn slow_head(&self, random: &mut Rng) -> anyhow::Result<()> {
        let from = self.new_number();
        let mut stream = connect(from, self.gateway).await?;
        if random.u32(..4) == 0 {
            stream.write_all(b"GET /address?Plain HTTP/1.1\r\nHost: ").await?;
            return self.expect_end(&mut stream, "sent half a head").await;
        }
        let number = self.log.sends(Rule::Address, from, from);
        let head = format!(
            "GET /address?Plain HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             {NUMBER}: {number}\r\n\r\n"
        );
        let exchange = async {
            for part in head.as_bytes().chunks(head.len() / 5) {
                sleep(Duration::from_millis(300)).await;
                stream.write_all(part).await?;
            }
            let mut response = String::new();
            stream.read_to_string(&mut response).await?;
            let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
            let body = Action::Plain.body(number, b"");
            let is_right = status != Some(200) || response.as_bytes().ends_with(&body);
            let status = status.context("no status")?;
            anyhow::Ok(if is_right { Outcome::Answered(status) } else { Outcome::Foreign })
        };
        let outcome = timeout(SILENCE, exchange).await;
        self.log.ended(number, outcome.ok().and_then(Result::ok).unwrap_or(Outcome::Broken));
        Ok(())
    }

    /// A connection without a request.
    async fn say_nothing(&self, random: &mut Rng) -> anyhow::Result<()> {
        let mut stream = connect(self.new_number(), self.gateway).await?;
        if random.bool() {
            let patience = Duration::from_millis(random.u64(..3000));
            sleep(patience).await;
            return Ok(());
        }
        self.expect_end(&mut stream, "was silent").await
    }

    async fn expect_end(&self, stream: &mut TcpStream, what: &str) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        let ended = timeout(SILENCE, stream.read_to_end(&mut bytes)).await;
        ended.with_context(|| format!("a connection that {what} is still open"))?.ok();
        Ok(())
    }

    /// Decisions through the API.
    async fn decide(&self, random: &mut Rng) -> anyhow::Result<()> {
        let address = self.new_number();
        let account = if random.bool() { random.u32(..HOT) } else { address };
        let client = Client { rule: Rule::Tokens, account, address };
        let mut decisions = Decisions::open(&self.log, self.decisions, client).await?;
        for _ in 0..20 {
            decisions.hold_and_settle(random).await?;
            if self.is_over() {
                break;
            }
            sleep(Duration::from_millis(random.u64(20..200))).await;
        }
        Ok(())
    }
}
