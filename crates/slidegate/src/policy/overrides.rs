//! What an operator changes for one identity, for a time: grants, exemptions, bans.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Duration;

use foldhash::fast::RandomState;
use http::Method;

use crate::limit::{Name, Timestamp};
use crate::policy::{CheckedPolicy, Facts, Identity, Source};

/// A grant, exemption or ban of one identity that an operator sets until a time on the gate's clock
/// ([`Gate::now`](crate::Gate::now)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The identity, as policies count it and decisions show it.
    pub identity: Identity,
    /// The policy it applies to; `None` for all policies.
    pub policy: Option<Name>,
    /// What it does.
    pub action: Action,
    /// When it ends (exclusive).
    pub until: Timestamp,
}

/// What an [`Override`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The policy skips the identity's requests; without a policy, all policies do.
    Exempt,
    /// The identity's requests are refused, and nothing is spent. A shadow policy refuses no
    /// requests.
    Ban,
    /// The account's quota has this many units more. Several grants add up.
    Grant {
        /// How many more.
        units: NonZeroU32,
        /// The window of the quota; `None` for every quota.
        window: Option<Duration>,
    },
}

/// All overrides in force, for [`Admin::replace_overrides`](crate::Admin::replace_overrides).
///
/// An override holds wherever a policy counts a request for its identity. A ban or an exemption
/// without a policy holds for every request that has the identity, whichever of its identities
/// policies count it by, and also if no policy is for it: as with a
/// [`AccessList`](crate::AccessList), a ban on any reading of a header that is sent twice, an
/// exemption only if there is no doubt. Of `anonymous` and of `header:~…`, whose text does not tell
/// where they are read, it holds only where a policy counts by them. An address or a network is
/// meant as it is written: a ban on `ip:203.0.113.0/24` is for all of it, and `ip:2001:db8::1` is
/// for one address, even if policies count by /64. What is no [`Network`](crate::policy::Network)
/// after its `ip:` matches no request. `everyone` matches every request.
///
/// The policies' own list of the blocked outweighs all overrides, then come their own
/// exemptions, then bans by override, then exemptions by override.
///
/// ```
/// use std::time::Duration;
///
/// use slidegate::policy::{Action, Override, Overrides};
/// use slidegate::{Facts, Gate, Identity, MemoryStore, Policies};
///
/// let gate = Gate::new(Policies::default(), MemoryStore::new());
/// let out = Override {
///     identity: Identity::user("mallory"),
///     policy: None,
///     action: Action::Ban,
///     until: gate.now() + Duration::from_secs(3600),
/// };
/// gate.admin().replace_overrides(Overrides::new([out])?);
///
/// let facts = Facts::new(&http::Method::GET, "/").user("mallory");
/// assert!(!gate.decide_now(&facts)?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Those of one identity beside each other.
    list: Box<[Override]>,
    by_identity: HashMap<Identity, Range<usize>, RandomState>,
    /// Where the identities are read that are banned or exempt without a policy.
    sources: Vec<Source>,
}

impl Overrides {
    /// The most overrides at a time.
    pub const MAX: usize = 10_000;

    /// A set of at most [`Overrides::MAX`] overrides.
    pub fn new(overrides: impl IntoIterator<Item = Override>) -> Result<Self, TooManyOverrides> {
        let mut list: Vec<Override> = overrides.into_iter().take(Self::MAX + 1).collect();
        if list.len() > Self::MAX {
            return Err(TooManyOverrides);
        }
        list.sort_by_cached_key(|entry| entry.identity.canonical());
        let mut overrides = Self { list: list.into(), ..Self::default() };
        for (i, entry) in overrides.list.iter().enumerate() {
            let identity = entry.identity.canonical();
            overrides.by_identity.entry(identity).or_insert(i..i).end = i + 1;
            let is_everywhere =
                entry.policy.is_none() && !matches!(entry.action, Action::Grant { .. });
            if is_everywhere
                && let Some(source) = Source::of(&entry.identity)
                && !overrides.sources.contains(&source)
            {
                overrides.sources.push(source);
            }
        }
        Ok(overrides)
    }

    /// Where identities are read that are banned or exempt under all policies.
    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// All overrides, those of one identity one after another.
    pub fn as_slice(&self) -> &[Override] {
        &self.list
    }

    /// The overrides as of an instant.
    pub(crate) fn at(&self, now: Timestamp) -> OverridesAt<'_> {
        OverridesAt { overrides: self, now }
    }
}

