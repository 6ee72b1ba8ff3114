//! A memory store's live state as a file, so that an embedded limiter survives a restart.
//!
//! Layout, integers little-endian: the line `slidegate-snapshot 1`; the store's clock and the
//! calendar in nanoseconds (2 × u64); a record for each account; a zero byte; the SHA-256 of all
//! before it. A record is a tag (1 an account, 2 a shared one), policy and identity (length as a
//! byte, text), the number of ledgers (u8), and for each of them window in milliseconds (u64),
//! whether its ticks are coarse (u8), number of entries (u32) and the entries: stamp (u64),
//! units (u32).

use std::io::{self, BufWriter, Read, Write};
use std::num::NonZeroU32;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::MemoryStore;
use super::account::{AccountEntry, MAX_LEDGERS};
use super::planned::AccountKey;
use crate::limit::clock::{Clock, NANOS_PER_MILLI, Timestamp};
use crate::limit::ledger::{MAX_ENTRIES, Window};
use crate::limit::{Ledger, Name, Quota};

const MAGIC: &[u8] = b"slidegate-snapshot ";
const VERSION: &[u8] = b"1\n";
const HEADER_LEN: usize = MAGIC.len() + VERSION.len();

const END: u8 = 0;
const ACCOUNT: u8 = 1;
const OVERFLOW: u8 = 2;

/// Shared accounts: one for each policy and shard.
const MAX_OVERFLOW: usize = 1 << 16;

impl MemoryStore {
    /// Writes the live state. Each account is written as it is at one instant, with its shard
    /// locked only while it is copied; calls go on meanwhile.
    pub fn save(&self, writer: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(writer);
        let mut hash = Sha256::new();
        let mut write = |bytes: &[u8]| {
            hash.update(bytes);
            out.write_all(bytes)
        };
        let now = self.clock.now();
        write(MAGIC)?;
        write(VERSION)?;
        write(&now.as_nanos().to_le_bytes())?;
        write(&self.clock.wall().as_nanos().to_le_bytes())?;
        for i in 0..self.shards.len() {
            let mut records = Vec::new();
            let shard = self.lock(i);
            shard.accounts.iter().for_each(|account| encode(&mut records, ACCOUNT, account, now));
            shard.overflow.iter().for_each(|shared| encode(&mut records, OVERFLOW, shared, now));
            drop(shard);
            write(&records)?;
        }
        write(&[END])?;
        out.write_all(&hash.finalize())?;
        out.flush()
    }

