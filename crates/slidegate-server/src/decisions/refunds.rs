//! Decisions that can be refunded, by the ids in their answers.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use slidegate::{Decision, Timestamp};

/// The latest refundable decisions. When it is full, the oldest makes room.
#[derive(Debug, Default)]
pub(crate) struct RefundTable(Mutex<RefundEntries>);

#[derive(Debug, Default)]
struct RefundEntries {
    /// The number of the oldest entry; those after it count on from there.
    first: u64,
    entries: VecDeque<RefundEntry>,
}

#[derive(Debug)]
struct RefundEntry {
    secret: u128,
    at: Timestamp,
    /// `None` once it was taken.
    decision: Option<Decision>,
}

/// How many decisions are kept.
pub(super) const MAX_ENTRIES: usize = 100_000;

/// How long a decision can be refunded: a caller that fails knows it by then.
pub(super) const REFUND_TTL: Duration = Duration::from_secs(60);

/// More than the one entry that each call adds, so that expired ones do not pile up, and few
/// enough that calls do not wait for the lock.
const EXPIRED_AT_ONCE: usize = 2;

impl RefundTable {
    /// Keeps a decision; the id to take it by, unless the system has no random numbers.
    pub(super) fn keep(&self, decision: Decision, now: Timestamp) -> Option<String> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).ok()?;
        let secret = u128::from_ne_bytes(secret);
        let entry = RefundEntry { secret, at: now, decision: Some(decision) };
        let mut table = self.0.lock();
        let expired = table.entries.iter().take_while(|entry| entry.is_expired(now));
        let expired = expired.take(EXPIRED_AT_ONCE).count();
        let leaving = expired.max(usize::from(table.entries.len() == MAX_ENTRIES));
        let left: Vec<_> = table.entries.drain(..leaving).collect();
        table.first += leaving as u64;
        let number = table.first + table.entries.len() as u64;
        table.entries.push_back(entry);
        drop(table);
        // Freed without the lock.
        drop(left);
        Some(format!("{number:x}-{secret:032x}"))
    }

    /// Takes the decision of this id, if it is there and was not taken yet.
    pub(super) fn take(&self, id: &str, now: Timestamp) -> Option<Decision> {
        let (number, secret) = id.split_once('-')?;
        let number = u64::from_str_radix(number, 16).ok()?;
        let secret = u128::from_str_radix(secret, 16).ok()?;
        let mut table = self.0.lock();
        let index = usize::try_from(number.checked_sub(table.first)?).ok()?;
        let entry = table.entries.get_mut(index)?;
        let is_valid = entry.secret == secret && !entry.is_expired(now);
        is_valid.then(|| entry.decision.take()).flatten()
    }
}

impl RefundEntry {
    fn is_expired(&self, now: Timestamp) -> bool {
        now.saturating_since(self.at) >= REFUND_TTL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn keep(table: &RefundTable, now: Timestamp) -> String {
        table.keep(Decision::default(), now).unwrap()
    }

    #[test]
    fn a_refund_id_is_good_once_and_for_a_minute() {
        let table = RefundTable::default();
        let ids = [0, 1, 2].map(|ms| keep(&table, at(ms)));
        assert!(table.take(&ids[0], at(59_999)).is_some());
        assert!(table.take(&ids[0], at(59_999)).is_none(), "it was taken");
        assert!(table.take(&ids[1], at(60_001)).is_none(), "it is too old");
        assert!(table.take(&ids[2], at(60_001)).is_some());
    }

    #[test]
    fn nothing_but_a_kept_id_is_a_refund_id() {
        let table = RefundTable::default();
        let id = keep(&table, at(0));
        let (number, secret) = id.split_once('-').unwrap();
        assert_eq!((number, secret.len()), ("0", 32));
        let other = keep(&RefundTable::default(), at(0));
        for wrong in ["", "-", "0-", "0-0", "1-0", "z-z", "ffffffffffffffff-0", secret, &other] {
            assert!(table.take(wrong, at(0)).is_none(), "{wrong:?}");
        }
        assert!(table.take(&format!("1-{secret}"), at(0)).is_none());
        assert!(table.take(&id, at(0)).is_some());
    }

    #[test]
    fn a_full_table_forgets_the_oldest() {
        let table = RefundTable::default();
        let [oldest, second] = [0, 0].map(|ms| keep(&table, at(ms)));
        (2..MAX_ENTRIES).for_each(|_| drop(keep(&table, at(0))));
        let newest = keep(&table, at(0));
        assert_eq!(table.0.lock().entries.len(), MAX_ENTRIES);
        assert!(table.take(&oldest, at(0)).is_none());
        assert!(table.take(&second, at(0)).is_some() && table.take(&newest, at(0)).is_some());
        // Two leave for each that comes, until all are young enough.
        (0..MAX_ENTRIES).for_each(|_| drop(keep(&table, at(60_000))));
        assert_eq!(table.0.lock().entries.len(), MAX_ENTRIES);
        let last = keep(&table, at(120_000));
        assert_eq!(table.0.lock().entries.len(), MAX_ENTRIES - 1);
        assert!(table.take(&last, at(120_000)).is_some());
    }
}
