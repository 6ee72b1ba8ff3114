//! A memory store's live state as a file, so that an embedded limiter survives a restart.
//!
//! Layout, integers little-endian: the line `slidegate-snapshot 1`; the store's clock and the
//! calendar in nanoseconds (2 × u64); a record for each account; a zero byte; the SHA-256 of all
//! before it. A record is a tag (1 an account, 2 a shared one), policy and identity (length as a
//! byte, text), the number of ledgers (u8), and for each of them window in milliseconds (u64),
//! whether its ticks are coarse (u8), number of entries (u32) and the entries: stamp (u64),
//! units (u32).

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::num::NonZeroU32;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::MemoryStore;
use super::account::{AccountEntry, MAX_LEDGERS};
use crate::limit::clock::{Clock, NANOS_PER_MILLI, Timestamp};
use crate::limit::quota::{FINE_UNITS, Quota, ceil_to_tick, coarse_tick_ms};
use crate::limit::{Ledger, Name};

const MAGIC: &[u8] = b"slidegate-snapshot ";
const VERSION: &[u8] = b"1\n";

const END: u8 = 0;
const ACCOUNT: u8 = 1;
const OVERFLOW: u8 = 2;

/// What one account can have been written with; anything above is damage.
const MAX_ENTRIES: u32 = FINE_UNITS + 1;
/// Shared accounts: one for each policy and shard.
const MAX_OVERFLOW: usize = 1 << 16;

impl MemoryStore {
    /// Writes the live state. Each account is written as it is at one instant, with its shard
    /// locked only while it is copied; calls go on meanwhile.
    pub fn save(&self, writer: impl Write) -> io::Result<()> {
        let mut out = Hashing { inner: BufWriter::new(writer), hash: Sha256::new() };
        let now = self.clock.now();
        out.write_all(MAGIC)?;
        out.write_all(VERSION)?;
        out.write_all(&now.as_nanos().to_le_bytes())?;
        out.write_all(&self.clock.wall().as_nanos().to_le_bytes())?;
        for i in 0..self.shards.len() {
            let mut records = Vec::new();
            let shard = self.lock(i);
            shard.accounts().for_each(|account| encode(&mut records, ACCOUNT, account, now));
            shard.overflow().iter().for_each(|shared| encode(&mut records, OVERFLOW, shared, now));
            drop(shard);
            out.write_all(&records)?;
        }
        out.write_all(&[END])?;
        let checksum = out.hash.finalize();
        out.inner.write_all(&checksum)?;
        out.inner.flush()
    }

    /// Adds a saved state to the store's own, aged by the calendar time that has passed since.
    ///
    /// It is added whole or, on an error, not at all. An account that is in both keeps both
    /// histories. Tells how many accounts were restored.
    pub fn restore(&self, reader: impl Read) -> Result<usize, SnapshotError> {
        let mut input = Hashing { inner: BufReader::new(reader), hash: Sha256::new() };
        expect_header(&mut input)?;
        let saved_at = Timestamp::from_nanos(u64::from_le_bytes(input.array()?));
        let saved_wall = Timestamp::from_nanos(u64::from_le_bytes(input.array()?));
        let down = self.clock.wall().saturating_since(saved_wall);
        let aging = Aging { now: self.clock.now(), saved_at, down };
        let mut accounts = Vec::new();
        let mut overflow = Vec::new();
        loop {
            match input.byte()? {
                ACCOUNT => accounts.extend(decode(&mut input, ACCOUNT, aging)?),
                OVERFLOW => overflow.extend(decode(&mut input, OVERFLOW, aging)?),
                END => break,
                _ => return Err(SnapshotError::Damaged("an unknown kind of record")),
            }
            if accounts.len() > self.capacity || overflow.len() > MAX_OVERFLOW {
                return Err(SnapshotError::TooLarge { capacity: self.capacity });
            }
        }
        expect_checksum(input)?;
        self.put_back(accounts, &overflow, aging.now)
    }

