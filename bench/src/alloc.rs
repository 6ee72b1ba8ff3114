//! An allocator that can count the bytes in use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

/// The system's allocator, with a count that is off while speed is measured.
pub struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static IN_USE: AtomicIsize = AtomicIsize::new(0);

/// The bytes that `build` has asked for and not given back, and what it built.
pub fn bytes_of<T>(build: impl FnOnce() -> T) -> (usize, T) {
    IN_USE.store(0, Ordering::SeqCst);
    ON.store(true, Ordering::SeqCst);
    let built = build();
    ON.store(false, Ordering::SeqCst);
    (IN_USE.load(Ordering::SeqCst).unsigned_abs(), built)
}

fn count(bytes: isize) {
    if ON.load(Ordering::Relaxed) {
        IN_USE.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }
}
