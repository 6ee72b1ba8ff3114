//! The endpoint for Redis clients: decisions over RESP2 and RESP3.

mod command;
mod reply;
#[cfg(test)]
mod tests;
mod throttle;

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::{Method, StatusCode};
use redis_protocol::resp2::types::BorrowedFrame;
use slidegate::limit::{Period, SystemClock};
use slidegate::{AccountError, Block, Clock, Decision, NamedCharge, Standing, Verdict};
use slidegate_proxy::{RawConnection, RawHandler};
use slidegate_replay::described_request::shortened;
use tokio::time::Instant;

use self::command::{Arguments, COMMANDS, CommandUsage, RespCommand};
use self::reply::Replies;
use self::throttle::{Call, ThrottleStyle};
use crate::admin::{self, Operator};
use crate::calendar::ceil_ms;
use crate::endpoint::token::{RequiredToken, TokenError};
use crate::holds::{Holds, SettleError};
use crate::identity_text::from_argument;
use crate::live_config::LiveConfig;
use crate::observe::{ListenerKind, RequestOutcome, UpstreamOutcome};
use crate::shared::{Actor, Target};

/// Replies are written when there are so many, or when there is no command left.
const WRITE_BYTES: usize = 64 * 1024;

/// The most that a connection keeps of each buffer between commands.
const KEPT_BYTES: usize = 16 * 1024;

/// Decides for Redis clients, which are trusted, with the token if there is one.
pub(crate) struct Resp {
    pub(crate) live: Arc<LiveConfig>,
    pub(crate) operator: Operator,
    pub(crate) clock: Arc<SystemClock>,
    pub(crate) holds: Arc<Holds>,
    pub(crate) token: Option<RequiredToken>,
}

/// One client's connection, as far as commands have changed it.
struct Session<'r> {
    resp: &'r Resp,
    peer: Option<IpAddr>,
    is_authenticated: bool,
    /// The client has quit, or sent what is no command.
    has_ended: bool,
    replies: Replies,
}

/// What to do with charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpendMode {
    Spend,
    Peek,
    Record,
}

/// Why a command has no reply but an error, which begins with a code.
type CommandError = String;

impl RawHandler for Resp {
    async fn serve(&self, connection: &mut RawConnection) -> io::Result<()> {
        let mut session = Session {
            resp: self,
            peer: connection.accepted.peer,
            is_authenticated: self.token.is_none(),
            has_ended: false,
            replies: Replies::default(),
        };
        let mut read = BytesMut::new();
        // When the client has to have completed its command, or to have presented the token.
        let mut deadline = Instant::now() + connection.timeouts.head;
        loop {
            let was_idle = read.is_empty();
            let until = (!was_idle || !session.is_authenticated).then_some(deadline);
            if connection.read(&mut read, until).await? == 0 {
                return Ok(());
            }
            let in_flight = connection.begin();
            let answered = session.answer_all(&mut read, connection).await?;
            drop(in_flight);
            if session.has_ended {
                return connection.close().await;
            }
            // What is left is a command that has begun just now.
            if session.is_authenticated && (was_idle || answered) {
                deadline = Instant::now() + connection.timeouts.head;
            }
        }
    }
}