    /// Adds a saved state to the store's own, aged by the calendar time that has passed since.
    ///
    /// It is added whole; on an error nothing is added. An account that is in both keeps both
    /// histories. Tells how many accounts were restored.
    pub fn restore(&self, reader: impl Read) -> Result<usize, SnapshotError> {
        let bytes = read(reader)?;
        let (content, checksum) = bytes.split_last_chunk::<32>().ok_or(CUT_SHORT)?;
        let input = &mut &content[..];
        let _header: [u8; HEADER_LEN] = array(input)?;
        let saved_at = Timestamp::from_nanos(u64::from_le_bytes(array(input)?));
        let saved_wall = Timestamp::from_nanos(u64::from_le_bytes(array(input)?));
        let down = self.clock.wall().saturating_since(saved_wall);
        let aging = Aging { now: self.clock.now(), saved_at, down };
        let mut accounts = Vec::new();
        let mut overflow = Vec::new();
        loop {
            match byte(input)? {
                ACCOUNT => accounts.extend(decode(input, ACCOUNT, aging)?),
                OVERFLOW => overflow.extend(decode(input, OVERFLOW, aging)?),
                END => break,
                _ => return Err(SnapshotError::Damaged("an unknown kind of record")),
            }
            if accounts.len() > self.capacity || overflow.len() > MAX_OVERFLOW {
                return Err(SnapshotError::TooLarge { capacity: self.capacity });
            }
        }
        if !input.is_empty() {
            return Err(SnapshotError::Damaged("there is more after its end"));
        }
        if Sha256::digest(content)[..] != checksum[..] {
            return Err(SnapshotError::Damaged("the checksum does not match"));
        }
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
            let key = AccountKey::parse(&account.key);
            let hash = key.hash(&self.hasher);
            let known = shards[self.shard_of(hash)].own(hash, key);
            unknown += usize::from(known.is_none());
        }
        let own: usize = shards.iter().map(|shard| shard.accounts.len()).sum();
        if own + unknown > self.capacity {
            return Err(SnapshotError::TooLarge { capacity: self.capacity });
        }
        let restored = accounts.len();
        for account in accounts {
            let hash = account.hash(&self.hasher);
            shards[self.shard_of(hash)].restore(hash, account, now);
        }
        // Which shard its spenders fall into now is unknown, so all of them remember.
        for shared in overflow {
            for shard in &mut shards {
                shard.shared_or_new(&shared.key).absorb(shared, now);
            }
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
    Io(#[from] io::Error),
}

const CUT_SHORT: SnapshotError = SnapshotError::Damaged("it ends too early");

/// How stamps of the saved clock become stamps of this one.
#[derive(Clone, Copy)]
struct Aging {
    now: Timestamp,
    saved_at: Timestamp,
    down: Duration,
}

impl Aging {
    /// Rounds up: an entry may be held longer, never shorter.
    fn stamp(self, saved_ms: u64) -> u64 {
        let age_ns = i128::from(self.saved_at.as_nanos())
            - i128::from(saved_ms) * i128::from(NANOS_PER_MILLI)
            + self.down.as_nanos() as i128;
        let at_ns = (i128::from(self.now.as_nanos()) - age_ns).max(0);
        let at_ns = u64::try_from(at_ns).unwrap_or(u64::MAX);
        Timestamp::from_nanos(at_ns).as_millis_ceil()
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
        out.extend_from_slice(&ledger.window.ms().to_le_bytes());
        out.push(u8::from(ledger.window.is_coarse()));
        out.extend_from_slice(&(ledger.entries() as u32).to_le_bytes());
        for (stamp_ms, units) in ledger.runs() {
            out.extend_from_slice(&stamp_ms.to_le_bytes());
            out.extend_from_slice(&units.to_le_bytes());
        }
    }
}

/// An account, unless it is over by now.
fn decode(input: &mut &[u8], tag: u8, aging: Aging) -> Result<Option<AccountEntry>, SnapshotError> {
    let (policy, identity) = (text(input)?, text(input)?);
    policy.parse::<Name>().map_err(|_| SnapshotError::Damaged("a policy's name"))?;
    let key = match tag {
        OVERFLOW => policy.into(),
        _ => AccountKey::new(&policy, &identity).to_text(),
    };
    let mut account = AccountEntry::new(key);
    let windows = byte(input)?;
    if usize::from(windows) > MAX_LEDGERS {
        return Err(SnapshotError::Damaged("the number of windows"));
    }
    for _ in 0..windows {
        account.add(decode_ledger(input, aging)?);
    }
    account.expire(aging.now);
    Ok(Some(account).filter(|account| !account.is_over(aging.now)))
}

fn decode_ledger(input: &mut &[u8], aging: Aging) -> Result<Ledger, SnapshotError> {
    let window = Duration::from_millis(u64::from_le_bytes(array(input)?));
    let quota = Quota::new(NonZeroU32::MIN, window);
    let quota = quota.map_err(|_| SnapshotError::Damaged("a window's length"))?;
    let coarse = match byte(input)? {
        0 => false,
        1 => true,
        _ => return Err(SnapshotError::Damaged("a window's ticks")),
    };
    let entries = u32::from_le_bytes(array(input)?);
    if entries as usize > MAX_ENTRIES {
        return Err(SnapshotError::Damaged("a window's entries"));
    }
    let mut runs = Vec::with_capacity(entries as usize);
    for _ in 0..entries {
        let stamp_ms = u64::from_le_bytes(array(input)?);
        let units = u32::from_le_bytes(array(input)?);
        let in_order = runs.last().is_none_or(|(last_ms, _)| *last_ms <= stamp_ms);
        if units == 0 || !in_order {
            return Err(SnapshotError::Damaged("a window's entries"));
        }
        runs.push((stamp_ms, units));
    }
    let aged = runs.into_iter().map(|(ms, units)| (aging.stamp(ms), units));
    Ok(Ledger::from_runs(Window::new(quota.window_ms(), coarse), aged))
}

/// All of a snapshot, or as much of another file as shows that it is none.
fn read(mut reader: impl Read) -> Result<Vec<u8>, SnapshotError> {
    let mut bytes = Vec::new();
    reader.by_ref().take(HEADER_LEN as u64).read_to_end(&mut bytes)?;
    match bytes.strip_prefix(MAGIC) {
        None => return Err(SnapshotError::Foreign),
        Some(VERSION) => {}
        Some(other) if other.len() < VERSION.len() => return Err(CUT_SHORT),
        Some(_) => return Err(SnapshotError::Version),
    }
    reader.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn array<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], SnapshotError> {
    let (array, rest) = input.split_first_chunk().ok_or(CUT_SHORT)?;
    *input = rest;
    Ok(*array)
}

fn byte(input: &mut &[u8]) -> Result<u8, SnapshotError> {
    array(input).map(|[byte]| byte)
}

fn text(input: &mut &[u8]) -> Result<String, SnapshotError> {
    let len = usize::from(byte(input)?);
    let (text, rest) = input.split_at_checked(len).ok_or(CUT_SHORT)?;
    *input = rest;
    String::from_utf8(text.to_vec()).map_err(|_| SnapshotError::Damaged("a text"))
}
