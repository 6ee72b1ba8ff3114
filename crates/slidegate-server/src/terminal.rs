//! How text reaches the terminal: in colour where it is seen, plain elsewhere.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};

use anstream::adapter::strip_str;
use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use anyhow::Context;

/// Of headings.
pub(crate) const STRONG: Style = Style::new().bold();
/// Of secondary text.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// Of what is as it should be.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Of what is not as it should be.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();

/// Whether a stream shows colours: it is a terminal that can, and no variable such as `NO_COLOR`
/// decides otherwise.
pub(crate) fn has_colours(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// Text for standard output, without its styles if there are no colours. It must have no other escape
/// codes, which would be removed with them.
pub(crate) fn styled(text: &str) -> Cow<'_, str> {
    match has_colours(&io::stdout()) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(strip_str(text).to_string()),
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

/// The same of text with styles, which are left out where there are no colours.
pub(crate) fn show_styled(text: &str) -> anyhow::Result<()> {
    show(&styled(text))
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
