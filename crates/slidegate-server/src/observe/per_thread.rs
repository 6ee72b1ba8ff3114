//! Numbers that many threads add to without meeting.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// Several of the same thing, of which each thread uses one. What was counted is their sum.
#[derive(Debug)]
pub(super) struct PerThread<T>(Box<[PerThreadSlot<T>]>);

/// Aligned so that no two share a cache line, nor a pair of lines that are fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PerThreadSlot<T>(T);

/// How many threads have a stripe for themselves, and how many stripes the others share.
struct SlotCounts {
    alone: usize,
    shared: usize,
}

/// With more, a page of metrics would take longer than it saves.
const MOST_ALONE: usize = 48;

/// One for each worker, up to the number of processors, and some more.
static STRIPES: LazyLock<SlotCounts> = LazyLock::new(|| {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let alone = (threads + 1).min(MOST_ALONE);
    SlotCounts { alone, shared: alone.div_ceil(3) }
});

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Which stripe a thread uses.
#[derive(Clone, Copy)]
struct Thread {
    stripe: usize,
    /// Whether no other thread ever uses it.
    is_alone: bool,
}

thread_local! {
    static THREAD: Cell<Option<Thread>> = const { Cell::new(None) };
}

impl<T: Default> Default for PerThread<T> {
    fn default() -> Self {
        Self((0..STRIPES.alone + STRIPES.shared).map(|_| PerThreadSlot::default()).collect())
    }
}

impl<T> PerThread<T> {
    /// This thread's.
    #[inline]
    pub(super) fn own(&self) -> &T {
        &self.0[this_thread().stripe].0
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|stripe| &stripe.0)
    }

    /// One number, over all threads.
    pub(super) fn sum(&self, counter: impl Fn(&T) -> &AtomicU64) -> u64 {
        self.iter().map(|own| counter(own).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// Adds one.
#[inline]
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Adds one to a number of this thread's stripe.
#[inline]
pub(super) fn count_own(counter: &AtomicU64) {
    add_own(counter, 1);
}

/// Adds to a counter of this thread's slot. No other thread writes to it if the slot is not shared,
/// and then it need not be locked.
#[inline]
pub(super) fn add_own(counter: &AtomicU64, more: u64) {
    if this_thread().is_alone {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    } else {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

#[inline]
fn this_thread() -> Thread {
    THREAD.with(|own| own.get().unwrap_or_else(|| number_thread(own)))
}

#[cold]
fn number_thread(own: &Cell<Option<Thread>>) -> Thread {
    let number = THREADS.fetch_add(1, Ordering::Relaxed);
    let thread = match number.checked_sub(STRIPES.alone) {
        None => Thread { stripe: number, is_alone: true },
        Some(rest) => Thread { stripe: STRIPES.alone + rest % STRIPES.shared, is_alone: false },
    };
    own.set(Some(thread));
    thread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_among_threads() {
        let counters = PerThread::<AtomicU64>::default();
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..1000).for_each(|_| count_own(counters.own())));
            }
        });
        assert_eq!(counters.sum(|counter| counter), 20_000);
    }
}
