//! What is shown in the end: what each client got, and the proof that the limits held.

use slidegate::Quota;

use super::figure::{grouped, short_time};
use super::finding::{Finding, Findings};
use super::tally::Tally;
use crate::terminal::{Paint, Tone};

/// What each client got, beside its quota and the fullest interval of its length.
pub(super) fn draw(
    paint: Paint,
    tallies: &[Tally],
    findings: &Findings,
    upstream: usize,
) -> String {
    let rule = paint.tone(Tone::Faint, &"─".repeat(78));
    let headings = format!(
        "  {:<16}{:>7}{:>10}{:>9}{:>9}   {}",
        "client", "sent", "admitted", "refused", "p99", "most in any window",
    );
    let mut text = format!("{}\n  {rule}\n", paint.tone(Tone::Strong, &headings));
    for tally in tallies {
        text += &row(paint, tally, findings);
    }
    text += &format!("  {:<51}{}\n", "flood guard", proof(paint, Some(findings.flood)));
    text + &explanation(paint, tallies, findings, upstream)
}

fn row(paint: Paint, tally: &Tally, findings: &Findings) -> String {
    let (name, counts) = (tally.client.name(), tally.counts());
    let [sent, admitted, refused] = [counts.sent, counts.admitted, counts.refused].map(grouped);
    let p99 = tally.p99().map_or_else(String::new, short_time);
    let proof = proof(paint, findings.tightest(tally.client));
    format!("  {name:<16}{sent:>7}{admitted:>10}{refused:>9}{p99:>9}{proof}\n")
}

fn proof(paint: Paint, finding: Option<Finding>) -> String {
    let Some(finding) = finding else { return String::new() };
    let (units, window) = (finding.quota.units(), seconds(finding.quota));
    let verdict = match finding.is_held() {
        true => paint.tone(Tone::Good, "held"),
        false => paint.tone(Tone::Bad, "BROKEN"),
    };
    format!("{:>6} of {units:<3} in {window:>2} s  {verdict}", finding.most)
}

fn explanation(paint: Paint, tallies: &[Tally], findings: &Findings, upstream: usize) -> String {
    let counts = tallies.iter().map(Tally::counts);
    let sent: usize = counts.clone().map(|counts| counts.sent).sum();
    let failed: usize = counts.map(|counts| counts.failed).sum();
    let (sent, reached) = (grouped(sent), grouped(upstream));
    let mut text = format!(
        "
  Counted from what the clients wrote down, over every interval that is as long
  as the quota's window; for the flood guard, of the busiest address.
  Of {sent} requests, {reached} reached the API.
"
    );
    if failed > 0 {
        text += &format!("  {} had no answer.\n", grouped(failed));
    }
    text + &comparison(paint, findings.fixed_window) + &conclusion(paint, findings)
}

/// Nothing, if the burster met no boundary.
fn comparison(paint: Paint, fixed_window: Finding) -> String {
    if fixed_window.is_held() {
        return String::new();
    }
    let Finding { quota, most } = fixed_window;
    let most = paint.tone(Tone::Bad, &format!("{most} of {}", quota.units()));
    format!(
        "  A counter that starts again every {} s would have given the burster {most}.\n",
        seconds(quota),
    )
}

fn conclusion(paint: Paint, findings: &Findings) -> String {
    match findings.check() {
        Ok(()) => {
            let held = "Every limit held, and the polite user was never refused.";
            format!("  {}\n", paint.tone(Tone::Good, held))
        }
        Err(error) => format!("  {}\n", paint.tone(Tone::Bad, &error.to_string())),
    }
}

fn seconds(quota: Quota) -> u64 {
    quota.window().as_secs()
}
