//! Where a caller stands, as a page for browsers: one file that loads nothing and runs no script.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use super::MAX_UNITS;
use super::answer::{AskedUnits, CallerQuota, Passing, StandingAnswer};

const STYLE: &str = include_str!("page.css");

/// Only the page's own style applies, by its digest.
pub(super) static CONTENT_SECURITY_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let digest = STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'self'; \
         frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).expect("Base64 is visible ASCII")
});

/// The whole page.
pub(super) fn render(answer: &StandingAnswer) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex";
                title { "Rate limits" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    header {
                        h1 { "Rate limits" }
                        p class="faint" { "As of " (time(&answer.now.to_string())) }
                    }
                    (notices(answer))
                    @if !answer.standings.is_empty() { (question(answer.question.as_ref())) }
                    @for own in answer.standings.chunk_by(is_one_account) { (account(own, answer.question.as_ref())) }
                }
            }
        }
    };
    page.into_string()
}

fn is_one_account(one: &CallerQuota, other: &CallerQuota) -> bool {
    (&one.policy, &one.identity) == (&other.policy, &other.identity)
}

/// What holds for the caller as a whole.
fn notices(answer: &StandingAnswer) -> Markup {
    html! {
        @if answer.exempt {
            p class="notice" { "Your requests are not limited." }
        } @else if answer.standings.is_empty() {
            p class="notice" { "No quota applies to you." }
        }
        @for ban in &answer.bans {
            p class="notice bad" role="alert" {
                "Requests under " b { (ban.policy) } " are refused for another "
                (wait(ban.retry_after_ms)) "."
            }
        }
    }
}

/// Asks when so many units pass, and says it.
fn question(asked: Option<&AskedUnits>) -> Markup {
    html! {
        form method="get" {
            label for="units" { "When would" }
            input id="units" name="units" type="number" inputmode="numeric" required
                min="1" max=(MAX_UNITS) placeholder="500" value=[asked.map(|asked| asked.units)];
            span { "more units pass?" }
            button { "Ask" }
            @if let Some(AskedUnits { units, passing }) = asked {
                p class="answer" role="status" { (passes(units.get(), passing)) }
            }
        }
    }
}

fn passes(units: u32, passing: &Passing) -> Markup {
    let noun = if units == 1 { " more unit" } else { " more units" };
    html! {
        (grouped(units)) (noun) " would "
        @match (passing.passes_after_ms, &passing.passes_at) {
            (Some(0), _) => { "pass " b { "now" } "." }
            (Some(after_ms), Some(at)) => {
                "pass in " b { (wait(after_ms)) } ", at " (time(&at.to_string()))
                ", if nothing else is spent."
            }
            _ => { b { "never" } " pass at once: a quota has fewer units." }
        }
    }
}

/// All quotas of one policy.
fn account(quotas: &[CallerQuota], asked: Option<&AskedUnits>) -> Markup {
    let Some(first) = quotas.first() else { return Markup::default() };
    html! {
        section {
            div class="title" {
                h2 { (first.policy) }
                p class="faint" {
                    @if let Some(plan) = &first.plan { "plan " b { (plan) } " · " }
                    "counted for " code { (first.identity) }
                }
            }
            div class="cards" { @for quota in quotas { (card(quota, asked)) } }
        }
    }
}

fn card(own: &CallerQuota, asked: Option<&AskedUnits>) -> Markup {
    let used = own.units.saturating_sub(own.remaining);
    let tone = match f64::from(used) / f64::from(own.units) {
        part if part >= 1.0 => "bad",
        part if part >= 0.8 => "warn",
        _ => "good",
    };
    html! {
        article class=(tone) {
            h3 { (grouped(own.units)) " per " (span(own.window_ms).trim_start_matches("1 ")) }
            p class="left" {
                b { (grouped(own.remaining)) }
                " left" span class="faint" { " · " (grouped(used)) " used" }
            }
            (bar(used, own.units))
            p {
                @match own.next_unit_after_ms {
                    None => "Nothing is used.",
                    Some(after_ms) => { "Next unit back in " b { (wait(after_ms)) } }
                }
            }
            @if let (Some(asked), Some(passing)) = (asked, own.passing) {
                p {
                    (grouped(asked.units.get())) " more "
                    @match passing.passes_after_ms {
                        None => span class="never" { "never fit at once" },
                        Some(0) => { "fit now" }
                        Some(after_ms) => { "fit in " b { (wait(after_ms)) } }
                    }
                }
            }
            (density(own))
        }
    }
}

/// Which part of the units is used.
fn bar(used: u32, units: u32) -> Markup {
    let width = f64::from(used) / f64::from(units) * 1000.0;
    let label = format!("{} of {} units used", grouped(used), grouped(units));
    html! {
        svg class="bar" role="img" aria-label=(label) viewBox="0 0 1000 10"
            preserveAspectRatio="none" {
            rect class="track" width="1000" height="10" {}
            rect class="fill" width=(format!("{width:.1}")) height="10" {}
        }
    }
}