    /// Adds the accounts with all shards locked, so that there is room for all of them or none.
    fn put_back(
        &self,
        accounts: Vec<AccountEntry>,
        overflow: &[AccountEntry],
        now: Timestamp,
    ) -> Result<usize, SnapshotError> {
        let mut shards: Vec<_> = (0..self.shards.len()).map(|i| self.lock(i)).collect();
        shards.iter_mut().for_each(|shard| shard.sweep_all(now));
        let mut unknown = 0;
        for account in &accounts {
            let key = account.key.as_bytes();
            let hash = self.hash(key);
            let known = shards[self.shard_of(hash)].own(hash, key);
            unknown += usize::from(known.is_none());
        }
        let own: usize = shards.iter().map(|shard| shard.len()).sum();
        if own + unknown > self.capacity {
            return Err(SnapshotError::TooLarge { capacity: self.capacity });
        }
        let restored = accounts.len();
        for account in accounts {
            let hash = self.hash(account.key.as_bytes());
            shards[self.shard_of(hash)].restore(hash, account, now);
        }
        // Which shard its spenders fall into now is unknown, so all of them remember.
        for shared in overflow {
            shards.iter_mut().for_each(|shard| shard.restore_shared(shared, now));
        }
        Ok(restored)
    }
}

/// Why a snapshot was not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is some other file.
    #[error("not a snapshot: it does not begin with \"slidegate-snapshot\"")]
    Foreign,
    /// It was written by a version that this one does not know.
    #[error("the snapshot has a version that this program does not know; it knows version 1")]
    Version,
    /// It is not what was written.
    #[error("the snapshot is damaged: {0}")]
    Damaged(&'static str),
    /// The store is too small for it.
    #[error("the snapshot has more accounts than the store has room for ({capacity})")]
    TooLarge {
        /// The store's capacity.
        capacity: usize,
    },
    /// It could not be read.
    #[error("the snapshot cannot be read")]
    Io(#[source] io::Error),
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("it ends too early"),
            _ => Self::Io(error),
        }
    }
}

/// How stamps of the saved clock become stamps of this one.
#[derive(Clone, Copy)]
struct Aging {
    now: Timestamp,
    saved_at: Timestamp,
    down: Duration,
}

impl Aging {
    /// Rounds up: an entry may be held a tick longer, never shorter.
    fn stamp(self, saved_ms: u64, tick_ms: u64) -> u64 {
        let age_ns = i128::from(self.saved_at.as_nanos())
            - i128::from(saved_ms) * i128::from(NANOS_PER_MILLI)
            + self.down.as_nanos() as i128;
        let at_ns = (i128::from(self.now.as_nanos()) - age_ns).max(0);
        let at_ns = u64::try_from(at_ns).unwrap_or(u64::MAX);
        ceil_to_tick(Timestamp::from_nanos(at_ns).as_millis_ceil(), tick_ms)
    }
}

fn encode(out: &mut Vec<u8>, tag: u8, account: &AccountEntry, now: Timestamp) {
    if account.is_over(now) {
        return;
    }
    out.push(tag);
    // A shared account has the policy's name for its key.
    let (policy, identity) = account.key.split_once(' ').unwrap_or((&account.key, "overflow"));
    for text in [policy, identity] {
        out.push(u8::try_from(text.len()).expect("names and identities are at most 64 bytes"));
        out.extend_from_slice(text.as_bytes());
    }
    let ledgers = account.ledgers();
    out.push(u8::try_from(ledgers.len()).expect("an account has few windows"));
    for ledger in ledgers {
        out.extend_from_slice(&ledger.window_ms().to_le_bytes());
        out.push(u8::from(ledger.is_coarse()));
        out.extend_from_slice(&(ledger.entries() as u32).to_le_bytes());
        for (stamp_ms, units) in ledger.runs() {
            out.extend_from_slice(&stamp_ms.to_le_bytes());
            out.extend_from_slice(&units.to_le_bytes());
        }
    }
}

