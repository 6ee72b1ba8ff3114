//! Who waits for which account, in the order of arrival.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slidegate::{Account, Decision};

/// A line of waiting calls for each account that has any.
#[derive(Debug)]
pub(super) struct Lines {
    most: usize,
    waiting: AtomicUsize,
    lines: Mutex<HashMap<Account, Line>>,
}

/// Those who wait for one account. Tokio's mutex hands over in the order of arrival, and forgets
/// who gives up.
#[derive(Debug, Default)]
struct Line {
    turn: Arc<tokio::sync::Mutex<()>>,
    waiting: usize,
}

/// A place in a line, given up when dropped.
#[derive(Debug)]
pub(super) struct Place<'l> {
    lines: &'l Lines,
    account: Account,
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl Lines {
    /// Lines for at most so many waiting calls in all.
    pub(super) fn new(most: usize) -> Self {
        Self { most, waiting: AtomicUsize::new(0), lines: Mutex::default() }
    }

    pub(super) fn are_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Whether anybody waits for an account that the decision is about.
    pub(super) fn are_ahead_of(&self, decision: &Decision) -> bool {
        let lines = self.lock();
        accounts(decision).any(|account| lines.contains_key(&account))
    }

    /// A place at the end of a line that the decision's request has to wait in: for an account
    /// that others wait for, else for the one that binds it most. `None` if nobody more may wait.
    pub(super) fn join(&self, decision: &Decision) -> Option<Place<'_>> {
        let mut lines = self.lock();
        if self.waiting.load(Ordering::Relaxed) >= self.most {
            return None;
        }
        let with_line = accounts(decision).find(|account| lines.contains_key(account));
        let account = with_line.or_else(|| tightest(decision))?;
        let line = lines.entry(account.clone()).or_default();
        line.waiting += 1;
        self.waiting.fetch_add(1, Ordering::Release);
        Some(Place { lines: self, account, turn: line.turn.clone() })
    }

    fn leave(&self, account: &Account) {
        let mut lines = self.lock();
        self.waiting.fetch_sub(1, Ordering::Release);
        if let Entry::Occupied(mut line) = lines.entry(account.clone()) {
            line.get_mut().waiting -= 1;
            if line.get().waiting == 0 {
                line.remove();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Account, Line>> {
        // Nothing in here can panic half-way.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.lines.leave(&self.account);
    }
}

fn accounts(decision: &Decision) -> impl Iterator<Item = Account> {
    let enforced = decision.policies().iter().filter(|policy| !policy.is_shadow());
    enforced.map(|own| Account { policy: own.policy().clone(), identity: *own.identity() })
}

fn tightest(decision: &Decision) -> Option<Account> {
    let (policy, _) = decision.tightest()?;
    Some(Account { policy: policy.policy().clone(), identity: *policy.identity() })
}
