//! The density of spends as an SVG picture, for light and dark pages.

use maud::{Markup, PreEscaped, html};
use slidegate_replay::{Bar, Chart};

use super::print::time;
use crate::api::{AccountDensity, DensityView, QuotaDensity};

const WIDTH: f64 = 720.0;
/// Where text begins.
const MARGIN: f64 = 24.0;
/// From the upper edge to the first quota, and from one quota to the next.
const TOP: f64 = 48.0;
const QUOTA_HEIGHT: f64 = 232.0;
/// Of a chart, below the heading and the caption of its quota.
const CHART_TOP: f64 = 36.0;
const CHART_WIDTH: f64 = 708.0;
const CHART_HEIGHT: f64 = 172.0;

const STYLE: &str = "
text { font: 13px ui-sans-serif, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
.page { fill: #ffffff; stroke: #d0d7de }
.strong { font-weight: 600 }
.faint { fill: #59636e }
.line { stroke: #d0d7de }
.bar { fill: #0969da }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.page { fill: #0d1117; stroke: #3d444d }
.faint { fill: #9198a1 }
.line { stroke: #3d444d }
.bar { fill: #58a6ff }
}
";

/// A picture with a chart for each quota.
pub(super) fn picture(view: &DensityView) -> String {
    let quotas: Vec<_> = view.quotas().collect();
    let summary = |(account, quota): &(&AccountDensity, &QuotaDensity)| {
        format!("{}; {}", account.heading(quota), quota.free_words())
    };
    let mut summaries: Vec<String> = quotas.iter().map(summary).collect();
    if summaries.is_empty() {
        summaries.push("no policy counts such an identity".to_owned());
    }
    let height = TOP + QUOTA_HEIGHT * summaries.len() as f64;
    let title = format!("Spends of {}", view.identity);
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}"))
            width=(WIDTH) height=(height) role="img" aria-labelledby="title desc" {
            title id="title" { (title) }
            desc id="desc" { (summaries.join(". ")) }
            style { (PreEscaped(STYLE)) }
            rect class="page" x="0.5" y="0.5" width=(WIDTH - 1.0) height=(height - 1.0) rx="9" {}
            text class="strong" x=(MARGIN) y="34" { (title) }
            @for (index, (account, quota)) in quotas.iter().enumerate() {
                (moved_down(TOP + QUOTA_HEIGHT * index as f64, &drawn(account, quota)))
            }
            @if quotas.is_empty() {
                text class="faint" x=(MARGIN) y=(TOP + 20.0) { (summaries[0]) }
            }
        }
    };
    picture.into_string() + "\n"
}

/// The chart of a quota, with a heading and a caption above it.
fn drawn(account: &AccountDensity, quota: &QuotaDensity) -> Markup {
    html! {
        text class="strong" x=(MARGIN) y="20" { (account.heading(quota)) (account.note()) }
        text class="faint" x=(MARGIN) y="40" { (quota.free_words()) " · " (account.at) }
        (moved_down(CHART_TOP, &chart(quota)))
    }
}

fn chart(quota: &QuotaDensity) -> Markup {
    let most = quota.counts.iter().copied().max().unwrap_or(0).max(1);
    let columns = quota.counts.len();
    let ago = |column: usize| time(quota.window_ms * (columns - column) as u64 / columns as u64);
    let mut chart = Chart::new(CHART_WIDTH, CHART_HEIGHT);
    chart.scale(&most.to_string());
    for (column, count) in quota.counts.iter().enumerate() {
        let title = &format!("{count} spent {} to {} ago", ago(column), ago(column + 1));
        let height = f64::from(*count) / f64::from(most);
        chart.bar(&Bar { column, columns, height, class: "bar", title });
    }
    let axis = quota.axis();
    chart.labels(&axis.each_ref().map(|line| line.each_ref().map(String::as_str)));
    chart.into_elements()
}

fn moved_down(by: f64, elements: &Markup) -> Markup {
    html! { g transform=(format!("translate(0 {by})")) { (elements) } }
}
