//! Charts as SVG, in the colours of the page that they are in.

use maud::{Markup, PreEscaped, html};
use std::time::Duration;

use crate::calendar::Rfc3339;
use crate::print::{counted, grouped};
use crate::report::{BusiestReport, DemandRange, QuotaReport, Share, SweepReport};
use crate::timeline::Timeline;
use slidegate::limit::Period;

/// An area with an axis on the left and one below.
struct Chart {
    width: f64,
    height: f64,
    words: String,
    /// The markup of all that is drawn.
    marks: String,
}

const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 28.0;
/// The least height of a bar that stands for something.
const MIN_BAR_HEIGHT: f64 = 1.5;

impl Chart {
    /// `words` tell what can be seen to those who cannot see it.
    fn new(width: f64, height: f64, words: &str) -> Self {
        Self { width, height, words: words.to_owned(), marks: String::new() }
    }

    fn floor(&self) -> f64 {
        self.height - BOTTOM
    }

    fn plot_height(&self) -> f64 {
        self.floor() - TOP
    }

    fn plot_width(&self) -> f64 {
        self.width - LEFT - RIGHT
    }

    /// Where a part of the width is, from 0 to 1.
    fn x(&self, part: f64) -> f64 {
        LEFT + self.plot_width() * part
    }

    fn y(&self, part: f64) -> f64 {
        self.floor() - self.plot_height() * part
    }

    fn label(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let (x, y) = (format!("{x:.1}"), format!("{y:.1}"));
        self.draw(&html! { text x=(x) y=(y) text-anchor=(anchor) class=(class) { (text) } });
    }

    fn draw(&mut self, mark: &Markup) {
        self.marks += &mark.0;
    }

    fn path(&mut self, class: &str, line: &str) {
        self.draw(&html! { path class=(class) d=(line) {} });
    }

    /// Lines at nothing and at the most, and what they stand for.
    fn scale(&mut self, most: &str, unit: &str) {
        for (part, text) in [(1.0, most), (0.0, "0")] {
            let (y, right) = (self.y(part), self.width - RIGHT);
            self.path("line", &format!("M{LEFT} {y:.1}H{right}"));
            self.label(LEFT - 8.0, y + 4.0, "end", "faint", text);
        }
        self.label(LEFT, TOP - 9.0, "start", "faint", unit);
    }

    /// Text below the axis, at the left, in the middle and at the right.
    fn axis(&mut self, [left, middle, right]: [&str; 3]) {
        let y = self.floor() + 18.0;
        for (part, anchor, text) in
            [(0.0, "start", left), (0.5, "middle", middle), (1.0, "end", right)]
        {
            self.label(self.x(part), y, anchor, "faint", text);
        }
    }

    /// A bar in one of so many columns, as high as this part of the height.
    fn bar(&mut self, column: usize, columns: usize, height: f64, class: &str, words: &str) {
        if height <= 0.0 {
            return;
        }
        let step = self.plot_width() / columns as f64;
        let gap = if step > 4.0 { 1.0 } else { 0.0 };
        let (x, floor) = (self.x(0.0) + step * column as f64, self.floor());
        let y = floor - (self.plot_height() * height).max(MIN_BAR_HEIGHT);
        let outline = format!("M{x:.2} {floor}V{y:.2}h{:.2}V{floor}z", step - gap);
        self.draw(&html! { path class=(class) d=(outline) { title { (words) } } });
    }

    fn finish(self) -> Markup {
        let Self { width, height, words, marks } = self;
        let area = format!("0 0 {width} {height}");
        html! { svg viewBox=(area) role="img" aria-label=(words) { (PreEscaped(marks)) } }
    }
}

