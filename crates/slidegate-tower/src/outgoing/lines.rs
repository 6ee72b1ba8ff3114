//! Who waits for which account, in the order of arrival.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slidegate::{Account, Decision, PolicyStanding, Standing};

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
    /// that binds it, if possible one that others wait for. `None` if nobody more may wait.
    pub(super) fn join(&self, decision: &Decision) -> Option<Place<'_>> {
        let mut lines = self.lock();
        if self.waiting.load(Ordering::Relaxed) >= self.most {
            return None;
        }
        let account = to_wait_for(&lines, decision)?;
        let turn = enter(&mut lines, &account);
        self.waiting.fetch_add(1, Ordering::Release);
        Some(Place { lines: self, account, turn })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Account, Line>> {
        // Nothing in here can panic half-way.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Whether the decision's request is held up by other accounts than the one waited for.
    pub(super) fn is_in_the_wrong_line_for(&self, decision: &Decision) -> bool {
        let mut binding = binding(decision).peekable();
        binding.peek().is_some() && binding.all(|account| account != self.account)
    }

    /// Goes to the end of the line that the decision's request has to wait in now. Who waits
    /// already is never one too many.
    pub(super) fn change_lines(&mut self, decision: &Decision) {
        let mut lines = self.lines.lock();
        if let Some(account) = to_wait_for(&lines, decision) {
            self.turn = enter(&mut lines, &account);
            leave(&mut lines, mem::replace(&mut self.account, account));
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        self.lines.waiting.fetch_sub(1, Ordering::Release);
        leave(&mut lines, self.account.clone());
    }
}

fn enter(lines: &mut HashMap<Account, Line>, account: &Account) -> Arc<tokio::sync::Mutex<()>> {
    let line = lines.entry(account.clone()).or_default();
    line.waiting += 1;
    line.turn.clone()
}

fn leave(lines: &mut HashMap<Account, Line>, account: Account) {
    if let Entry::Occupied(mut line) = lines.entry(account) {
        line.get_mut().waiting -= 1;
        if line.get().waiting == 0 {
            line.remove();
        }
    }
}

fn to_wait_for(lines: &HashMap<Account, Line>, decision: &Decision) -> Option<Account> {
    let with_line = binding(decision).find(|account| lines.contains_key(account));
    with_line.or_else(|| decision.tightest().map(|(policy, _)| account(policy)))
}

/// The accounts that hold the request up longest: all of them, if none does.
fn binding(decision: &Decision) -> impl Iterator<Item = Account> {
    let longest = enforced(decision).map(retry_after).max();
    enforced(decision).filter(move |own| Some(retry_after(own)) == longest).map(account)
}

fn accounts(decision: &Decision) -> impl Iterator<Item = Account> {
    enforced(decision).map(account)
}

fn enforced(decision: &Decision) -> impl Iterator<Item = &PolicyStanding> {
    decision.policies().iter().filter(|policy| !policy.is_shadow())
}

fn retry_after(policy: &PolicyStanding) -> Duration {
    policy.standings().iter().map(Standing::retry_after).max().unwrap_or_default()
}

fn account(policy: &PolicyStanding) -> Account {
    Account { policy: policy.policy().clone(), identity: *policy.identity() }
}
