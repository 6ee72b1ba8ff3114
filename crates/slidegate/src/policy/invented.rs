//! Policies that a client evades by inventing credentials.

use crate::policy::api_key::UnknownKeys;
use crate::policy::{CheckedPolicy, PathReading, Policies, Source};

impl Policies {
    /// The policies that a client evades by sending a new API key or `Authorization` header with each
    /// request, and the source that lets it: each value has its own account, no list says which
    /// values are real, and no policy for the same requests counts by client address.
    ///
    /// ```
    /// use slidegate::{Policies, Policy, Source};
    ///
    /// let api = Policy::new("api").identity([Source::ApiKey, Source::ip()]).quota("60/min");
    /// let evaded = Policies::builder().policy(api.clone()).build()?;
    /// assert_eq!(evaded.evaded().count(), 1);
    ///
    /// let address = Policy::new("address").quota("600/min");
    /// let guarded = Policies::builder().policy(api).policy(address).build()?;
    /// assert_eq!(guarded.evaded().count(), 0);
    /// # Ok::<(), slidegate::PolicyErrors>(())
    /// ```
    pub fn evaded(&self) -> impl Iterator<Item = (&CheckedPolicy, &Source)> {
        self.policies.iter().filter_map(|policy| {
            let source = policy.identity.iter().find(|source| self.is_invented(source))?;
            let is_counted = !policy.shadow && policy.is_for_requests();
            let is_guarded = || self.policies.iter().any(|other| other.guards(policy));
            (is_counted && !is_guarded()).then_some((policy, source))
        })
    }

    /// Whether clients can invent identities of this source. A named header is its trusted peer's.
    fn is_invented(&self, source: &Source) -> bool {
        *source == Source::Authorization
            || source.gives_api_keys() && self.unknown_keys == UnknownKeys::Own
    }
}

impl CheckedPolicy {
    /// Whether it counts all requests of another policy by their client address.
    fn guards(&self, other: &Self) -> bool {
        let has_methods = self.methods.is_empty()
            || !other.methods.is_empty()
                && other.methods.iter().all(|method| self.methods.contains(method));
        let has_paths = self.paths.is_empty()
            || !other.paths().is_empty() && other.paths().iter().all(|path| self.has_path(path));
        let is_by_address = matches!(self.identity[..], [Source::Ip(_), ..]);
        is_by_address && !self.shadow && self.is_for_requests() && has_methods && has_paths
    }

    /// Whether it is for the paths of a pattern, judged by an unlikely one of them.
    fn has_path(&self, pattern: &str) -> bool {
        let sample = |segment: &str| match segment.find('{') {
            Some(start) => format!("{}~any~", &segment[..start]),
            None => segment.to_owned(),
        };
        let path = pattern.split('/').map(sample).collect::<Vec<_>>().join("/");
        let reading = PathReading::default();
        self.paths().iter().any(|own| own == pattern)
            || self.paths.contain_any(&reading.read(&path))
    }
}
