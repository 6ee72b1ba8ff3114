//! How far a replay is, on a terminal.

use std::path::PathBuf;
use std::time::Duration;

use indicatif::{HumanCount, ProgressDrawTarget, ProgressStyle};
use slidegate_replay::Progress;

/// A line on standard error that is drawn again and again, and cleared in the end. Where standard error
/// is no terminal, there is none.
#[derive(Debug)]
pub(super) struct ProgressBar(indicatif::ProgressBar);

const DRAWS_PER_SECOND: u8 = 5;

impl ProgressBar {
    /// Of these files. If the length of one is not known, as of standard input, the line has no bar.
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let total_bytes = total_bytes(paths);
        let template = match total_bytes {
            Some(_) => "{bar:30} {percent:>3}%  {msg}, {eta} left",
            None => "{msg}",
        };
        let style = ProgressStyle::with_template(template).expect("the template is well-formed");
        let target = ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND);
        let bar = indicatif::ProgressBar::with_draw_target(total_bytes, target);
        Self(bar.with_style(style.progress_chars("█░")))
    }

    pub(super) fn advance(&self, progress: Progress) {
        self.0.set_message(rate(progress.lines, self.0.elapsed()));
        self.0.set_position(progress.bytes);
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The bytes of all files; none if one of them has no length, as standard input.
fn total_bytes(paths: &[PathBuf]) -> Option<u64> {
    let length = |path: &PathBuf| {
        let meta = std::fs::metadata(path).ok()?;
        meta.is_file().then_some(meta.len())
    };
    paths.iter().map(length).sum()
}

fn rate(lines: u64, elapsed: Duration) -> String {
    let per_second = lines as f64 / elapsed.as_secs_f64().max(0.001);
    format!("{} lines, {}/s", HumanCount(lines), HumanCount(per_second as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shown_with_their_rate() {
        let shown = rate(1_000_000, Duration::from_secs(2));
        assert_eq!(shown, "1,000,000 lines, 500,000/s");
    }
}
