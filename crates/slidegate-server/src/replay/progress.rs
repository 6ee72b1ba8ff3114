//! How far a replay is, on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use slidegate::limit::SystemClock;
use slidegate::{Clock, Timestamp};

use crate::replay::input::BytesRead;
use crate::replay::print::grouped;

/// A line on standard error that is drawn again and again, and cleared in the end. Where standard error
/// is no terminal, there is none.
pub(super) struct ProgressBar {
    /// Of all logs, as they are on disk; none if that cannot be known.
    total_bytes: Option<u64>,
    bytes: BytesRead,
    clock: Option<SystemClock>,
    begun: Timestamp,
    drawn: Timestamp,
    lines: u64,
}

const EVERY_LINES: u64 = 8192;
const EVERY: Duration = Duration::from_millis(200);
const CELLS: u64 = 30;

impl ProgressBar {
    pub(super) fn new(total_bytes: Option<u64>, bytes: BytesRead) -> Self {
        let clock = io::stderr().is_terminal().then(SystemClock::new);
        let begun = clock.as_ref().map(Clock::now).unwrap_or_default();
        Self { total_bytes, bytes, clock, begun, drawn: begun, lines: 0 }
    }

    /// Draws it, if it is time to.
    pub(super) fn advance(&mut self, lines: u64) {
        let Some(clock) = &self.clock else { return };
        if lines < self.lines + EVERY_LINES {
            return;
        }
        self.lines = lines;
        let now = clock.now();
        if now.saturating_since(self.drawn) >= EVERY {
            self.drawn = now;
            let elapsed = now.saturating_since(self.begun);
            let line = text(self.bytes.get(), self.total_bytes, lines, elapsed);
            // A closed standard error is no reason to end.
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
        }
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        if self.drawn > self.begun {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn text(bytes: u64, total_bytes: Option<u64>, lines: u64, elapsed: Duration) -> String {
    let per_second = lines as f64 / elapsed.as_secs_f64().max(0.001);
    let rate = format!("{} lines, {}/s", grouped(lines), grouped(per_second as u64));
    let Some(total) = total_bytes.filter(|total| *total > 0) else { return rate };
    let done = bytes.min(total);
    let cells = (done * CELLS / total) as usize;
    let bar = format!("{}{}", "█".repeat(cells), "░".repeat(CELLS as usize - cells));
    let left = elapsed.as_secs_f64() * (total - done) as f64 / done.max(1) as f64;
    format!("{bar} {:>3}%  {rate}, {left:.0} s left", done * 100 / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_from_what_was_read() {
        let line = text(250, Some(1000), 1_000_000, Duration::from_secs(2));
        let bar = "███████░░░░░░░░░░░░░░░░░░░░░░░";
        assert_eq!(line, format!("{bar}  25%  1,000,000 lines, 500,000/s, 6 s left"));
        assert_eq!(text(250, None, 10, Duration::from_secs(1)), "10 lines, 10/s");
    }
}
