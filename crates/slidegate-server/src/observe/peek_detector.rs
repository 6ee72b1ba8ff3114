//! Detects policies whose accounts Envoy peeks at and never charges.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use slidegate::{Name, Policies, PolicyStanding, Standing};

/// If Envoy reported costs, one of so many requests would have had a report by now.
const MAX_PEEKS: u32 = 1000;

/// Peeks are not counted any more: the policy was warned about, or units were spent.
const DONE: u32 = u32::MAX;

/// Counts, for each policy in force, the peeks before the first unit was spent.
#[derive(Debug, Default)]
pub(super) struct PeekDetector {
    peeks: ArcSwap<PeekCounts>,
}

type PeekCounts = HashMap<Name, Arc<AtomicU32>, RandomState>;

impl PeekDetector {
    pub(super) fn new(policies: &Policies) -> Self {
        let detector = Self::default();
        detector.follow(policies);
        detector
    }

    /// Counts for these policies from now on. Those that were there already count on.
    pub(super) fn follow(&self, policies: &Policies) {
        let old = self.peeks.load();
        let count_of = |name: &Name| old.get(name).cloned().unwrap_or_default();
        let new = policies.names().map(|name| (name.clone(), count_of(name))).collect();
        self.peeks.store(Arc::new(new));
    }

    /// Takes note of an account that was charged.
    pub(super) fn charged(&self, policy: &PolicyStanding) {
        if let Some(count) = self.peeks.load().get(&policy.policy)
            && !is_untouched(policy)
        {
            finish(count);
        }
    }

    /// Takes note of an account that was peeked at. True if the policy is to be warned about: once.
    pub(super) fn peeked(&self, policy: &PolicyStanding) -> bool {
        let peeks = self.peeks.load();
        let Some(count) = peeks.get(&policy.policy) else { return false };
        let counted = count.load(Ordering::Relaxed);
        if counted == DONE {
            return false;
        }
        if !is_untouched(policy) {
            finish(count);
            return false;
        }
        let next = if counted + 1 >= MAX_PEEKS { DONE } else { counted + 1 };
        // Of two at once, one may count for both.
        let order = Ordering::Relaxed;
        count.compare_exchange(counted, next, order, order).is_ok() && next == DONE
    }
}

/// Most policies are finished: then the memory that workers share is only read.
fn finish(count: &AtomicU32) {
    if count.load(Ordering::Relaxed) != DONE {
        count.store(DONE, Ordering::Relaxed);
    }
}

/// Whether nothing is spent in any window, at whichever gateway and listener.
fn is_untouched(policy: &PolicyStanding) -> bool {
    let is_whole = |standing: &Standing| standing.remaining() == standing.quota().units().get();
    policy.standings.iter().all(is_whole)
}
