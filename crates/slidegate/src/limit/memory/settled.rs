//! The names of settlements that were made.

use std::collections::HashMap;

use super::planned::AccountKey;
use crate::limit::{Once, Settled, StoreError, Timestamp};

/// Remembers the names of settlements while they can be presented again.
#[derive(Debug, Default)]
pub(super) struct SettledNames {
    until: HashMap<Box<[u8]>, Timestamp>,
    /// How many names there may be before expired ones are looked for.
    sweep_at: usize,
}

impl SettledNames {
    /// Settles an account under a name, unless that was done before. There is room for `capacity`
    /// names.
    pub(super) fn settle(
        &mut self,
        once: Once<'_>,
        account: &AccountKey,
        now: Timestamp,
        capacity: usize,
        settle: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<Settled, StoreError> {
        let name: Box<[u8]> = [once.id.as_bytes(), b" ", account].concat().into();
        if self.until.get(&name).is_some_and(|until| now < *until) {
            return Ok(Settled::Before);
        }
        if self.until.len() >= self.sweep_at.min(capacity) {
            self.until.retain(|_, until| now < *until);
            // Twice as many have to come before the next look, so that each costs little.
            self.sweep_at = (2 * self.until.len()).max(1024);
        }
        if self.until.len() >= capacity {
            return Err(StoreError::Full);
        }
        settle()?;
        self.until.insert(name, now + once.within);
        Ok(Settled::Now)
    }
}
