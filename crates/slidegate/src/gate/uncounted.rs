//! Decisions that a store could not count, by policy.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::limit::Name;

/// Counts them. There is at most one number for each policy in force; a decision that the store has
/// counted takes no lock.
#[derive(Debug, Default)]
pub(crate) struct Uncounted(Mutex<HashMap<Name, u64>>);

impl Uncounted {
    /// Counts a decision for each of these policies.
    pub(crate) fn add<'n>(&self, policies: impl Iterator<Item = &'n Name>) {
        let mut counts = self.0.lock();
        for policy in policies {
            match counts.get_mut(policy) {
                Some(count) => *count += 1,
                None => drop(counts.insert(policy.clone(), 1)),
            }
        }
    }

    /// Forgets all policies but these.
    pub(crate) fn keep(&self, kept: &HashSet<&Name>) {
        self.0.lock().retain(|policy, _| kept.contains(policy));
    }

    pub(crate) fn counts(&self) -> HashMap<Name, u64> {
        self.0.lock().clone()
    }
}
