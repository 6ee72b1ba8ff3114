//! An allocator that can count the bytes in use and the calls.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering};

/// The system's allocator, with counts that are off while speed is measured.
pub struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static IN_USE: AtomicIsize = AtomicIsize::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The bytes that `build` has asked for and not given back, and what it built.
pub fn bytes_of<T>(build: impl FnOnce() -> T) -> (usize, T) {
    IN_USE.store(0, Ordering::SeqCst);
    let built = counting(build);
    (IN_USE.load(Ordering::SeqCst).unsigned_abs(), built)
}

/// How often `work` has asked for memory, and what came of it.
pub fn allocations_of<T>(work: impl FnOnce() -> T) -> (u64, T) {
    ALLOCATIONS.store(0, Ordering::SeqCst);
    let result = counting(work);
    (ALLOCATIONS.load(Ordering::SeqCst), result)
}

fn counting<T>(work: impl FnOnce() -> T) -> T {
    ON.store(true, Ordering::SeqCst);
    let result = work();
    ON.store(false, Ordering::SeqCst);
    result
}

fn count(bytes: isize, allocations: u64) {
    if ON.load(Ordering::Relaxed) {
        IN_USE.fetch_add(bytes, Ordering::Relaxed);
        ALLOCATIONS.fetch_add(allocations, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize, 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize), 0);
        unsafe { System.dealloc(pointer, layout) }
    }
}
