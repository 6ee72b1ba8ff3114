//! The charts of a report.

use maud::{Markup, html};
use std::time::Duration;

use crate::calendar::Rfc3339;
use crate::chart::{Bar, Chart};
use crate::print::{counted, grouped};
use crate::report::{BusiestReport, DemandRange, QuotaReport, Share, SweepReport};
use crate::timeline::Timeline;
use slidegate::limit::Period;

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
    let mut chart = Chart::new(900.0, 220.0);
    chart.scale(&grouped(most));
    chart.unit(&format!("requests in {step}"));
    let columns = timeline.requests.len();
    let from_ms = timeline.from.0.as_millis();
    let at = |column: usize| Rfc3339::from_millis(from_ms + column as u64 * timeline.step_ms);
    for (column, (requests, refused)) in timeline.requests.iter().zip(&timeline.refused).enumerate()
    {
        let title = format!(
            "{}: {}, {} refused",
            at(column),
            counted(*requests, "request"),
            grouped(*refused)
        );
        for (count, class) in [(requests, "bar"), (refused, "bar bad")] {
            let height = *count as f64 / most as f64;
            chart.bar(&Bar { column, columns, height, class, title: &title });
        }
    }
    let [first, middle, last] = [0, columns / 2, columns].map(|column| short_time(at(column)));
    chart.labels(&[[&first, &middle, &last]]);
    chart.into_svg(&words)
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
    let mut chart = Chart::new(440.0, 210.0);
    chart.scale(&grouped(most));
    chart.unit("identities (logarithmic)");
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
        let title = format!("{}: {units}", counted(*identities, "identity"));
        chart.bar(&Bar { column, columns, height, class, title: &title });
    }
    let (x, top, floor) = (chart.x(position / columns as f64), chart.y(1.0), chart.floor());
    chart.path("quota", &format!("M{x:.1} {top:.1}V{floor:.1}"));
    // Most are below the quota: there the label would be in front of them.
    match position * 2.0 > columns as f64 {
        true => chart.label_above(x, "middle", "strong", &quota.quota),
        false => chart.label(x + 5.0, top + 12.0, "start", "strong", &quota.quota),
    }
    let last = ranges.last().map_or(1, |range| range.to).max(quota.units);
    chart.labels(&[["1", "units in the busiest window", &grouped(last)]]);
    chart.into_svg(&words)
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
    let mut chart = Chart::new(440.0, 210.0);
    chart.scale(&grouped(most));
    chart.unit(&format!("units in {}", length(part_ms)));
    for (column, units) in busiest.density.iter().enumerate() {
        let ago = length(part_ms * (columns - column) as u64);
        let title = format!("{}, {ago} before the end", counted(*units, "unit"));
        let height = *units as f64 / most as f64;
        chart.bar(&Bar { column, columns, height, class: "bar", title: &title });
    }
    let (before, until) = (format!("{} before", length(window_ms)), short_time(busiest.until));
    chart.labels(&[[&before, "", &until]]);
    chart.into_svg(&words)
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
    let mut chart = Chart::new(900.0, 240.0);
    chart.scale(&most.to_string());
    chart.unit("refused requests");
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
    chart.labels(&[[&left, &middle, &right]]);
    chart.into_svg(&words)
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
