//! What is seen while the demo runs: a table that is drawn in place on a terminal, a line every five
//! seconds elsewhere.

use std::io;
use std::time::Duration;

use super::report::Report;
use crate::terminal::{CLEAR_BELOW, CLEAR_REST_OF_LINE, ENTER, LEAVE, is_screen, styled, write};

/// The progress of the run, on standard output.
#[derive(Debug)]
pub(super) enum ProgressView {
    /// The last lines of the terminal, this many now. On drop they are cleared.
    Table { lines: usize },
    /// The next line is due at this time of the run.
    Lines { next: Duration },
}

const LINE_INTERVAL: Duration = Duration::from_secs(5);

impl ProgressView {
    /// A table, if standard output is a terminal that can move its cursor.
    pub(super) fn new() -> io::Result<Self> {
        if !is_screen() {
            return Ok(Self::Lines { next: LINE_INTERVAL });
        }
        write(ENTER)?;
        Ok(Self::Table { lines: 0 })
    }

    /// Shows what is new. An error if the output is closed.
    pub(super) fn update(
        &mut self,
        report: &Report,
        elapsed: Duration,
        length: Duration,
    ) -> io::Result<()> {
        let (seconds, of) = (elapsed.min(length).as_secs(), length.as_secs());
        match self {
            Self::Table { lines } => {
                let table = report.table();
                let text = format!("{table}\n  {seconds} of {of} s, Ctrl-C ends it\n");
                write(&drawn_over(*lines, &styled(&text)))?;
                *lines = text.lines().count();
            }
            Self::Lines { next } if elapsed >= *next => {
                *next += LINE_INTERVAL;
                write(&format!("  {seconds:>3} s  {}\n", report.summary()))?;
            }
            Self::Lines { .. } => {}
        }
        Ok(())
    }
}

impl Drop for ProgressView {
    fn drop(&mut self) {
        // An error means that the output is closed.
        let _ = match self {
            Self::Table { lines } => write(&(drawn_over(*lines, "") + LEAVE)),
            Self::Lines { .. } => write("\n"),
        };
    }
}

/// The text in place of the last lines. What is drawn over and not cleared first does not flicker.
fn drawn_over(lines: usize, text: &str) -> String {
    let up = if lines > 0 { format!("\x1b[{lines}A") } else { String::new() };
    let text: String = text.lines().map(|line| format!("{line}{CLEAR_REST_OF_LINE}\n")).collect();
    format!("\r{up}{text}{CLEAR_BELOW}")
}