impl Session<'_> {
    /// Answers every whole command that was read; returns whether there was one.
    async fn answer_all(
        &mut self,
        read: &mut BytesMut,
        connection: &mut RawConnection,
    ) -> io::Result<bool> {
        let mut at = 0;
        while !self.has_ended {
            match command::first(&read[at..]) {
                Ok(Some((arguments, length))) => {
                    self.answer(&arguments).await;
                    at += length;
                }
                Ok(None) => break,
                Err(error) => {
                    self.replies.error(&format!("ERR {error}"));
                    self.has_ended = true;
                }
            }
            if self.replies.bytes.len() >= WRITE_BYTES {
                connection.write(&self.replies.bytes).await?;
                self.replies.bytes.clear();
            }
        }
        read.advance(at);
        connection.write(&self.replies.bytes).await?;
        clear(&mut self.replies.bytes);
        if read.is_empty() {
            clear(read);
        }
        Ok(at > 0)
    }

    async fn answer(&mut self, arguments: &Arguments<'_>) {
        // As Redis does with an array of nothing.
        let Some(name) = arguments.first() else { return };
        if let Err(error) = self.run(name, arguments).await {
            self.replies.error(&error);
        }
    }

    async fn run(&mut self, name: &[u8], arguments: &[&[u8]]) -> Result<(), CommandError> {
        let Some(usage) = CommandUsage::find(name) else { return Err(unknown_command(name)) };
        let CommandUsage { command, name, .. } = usage;
        if !usage.count.contains(&arguments.len()) {
            let arguments = usage.arguments;
            return Err(format!(
                "ERR wrong number of arguments for '{}' command: expected {name} {arguments}",
                name.to_ascii_lowercase()
            ));
        }
        let is_open = matches!(command, RespCommand::Auth | RespCommand::Hello | RespCommand::Quit);
        if !self.is_authenticated && !is_open {
            return Err("NOAUTH Authentication required.".to_owned());
        }
        let arguments = &arguments[1..];
        match command {
            RespCommand::ClThrottle => {
                self.throttle(ThrottleStyle::RedisCell, name, arguments).await?;
            }
            RespCommand::Throttle => {
                self.throttle(ThrottleStyle::Throttlecrab, name, arguments).await?;
            }
            RespCommand::Spend => self.spend(name, arguments, SpendMode::Spend).await?,
            RespCommand::Peek => self.spend(name, arguments, SpendMode::Peek).await?,
            RespCommand::Hold => self.hold(name, arguments).await?,
            RespCommand::Settle => self.settle(arguments).await?,
            RespCommand::Record => self.record(name, arguments).await?,
            RespCommand::Reset => self.reset(arguments).await?,
            RespCommand::Ping => match arguments {
                [message] => self.replies.bulk(message),
                _ => self.replies.simple("PONG"),
            },
            RespCommand::Echo => self.replies.bulk(arguments[0]),
            RespCommand::Auth => {
                self.authenticate(arguments[arguments.len() - 1])?;
                self.replies.ok();
            }
            RespCommand::Hello => self.hello(arguments)?,
            RespCommand::Client => self.client(arguments)?,
            RespCommand::Select if arguments[0] == b"0" => self.replies.ok(),
            RespCommand::Select => return Err("ERR DB index is out of range".to_owned()),
            RespCommand::Command => self.describe(arguments)?,
            RespCommand::Info => {
                let version = env!("CARGO_PKG_VERSION");
                let info = format!("# Server\r\nslidegate_version:{version}\r\nloading:0\r\n");
                self.replies.bulk(info.as_bytes());
            }
            RespCommand::ResetConnection => {
                self.replies.is_resp3 = false;
                self.is_authenticated = self.resp.token.is_none();
                self.replies.simple("RESET");
            }
            RespCommand::Quit => {
                self.has_ended = true;
                self.replies.ok();
            }
        }
        Ok(())
    }

    /// `CL.THROTTLE` and `THROTTLE`
    async fn throttle(
        &mut self,
        style: ThrottleStyle,
        name: &'static str,
        arguments: &[&[u8]],
    ) -> Result<(), CommandError> {
        let call = Call::read(style, arguments).map_err(error)?;
        let (charges, spends) = (call.charges(), call.cost.is_some());
        let mode = if spends { SpendMode::Spend } else { SpendMode::Peek };
        let decision = match self.decide(name, &charges, mode).await {
            // All policies are switched off.
            Err(AccountError::UnknownPolicy(_)) => Decision::default(),
            decision => decision.map_err(error)?,
        };
        let is_blocked = matches!(decision.verdict(), Verdict::Block(_));
        // To spend nothing is always allowed.
        let is_allowed = decision.is_allowed() || (!spends && !is_blocked);
        let standings = || decision.policies().iter().flat_map(|policy| &policy.standings);
        let units = |standing: &Standing| standing.quota().units().get();
        let limit = i64::from(standings().map(units).min().unwrap_or(call.burst));
        let left = standings().map(Standing::remaining).min();
        let left = left.unwrap_or(if is_blocked { 0 } else { call.burst });
        // Until the windows are empty, if nothing else is spent.
        let spent = standings().filter(|standing| standing.remaining() < units(standing));
        let wait = decision.retry_after().filter(|_| !is_allowed);
        let reset = spent.map(|standing| standing.quota().window()).max().or(wait);
        // What can never be has no time to wait for.
        let retry = if is_allowed { None } else { Some(wait.map_or(-1, seconds)) };
        let reset = reset.map_or(0, seconds).max(retry.unwrap_or(0));
        self.replies.integers(match style {
            ThrottleStyle::RedisCell => {
                [i64::from(!is_allowed), limit, left.into(), retry.unwrap_or(-1), reset]
            }
            ThrottleStyle::Throttlecrab => {
                [is_allowed.into(), limit, left.into(), reset, retry.unwrap_or(0)]
            }
        });
        Ok(())
    }

    /// `SLIDEGATE.SPEND` and `SLIDEGATE.PEEK`
    async fn spend(
        &mut self,
        name: &'static str,
        arguments: &[&[u8]],
        mode: SpendMode,
    ) -> Result<(), CommandError> {
        let (cost, plan) = options(&arguments[2..], "COST")?;
        let charge = self.charge(arguments, plan, cost)?;
        let decision = self.decide(name, &[charge], mode).await.map_err(error)?;
        self.replies.integers(standing_of(&decision));
        Ok(())
    }

    /// `SLIDEGATE.HOLD`
    async fn hold(&mut self, name: &'static str, arguments: &[&[u8]]) -> Result<(), CommandError> {
        let (units, plan) = options(&arguments[2..], "UNITS")?;
        let units = units.ok_or_else(|| "ERR expected UNITS n after the identity".to_owned())?;
        let charge = self.charge(arguments, plan, Some(units))?;
        let decision = self.decide(name, &[charge], SpendMode::Spend).await.map_err(error)?;
        let id = self.resp.holds.id_of(&decision, |_| true);
        self.replies.hold(standing_of(&decision), id.as_deref());
        Ok(())
    }

    /// `SLIDEGATE.SETTLE`
    async fn settle(&mut self, arguments: &[&[u8]]) -> Result<(), CommandError> {
        let units = text(arguments[1])?.parse::<u32>();
        let expected = "ERR units: expected a whole number from 0 to 4294967295";
        let units = units.map_err(|_| expected.to_owned())?;
        match self.resp.holds.settle("resp", text(arguments[0])?, units).await {
            Ok(()) => self.replies.integer(1),
            Err(SettleError::Repeated) => self.replies.integer(0),
            Err(problem) => return Err(error(problem)),
        }
        Ok(())
    }

    /// `SLIDEGATE.RECORD`
    async fn record(
        &mut self,
        name: &'static str,
        arguments: &[&[u8]],
    ) -> Result<(), CommandError> {
        let units = at_least_one("units", arguments[2])?;
        let plan = match arguments[3..] {
            [] => None,
            [key, plan] if key.eq_ignore_ascii_case(b"PLAN") => Some(text(plan)?),
            _ => return Err("ERR expected PLAN p after the units".to_owned()),
        };
        let charge = self.charge(arguments, plan, Some(units))?;
        let decision = self.decide(name, &[charge], SpendMode::Record).await.map_err(error)?;
        self.replies.integers(standing_of(&decision));
        Ok(())
    }

    /// `SLIDEGATE.RESET`
    async fn reset(&mut self, arguments: &[&[u8]]) -> Result<(), CommandError> {
        let (policy, identity) = self.account(arguments)?;
        let target = Target { identity, policy: Some(policy.parse().map_err(error)?) };
        let actor = Actor { by: self.peer, reason: "SLIDEGATE.RESET".to_owned() };
        let reset = self.resp.operator.reset(target, actor).await;
        let reset = reset.map_err(|problem| error(problem.detail))?;
        self.replies.integer(reset.nothing_spent.is_empty().into());
        Ok(())
    }

    /// A charge to the account that a command names.
    fn charge<'a>(
        &self,
        arguments: &[&'a [u8]],
        plan: Option<&'a str>,
        cost: Option<NonZeroU32>,
    ) -> Result<NamedCharge<'a>, CommandError> {
        let (policy, identity) = self.account(arguments)?;
        Ok(NamedCharge { policy, identity, plan, cost, quotas: None })
    }

    /// The policy and the identity that a command names.
    fn account<'a>(
        &self,
        arguments: &[&'a [u8]],
    ) -> Result<(&'a str, slidegate::Identity), CommandError> {
        let (policy, identity) = (text(arguments[0])?, text(arguments[1])?);
        let known = admin::accounts::identity(identity, &self.resp.live.gate().policies());
        // Values that logs show as digests.
        let identity = known.or_else(|problem| from_argument(identity).map_err(|_| problem));
        Ok((policy, identity.map_err(|problem| error(problem.detail))?))
    }

    /// Decides, and reports to the observer what was to be spent.
    async fn decide(
        &self,
        name: &'static str,
        charges: &[NamedCharge<'_>],
        mode: SpendMode,
    ) -> Result<Decision, AccountError> {
        let gate = self.resp.live.gate();
        let began = self.resp.clock.now();
        let outcome = match mode {
            SpendMode::Spend => gate.decide_named(charges).await,
            SpendMode::Record => gate.record_named(charges).await,
            SpendMode::Peek => return gate.peek_named(charges).await,
        };
        let status = match outcome.as_ref().map(Decision::verdict) {
            Ok(Verdict::Allow) => StatusCode::OK,
            Ok(Verdict::Block(Block::Listed | Block::UnknownKey | Block::CostAboveUnits)) => {
                StatusCode::FORBIDDEN
            }
            Ok(_) => StatusCode::TOO_MANY_REQUESTS,
            Err(AccountError::Store(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Err(_) => return outcome,
        };
        let now = self.resp.clock.now();
        self.resp.operator.observer.record(&RequestOutcome {
            listener: ListenerKind::Resp,
            method: &Method::POST,
            path: name,
            client: self.peer,
            status,
            decision: outcome.as_ref().ok(),
            upstream: UpstreamOutcome::NotCalled,
            began,
            asked: began,
            decided: Some(now),
            ended: now,
        });
        outcome
    }

    fn authenticate(&mut self, token: &[u8]) -> Result<(), CommandError> {
        let Some(expected) = &self.resp.token else {
            return Err("ERR AUTH called without any password configured for the default user. \
                        Are you sure your configuration is correct?"
                .to_owned());
        };
        match expected.check(Some(token), self.peer) {
            Ok(()) => {
                self.is_authenticated = true;
                Ok(())
            }
            Err(TokenError::TooMany { retry_after }) => {
                self.has_ended = true;
                let after_s = seconds(retry_after);
                Err(format!("ERR too many wrong tokens from this address: retry in {after_s} s"))
            }
            Err(TokenError::Missing | TokenError::Wrong) => {
                Err("WRONGPASS invalid username-password pair or user is disabled.".to_owned())
            }
        }
    }

    fn hello(&mut self, arguments: &[&[u8]]) -> Result<(), CommandError> {
        let is_resp3 = match arguments.first() {
            None => self.replies.is_resp3,
            Some(&b"2") => false,
            Some(&b"3") => true,
            Some(_) => return Err("NOPROTO unsupported protocol version".to_owned()),
        };
        let mut options = arguments.get(1..).unwrap_or_default();
        while let [option, rest @ ..] = options {
            options = match rest {
                [_, token, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    self.authenticate(token)?;
                    rest
                }
                [_, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => rest,
                _ => return Err("ERR Syntax error in HELLO option".to_owned()),
            };
        }
        if !self.is_authenticated {
            let text = "NOAUTH HELLO must be called with the client already authenticated, \
                        otherwise the HELLO <proto> AUTH <user> <pass> option can be used";
            return Err(text.to_owned());
        }
        self.replies.is_resp3 = is_resp3;
        self.replies.map(&[
            ("server", BorrowedFrame::BulkString(b"slidegate")),
            ("version", BorrowedFrame::BulkString(env!("CARGO_PKG_VERSION").as_bytes())),
            ("proto", BorrowedFrame::Integer(if is_resp3 { 3 } else { 2 })),
            ("id", BorrowedFrame::Integer(0)),
            ("mode", BorrowedFrame::BulkString(b"standalone")),
            ("role", BorrowedFrame::BulkString(b"master")),
            ("modules", BorrowedFrame::Array(&[])),
        ]);
        Ok(())
    }

    /// Names are accepted and not kept: logs and metrics go by addresses and identities.
    fn client(&mut self, arguments: &[&[u8]]) -> Result<(), CommandError> {
        let is = |name: &[u8]| arguments[0].eq_ignore_ascii_case(name);
        match arguments.len() {
            1 if is(b"ID") => self.replies.integer(0),
            2 if is(b"SETNAME") => self.replies.ok(),
            3 if is(b"SETINFO") => self.replies.ok(),
            _ => return Err("ERR expected CLIENT SETNAME, SETINFO or ID".to_owned()),
        }
        Ok(())
    }

    /// `COMMAND`: each command's name, number of arguments and place of the key.
    fn describe(&mut self, arguments: &[&[u8]]) -> Result<(), CommandError> {
        match arguments {
            [] => {}
            [option] if option.eq_ignore_ascii_case(b"COUNT") => {
                self.replies.integer(COMMANDS.len() as i64);
                return Ok(());
            }
            [option, ..] if option.eq_ignore_ascii_case(b"DOCS") => {
                self.replies.map(&[]);
                return Ok(());
            }
            _ => return Err("ERR expected COMMAND, COMMAND COUNT or COMMAND DOCS".to_owned()),
        }
        let entries = COMMANDS.each_ref().map(|usage| {
            let (least, most) = (*usage.count.start() as i64, *usage.count.end() as i64);
            let arity = if least == most { least } else { -least };
            let key =
                i64::from(matches!(usage.command, RespCommand::ClThrottle | RespCommand::Throttle));
            let name = BorrowedFrame::BulkString(usage.name.as_bytes());
            let [arity, first, last, step] = [arity, key, key, key].map(BorrowedFrame::Integer);
            [name, arity, BorrowedFrame::Array(&[]), first, last, step]
        });
        let list = entries.each_ref().map(|entry| BorrowedFrame::Array(entry));
        self.replies.frame(&BorrowedFrame::Array(&list));
        Ok(())
    }
}

/// Empties a buffer, and gives back what an idle connection should not keep.
fn clear(buffer: &mut BytesMut) {
    if buffer.capacity() > KEPT_BYTES {
        *buffer = BytesMut::new();
    }
    buffer.clear();
}

/// The options after an identity: units under this key, and a plan.
fn options<'a>(
    options: &[&'a [u8]],
    units_key: &str,
) -> Result<(Option<NonZeroU32>, Option<&'a str>), CommandError> {
    let (mut units, mut plan) = (None, None);
    for option in options.chunks(2) {
        match option {
            [key, value] if key.eq_ignore_ascii_case(units_key.as_bytes()) => {
                units = Some(at_least_one(units_key, value)?);
            }
            [key, value] if key.eq_ignore_ascii_case(b"PLAN") => plan = Some(text(value)?),
            _ => return Err(format!("ERR expected {units_key} n or PLAN p after the identity")),
        }
    }
    Ok((units, plan))
}

fn at_least_one(name: &str, value: &[u8]) -> Result<NonZeroU32, CommandError> {
    let units = text(value)?.parse();
    units.map_err(|_| format!("ERR {name}: expected a whole number from 1 to 4294967295"))
}

/// Whether it is allowed, the units of the tightest quota, what is left of them, and in how many
/// milliseconds a retry can succeed and the first spent unit is free.
fn standing_of(decision: &Decision) -> [i64; 5] {
    let ms = |time| i64::try_from(ceil_ms(time)).unwrap_or(i64::MAX);
    let is_allowed = decision.is_allowed();
    let (limit, left, reset) = match decision.tightest() {
        Some((_, standing)) => (
            standing.quota().units().get().into(),
            standing.remaining().into(),
            ms(standing.reset_after().min(standing.quota().longest_reset())),
        ),
        // Exempt, or blocked.
        None if is_allowed => (-1, -1, 0),
        None => (0, 0, -1),
    };
    let retry = if is_allowed { 0 } else { decision.retry_after().map_or(-1, ms) };
    [is_allowed.into(), limit, left, retry, reset]
}

/// Whole seconds, rounded up, as a reply has them.
fn seconds(time: Duration) -> i64 {
    i64::try_from(Period(time).ceil_seconds()).unwrap_or(i64::MAX)
}

fn error(problem: impl Display) -> CommandError {
    format!("ERR {problem}")
}

fn text(argument: &[u8]) -> Result<&str, CommandError> {
    std::str::from_utf8(argument).map_err(|_| "ERR expected UTF-8 text".to_owned())
}

fn unknown_command(name: &[u8]) -> CommandError {
    let names: Vec<&str> = COMMANDS.iter().map(|usage| usage.name).collect();
    let name = String::from_utf8_lossy(name);
    format!("ERR unknown command '{}': there is {}", shortened(&name), names.join(", "))
}
