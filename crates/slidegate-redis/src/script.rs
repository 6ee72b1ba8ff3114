//! The scripts: their texts, their arguments and their replies.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, ToRedisArgs, Value};
use slidegate::limit::{Charge, Receipt};
use slidegate::{Standing, Timestamp};

use crate::layout::Layout;
use crate::resilient::AgedUnits;
use crate::score::ScoreUnit;

/// A script and the hash that a server knows it by.
pub(crate) struct Script {
    text: String,
    hash: String,
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let text = parts.join("\n");
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// The command that tells a server of it.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }
}

/// Around a part of a script, to make it a function. It takes what it uses of the part before it once;
/// else each function in it would have to look that up for itself, which was a fifth of a short call.
const BEGIN: &str = "return (function()";
const END: &str = "end)()";

/// The scripts of a layout.
pub(crate) struct Scripts {
    /// Spends and peeks.
    pub(crate) decide: Script,
    /// Refunds and merges.
    pub(crate) amend: Script,
    /// Whether the first takes several requests at once; else each call of it needs a name of its own.
    pub(crate) takes_several: bool,
}

impl Scripts {
    /// The unit is that of the scores of sorted sets.
    pub(crate) fn of(layout: Layout, unit: ScoreUnit) -> &'static Self {
        static PACKED: OnceLock<Scripts> = OnceLock::new();
        static SORTED_SET: [OnceLock<Scripts>; ScoreUnit::ALL.len()] =
            [const { OnceLock::new() }; ScoreUnit::ALL.len()];
        let (clock, decide) = (include_str!("lua/clock.lua"), include_str!("lua/decide.lua"));
        let amend = include_str!("lua/amend.lua");
        match layout {
            Layout::Packed => PACKED.get_or_init(|| {
                let packed = include_str!("lua/packed.lua");
                let usual = include_str!("lua/packed_usual.lua");
                let layout = include_str!("lua/packed_layout.lua");
                let (requests, answers) =
                    (include_str!("lua/requests.lua"), include_str!("lua/answers.lua"));
                Self {
                    decide: Script::new(&[
                        clock, packed, BEGIN, requests, usual, layout, decide, answers, END,
                    ]),
                    amend: Script::new(&[clock, packed, layout, amend]),
                    takes_several: true,
                }
            }),
            Layout::SortedSet => SORTED_SET[unit as usize].get_or_init(|| {
                let unit = unit.constants();
                let sorted_set = include_str!("lua/sorted_set.lua");
                let request = include_str!("lua/request.lua");
                Self {
                    decide: Script::new(&[clock, unit, sorted_set, decide, request]),
                    amend: Script::new(&[clock, unit, sorted_set, amend]),
                    takes_several: false,
                }
            }),
        }
    }
}

/// What the decision script is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Spend,
    Peek,
    /// The request is denied already; count it where that is asked for.
    Deny,
}

impl Mode {
    fn flag(self) -> u8 {
        match self {
            Self::Spend => 0,
            Self::Peek => PEEK,
            Self::Deny => DENY,
        }
    }
}

/// A call of a script, with all that it says.
#[derive(Clone)]
pub(crate) struct ScriptCall {
    pub(crate) script: &'static Script,
    pub(crate) command: Cmd,
}

/// For how long it is known that a refund was made: longer than anybody asks for it again.
const MARK_FOR: Duration = Duration::from_secs(60);

/// What is said of a ledger.
const ARGS_BYTES: usize = 15;

const COUNT_DENIED: u8 = 1;
const SHADOW: u8 = 2;
const SAME_CHARGE: u8 = 4;
const PEEK: u8 = 8;
const DENY: u8 = 16;

/// A request, as the decision script is told of it.
pub(crate) struct Request {
    keys: Vec<String>,
    args: Vec<u8>,
}

impl Request {
    /// The keys are those of the charges' ledgers, in order.
    pub(crate) fn new(mode: Mode, charges: &[Charge<'_>], keys: Vec<String>) -> Self {
        let mut args = Vec::with_capacity(ARGS_BYTES * keys.len());
        for charge in charges {
            let mut flags = mode.flag();
            flags |= if charge.counts_denied() { COUNT_DENIED } else { 0 };
            flags |= if charge.is_shadow() { SHADOW } else { 0 };
            for quota in charge.quotas().as_slice() {
                args.extend_from_slice(&quota.units().get().to_le_bytes());
                args.extend_from_slice(&millis(quota.window()).to_le_bytes()[..6]);
                args.extend_from_slice(&charge.cost().get().to_le_bytes());
                args.push(flags);
                flags |= SAME_CHARGE;
            }
        }
        Self { keys, args }
    }

    /// How many ledgers it has.
    pub(crate) fn ledgers(&self) -> usize {
        self.keys.len()
    }
}

impl ScriptCall {
    pub(crate) fn decide(
        scripts: &'static Scripts,
        request: &Request,
        name: impl FnOnce() -> String,
    ) -> Self {
        let mut call = Self::new(&scripts.decide, &request.keys);
        call.command.arg(&request.args);
        if !scripts.takes_several {
            call.command.arg(name());
        }
        call
    }

