//! The windows of quotas that came with a charge or a customer.

use std::collections::{HashMap, HashSet};

use parking_lot::RwLock;

use crate::limit::{Name, Quotas};
use crate::policy::{CheckedPolicy, Consistency};

/// Remembers, for each policy, the windows that it does not list itself, so that accounts with such quotas
/// can be reset and refunded too: a store keeps a ledger for each window and cannot list them. Only windows
/// that this process has charged are known.
#[derive(Debug, Default)]
pub(crate) struct CallerWindows(RwLock<HashMap<Name, Quotas>>);

/// No more are noted for a policy that has so many. Customers have their quotas in a few windows.
const MAX_WINDOWS: usize = 64;

impl CallerWindows {
    /// Remembers the windows of these quotas.
    pub(crate) fn note(&self, policy: &CheckedPolicy, quotas: &Quotas) {
        let is_known = |known: &Quotas| known.has_windows_of(quotas);
        // Ledgers of leased units have longer windows, and these are not leased.
        let is_listed = policy.consistency == Consistency::Sync && is_known(&policy.windows);
        // If callers give all quotas of a policy, the windows follow from the identity.
        if policy.has_caller_quotas() || is_listed {
            return;
        }
        let is_full = |known: &Quotas| known.as_slice().len() >= MAX_WINDOWS;
        if self.0.read().get(&policy.name).is_some_and(|known| is_known(known) || is_full(known)) {
            return;
        }
        let mut windows = self.0.write();
        let all = match windows.get(&policy.name) {
            Some(known) => known.with_windows_of(quotas),
            None => Some(quotas.clone()),
        };
        if let Some(all) = all {
            windows.insert(policy.name.clone(), all);
        }
    }

    /// These ledgers of a policy's account, and one for each window that was noted beside them.
    pub(crate) fn beside(&self, policy: &CheckedPolicy, ledgers: Quotas) -> Quotas {
        let noted = self.0.read();
        let all = noted.get(&policy.name).and_then(|noted| ledgers.with_windows_of(noted));
        all.unwrap_or(ledgers)
    }

    /// Forgets all policies but these.
    pub(crate) fn keep(&self, kept: &HashSet<&Name>) {
        self.0.write().retain(|policy, _| kept.contains(policy));
    }
}
