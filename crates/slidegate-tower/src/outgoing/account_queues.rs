//! Waiting calls by account, in the order of arrival.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slidegate::{Account, Decision, PolicyStanding, Standing};

/// A queue of waiting calls for each account that has any.
#[derive(Debug)]
pub(super) struct AccountQueues {
    most: usize,
    waiting: AtomicUsize,
    queues: Mutex<HashMap<Account, AccountQueue>>,
}

/// The calls that wait for one account. Tokio's mutex is fair, and forgets a waiter that is
/// dropped.
#[derive(Debug, Default)]
struct AccountQueue {
    turn: Arc<tokio::sync::Mutex<()>>,
    waiting: usize,
}

/// A slot in a queue, given up when dropped.
#[derive(Debug)]
pub(super) struct QueueSlot<'l> {
    queues: &'l AccountQueues,
    account: Account,
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl AccountQueues {
    /// Queues for at most this many waiting calls in all.
    pub(super) fn new(most: usize) -> Self {
        Self { most, waiting: AtomicUsize::new(0), queues: Mutex::default() }
    }

    pub(super) fn are_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Whether a call waits for an account that the decision is about.
    pub(super) fn are_ahead_of(&self, decision: &Decision) -> bool {
        let queues = self.lock();
        accounts(decision).any(|account| queues.contains_key(&account))
    }

    /// A slot at the end of a queue that the decision's request has to wait in: for an account
    /// that binds it, if possible one that others wait for. `None` if the queues are full.
    pub(super) fn join(&self, decision: &Decision) -> Option<QueueSlot<'_>> {
        let mut queues = self.lock();
        if self.waiting.load(Ordering::Relaxed) >= self.most {
            return None;
        }
        let account = to_wait_for(&queues, decision)?;
        let turn = enter(&mut queues, &account);
        self.waiting.fetch_add(1, Ordering::Release);
        Some(QueueSlot { queues: self, account, turn })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Account, AccountQueue>> {
        // Nothing in here can panic half-way.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueSlot<'_> {
    /// Whether the decision's request is held up by other accounts than the one waited for.
    pub(super) fn is_in_wrong_queue_for(&self, decision: &Decision) -> bool {
        let mut binding = binding(decision).peekable();
        binding.peek().is_some() && binding.all(|account| account != self.account)
    }

    /// Moves to the end of the queue that the decision's request has to wait in now. This does not
    /// count towards the bound again.
    pub(super) fn change_queue(&mut self, decision: &Decision) {
        let mut queues = self.queues.lock();
        if let Some(account) = to_wait_for(&queues, decision) {
            self.turn = enter(&mut queues, &account);
            leave(&mut queues, mem::replace(&mut self.account, account));
        }
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        self.queues.waiting.fetch_sub(1, Ordering::Release);
        leave(&mut queues, self.account.clone());
    }
}

fn enter(
    queues: &mut HashMap<Account, AccountQueue>,
    account: &Account,
) -> Arc<tokio::sync::Mutex<()>> {
    let queue = queues.entry(account.clone()).or_default();
    queue.waiting += 1;
    queue.turn.clone()
}

fn leave(queues: &mut HashMap<Account, AccountQueue>, account: Account) {
    if let Entry::Occupied(mut queue) = queues.entry(account) {
        queue.get_mut().waiting -= 1;
        if queue.get().waiting == 0 {
            queue.remove();
        }
    }
}

fn to_wait_for(queues: &HashMap<Account, AccountQueue>, decision: &Decision) -> Option<Account> {
    let with_queue = binding(decision).find(|account| queues.contains_key(account));
    with_queue.or_else(|| decision.tightest().map(|(policy, _)| account(policy)))
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
    decision.policies().iter().filter(|policy| !policy.shadow)
}

fn retry_after(policy: &PolicyStanding) -> Duration {
    policy.standings.iter().map(Standing::retry_after).max().unwrap_or_default()
}

fn account(policy: &PolicyStanding) -> Account {
    Account { policy: policy.policy.clone(), identity: policy.identity }
}
