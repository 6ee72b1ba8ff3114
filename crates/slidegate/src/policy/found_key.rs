//! The API key of a request, looked up once for all policies.

use std::time::Duration;

use crate::limit::{Quotas, Timestamp};
use crate::policy::api_key::{CheckedKey, UnknownKeys};
use crate::policy::overrides::OverridesAt;
use crate::policy::source::API_KEY;
use crate::policy::{
    CheckedPolicy, Facts, Identity, KeyHash, KeyStatus, Policies, Source, TokenStatus,
};
use crate::verdict::Block;

/// What is known of a request's API key, and of who bears it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FoundKey<'a> {
    pub(crate) state: KeyState,
    /// Whether it was listed and has ended.
    pub(crate) has_expired: bool,
    /// The account that the key spends from: its customer's, else its own.
    pub(crate) account: Option<Identity>,
    /// The customer, by the key or by a token.
    pub(crate) customer: Option<Identity>,
    pub(crate) plan: Option<&'a str>,
    /// Quotas in place of those of a plan.
    pub(crate) quotas: Option<&'a Quotas>,
}

/// What a request's API key counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum KeyState {
    #[default]
    Absent,
    Issued,
    /// It is not listed, and has an account all the same.
    Own,
    /// It is not listed, or its source cannot be reached, and it counts for nothing.
    Ignored,
    /// It is not listed, and refused.
    Unknown,
    /// Its source cannot be reached, and it is refused.
    Unavailable,
    /// It was not looked up, because too many of its address were, and it is refused.
    Unchecked {
        retry_after: Duration,
    },
}

impl Policies {
    /// Looks up the key of a request, here and in what its bearer says.
    pub(crate) fn find_key<'a>(&'a self, facts: &Facts<'a>) -> FoundKey<'a> {
        if !self.reads_keys && facts.bearer.is_none() && facts.customer.is_none() {
            return FoundKey::default();
        }
        let named = facts.customer.filter(|name| !name.is_empty()).map(Identity::customer);
        let sent = facts.header(&API_KEY);
        let of_bearer = facts.bearer.map_or_else(FoundKey::default, |bearer| FoundKey {
            customer: bearer.customer,
            plan: bearer.plan.as_deref(),
            quotas: bearer.quotas.as_ref(),
            ..FoundKey::default()
        });
        let issued = match sent {
            Some(key) => self.issued(key),
            None => facts.identity("api-key").and_then(|named| self.api_keys.get_key_value(&named)),
        };
        let has_expired = |key: &CheckedKey| facts.now.is_some_and(|now| !key.is_valid(now));
        if let Some((identity, key)) = issued.filter(|(_, key)| !has_expired(key)) {
            return FoundKey {
                state: KeyState::Issued,
                account: Some(named.or(key.customer).unwrap_or(*identity)),
                // Of one credential only: another's plan would be had for the asking.
                customer: named.or(key.customer),
                plan: key.plan.as_ref().map(|plan| &*plan.name),
                quotas: None,
                has_expired: false,
            };
        }
        let of_bearer = FoundKey { has_expired: issued.is_some(), ..of_bearer };
        if let Some(customer) = named {
            let (state, customer) = (KeyState::Issued, Some(customer));
            return FoundKey { state, account: customer, customer, ..of_bearer };
        }
        let named = sent.map(Identity::api_key).or_else(|| facts.identity("api-key"));
        let status = facts.bearer.map_or(KeyStatus::NotSought, |bearer| bearer.key);
        let is_token = facts.bearer.is_some_and(|bearer| bearer.token == TokenStatus::Valid);
        let (state, account) = match (status, named) {
            // Of a key without a customer, the plan is the key's and the customer the token's: with one
            // for the other, a key would raise the quotas of any customer.
            (KeyStatus::Issued(account), _) if is_token && account.kind() != "customer" => {
                let (state, account) = (KeyState::Issued, Some(account));
                return FoundKey { state, account, customer: None, ..of_bearer };
            }
            (KeyStatus::Issued(account), _) => (KeyState::Issued, Some(account)),
            (_, None) => (KeyState::Absent, None),
            (KeyStatus::Unavailable, _) => (KeyState::Unavailable, None),
            (KeyStatus::Passed, _) => (KeyState::Ignored, None),
            (KeyStatus::Unchecked { retry_after }, _) => {
                (KeyState::Unchecked { retry_after }, None)
            }
            (KeyStatus::NotSought | KeyStatus::Unknown, own) => match self.unknown_keys {
                UnknownKeys::Own => (KeyState::Own, own),
                UnknownKeys::Ignore => (KeyState::Ignored, None),
                UnknownKeys::Refuse => (KeyState::Unknown, None),
            },
        };
        FoundKey { state, account, ..of_bearer }
    }

