//! What is seen while the demo runs: a table that is drawn in place, or now and then a line.

use std::io;
use std::time::Duration;

use slidegate::Timestamp;

use super::client::Client;
use super::figure::{grouped, short_time};
use super::screen::{Screen, write};
use super::stats::ClientStats;
use crate::terminal::{Paint, Tone};

/// How far the run is.
#[derive(Debug, Clone, Copy)]
pub(super) struct DemoProgress {
    pub(super) now: Timestamp,
    pub(super) elapsed: Duration,
    pub(super) length: Duration,
    /// Requests that have reached the API.
    pub(super) upstream: usize,
}

/// What is seen while the demo runs.
#[derive(Debug)]
pub(super) enum DemoView {
    /// A table that is drawn in place.
    Table(Screen, Paint),
    /// A line now and then, the next one at this time.
    Lines { next: Duration },
}

/// Between two lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The bar that shows how far the run is.
const BAR: usize = 40;

impl DemoView {
    /// The one that fits standard output.
    pub(super) fn new(paint: Paint) -> io::Result<Self> {
        Ok(match Screen::new()? {
            Some(screen) => Self::Table(screen, paint),
            None => {
                write(&line_headings())?;
                Self::Lines { next: LINE_EVERY }
            }
        })
    }

    /// Prints what is new. An error if the output is closed.
    pub(super) fn update(
        &mut self,
        stats: &[ClientStats],
        progress: DemoProgress,
    ) -> io::Result<()> {
        match self {
            Self::Table(screen, paint) => screen.draw(&table(*paint, stats, progress)),
            Self::Lines { next } if progress.elapsed < *next => Ok(()),
            Self::Lines { next } => {
                *next += LINE_EVERY;
                write(&line(stats, progress))
            }
        }
    }

    /// Leaves nothing behind of what was drawn in place.
    pub(super) fn end(self) -> io::Result<()> {
        match self {
            Self::Table(mut screen, _) => screen.draw(""),
            Self::Lines { .. } => write("\n"),
        }
    }
}

fn table(paint: Paint, stats: &[ClientStats], progress: DemoProgress) -> String {
    let spans = format!("{:<16}{:>18}{:>31}", "", "in the last second", "since the beginning");
    let headings = format!(
        "{:<16}{:>8}{:>10}{:>11}{:>10}{:>10}{:>11}",
        "client", "sent", "admitted", "sent", "admitted", "refused", "p99",
    );
    let mut text = String::new();
    for line in [spans, headings] {
        text += &format!("  {}\n", paint.tone(Tone::Faint, &line));
    }
    let last_second = before(progress.now, Duration::from_secs(1));
    for client_stats in stats {
        text += &row(paint, client_stats, last_second);
    }
    let sent: usize = stats.iter().map(|client_stats| client_stats.counts().sent).sum();
    let (reached, sent) = (grouped(progress.upstream), grouped(sent));
    text += &format!("\n  Of {sent} requests, {reached} have reached the API.\n");
    text + &bar(paint, progress)
}

/// Faint while the client rests.
fn row(paint: Paint, client_stats: &ClientStats, last_second: Timestamp) -> String {
    let (now, all) = (client_stats.counts_since(last_second), client_stats.counts());
    let figures = [now.sent, now.admitted, all.sent, all.admitted, all.refused].map(grouped);
    let [sent_now, admitted_now, sent, admitted, refused] = figures;
    let p99 = client_stats.p99().map_or_else(String::new, short_time);
    let tone = if now.sent > 0 { Tone::Plain } else { Tone::Faint };
    let row = format!(
        "{:<16}{sent_now:>8}{admitted_now:>10}{sent:>11}{admitted:>10}{refused:>10}{p99:>11}",
        client_stats.client.name(),
    );
    format!("  {}\n", paint.tone(tone, &row))
}

fn bar(paint: Paint, progress: DemoProgress) -> String {
    let (elapsed, length) = (progress.elapsed.min(progress.length), progress.length);
    let full = (BAR as f64 * elapsed.div_duration_f64(length)) as usize;
    let (full, empty) = ("█".repeat(full), "░".repeat(BAR.saturating_sub(full)));
    let seconds = format!("{} of {} s", elapsed.as_secs(), length.as_secs());
    format!(
        "  {}{} {seconds}, Ctrl-C ends it\n",
        paint.tone(Tone::Good, &full),
        paint.tone(Tone::Faint, &empty)
    )
}

/// Above the lines.
fn line_headings() -> String {
    let names = Client::ALL.map(|client| format!("{:>17}", client.name()));
    format!("  Admitted of sent, after\n  {:>6}{}\n", "", names.concat())
}

fn line(stats: &[ClientStats], progress: DemoProgress) -> String {
    let figures = stats.iter().map(|client_stats| {
        let counts = client_stats.counts();
        let of = format!("{} of {}", grouped(counts.admitted), grouped(counts.sent));
        format!("{of:>17}")
    });
    format!("  {:>4} s{}\n", progress.elapsed.as_secs(), figures.collect::<String>())
}

fn before(now: Timestamp, time: Duration) -> Timestamp {
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Timestamp::from_nanos(now.as_nanos().saturating_sub(time))
}
