//! Who and what is exempt, or blocked.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::joint::JointPrefixSet;

use crate::policy::builder::InvalidValues;
use crate::policy::credentials::{self, Credentials};
use crate::policy::paths::Paths;
use crate::policy::source::has_credentials;
use crate::policy::{Facts, Identity, KeyHash, Network, Policies, Source};

/// A list of identities, networks and paths that are exempt or blocked.
///
/// ```
/// use slidegate::{AccessList, Block, Facts, Gate, MemoryStore, Policies, Policy, Verdict};
///
/// let policies = Policies::builder()
///     .policy(Policy::new("api").quota("60/min"))
///     .exempt(AccessList::new().path("/healthz").network("10.0.0.0/8".parse()?))
///     .blocked(AccessList::new().user("mallory"))
///     .build()?;
/// let gate = Gate::new(policies, MemoryStore::new());
///
/// let get = http::Method::GET;
/// let health = gate.decide_now(&Facts::new(&get, "/healthz"))?;
/// assert!(health.is_allowed() && health.policies().is_empty());
/// let blocked = gate.decide_now(&Facts::new(&get, "/v1/reports").user("mallory"))?;
/// assert_eq!(blocked.verdict(), Verdict::Block(Block::Listed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AccessList {
    identities: HashSet<Identity>,
    /// Where the listed identities would be read from.
    pub(crate) sources: Vec<Source>,
    networks: JointPrefixSet<IpNet>,
    pub(crate) paths: Paths,
    /// Credentials that no request can have.
    pub(crate) invalid: InvalidValues,
}

impl AccessList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists a user.
    pub fn user(self, id: &str) -> Self {
        self.identity(Source::User, Identity::user(id))
    }

    /// Lists the bearer of an API key.
    pub fn api_key(self, key: &str) -> Self {
        self.identity(Source::ApiKey, Identity::api_key(key.as_bytes()))
    }

    /// Lists the bearer of an API key of which only the digest is at hand, by whichever
    /// [hash](KeyHash). A text that is not a digest is an error when the policies are built.
    pub fn api_key_digest(mut self, digest: &str) -> Self {
        // It may be the key itself, so it is not repeated.
        let parsed = KeyHash::of_digest(digest).parse(digest);
        match self.invalid.accept("api_keys", String::new(), parsed) {
            Some(digest) => self.identity(Source::ApiKey, digest.identity()),
            None => self,
        }
    }

    /// Lists a customer, whichever of its keys or tokens a request has.
    pub fn customer(self, name: &str) -> Self {
        self.identity(Source::Customer, Identity::customer(name))
    }

    /// Lists the bearer of an `Authorization` header. Credentials that no request may have in this
    /// form, such as `Basic` without its padding, are an error when the policies are built; so are
    /// parameters, which are no identity.
    pub fn authorization(mut self, value: &str) -> Self {
        self.check_credentials("authorizations", value);
        self.identity(Source::Authorization, Identity::authorization(value.as_bytes()))
    }

    /// Lists a value of a named header, such as one tenant.
    pub fn header(mut self, name: http::HeaderName, value: &str) -> Self {
        if has_credentials(&name) {
            self.check_credentials("headers", value);
        }
        let identity = Identity::header(&name, value.as_bytes());
        self.identity(Source::Header(name), identity)
    }

    /// Lists a network of client addresses.
    pub fn network(mut self, network: Network) -> Self {
        self.networks.insert(network.0);
        self
    }

    /// Whether the list has a network of every IPv4 address, or of every IPv6 address: `0.0.0.0/0` or
    /// `::/0`.
    pub fn has_every_address(&self) -> bool {
        let every = [Ipv4Net::default().into(), Ipv6Net::default().into()];
        every.iter().any(|network| self.networks.contains(network))
    }

    /// Lists the paths of a pattern such as `/healthz` or `/internal/{*rest}`. A text that is no
    /// pattern is an error when the policies are built.
    pub fn path(mut self, pattern: impl Into<String>) -> Self {
        self.paths.patterns.push(pattern.into());
        self
    }

    /// The value may be a secret, and is not repeated.
    fn check_credentials(&mut self, key: &'static str, value: &str) {
        let checked = match credentials::read(value.as_bytes()) {
            Ok(Credentials::One) => Ok(()),
            Ok(Credentials::Parameters) => {
                Err("parameters are no identity: expected a scheme, one space and a token".into())
            }
            Err(error) => Err(error.to_string()),
        };
        self.invalid.accept(key, String::new(), checked);
    }

    fn identity(mut self, source: Source, identity: Identity) -> Self {
        if !self.sources.contains(&source) {
            self.sources.push(source);
        }
        self.identities.insert(identity);
        self
    }

    /// The entry that the request is on the list for, if there is no doubt.
    #[inline]
    pub(crate) fn find(&self, facts: &Facts<'_>) -> Option<ListMatch> {
        let by_path = || facts.readings.is_some_and(|path| self.paths.contain_all(path));
        self.search(facts, by_path, |source, listed| source.read_listed(facts, listed))
    }

    /// The entry that the request may be on the list for.
    #[inline]
    pub(crate) fn find_any(&self, facts: &Facts<'_>) -> Option<ListMatch> {
        let by_path = || facts.readings.is_some_and(|path| self.paths.contain_any(path));
        self.search(facts, by_path, |source, listed| source.find_listed(facts, listed))
    }

    #[inline]
    fn search(
        &self,
        facts: &Facts<'_>,
        by_path: impl Fn() -> bool,
        by_source: impl Fn(&Source, &dyn Fn(&Identity) -> bool) -> Option<Identity>,
    ) -> Option<ListMatch> {
        // Most lists are empty.
        if self.sources.is_empty() && self.networks.is_empty() && self.paths.is_empty() {
            return None;
        }
        if !self.paths.is_empty() && by_path() {
            return Some(ListMatch::Path);
        }
        let around = |client: IpAddr| self.networks.get_lpm(&IpNet::from(client.to_canonical()));
        if let Some(network) = facts.client.and_then(around) {
            return Some(ListMatch::Network(Network(network)));
        }
        let listed = |identity: &Identity| self.identities.contains(identity);
        let found = self.sources.iter().find_map(|source| by_source(source, &listed));
        found.map(ListMatch::Identity)
    }
}

/// What a request is on a list for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListMatch {
    /// Its path.
    Path,
    /// A network that its client address is in.
    Network(Network),
    /// One of its identities.
    Identity(Identity),
}

impl ListMatch {
    /// The match as an operator reads it, an API key by its name as in [`Policies::shown`].
    pub fn shown(&self, policies: &Policies) -> String {
        match self {
            Self::Identity(identity) => format!("identity {}", policies.shown(identity)),
            Self::Path | Self::Network(_) => self.to_string(),
        }
    }
}

impl fmt::Display for ListMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path => f.write_str("its path"),
            Self::Network(network) => write!(f, "network {network}"),
            Self::Identity(identity) => write!(f, "identity {identity}"),
        }
    }
}
