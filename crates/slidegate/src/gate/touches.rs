//! What a decision depends on and changes.

use std::cell::RefCell;

use super::Gate;
use crate::limit::{Name, Store};
use crate::policy::{CheckedPolicy, Facts, Identity, Prefixes};

impl<S: Store> Gate<S> {
    /// Everything that a decision on this request can depend on and change: accounts, each with its policy,
    /// and without a policy the identities that its client chose itself and the network that they count
    /// towards. Two requests that have none of it in common are decided the same in either order, so
    /// that they can be decided at the same time.
    ///
    /// Of an identity that its client chose, all accounts are listed that may be charged in its place.
    ///
    /// ```
    /// use http::Method;
    /// use slidegate::{Facts, Gate, MemoryStore, Policies, Policy};
    ///
    /// let policies = Policies::builder().policy(Policy::new("api").quota("60/min")).build()?;
    /// let gate = Gate::new(policies, MemoryStore::new());
    ///
    /// let of = |client: &str| gate.touches(&Facts::new(&Method::GET, "/").client(client.parse().unwrap()));
    /// assert_eq!(of("2001:db8::1"), of("2001:db8::2"), "one network");
    /// assert_ne!(of("203.0.113.7"), of("203.0.113.8"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn touches(&self, facts: &Facts<'_>) -> Vec<(Option<Name>, Identity)> {
        let active = self.active.load();
        let facts = &self.dated(&active, facts);
        let touched = RefCell::new(Vec::new());
        // As if no identity was admitted, so that each is asked about and the last resort is found.
        let note = |policy: &CheckedPolicy, identity: &Identity| {
            // Of a client without an address, every identity is admitted.
            let Some(address) = facts.client else { return true };
            let network = Identity::ip(address, Prefixes::default());
            let account = (Some(policy.name.clone()), *identity);
            // What is known of an identity is known under all policies.
            touched.borrow_mut().extend([account, (None, *identity), (None, network)]);
            false
        };
        let matches = active.policies.resolve(facts, self.overrides_now(&active), note);
        let mut touched = touched.into_inner();
        touched
            .extend(matches.iter().map(|found| (Some(found.policy.name.clone()), found.identity)));
        touched
    }

    /// The accounts that [`is_refused_by_address`](Self::is_refused_by_address) reads for this request:
    /// what it says of two requests that have none in common does not depend on their order.
    pub fn touches_by_address(&self, facts: &Facts<'_>) -> Vec<(Option<Name>, Identity)> {
        let active = self.active.load();
        let facts = &self.dated(&active, facts);
        let matches = active.policies.resolve_by_address(facts, self.overrides_now(&active));
        matches.iter().map(|found| (Some(found.policy.name.clone()), found.identity)).collect()
    }
}
