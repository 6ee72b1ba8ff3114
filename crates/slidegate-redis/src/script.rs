//! The scripts: their texts, their arguments and their replies.

#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use slidegate::limit::{
    AccountReading, Charge, LedgerEntry, LedgerReading, OnDenial, Receipt, Settlement,
};
use slidegate::{Quota, Standing, Timestamp};

use crate::error::RedisStoreError;
use crate::layout::{Layout, ScoreUnit};

/// A script and the hash that a server knows it by.
pub(crate) struct Script {
    text: String,
    hash: String,
}

impl Script {
    /// All but the first two parts are made a function. It captures what it uses of those once; else
    /// each function in it would have to, which was a fifth of a short call.
    fn new(parts: [&str; 6]) -> Self {
        let [clock, unit, ledgers, layout, record, calls] = parts;
        let text = format!(
            "{clock}\n{unit}\n{ledgers}\nreturn (function()\n{layout}\n{record}\n{calls}\nend)()"
        );
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// The command that loads it into a server.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }
}

/// The scripts of a layout.
pub(crate) struct Scripts {
    /// Spends and peeks.
    pub(crate) decide: Script,
    /// Refunds and merges.
    pub(crate) amend: Script,
    /// Reads ledgers as a whole.
    pub(crate) read: Script,
}

impl Scripts {
    /// The unit is that of the scores of sorted sets.
    pub(crate) fn new(layout: Layout, unit: ScoreUnit) -> Self {
        let (unit, layout) = match layout {
            Layout::Packed => ("", include_str!("lua/packed.lua")),
            Layout::SortedSet => (unit.constants(), include_str!("lua/sorted_set.lua")),
        };
        let (clock, ledgers) = (include_str!("lua/clock.lua"), include_str!("lua/ledgers.lua"));
        let record = include_str!("lua/record.lua");
        let script = |calls| Script::new([clock, unit, ledgers, layout, record, calls]);
        Self {
            decide: script(include_str!("lua/decide.lua")),
            amend: script(include_str!("lua/amend.lua")),
            read: script(include_str!("lua/read.lua")),
        }
    }
}

/// What the decision script is to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Spend,
    Peek,
    /// The request is denied already; count it where that is asked for.
    Deny,
}

/// A call of a script, with its arguments.
pub(crate) struct ScriptCall<'s> {
    pub(crate) script: &'s Script,
    pub(crate) command: Cmd,
}

/// How long the mark of a refund is kept: longer than it is retried.
const MARK_TTL: Duration = Duration::from_secs(60);

/// How long the mark of a settlement without a name is kept. It is sent again only within its deadline,
/// and there may be one for each request.
const SETTLE_MARK_TTL: Duration = Duration::from_secs(5);

/// The bytes of a ledger's terms: units, window, cost and flags.
const TERMS_BYTES: usize = 15;

const COUNT_DENIED: u8 = 1;
const SHADOW: u8 = 2;
const SAME_CHARGE: u8 = 4;
const RECORD: u8 = 8;
const PEEK: u8 = 16;
const DENY: u8 = 32;

/// A request, as the decision script gets it.
pub(crate) struct Request {
    keys: Vec<String>,
    quotas: Vec<Quota>,
    terms: Vec<u8>,
}