/// Requests over time, and in front of them those that are refused.
pub(crate) fn timeline(timeline: &Timeline) -> Markup {
    let most = timeline.requests.iter().copied().max().unwrap_or(0).max(1);
    let refused: u64 = timeline.refused.iter().sum();
    let requests: u64 = timeline.requests.iter().sum();
    let step = length(timeline.step_ms);
    let words = format!(
        "{} over time, {} of them refused; at most {} in {step}",
        counted(requests, "request"),
        grouped(refused),
        grouped(most)
    );
    let mut chart = Chart::new(900.0, 220.0, &words);
    chart.scale(&grouped(most), &format!("requests in {step}"));
    let columns = timeline.requests.len();
    let from_ms = timeline.from.0.as_millis();
    let at = |column: usize| Rfc3339::from_millis(from_ms + column as u64 * timeline.step_ms);
    for (column, (requests, refused)) in timeline.requests.iter().zip(&timeline.refused).enumerate()
    {
        let words = format!(
            "{}: {}, {} refused",
            at(column),
            counted(*requests, "request"),
            grouped(*refused)
        );
        for (count, class) in [(requests, "bar"), (refused, "bar bad")] {
            chart.bar(column, columns, *count as f64 / most as f64, class, &words);
        }
    }
    let [first, middle, last] = [0, columns / 2, columns].map(|column| short_time(at(column)));
    chart.axis([&first, &middle, &last]);
    chart.finish()
}

/// How many identities had which busiest window, and where the quota is.
pub(crate) fn distribution(quota: &QuotaReport) -> Markup {
    let ranges = &quota.distribution;
    let most = ranges.iter().map(|range| range.identities).max().unwrap_or(0).max(1);
    let words = format!(
        "Busiest window of {}: more than {} for {}",
        counted(quota.identities, "identity"),
        quota.quota,
        grouped(quota.identities_above)
    );
    let mut chart = Chart::new(440.0, 210.0, &words);
    chart.scale(&grouped(most), "identities (logarithmic)");
    // There is a column for the quota, even if all are far below it.
    let position = quota_position(ranges, quota.units);
    let columns = ranges.len().max(position.ceil() as usize + 1);
    for (column, DemandRange { from, to, identities }) in ranges.iter().enumerate() {
        let height = (*identities as f64).ln_1p() / (most as f64).ln_1p();
        let class = if *from > quota.units { "bar bad" } else { "bar" };
        let units = match from == to {
            true => counted(*to, "unit"),
            false => format!("{} to {}", grouped(*from), counted(*to, "unit")),
        };
        let words = format!("{}: {units}", counted(*identities, "identity"));
        chart.bar(column, columns, height, class, &words);
    }
    let (x, top, floor) = (chart.x(position / columns as f64), chart.y(1.0), chart.floor());
    chart.path("quota", &format!("M{x:.1} {top:.1}V{floor:.1}"));
    // Most are below the quota: there the label would be in front of them.
    match position * 2.0 > columns as f64 {
        true => chart.label(x, TOP - 9.0, "middle", "strong", &quota.quota),
        false => chart.label(x + 5.0, top + 12.0, "start", "strong", &quota.quota),
    }
    let last = ranges.last().map_or(1, |range| range.to).max(quota.units);
    chart.axis(["1", "units in the busiest window", &grouped(last)]);
    chart.finish()
}

/// After how many columns, and parts of one, the units of a quota end.
fn quota_position(ranges: &[DemandRange], units: u64) -> f64 {
    let Some(column) = ranges.iter().position(|range| units <= range.to) else {
        return ranges.len() as f64 + 0.5;
    };
    let DemandRange { from, to, .. } = ranges[column];
    column as f64 + (units + 1 - from) as f64 / (to + 1 - from) as f64
}

