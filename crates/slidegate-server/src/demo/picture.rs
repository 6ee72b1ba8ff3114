//! Bars of block characters, one column per slot.

use super::figure::grouped;
use super::timeline::Timeline;
use crate::terminal::{Paint, Tone};

/// How many columns stand before a picture's first slot.
pub(super) const GUTTER: usize = 9;

const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Rows from zero to the quota, and again as many above it.
const ROWS_PER_QUOTA: usize = 2;

/// A line with a label, one row of bars, and how much a full bar is.
pub(super) fn strip(label: &str, values: &[usize], full: usize) -> String {
    let (bars, legend) = (bars(values, full), grouped(full));
    format!("{label:>width$} {bars} █ = {legend}\n", width = GUTTER - 1)
}

/// One row of bars. A bar is full at `full` and above; any value but zero is seen.
pub(super) fn bars(values: &[usize], full: usize) -> String {
    let bar = |value: &usize| match *value {
        0 => '·',
        value => EIGHTHS[((value * 8 + full / 2) / full).clamp(1, 8)],
    };
    values.iter().map(bar).collect()
}

/// Several rows of bars with a dashed line at the quota. What rises above it is bad.
#[derive(Debug)]
pub(super) struct Chart<'a> {
    pub(super) timeline: Timeline,
    pub(super) values: &'a [usize],
    /// Where the line is; the chart is twice as high.
    pub(super) units: usize,
}

impl Chart<'_> {
    /// The chart's lines, from the top; each has room for a note at its end.
    pub(super) fn lines(&self, paint: Paint) -> Vec<String> {
        let row = |row: usize| self.row(paint, row);
        let (below, above) = (0..ROWS_PER_QUOTA, ROWS_PER_QUOTA..2 * ROWS_PER_QUOTA);
        let mut lines: Vec<String> = above.rev().map(row).collect();
        lines.push(self.quota_line(paint));
        lines.extend(below.rev().map(row));
        lines.push(self.axis());
        lines
    }

    /// A row of cells; row 0 stands on the axis.
    fn row(&self, paint: Paint, row: usize) -> String {
        let top = row + 1 == 2 * ROWS_PER_QUOTA;
        let label = if top { grouped(2 * self.units) } else { String::new() };
        let tone = if row < ROWS_PER_QUOTA { Tone::Good } else { Tone::Bad };
        let cells = self.values.iter().enumerate().map(|(slot, value)| {
            match EIGHTHS[self.eighths(*value, row)] {
                ' ' if self.timeline.is_minute(slot) => ('┊', Tone::Faint),
                bar => (bar, tone),
            }
        });
        gutter(&label, '│') + &painted(paint, cells)
    }

    /// How much of a row's cell a value fills.
    fn eighths(&self, value: usize, row: usize) -> usize {
        let filled = value * 8 * ROWS_PER_QUOTA / self.units;
        filled.saturating_sub(8 * row).min(8)
    }

    fn quota_line(&self, paint: Paint) -> String {
        let cells = self
            .values
            .iter()
            .map(|value| if *value > self.units { ('█', Tone::Bad) } else { ('╌', Tone::Plain) });
        gutter(&grouped(self.units), '┼') + &painted(paint, cells)
    }

    fn axis(&self) -> String {
        let tick = |slot| if self.timeline.is_minute(slot) { '┴' } else { '─' };
        gutter("0", '└') + &(0..self.values.len()).map(tick).collect::<String>()
    }
}

fn gutter(label: &str, edge: char) -> String {
    format!("{label:>width$} {edge}", width = GUTTER - 2)
}

/// Cells as text, with neighbours of one tone painted together.
fn painted(paint: Paint, cells: impl Iterator<Item = (char, Tone)>) -> String {
    let cells: Vec<_> = cells.collect();
    cells
        .chunk_by(|(_, a), (_, b)| a == b)
        .map(|run| paint.tone(run[0].1, &run.iter().map(|(bar, _)| bar).collect::<String>()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bar_is_seen_if_it_is_not_zero_and_never_overflows() {
        assert_eq!(bars(&[0, 1, 50, 100, 200], 100), "·▁▄██");
    }

    #[test]
    fn a_chart_shows_where_the_quota_is_exceeded() {
        let timeline =
            Timeline { start: Duration::from_secs(50), slot: Duration::from_secs(10), slots: 4 };
        let chart = Chart { timeline, values: &[100, 200, 101, 0], units: 100 };
        assert_eq!(
            chart.lines(Paint::Plain),
            [
                "    200 │ █  ",
                "        │ █  ",
                "    100 ┼╌██╌",
                "        │███ ",
                "        │███ ",
                "      0 └─┴──",
            ]
        );
    }
}
