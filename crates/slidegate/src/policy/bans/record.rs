//! One account's denials, and its ban.

use std::time::Duration;

use crate::limit::clock::Timestamp;
use crate::limit::ledger::Ledger;
use crate::policy::ban::Ban;

/// The denials that count towards a ban, or the ban that they have led to.
pub(super) struct Record {
    denials: Ledger,
    ban: Option<Term>,
}

/// A ban in force.
struct Term {
    length: Duration,
    until: Timestamp,
    /// How long it was no use to come back when it began: for its length at least, and for longer
    /// if a quota had no room for longer.
    wait: Duration,
    retry_at: Timestamp,
}

impl Record {
    pub(super) fn new(ban: Ban) -> Self {
        Self { denials: Ledger::new(ban.denials()), ban: None }
    }

    /// When to come back, if a ban is in force. If the clock has stepped back, neither that nor
    /// the ban's end is further away than it was when the ban began.
    pub(super) fn retry_after(&mut self, now: Timestamp) -> Option<Duration> {
        let term = self.ban.as_mut()?;
        term.until = term.until.min(now + term.length);
        term.retry_at = term.retry_at.min(now + term.wait);
        (term.until > now).then(|| term.retry_at.saturating_since(now))
    }

    /// Counts a denial, for so long, of somebody who is not banned; tells whether that begins a
    /// ban.
    pub(super) fn count(&mut self, ban: Ban, denied_for: Duration, now: Timestamp) -> bool {
        let quota = ban.denials();
        if self.denials.window_ms() != quota.window_ms() {
            self.denials = Ledger::new(quota);
        }
        self.denials.expire(now);
        if self.denials.remaining(quota) <= 1 {
            self.begin(ban, denied_for, now);
            return true;
        }
        self.denials.spend(quota, 1, now);
        false
    }

    /// Begins a ban of somebody whose quotas deny for so long. The denials that led to it have had
    /// their effect.
    pub(super) fn begin(&mut self, ban: Ban, denied_for: Duration, now: Timestamp) {
        let length = ban.length();
        let wait = length.max(denied_for);
        let term = Term { length, until: now + length, wait, retry_at: now + wait };
        *self = Self { ban: Some(term), ..Self::new(ban) };
    }

    /// Puts a ban in force that began elsewhere, unless the one in force lasts as long; tells whether
    /// it did. There is this much left of it, and so long until the account is to come back.
    pub(super) fn adopt(
        &mut self,
        ban: Ban,
        rest: Duration,
        retry_after: Duration,
        now: Timestamp,
    ) -> bool {
        let lasts_as_long = self.rest(now).is_some_and(|(own, _)| own >= rest);
        if !lasts_as_long {
            self.begin(ban.lasting(rest), retry_after, now);
        }
        !lasts_as_long
    }

    /// What is left of a ban in force, and when to come back.
    pub(super) fn rest(&mut self, now: Timestamp) -> Option<(Duration, Duration)> {
        let retry_after = self.retry_after(now)?;
        let until = self.ban.as_ref()?.until;
        Some((until.saturating_since(now), retry_after))
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        let free = self.ban.as_ref().is_none_or(|term| term.until <= now);
        free && self.denials.is_over(now)
    }
}