/// An account, unless it is over by now.
fn decode(
    input: &mut Hashing<impl Read>,
    tag: u8,
    aging: Aging,
) -> Result<Option<AccountEntry>, SnapshotError> {
    let (policy, identity) = (input.text()?, input.text()?);
    policy.parse::<Name>().map_err(|_| SnapshotError::Damaged("a policy's name"))?;
    let key = if tag == OVERFLOW { policy } else { format!("{policy} {identity}") };
    let mut account = AccountEntry::new(key.as_bytes());
    let windows = input.byte()?;
    if usize::from(windows) > MAX_LEDGERS {
        return Err(SnapshotError::Damaged("the number of windows"));
    }
    for _ in 0..windows {
        account.add(decode_ledger(input, aging)?);
    }
    account.expire(aging.now);
    Ok(Some(account).filter(|account| !account.is_over(aging.now)))
}

fn decode_ledger(input: &mut Hashing<impl Read>, aging: Aging) -> Result<Ledger, SnapshotError> {
    let window = Duration::from_millis(u64::from_le_bytes(input.array()?));
    let quota = Quota::new(NonZeroU32::MIN, window);
    let quota = quota.map_err(|_| SnapshotError::Damaged("a window's length"))?;
    let coarse = match input.byte()? {
        0 => false,
        1 => true,
        _ => return Err(SnapshotError::Damaged("a window's ticks")),
    };
    let entries = u32::from_le_bytes(input.array()?);
    if entries > MAX_ENTRIES {
        return Err(SnapshotError::Damaged("a window's entries"));
    }
    let tick_ms = if coarse { coarse_tick_ms(quota.window_ms()) } else { 1 };
    let mut runs = Vec::with_capacity(entries as usize);
    for _ in 0..entries {
        let stamp_ms = u64::from_le_bytes(input.array()?);
        let units = u32::from_le_bytes(input.array()?);
        let in_order = runs.last().is_none_or(|(last_ms, _)| *last_ms <= stamp_ms);
        if units == 0 || !in_order {
            return Err(SnapshotError::Damaged("a window's entries"));
        }
        runs.push((stamp_ms, units));
    }
    let aged = runs.into_iter().map(|(ms, units)| (aging.stamp(ms, tick_ms), units));
    Ok(Ledger::from_runs(quota.window_ms(), coarse, aged))
}

fn expect_header(input: &mut Hashing<impl Read>) -> Result<(), SnapshotError> {
    let foreign = |error| match SnapshotError::from(error) {
        SnapshotError::Damaged(_) => SnapshotError::Foreign,
        other => other,
    };
    let magic: [u8; MAGIC.len()] = input.array().map_err(foreign)?;
    if magic != *MAGIC {
        return Err(SnapshotError::Foreign);
    }
    let version: [u8; VERSION.len()] = input.array()?;
    if version == *VERSION { Ok(()) } else { Err(SnapshotError::Version) }
}

fn expect_checksum(mut input: Hashing<BufReader<impl Read>>) -> Result<(), SnapshotError> {
    let computed = input.hash.finalize();
    let mut written = [0; 32];
    input.inner.read_exact(&mut written)?;
    if computed[..] != written {
        return Err(SnapshotError::Damaged("the checksum does not match"));
    }
    match input.inner.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(SnapshotError::Damaged("there is more after its end")),
    }
}

/// Passes bytes through and hashes them.
struct Hashing<T> {
    inner: T,
    hash: Sha256,
}

impl<W: Write> Hashing<W> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.inner.write_all(bytes)
    }
}

impl<R: Read> Hashing<R> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        self.hash.update(bytes);
        Ok(bytes)
    }

    fn byte(&mut self) -> io::Result<u8> {
        self.array().map(|[byte]| byte)
    }

    fn text(&mut self) -> Result<String, SnapshotError> {
        let mut bytes = vec![0; usize::from(self.byte()?)];
        self.inner.read_exact(&mut bytes)?;
        self.hash.update(&bytes);
        String::from_utf8(bytes).map_err(|_| SnapshotError::Damaged("a text"))
    }
}