/// More than [`Overrides::MAX`] overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many overrides: expected at most {}", Overrides::MAX)]
pub struct TooManyOverrides;

/// Overrides as of an instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverridesAt<'o> {
    overrides: &'o Overrides,
    now: Timestamp,
}

/// The combined effect of several bans and exemptions: the longest rest of each.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OverrideEffect {
    pub(crate) banned: Option<Duration>,
    pub(crate) exempt: Option<Duration>,
}

/// The units that are granted to one account as of an instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grants<'o> {
    /// The overrides of the identity.
    entries: &'o [Override],
    policy: &'o Name,
    now: Timestamp,
}

impl<'o> OverridesAt<'o> {
    /// The units that are granted to the account of this policy and identity.
    pub(crate) fn grants(self, policy: &'o Name, identity: &Identity) -> Grants<'o> {
        Grants { entries: self.entries(identity), policy, now: self.now }
    }

    /// The overrides of an identity under this policy only.
    pub(crate) fn under(self, policy: &CheckedPolicy, identity: &Identity) -> OverrideEffect {
        let effect = self.find(identity, Some(&policy.name));
        // A shadow policy bans no identity.
        OverrideEffect { banned: effect.banned.filter(|_| !policy.shadow), ..effect }
    }

    /// The overrides of an identity under all policies.
    pub(crate) fn everywhere(self, identity: &Identity) -> OverrideEffect {
        self.find(identity, None)
    }

    /// The overrides of a request under all policies, whatever they count it by.
    pub(crate) fn of_request(self, facts: &Facts<'_>) -> OverrideEffect {
        let mut effect = OverrideEffect::default();
        for source in &self.overrides.sources {
            source.find_listed(facts, |identity| {
                effect.banned = effect.banned.max(self.everywhere(identity).banned);
                false
            });
            source.read_listed(facts, |identity| {
                effect.exempt = effect.exempt.max(self.everywhere(identity).exempt);
                false
            });
        }
        let named = facts.identities.iter().map(|identity| self.everywhere(identity));
        named.fold(effect, OverrideEffect::and)
    }

    /// Where the identities are read that are banned or exempt without a policy.
    pub(crate) fn sources(self) -> &'o [Source] {
        &self.overrides.sources
    }

    /// The overrides under all policies of an address whose network has overrides, and of everyone,
    /// if the identity is named and there is no request to find more in.
    pub(crate) fn around(self, identity: &Identity) -> OverrideEffect {
        let facts = Facts::new(&Method::GET, "");
        let network = identity.network();
        let address = network.filter(|network| network.prefix_len() == network.max_prefix_len());
        self.of_request(&address.map_or(facts, |address| facts.client(address.addr())))
    }

    fn find(self, identity: &Identity, policy: Option<&Name>) -> OverrideEffect {
        let mut effect = OverrideEffect::default();
        let entries = self.entries(identity).iter();
        for entry in entries.filter(|entry| entry.policy.as_ref() == policy) {
            let rest = entry.until.saturating_since(self.now);
            if rest.is_zero() {
                continue;
            }
            match entry.action {
                Action::Exempt => effect.exempt = effect.exempt.max(Some(rest)),
                Action::Ban => effect.banned = effect.banned.max(Some(rest)),
                Action::Grant { .. } => {}
            }
        }
        effect
    }

    fn entries(self, identity: &Identity) -> &'o [Override] {
        let range = self.overrides.by_identity.get(identity);
        range.map_or(&[], |range| &self.overrides.list[range.clone()])
    }
}

impl Grants<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.in_force().next().is_none()
    }

    /// The units that a quota with this window has more.
    pub(crate) fn units(&self, window: Duration) -> u32 {
        let holds = |of: Option<Duration>| of.is_none_or(|of| of == window);
        let units = self.in_force().filter(|(_, of)| holds(*of)).map(|(units, _)| units.get());
        units.fold(0, u32::saturating_add)
    }

    fn in_force(&self) -> impl Iterator<Item = (NonZeroU32, Option<Duration>)> {
        self.entries.iter().filter_map(|entry| {
            let applies = entry.policy.as_ref().is_none_or(|policy| policy == self.policy);
            match entry.action {
                Action::Grant { units, window } if applies && entry.until > self.now => {
                    Some((units, window))
                }
                _ => None,
            }
        })
    }
}

impl OverrideEffect {
    /// What both come to.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { banned: self.banned.max(other.banned), exempt: self.exempt.max(other.exempt) }
    }
}