/// What the busiest window is made of.
pub(crate) fn density(busiest: &BusiestReport, window_ms: u64) -> Markup {
    let most = busiest.density.iter().copied().max().unwrap_or(0).max(1);
    let columns = busiest.density.len();
    let part_ms = window_ms / columns.max(1) as u64;
    let words = format!(
        "The busiest window, of {}: {} in {} until {}",
        busiest.identity,
        counted(busiest.units, "unit"),
        length(window_ms),
        busiest.until
    );
    let mut chart = Chart::new(440.0, 210.0, &words);
    chart.scale(&grouped(most), &format!("units in {}", length(part_ms)));
    for (column, units) in busiest.density.iter().enumerate() {
        let ago = length(part_ms * (columns - column) as u64);
        let words = format!("{}, {ago} before the end", counted(*units, "unit"));
        chart.bar(column, columns, *units as f64 / most as f64, "bar", &words);
    }
    let (before, until) = (format!("{} before", length(window_ms)), short_time(busiest.until));
    chart.axis([&before, "", &until]);
    chart.finish()
}

/// Refusals by the units of the quota.
pub(crate) fn sweep(sweep: &SweepReport) -> Markup {
    let most = sweep
        .steps
        .iter()
        .map(|step| step.share)
        .fold(Share::of(0, 1), |a, b| if b > a { b } else { a });
    let words = format!(
        "Refused requests of {} by quota, from {} to {}",
        sweep.policy,
        sweep.steps.first().map_or("", |step| &step.quota),
        sweep.steps.last().map_or("", |step| &step.quota)
    );
    let mut chart = Chart::new(900.0, 240.0, &words);
    chart.scale(&most.to_string(), "refused requests");
    let log = |units: u32| f64::from(units).ln();
    let first = sweep.steps.first().map_or(0.0, |step| log(step.units));
    let last = sweep.steps.last().map_or(1.0, |step| log(step.units));
    let points: Vec<(f64, f64)> = sweep
        .steps
        .iter()
        .map(|step| {
            let part = if last > first { (log(step.units) - first) / (last - first) } else { 0.5 };
            (chart.x(part), chart.y(step.share.fraction() / most.fraction().max(f64::MIN_POSITIVE)))
        })
        .collect();
    let line: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    chart.path("curve", &format!("M{}", line.join("L")));
    for ((x, y), step) in points.iter().zip(&sweep.steps) {
        let words = format!("{}: {} refused ({})", step.quota, grouped(step.refused), step.share);
        let (x, y) = (format!("{x:.1}"), format!("{y:.1}"));
        chart.draw(&html! { circle class="point" cx=(x) cy=(y) r="4" { title { (words) } } });
    }
    let quota = |index: usize| sweep.steps.get(index).map_or("", |step| &*step.quota).to_owned();
    let end = sweep.steps.len().saturating_sub(1);
    let [left, middle, right] = [0, end / 2, end].map(quota);
    let middle = if end > 1 { middle } else { String::new() };
    chart.axis([&left, &middle, &right]);
    chart.finish()
}

/// To the minute, and to the second or millisecond where that is not all.
pub(crate) fn short_time(at: Rfc3339) -> String {
    let text = at.to_string();
    let (date, time) = text.split_once('T').unwrap_or((&text, ""));
    let time = time.trim_end_matches('Z').trim_end_matches(".000");
    let time = time.strip_suffix(":00").unwrap_or(time);
    format!("{date} {time}")
}

/// A length of time for people.
pub(crate) fn length(ms: u64) -> String {
    Period(Duration::from_millis(ms)).rounded().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let time = |ms| short_time(Rfc3339::from_millis(ms));
        assert_eq!(time(1_767_225_600_000), "2026-01-01 00:00");
        assert_eq!(time(1_767_225_601_500), "2026-01-01 00:00:01.500");
    }

    #[test]
    fn a_quota_is_drawn_where_its_units_end() {
        let range = |from, to| DemandRange { from, to, identities: 1 };
        let ranges = [range(1, 1), range(2, 2), range(3, 4)];
        for (units, position) in [(1, 1.0), (2, 2.0), (3, 2.5), (4, 3.0), (100, 3.5)] {
            assert_eq!(quota_position(&ranges, units), position);
        }
    }
}
