//! The names of settlements that were made.

use std::collections::HashMap;
use std::time::Duration;

use super::planned::AccountKey;
use crate::limit::{Once, Settled, StoreError, Timestamp};

/// Remembers the names of settlements while they can be presented again.
#[derive(Debug, Default)]
pub(super) struct SettledNames {
    until: HashMap<Box<[u8]>, Timestamp>,
    /// How many names there may be before expired ones are looked for.
    sweep_at: usize,
    swept: Timestamp,
}

/// A full table is looked through this often.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

impl SettledNames {
    /// Settles an account under a name, unless that was done before. There is room for `capacity`
    /// names.
    pub(super) fn settle(
        &mut self,
        once: Once<'_>,
        account: AccountKey<'_>,
        now: Timestamp,
        capacity: usize,
        settle: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<Settled, StoreError> {
        if self.contains(once.id, account, now) {
            return Ok(Settled::Before);
        }
        if self.until.len() >= self.sweep_at.min(capacity)
            && (now.saturating_since(self.swept) >= SWEEP_INTERVAL || self.until.len() < capacity)
        {
            self.swept = now;
            self.until.retain(|_, until| now < *until);
            // Twice as many have to come before the next look, so that each costs little.
            self.sweep_at = (2 * self.until.len()).max(1024);
        }
        if self.until.len() >= capacity {
            return Err(StoreError::Full);
        }
        settle()?;
        self.until.insert(name(once.id, account), now + once.within);
        Ok(Settled::Now)
    }

    /// Whether an account was settled under a name.
    pub(super) fn contains(&self, id: &str, account: AccountKey<'_>, now: Timestamp) -> bool {
        self.until.get(&name(id, account)).is_some_and(|until| now < *until)
    }
}

fn name(id: &str, account: AccountKey<'_>) -> Box<[u8]> {
    [id.as_bytes(), b" ", account.to_text().as_bytes()].concat().into()
}