impl Request {
    /// The keys are those of the charges' ledgers, in order.
    pub(crate) fn new(mode: Mode, charges: &[Charge<'_>], keys: Vec<String>) -> Self {
        let quotas = charges.iter().flat_map(|charge| charge.quotas().as_slice()).copied();
        Self { keys, quotas: quotas.collect(), terms: terms(mode, charges) }
    }

    /// How many ledgers it has.
    pub(crate) fn ledgers(&self) -> usize {
        self.keys.len()
    }
}

fn terms(mode: Mode, charges: &[Charge<'_>]) -> Vec<u8> {
    let mut terms = Vec::with_capacity(TERMS_BYTES * charges.len());
    for charge in charges {
        let mut flags = match mode {
            Mode::Spend => 0,
            Mode::Peek => PEEK,
            Mode::Deny => DENY,
        };
        flags |= match charge.on_denial() {
            OnDenial::Forget => 0,
            OnDenial::Count => COUNT_DENIED,
            OnDenial::Record => RECORD,
        };
        flags |= if charge.is_shadow() { SHADOW } else { 0 };
        for quota in charge.quotas().as_slice() {
            terms.extend_from_slice(&quota.units().get().to_le_bytes());
            terms.extend_from_slice(&millis(quota.window()).to_le_bytes()[..6]);
            terms.extend_from_slice(&charge.cost().get().to_le_bytes());
            terms.push(flags);
            flags |= SAME_CHARGE;
        }
    }
    terms
}

impl<'s> ScriptCall<'s> {
    /// Decides requests, one after the other. The name is one that no other call has.
    pub(crate) fn decide(scripts: &'s Scripts, requests: &[&Request], name: &str) -> Self {
        let keys: Vec<&String> = requests.iter().flat_map(|request| &request.keys).collect();
        let mut terms = Vec::with_capacity(TERMS_BYTES * keys.len());
        requests.iter().for_each(|request| terms.extend_from_slice(&request.terms));
        let mut each = terms.chunks_exact(TERMS_BYTES);
        // Under one policy and plan they mostly are the same for all, and are then sent once.
        if each.next().is_some_and(|first| each.all(|other| other == first)) {
            terms.truncate(TERMS_BYTES);
        }
        let mut counts = Vec::new();
        if keys.len() > requests.len() {
            for request in requests {
                counts.extend_from_slice(&(request.keys.len() as u16).to_le_bytes());
            }
        }
        let mut call = Self::new(&scripts.decide, &keys);
        call.command.arg(terms).arg(name).arg(counts);
        call
    }

    /// Reads the ledgers of a charge.
    pub(crate) fn read(scripts: &'s Scripts, charge: Charge<'_>, keys: &[String]) -> Self {
        let mut call = Self::new(&scripts.read, keys);
        call.command.arg(terms(Mode::Peek, &[charge]));
        call
    }

    /// Takes back what was spent at a moment, or the newest. The last key is the mark.
    pub(crate) fn refund(
        scripts: &'s Scripts,
        charges: &[Charge<'_>],
        keys: &[String],
        at: Option<Timestamp>,
    ) -> Self {
        let what = if at.is_some() { "refund-at" } else { "refund-newest" };
        let mut call = Self::amend(scripts, charges, keys, what);
        call.command.arg(at.map_or(0, micros)).arg(millis(MARK_TTL));
        call
    }

    /// Turns what charges have spent into what they turned out to cost. The last key is the mark.
    pub(crate) fn settle(
        scripts: &'s Scripts,
        charges: &[Charge<'_>],
        keys: &[String],
        settlement: Settlement<'_>,
    ) -> Self {
        let mut call = Self::amend(scripts, charges, keys, "settle");
        let mark_ttl = settlement.once.map_or(SETTLE_MARK_TTL, |once| once.within);
        call.command.arg(micros(settlement.at)).arg(millis(mark_ttl)).arg(settlement.units);
        call
    }

    fn amend(scripts: &'s Scripts, charges: &[Charge<'_>], keys: &[String], what: &str) -> Self {
        let mut call = Self::new(&scripts.amend, keys);
        // A mark is for one call, so its key is a name that no other call has.
        let name = keys.last().map_or("", String::as_str);
        call.command.arg(terms(Mode::Spend, charges)).arg(name).arg(what);
        call
    }

    /// Adds what was spent elsewhere, how long ago. The last key is the mark.
    pub(crate) fn merge(
        scripts: &'s Scripts,
        charge: Charge<'_>,
        keys: &[String],
        spends: &[(Duration, u32)],
        mark_for: Duration,
    ) -> Self {
        let mut packed = Vec::with_capacity(10 * spends.len());
        for (ago, units) in spends {
            // Microseconds in six bytes, which are nine years.
            let ago_us = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX).min((1 << 48) - 1);
            packed.extend_from_slice(&ago_us.to_le_bytes()[..6]);
            packed.extend_from_slice(&units.to_le_bytes());
        }
        let mut call = Self::amend(scripts, &[charge], keys, "merge");
        call.command.arg(packed).arg(millis(mark_for));
        call
    }

    fn new<K: redis::ToRedisArgs>(script: &'s Script, keys: &[K]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.hash).arg(keys.len()).arg(keys);
        Self { script, command }
    }
}

fn micros(at: Timestamp) -> u64 {
    at.as_nanos() / 1000
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The bytes of a ledger's standing in a reply: units left, when the charge fits, when the first unit
/// is free again, and whether there was room for the charge.
const STANDING_BYTES: usize = 17;
/// The bytes of a ledger's entry in a reply: the stamp, and units.
const ENTRY_BYTES: usize = 10;
/// The bytes of the time that a reply begins with.
const TIME_BYTES: usize = 8;
/// An answer begins with one of these. After the last one there is an error in its place.
const DENIED: u8 = 0;
const SPENT: u8 = 1;
const FAILED: u8 = 2;

/// Splits the reply of the decision script, or of the one that reads, into the answers to its requests, in order.
pub(crate) struct AnswerReader<'r> {
    at: Timestamp,
    rest: &'r [u8],
}

impl<'r> AnswerReader<'r> {
    pub(crate) fn new(reply: &'r Value) -> Self {
        let bytes = match reply {
            Value::BulkString(bytes) => bytes.as_slice(),
            _ => &[],
        };
        let (time, rest) = bytes.split_at_checked(TIME_BYTES).unwrap_or_default();
        Self { at: Timestamp::from_nanos(number(time).saturating_mul(1000)), rest }
    }

    /// The answer to the next request, or the error that stands in its place.
    pub(crate) fn next(&mut self, request: &Request) -> Result<Receipt, RedisStoreError> {
        let verdict = self.take(1)?[0];
        if verdict == FAILED {
            let length = number(self.take(2)?);
            return Err(error_in(self.take(length as usize)?).into());
        }
        // A malformed reply must neither deny a request nor report more units than the quota has.
        if ![DENIED, SPENT].contains(&verdict) {
            return Err(RedisStoreError::Reply);
        }
        let standing = |quota: &Quota| {
            let bytes = self.take(STANDING_BYTES)?;
            let remaining = number(&bytes[..4]) as u32;
            if remaining > quota.units().get() {
                return Err(RedisStoreError::Reply);
            }
            let standing = Standing::untouched(*quota)
                .with_remaining(remaining)
                .with_retry_after(Duration::from_micros(number(&bytes[4..10])))
                .with_reset_after(Duration::from_micros(number(&bytes[10..16])));
            let had_room = bytes[16] == 1;
            Ok(if had_room { standing.with_room() } else { standing })
        };
        let standings = request.quotas.iter().map(standing).collect::<Result<_, RedisStoreError>>();
        let (spent, standings) = (verdict == SPENT, standings?);
        Ok(Receipt { spent, at: self.at, standings, ..Receipt::default() })
    }

    /// The ledgers of these quotas, in the reply of the script that reads them.
    pub(crate) fn ledgers(mut self, quotas: &[Quota]) -> Result<AccountReading, RedisStoreError> {
        let mut reading = AccountReading::untouched(self.at, quotas);
        for LedgerReading { entries, .. } in &mut reading.ledgers {
            let count = number(self.take(2)?);
            for _ in 0..count {
                let bytes = self.take(ENTRY_BYTES)?;
                let stamp = Timestamp::from_millis(number(&bytes[..6]));
                let units = number(&bytes[6..]) as u32;
                match entries.last_mut() {
                    Some(last) if last.stamp > stamp => return Err(RedisStoreError::Reply),
                    // What is in Redis may be another program's.
                    Some(last) if last.stamp == stamp => {
                        last.units = last.units.saturating_add(units);
                    }
                    _ => entries.push(LedgerEntry { stamp, units }),
                }
            }
        }
        Ok(reading)
    }

    /// Of a reply that is too short, nothing more is read.
    fn take(&mut self, bytes: usize) -> Result<&'r [u8], RedisStoreError> {
        let taken = self.rest.split_at_checked(bytes);
        self.rest = taken.map(|(_, rest)| rest).unwrap_or_default();
        taken.map(|(own, _)| own).ok_or(RedisStoreError::Reply)
    }
}

/// An error as it would have come by itself.
fn error_in(text: &[u8]) -> RedisError {
    let line = text.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let parsed = redis::parse_redis_value(&[b"-", line, b"\r\n"].concat());
    let error = parsed.and_then(Value::extract_error).err();
    error.unwrap_or_else(|| io::Error::other("an error that cannot be read").into())
}

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(whole)
}
