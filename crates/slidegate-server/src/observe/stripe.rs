//! Numbers that many threads add to without meeting.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// Several of the same thing, of which each thread uses one. What was counted is their sum.
#[derive(Debug)]
pub(super) struct Striped<T>(Box<[Stripe<T>]>);

/// Aligned so that no two share a cache line, nor a pair of lines that are fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe<T>(T);

/// Beyond this, threads share stripes: a page of metrics would take longer than it saves.
const MOST_STRIPES: usize = 16;

static STRIPES: LazyLock<usize> = LazyLock::new(|| {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    threads.next_power_of_two().min(MOST_STRIPES)
});

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        Self((0..*STRIPES).map(|_| Stripe::default()).collect())
    }
}

impl<T> Striped<T> {
    /// This thread's.
    #[inline]
    pub(super) fn own(&self) -> &T {
        // The length is a power of two.
        &self.0[thread_number() & (self.0.len() - 1)].0
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

#[inline]
fn thread_number() -> usize {
    THREAD.with(|own| match own.get() {
        usize::MAX => number_thread(own),
        number => number,
    })
}

#[cold]
fn number_thread(own: &Cell<usize>) -> usize {
    own.set(THREADS.fetch_add(1, Ordering::Relaxed) & (MOST_STRIPES - 1));
    own.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_among_threads() {
        let counters = Striped::<AtomicU64>::default();
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..1000).for_each(|_| count(counters.own())));
            }
        });
        assert_eq!(counters.sum(|counter| counter), 20_000);
    }
}