    /// The key that is listed, by whichever digest.
    fn issued(&self, key: &[u8]) -> Option<(&Identity, &CheckedKey)> {
        let find = |hash: KeyHash| self.api_keys.get_key_value(&hash.digest(key).identity());
        let own = if self.api_keys.is_empty() { None } else { find(KeyHash::Slidegate) };
        own.or_else(|| self.has_sha256_keys.then(|| find(KeyHash::Sha256)).flatten())
    }

    /// Why a policy that counts a request refuses it for its credentials.
    pub(crate) fn refusal(&self, policy: &CheckedPolicy, facts: &Facts<'_>) -> Option<Block> {
        if policy.shadow {
            return None;
        }
        let key = facts.key?;
        let of_key = match key.state {
            KeyState::Unknown => Some(Block::UnknownKey),
            KeyState::Unavailable => Some(Block::KeysUnavailable),
            KeyState::Unchecked { retry_after } => {
                Some(Block::UncheckedCredentials { retry_after })
            }
            _ => None,
        };
        let of_token = match facts.bearer.map_or(TokenStatus::None, |bearer| bearer.token) {
            TokenStatus::Valid if has_two_customers(facts) => Some(Block::InvalidToken),
            TokenStatus::None | TokenStatus::Valid => None,
            TokenStatus::Invalid => Some(Block::InvalidToken),
            TokenStatus::Unavailable => Some(Block::KeysUnavailable),
            TokenStatus::Unchecked { retry_after } => {
                Some(Block::UncheckedCredentials { retry_after })
            }
        };
        // What cannot be told does not matter where a source before it gives an identity.
        let is_asked = |block: &Block, reads: &dyn Fn(&Source) -> bool| {
            let is_known =
                !matches!(block, Block::KeysUnavailable | Block::UncheckedCredentials { .. });
            let is_needed = |source: &Source| is_known || source.read(facts).is_none();
            policy.identity.iter().take_while(|source| is_needed(source)).any(reads)
        };
        // The default plan may be too small, and a denial for it a 429 because of an outage.
        let has_plan = facts.plan.is_some() || key.plan.is_some() || key.quotas.is_some();
        let lacks_plan = !has_plan && policy.default_plan().is_some();
        let by_key = of_key.filter(|block| {
            let by_plan = *block != Block::UnknownKey && lacks_plan;
            by_plan || is_asked(block, &|source| source.reads_key(facts))
        });
        by_key.or_else(|| {
            // The plan of a key that is known is its own, whatever a token beside it claims.
            let is_of_token = key.state != KeyState::Issued || names_customer(facts);
            of_token.filter(|block| {
                let may_have_plan = is_of_token || *block == Block::KeysUnavailable;
                let by_plan = self.tokens_have_plans && lacks_plan && may_have_plan;
                by_plan || is_asked(block, &Source::reads_token)
            })
        })
    }