/// When units were spent in the window; each comes back one window after that.
fn density(own: &CallerQuota) -> Markup {
    let most = own.density.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return Markup::default();
    }
    let parts = own.density.len();
    let (part_ms, window) = (own.window_ms / parts as u64, span(own.window_ms));
    let label = format!(
        "When units were spent in the last {window}: at most {} in {}. Each comes back {window} later.",
        counted(most),
        span(part_ms.max(1))
    );
    html! {
        figure {
            svg class="density" role="img" aria-label=(label)
                viewBox=(format!("0 0 {} 40", parts * 10)) preserveAspectRatio="none" {
                @for (part, units) in own.density.iter().enumerate().filter(|(_, units)| **units > 0) {
                    // One unit is seen beside thousands.
                    @let height = (f64::from(*units) / f64::from(most) * 40.0).max(2.0);
                    rect x=(part * 10 + 1) width="8" y=(format!("{:.1}", 40.0 - height))
                        height=(format!("{height:.1}")) {
                        title { (spent(own, part, *units)) }
                    }
                }
            }
            figcaption {
                span { span class="what" { "spent " } (window) " ago" br;
                       span class="what" { "back " } "now" }
                span { "now" br; "in " (window) }
            }
        }
    }
}

/// What a part of the window has, for the pointer.
fn spent(own: &CallerQuota, part: usize, units: u32) -> String {
    let parts = own.density.len() as u64;
    let since_start_ms = own.window_ms * (part as u64 + 1) / parts;
    let ago = span((own.window_ms - since_start_ms).max(own.window_ms / parts).max(1));
    let back = span(since_start_ms.max(1));
    format!("{} about {ago} ago, back within {back}", counted(units))
}

fn time(text: &str) -> Markup {
    html! { time datetime=(text) { (text.replace('T', " ").replace('Z', " UTC")) } }
}

/// How long to wait, in its two largest units. Rounded up, so that it is never too early.
fn wait(ms: u64) -> String {
    let (seconds, minutes) = (ms.div_ceil(1000), ms.div_ceil(60_000));
    let hours = ms.div_ceil(3_600_000);
    let pair = |large: u64, large_name: &str, small: u64, small_name: &str| match small {
        0 => format!("{large} {large_name}"),
        _ => format!("{large} {large_name} {small} {small_name}"),
    };
    match ms {
        0 => "a moment".to_owned(),
        1..10_000 => {
            let tenths = ms.div_ceil(100);
            format!("{}.{} s", tenths / 10, tenths % 10)
        }
        10_000..=60_000 => format!("{seconds} s"),
        60_001..=3_600_000 => pair(seconds / 60, "min", seconds % 60, "s"),
        3_600_001..=172_800_000 => pair(minutes / 60, "h", minutes % 60, "min"),
        _ => pair(hours / 24, "days", hours % 24, "h"),
    }
}

/// A length of time that is shown and not waited for.
fn span(ms: u64) -> String {
    let named = |count: u64, name: &str| match count {
        1 => format!("1 {name}"),
        _ => format!("{count} {name}s"),
    };
    let of = |unit_ms: u64| ms >= unit_ms && ms.is_multiple_of(unit_ms);
    match ms {
        _ if of(86_400_000) => named(ms / 86_400_000, "day"),
        _ if of(3_600_000) => named(ms / 3_600_000, "hour"),
        _ if of(60_000) => named(ms / 60_000, "minute"),
        _ if of(1000) => named(ms / 1000, "second"),
        ..1000 => format!("{ms} ms"),
        _ => wait(ms),
    }
}

fn counted(units: u32) -> String {
    let noun = if units == 1 { "unit" } else { "units" };
    format!("{} {noun}", grouped(units))
}

/// A number with a comma before every three digits.
fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_never_too_short() {
        for (ms, expected) in [
            (1, "0.1 s"),
            (1901, "2.0 s"),
            (10_000, "10 s"),
            (59_001, "60 s"),
            (60_001, "1 min 1 s"),
            (182_000, "3 min 2 s"),
            (3_600_000, "60 min"),
            (3_600_001, "1 h 1 min"),
            (86_400_001, "24 h 1 min"),
            (172_800_001, "2 days 1 h"),
        ] {
            assert_eq!(wait(ms), expected, "{ms}");
        }
        assert_eq!(
            [60_000, 300_000, 86_400_000, 1500].map(span),
            ["1 minute", "5 minutes", "1 day", "1.5 s"]
        );
        assert_eq!([7, 1000, 4_294_967_295].map(grouped), ["7", "1,000", "4,294,967,295"]);
    }
}
