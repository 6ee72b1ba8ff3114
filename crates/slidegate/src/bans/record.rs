//! One account's denials, and its ban.

use std::time::Duration;

use crate::ban::Ban;
use crate::clock::Timestamp;
use crate::ledger::Ledger;

/// The denials that count towards a ban, or the ban that they have led to.
pub(super) struct Record {
    denials: Ledger,
    ban: Option<Term>,
}

/// A ban in force.
struct Term {
    length: Duration,
    until: Timestamp,
}

impl Record {
    pub(super) fn new(ban: Ban) -> Self {
        Self { denials: Ledger::new(ban.denials()), ban: None }
    }

    /// What is left of the ban, if anything is. If the clock has stepped back, that is no more
    /// than the ban's length.
    pub(super) fn left(&mut self, now: Timestamp) -> Option<Duration> {
        let term = self.ban.as_mut()?;
        term.until = term.until.min(now + term.length);
        Some(term.until.saturating_since(now)).filter(|left| !left.is_zero())
    }

    /// Counts a denial of somebody who is not banned; tells whether that begins a ban.
    pub(super) fn count(&mut self, ban: Ban, now: Timestamp) -> bool {
        let quota = ban.denials();
        if self.denials.window_ms() != quota.window_ms() {
            self.denials = Ledger::new(quota);
        }
        self.denials.settle(now);
        if self.denials.remaining(quota) <= 1 {
            self.begin(ban, now);
            return true;
        }
        self.denials.spend(quota, 1, now);
        false
    }

    /// Begins a ban. The denials that led to it have had their effect.
    pub(super) fn begin(&mut self, ban: Ban, now: Timestamp) {
        let length = ban.length();
        *self = Self { ban: Some(Term { length, until: now + length }), ..Self::new(ban) };
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        let free = self.ban.as_ref().is_none_or(|term| term.until <= now);
        free && self.denials.is_over(now)
    }
}
