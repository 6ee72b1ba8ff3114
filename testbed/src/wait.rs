//! Waiting for a condition instead of for a time.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a slow and busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

const PAUSE_BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Returns as soon as the condition holds, and panics if it does not within a minute.
///
/// `what` completes the sentence "waited in vain for …".
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Panics if a step of a test has taken longer than this, which it only does if it hangs.
///
/// The limit says nothing of how fast the step should be: a test of that asserts its own bound.
pub fn assert_no_hang(began: Instant, limit: Duration) {
    let took = began.elapsed();
    assert!(took < limit, "it hung: {took:?}");
}

/// Returns the first `Some`, and panics if there is none within a minute.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(PAUSE_BETWEEN_LOOKS);
    }
}
