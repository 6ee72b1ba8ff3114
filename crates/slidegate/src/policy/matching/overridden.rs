//! What an operator's overrides change in what policies make of a request.

use std::borrow::Cow;

use super::{Match, Matches, Policies, Resolution};
use crate::limit::clock::Timestamp;
use crate::limit::name::Name;
use crate::policy::facts::Facts;
use crate::policy::identity::Identity;
use crate::policy::overrides::{OverrideEffect, OverridesAt};

/// What comes of a request, policy by policy, while overrides may change it.
pub(super) struct Tally<'o, 'p> {
    overrides: Option<OverridesAt<'o>>,
    /// Until when, and under which policy; none for all.
    ban: Option<(Timestamp, Option<&'p Name>)>,
    exempt: bool,
    too_costly: bool,
}

impl Policies {
    /// [`resolve`](Self::resolve) for a request that is neither blocked nor exempt, when there are
    /// overrides.
    pub(super) fn resolve_overridden<'p>(
        &'p self,
        facts: &Facts<'_>,
        overrides: OverridesAt<'_>,
        matches: &mut Matches<'p>,
    ) -> Resolution<'p> {
        let mut tally = Tally::new(Some(overrides));
        tally.note(overrides.of_request(facts));
        for policy in &self.policies {
            if let Ok(matched) = self.draft(policy, facts) {
                tally.add(matched, matches);
            }
        }
        tally.resolution()
    }
}

impl<'o, 'p> Tally<'o, 'p> {
    pub(super) fn new(overrides: Option<OverridesAt<'o>>) -> Self {
        Self { overrides, ban: None, exempt: false, too_costly: false }
    }

    /// Looks around an identity that is named without a request.
    pub(super) fn look_around(&mut self, identity: &Identity) {
        if let Some(overrides) = self.overrides {
            self.note(overrides.around(identity));
        }
    }

    /// Adds a policy that counts the request to the matches, as the overrides have it.
    pub(super) fn add(&mut self, mut matched: Match<'p>, matches: &mut Matches<'p>) {
        let policy = matched.policy;
        if let Some(overrides) = self.overrides {
            let everywhere = overrides.everywhere(&matched.identity);
            let here = overrides.under(policy, &matched.identity);
            self.note(everywhere);
            self.note_ban(here.banned_until, Some(&policy.name));
            if here.exempt_until.is_some() {
                return;
            }
            matched.raise(everywhere.and(here).granted);
        }
        if matched.is_payable() {
            matches.0.push(matched);
        } else {
            self.too_costly |= !policy.shadow;
        }
    }

    /// What it all comes to.
    pub(super) fn resolution(self) -> Resolution<'p> {
        if let (Some((until, policy)), Some(overrides)) = (self.ban, self.overrides) {
            return Resolution::Suspended(policy, until.saturating_since(overrides.now));
        }
        match (self.exempt, self.too_costly) {
            (true, _) => Resolution::Exempt,
            (false, true) => Resolution::TooCostly,
            (false, false) => Resolution::Matched,
        }
    }

    /// Adds the effect of overrides under all policies.
    fn note(&mut self, everywhere: OverrideEffect) {
        self.note_ban(everywhere.banned_until, None);
        self.exempt |= everywhere.exempt_until.is_some();
    }

    fn note_ban(&mut self, until: Option<Timestamp>, policy: Option<&'p Name>) {
        if let Some(until) = until
            && self.ban.is_none_or(|(longest, _)| until > longest)
        {
            self.ban = Some((until, policy));
        }
    }
}

impl Match<'_> {
    /// Gives every quota this many more units.
    pub(crate) fn raise(&mut self, granted: u32) {
        if granted > 0 {
            self.quotas = Cow::Owned(self.quotas.raised(granted));
        }
    }
}