    /// Decides several requests, none of which has more than 255 ledgers.
    pub(crate) fn decide_all(scripts: &'static Scripts, requests: &[&Request]) -> Self {
        let keys: Vec<&String> = requests.iter().flat_map(|request| &request.keys).collect();
        let mut args = Vec::with_capacity(ARGS_BYTES * keys.len());
        requests.iter().for_each(|request| args.extend_from_slice(&request.args));
        let mut each = args.chunks_exact(ARGS_BYTES);
        // Under one policy and plan they mostly are the same for all, and are then said once.
        if each.next().is_some_and(|first| each.all(|other| other == first)) {
            args.truncate(ARGS_BYTES);
        }
        let mut call = Self::new(&scripts.decide, &keys);
        call.command.arg(args);
        if requests.len() > 1 {
            let mut counts: Vec<u8> =
                requests.iter().map(|request| request.keys.len() as u8).collect();
            if keys.len() == requests.len() {
                counts.clear();
            }
            call.command.arg(counts);
        }
        call
    }

    pub(crate) fn refund(
        scripts: &'static Scripts,
        charges: &[Charge<'_>],
        keys: &[String],
        at: Option<Timestamp>,
    ) -> Self {
        let mut call = Self::new(&scripts.amend, keys);
        let what = if at.is_some() { "refund-at" } else { "refund-newest" };
        let at_us = at.map_or(0, |at| at.as_nanos() / 1000);
        call.command.arg(what).arg(amend_args(charges)).arg(at_us).arg(millis(MARK_FOR));
        call
    }

    /// Adds what was spent elsewhere.
    pub(crate) fn merge(
        scripts: &'static Scripts,
        charge: Charge<'_>,
        keys: &[String],
        runs: &[AgedUnits],
        mark_for: Duration,
    ) -> Self {
        let mut packed = Vec::with_capacity(10 * runs.len());
        for run in runs {
            packed.extend_from_slice(&micros(run.ago).to_le_bytes()[..6]);
            packed.extend_from_slice(&run.units.to_le_bytes());
        }
        let mut call = Self::new(&scripts.amend, keys);
        call.command.arg("merge").arg(amend_args(&[charge])).arg(packed).arg(millis(mark_for));
        call
    }

    fn new<K: ToRedisArgs>(script: &'static Script, keys: &[K]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.hash).arg(keys.len()).arg(keys);
        Self { script, command }
    }
}

fn amend_args(charges: &[Charge<'_>]) -> Vec<u8> {
    let mut args = Vec::new();
    for charge in charges {
        for quota in charge.quotas().as_slice() {
            args.extend_from_slice(&quota.units().get().to_le_bytes());
            args.extend_from_slice(&millis(quota.window()).to_le_bytes()[..6]);
            args.extend_from_slice(&charge.cost().get().to_le_bytes());
        }
    }
    args
}

/// Microseconds in six bytes, which are nine years.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min((1 << 48) - 1)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The bytes of where a ledger stands: units left, when the charge fits, when the first unit is free
/// again, and whether there was room for the charge.
const STANDING_BYTES: usize = 17;

/// The bytes of the time that a reply begins with.
pub(crate) const TIME_BYTES: usize = 8;

/// The bytes of a reply that are a request's own, and those after them; or the error that is in
/// place of an answer. The time is before all of them.
pub(crate) fn answer_of<'r>(
    request: &Request,
    reply: &'r [u8],
) -> Option<(RedisResult<&'r [u8]>, &'r [u8])> {
    if reply.first() != Some(&FAILED) {
        let (own, rest) = reply.split_at_checked(1 + STANDING_BYTES * request.ledgers())?;
        return Some((Ok(own), rest));
    }
    let (length, rest) = reply[1..].split_at_checked(2)?;
    let (text, rest) = rest.split_at_checked(usize::try_from(number(length)?).ok()?)?;
    Some((Err(error_in(text)), rest))
}

/// What the script has in place of an answer to a request that failed.
const FAILED: u8 = 2;

/// An error as it would have come by itself.
fn error_in(text: &[u8]) -> RedisError {
    let line = text.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let parsed = redis::parse_redis_value(&[b"-", line, b"\r\n"].concat());
    let error = parsed.and_then(Value::extract_error).err();
    error.unwrap_or_else(|| io::Error::other("an error that cannot be read").into())
}

/// Reads the reply of the decision script.
pub(crate) fn receipt(charges: &[Charge<'_>], reply: &Value) -> Option<Receipt> {
    let Value::BulkString(bytes) = reply else { return None };
    let (time, own) = bytes.split_at_checked(TIME_BYTES)?;
    let (spent, mut rest) = own.split_first()?;
    let mut receipt = Receipt {
        spent: *spent == 1,
        at: Timestamp::from_nanos(number(time)?.checked_mul(1000)?),
        ..Receipt::default()
    };
    for quota in charges.iter().flat_map(|charge| charge.quotas().as_slice()) {
        let (bytes, after) = rest.split_at_checked(STANDING_BYTES)?;
        let remaining = u32::try_from(number(&bytes[..4])?).ok()?;
        let standing = Standing::untouched(*quota)
            .with_remaining(remaining)
            .with_retry_after(Duration::from_micros(number(&bytes[4..10])?))
            .with_reset_after(Duration::from_micros(number(&bytes[10..16])?));
        let had_room = bytes[16] == 1;
        receipt.standings.push(if had_room { standing.with_room() } else { standing });
        rest = after;
    }
    rest.is_empty().then_some(receipt)
}

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8]) -> Option<u64> {
    let mut whole = [0; 8];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(whole))
}
