//! How text reaches the terminal: in colour where it is seen, plain elsewhere.

use std::io::{self, ErrorKind, IsTerminal, Write};

use anstream::adapter::strip_str;
use anyhow::Context;

/// What a piece of text means to the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// A heading.
    Strong,
    /// There for orientation.
    Faint,
    /// As it should be.
    Good,
    /// As it should not be.
    Bad,
}

/// Whether tones become colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    /// With escape codes.
    Colour,
    /// Text and nothing else.
    Plain,
}

impl Paint {
    /// Colour if standard output is a terminal and `NO_COLOR` does not object.
    pub(crate) fn for_stdout() -> Self {
        let objected = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if io::stdout().is_terminal() && !objected { Self::Colour } else { Self::Plain }
    }

    /// The text in this tone.
    pub(crate) fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Strong => "1",
            Tone::Faint => "2",
            Tone::Good => "32",
            Tone::Bad => "31",
        };
        match self {
            Self::Colour => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

/// Whether standard output is a terminal.
pub(crate) fn is_stdout() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard output is a terminal that can move its cursor.
pub(crate) fn is_screen() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !is_dumb
}

/// How many lines the terminal has; none if standard output is no terminal.
pub(crate) fn rows() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| size.ws_row.into()).filter(|rows| *rows > 0)
}

/// How many columns a line has; 80 if standard output is no terminal.
pub(crate) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| size.ws_col.into()).filter(|columns| *columns > 0).unwrap_or(80)
}

/// Hides the cursor, and cuts lines: one that is wrapped would be two, and what is drawn next a line
/// too low.
pub(crate) const ENTER: &str = "\x1b[?25l\x1b[?7l";
pub(crate) const LEAVE: &str = "\x1b[?25h\x1b[?7h";
pub(crate) const CLEAR_REST_OF_LINE: &str = "\x1b[K";
pub(crate) const CLEAR_BELOW: &str = "\x1b[J";

pub(crate) const CANNOT_WRITE: &str = "cannot write to standard output";

/// Writes text to standard output.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// The same, but a reader that went away has seen enough: that is no error.
pub(crate) fn show(text: &str) -> anyhow::Result<()> {
    unless_closed(write(text)).context(CANNOT_WRITE)
}

/// The same of text with escape codes for styles, which are left out where colours are.
pub(crate) fn show_styled(text: &str) -> anyhow::Result<()> {
    match Paint::for_stdout() {
        Paint::Colour => show(text),
        Paint::Plain => show(&strip_str(text).to_string()),
    }
}

/// Prints the banner: to standard output if that is a terminal, else to standard error, where the
/// log is. Standard output may be a pipe without a reader.
pub(crate) fn announce(text: &str) -> anyhow::Result<()> {
    match is_stdout() {
        true => show(text),
        false => Ok(unless_closed(io::stderr().lock().write_all(text.as_bytes()))?),
    }
}

fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colour_has_escape_codes() {
        assert_eq!(Paint::Colour.tone(Tone::Bad, "200"), "\x1b[31m200\x1b[0m");
        for tone in [Tone::Strong, Tone::Faint, Tone::Good, Tone::Bad] {
            assert_eq!(Paint::Plain.tone(tone, "200"), "200");
        }
    }
}
