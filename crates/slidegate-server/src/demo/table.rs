//! What is shown in the end: what each client got, and the proof that the limits held.

use slidegate::Quota;

use super::check::{Check, Checks};
use super::figure::{grouped, short_time};
use super::stats::ClientStats;
use crate::terminal::{Paint, Tone};

/// What each client got, beside its quota and the fullest interval of its length.
pub(super) fn draw(
    paint: Paint,
    stats: &[ClientStats],
    checks: &Checks,
    upstream: usize,
) -> String {
    let rule = paint.tone(Tone::Faint, &"─".repeat(78));
    let headings = format!(
        "  {:<16}{:>7}{:>10}{:>9}{:>9}   {}",
        "client", "sent", "admitted", "refused", "p99", "most in any window",
    );
    let mut text = format!("{}\n  {rule}\n", paint.tone(Tone::Strong, &headings));
    for client_stats in stats {
        text += &row(paint, client_stats, checks);
    }
    text += &format!("  {:<51}{}\n", "flood guard", proof(paint, Some(checks.flood)));
    text + &explanation(paint, stats, checks, upstream)
}

fn row(paint: Paint, client_stats: &ClientStats, checks: &Checks) -> String {
    let (name, counts) = (client_stats.client.name(), client_stats.counts());
    let [sent, admitted, refused] = [counts.sent, counts.admitted, counts.refused].map(grouped);
    let p99 = client_stats.p99().map_or_else(String::new, short_time);
    let proof = proof(paint, checks.tightest(client_stats.client));
    format!("  {name:<16}{sent:>7}{admitted:>10}{refused:>9}{p99:>9}{proof}\n")
}

fn proof(paint: Paint, check: Option<Check>) -> String {
    let Some(check) = check else { return String::new() };
    let (units, window) = (check.quota.units(), seconds(check.quota));
    let verdict = match check.is_held() {
        true => paint.tone(Tone::Good, "held"),
        false => paint.tone(Tone::Bad, "BROKEN"),
    };
    format!("{:>6} of {units:<3} in {window:>2} s  {verdict}", check.most)
}

fn explanation(paint: Paint, stats: &[ClientStats], checks: &Checks, upstream: usize) -> String {
    let counts = stats.iter().map(ClientStats::counts);
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
    text + &comparison(paint, checks.fixed_window) + &conclusion(paint, checks)
}

/// Nothing, if the burster met no boundary.
fn comparison(paint: Paint, fixed_window: Check) -> String {
    if fixed_window.is_held() {
        return String::new();
    }
    let Check { quota, most } = fixed_window;
    let most = paint.tone(Tone::Bad, &format!("{most} of {}", quota.units()));
    format!(
        "  A counter that starts again every {} s would have given the burster {most}.\n",
        seconds(quota),
    )
}

fn conclusion(paint: Paint, checks: &Checks) -> String {
    match checks.check() {
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