    /// Why a request is refused whose credentials were not checked, because there were too many of its
    /// address, if lists or overrides name those who could be their bearers: else a blocked or banned
    /// customer would pass by sending more of them than are checked.
    pub(crate) fn refusal_by_lists(
        &self,
        facts: &Facts<'_>,
        overrides: Option<OverridesAt<'_>>,
    ) -> Option<Block> {
        let (key, token) = (facts.key?.state, facts.bearer?.token);
        let names = |is_named: fn(&Source) -> bool| {
            self.blocked.sources.iter().any(is_named)
                || overrides.is_some_and(|overrides| overrides.sources().iter().any(is_named))
        };
        match (key, token) {
            (KeyState::Unchecked { retry_after }, _) if names(|it| *it == Source::Customer) => {
                Some(Block::UncheckedCredentials { retry_after })
            }
            (_, TokenStatus::Unchecked { retry_after }) if names(Source::reads_token) => {
                Some(Block::UncheckedCredentials { retry_after })
            }
            _ => None,
        }
    }

    /// Whether the key is in the policies' own list and has not ended by `now`.
    pub(crate) fn lists_key(&self, key: &[u8], now: Timestamp) -> bool {
        self.issued(key).is_some_and(|(_, key)| key.is_valid(now))
    }

    /// The listed API key that an identity is, if it has not ended by `now`.
    pub(crate) fn listed_key(&self, identity: &Identity, now: Timestamp) -> Option<&CheckedKey> {
        let key = (identity.kind() == "api-key").then(|| self.api_keys.get(identity)).flatten();
        key.filter(|key| key.is_valid(now))
    }

    /// The identity of an API key: of the digest by which it is listed, if it is.
    ///
    /// ```
    /// use slidegate::policy::{ApiKey, KeyHash};
    /// use slidegate::{Identity, Policies, Policy, Quota};
    ///
    /// let digest = KeyHash::Sha256.digest(b"k-5f2c9a");
    /// let policies = Policies::builder()
    ///     .api_keys([ApiKey::of_digest(KeyHash::Sha256, digest).customer("acme")])
    ///     .policy(Policy::new("api").quota(Quota::per_minute(60)))
    ///     .build()?;
    /// assert_eq!(policies.identity_of_key(b"k-5f2c9a"), digest.identity());
    /// assert_eq!(policies.identity_of_key(b"another"), Identity::api_key(b"another"));
    /// # Ok::<(), slidegate::PolicyErrors>(())
    /// ```
    pub fn identity_of_key(&self, key: &[u8]) -> Identity {
        self.issued(key).map_or_else(|| Identity::api_key(key), |(identity, _)| *identity)
    }

    /// The identity whose account an identity spends from: the customer's, for the API key of a customer,
    /// also if the key has ended, because an operator who names it means its customer.
    pub fn account_of(&self, identity: Identity) -> Identity {
        let key = (identity.kind() == "api-key").then(|| self.api_keys.get(&identity)).flatten();
        key.and_then(|key| key.customer).unwrap_or(identity)
    }
}

/// Whether the request's key is of one customer and its token of another, so that which of them upstream
/// serves is unknown.
fn has_two_customers(facts: &Facts<'_>) -> bool {
    let of_token = facts.bearer.and_then(|bearer| bearer.customer);
    let of_key = facts.key.filter(|found| found.state == KeyState::Issued);
    let of_key = of_key.and_then(|found| found.customer);
    !names_customer(facts) && of_key.zip(of_token).is_some_and(|(key, token)| key != token)
}

/// Whether the application says whose request it is.
fn names_customer(facts: &Facts<'_>) -> bool {
    facts.customer.is_some_and(|name| !name.is_empty())
}

impl Source {
    /// Whether a request's API key says whose identity it finds.
    fn reads_key(&self, facts: &Facts<'_>) -> bool {
        match self {
            Self::ApiKey | Self::Customer => true,
            Self::Header(name) => *name == API_KEY && facts.headers_trusted,
            _ => false,
        }
    }

    /// Whether a request's token does.
    fn reads_token(&self) -> bool {
        matches!(self, Self::User | Self::Customer)
    }
}
