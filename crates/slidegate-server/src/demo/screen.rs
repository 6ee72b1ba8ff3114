//! A part of the terminal that is drawn again and again, in place.

use std::env;
use std::io::{self, IsTerminal, Write};

/// The last lines of the terminal. While it lives, the cursor is hidden and long lines are cut; on
/// drop, both are as before.
#[derive(Debug)]
pub(super) struct Screen {
    lines: usize,
}

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
/// A line that is wrapped would be two, and the next picture a line too low.
const CUT_LINES: &str = "\x1b[?7l";
const WRAP_LINES: &str = "\x1b[?7h";
const CLEAR_REST_OF_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

impl Screen {
    /// One, if standard output is a terminal that can move its cursor.
    pub(super) fn new() -> io::Result<Option<Self>> {
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if is_dumb || !io::stdout().is_terminal() {
            return Ok(None);
        }
        write(&format!("{HIDE_CURSOR}{CUT_LINES}"))?;
        Ok(Some(Self { lines: 0 }))
    }

    /// Draws this in place of what was there.
    pub(super) fn draw(&mut self, text: &str) -> io::Result<()> {
        let mut picture = String::from("\r");
        if self.lines > 0 {
            picture += &format!("\x1b[{}A", self.lines);
        }
        // What is drawn over and not cleared first does not flicker.
        for line in text.lines() {
            picture += &format!("{line}{CLEAR_REST_OF_LINE}\n");
        }
        picture += CLEAR_BELOW;
        self.lines = text.lines().count();
        write(&picture)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error means that the output is closed.
        let _ = write(&format!("{SHOW_CURSOR}{WRAP_LINES}"));
    }
}

/// Writes text to standard output. Unlike `terminal::show`, a closed pipe is an error.
pub(super) fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
