//! The density of spends as an SVG picture, for light and dark pages.

use super::print::time;
use crate::api::{AccountDensity, DensityView, QuotaDensity};

const WIDTH: f64 = 720.0;
/// Where the bars are, and how high the highest is.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 696.0;
const BARS: f64 = 120.0;
/// Above the first chart, and from one chart to the next.
const TOP: f64 = 48.0;
const CHART: f64 = 232.0;

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
    let (mut charts, mut words) = (String::new(), Vec::new());
    for (index, (account, quota)) in view.quotas().enumerate() {
        draw(&mut charts, TOP + CHART * index as f64, account, quota);
        words.push(format!("{}; {}", account.heading(quota), quota.free_words()));
    }
    if words.is_empty() {
        words.push("no policy counts such an identity".to_owned());
        charts = label(24.0, TOP + 20.0, "start", "faint", &words[0]);
    }
    let height = TOP + CHART * words.len() as f64;
    let title = format!("Spends of {}", view.identity);
    let heading = label(24.0, 34.0, "start", "strong", &title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-labelledby=\"title desc\">\n\
         <title id=\"title\">{}</title>\n<desc id=\"desc\">{}</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"9\"/>\n\
         {heading}{charts}</svg>\n",
        escaped(&title),
        escaped(&words.join(". ")),
        WIDTH - 1.0,
        height - 1.0,
    )
}

/// Draws one chart, whose upper edge is at `top`.
fn draw(svg: &mut String, top: f64, account: &AccountDensity, quota: &QuotaDensity) {
    let heading = account.heading(quota) + account.note();
    *svg += &label(24.0, top + 20.0, "start", "strong", &heading);
    let caption = format!("{} · {}", quota.free_words(), account.at);
    *svg += &label(24.0, top + 40.0, "start", "faint", &caption);
    let floor = top + 60.0 + BARS;
    let highest = quota.counts.iter().copied().max().unwrap_or(0).max(1);
    for (units, y) in [(highest, floor - BARS), (0, floor)] {
        *svg += &label(LEFT - 8.0, y + 4.0, "end", "faint", &units.to_string());
        *svg += &format!("<path class=\"line\" d=\"M{LEFT} {y}H{RIGHT}\"/>\n");
    }
    let step = (RIGHT - LEFT) / quota.counts.len() as f64;
    let buckets = quota.counts.len() as u64;
    let ago_ms = |index: usize| quota.window_ms * (buckets - index as u64) / buckets;
    let gap = if step > 4.0 { 1.0 } else { 0.0 };
    for (index, count) in quota.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = BARS * f64::from(*count) / f64::from(highest);
        let (x, y) = (LEFT + step * index as f64, floor - height);
        let width = step - gap;
        *svg += &format!(
            "<path class=\"bar\" d=\"M{x:.2} {floor}V{y:.2}h{width:.2}V{floor}z\">\
             <title>{count} spent {} to {} ago</title></path>\n",
            time(ago_ms(index)),
            time(ago_ms(index + 1)),
        );
    }
    for (line, [left, middle, right]) in quota.axis().iter().enumerate() {
        let y = floor + 18.0 * (line + 1) as f64;
        *svg += &label(LEFT, y, "start", "faint", left);
        *svg += &label((LEFT + RIGHT) / 2.0, y, "middle", "faint", middle);
        *svg += &label(RIGHT, y, "end", "faint", right);
    }
}

fn label(x: f64, y: f64, anchor: &str, class: &str, text: &str) -> String {
    let text = escaped(text);
    format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
