//! The result of a replay as a page with charts, in one file and without scripts.
//!
//! The contents of logs are chosen by clients. Templates escape every text, and the page's content
//! security policy lets nothing be loaded or run.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::print::{counted, grouped, notes, noun, refusing};
use crate::report::{
    AgainstReport, OneSidedReport, PolicyReport, QuotaReport, RefusedFirst, ReplayReport,
    SweepReport,
};
use crate::svg::{self, length, short_time};

const STYLE: &str = include_str!("page.css");
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

impl ReplayReport {
    /// The whole result as a page with charts: one HTML file that loads nothing and runs no scripts.
    pub fn to_html(&self) -> String {
        let title = format!("Requests that {} would refuse", self.config);
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(CONTENT_SECURITY_POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    main {
                        header {
                            h1 { (title) }
                            p class="faint" { (self.logs.join(", ")) " · " (span(self)) }
                        }
                        (tiles(self))
                        (note_list(self))
                        @if self.requests > 0 {
                            (chart("wide", &timeline_caption(), &svg::timeline(&self.timeline)))
                        }
                        @for policy in &self.policies { (policy_section(policy)) }
                        @if let Some(sweep) = &self.sweep { (sweep_section(sweep)) }
                        @if let Some(against) = &self.against { (against_section(self, against)) }
                    }
                }
            }
        };
        page.into_string()
    }
}

fn span(report: &ReplayReport) -> String {
    match (report.first, report.last) {
        (Some(first), Some(last)) => {
            format!("{} to {} (UTC)", short_time(first), short_time(last))
        }
        _ => "no requests".to_owned(),
    }
}

fn timeline_caption() -> Markup {
    html! {
        span class="key" {} "requests, and of these "
        span class="key bad" {} "refused, over time (UTC)"
    }
}

/// A number that is found by its name.
fn figure(name: &str, text: &str) -> Markup {
    html! { span data-figure=(name) { (text) } }
}

fn count(name: &str, number: u64) -> Markup {
    figure(name, &grouped(number))
}

fn chart(class: &str, caption: &Markup, svg: &Markup) -> Markup {
    html! { figure class=(class) { figcaption { (caption) } (svg) } }
}

fn tiles(report: &ReplayReport) -> Markup {
    let tone = if report.refused > 0 { "bad" } else { "good" };
    let worst = report.policies.iter().filter(|policy| !policy.shadow);
    let worst = worst.max_by_key(|policy| policy.identities_refused);
    html! {
        div class="tiles" data-part="totals" {
            div class="tile" {
                b class=(tone) { (figure("share", &report.share.to_string())) }
                span { "of the requests would be refused" }
            }
            div class="tile" {
                b class=(tone) { (count("refused", report.refused)) }
                span { "refused " (noun(report.refused, "request")) }
            }
            div class="tile" {
                b { (count("requests", report.requests)) }
                span { (noun(report.requests, "request")) }
            }
            @if let Some(policy) = worst {
                div class="tile" {
                    b { (grouped(policy.identities_refused)) }
                    span {
                        (noun(policy.identities_refused, "identity")) " refused by " (policy.policy)
                        ", of " (grouped(policy.identities))
                    }
                }
            }
        }
    }
}

fn note_list(report: &ReplayReport) -> Markup {
    let notes = notes(report);
    html! {
        @if !notes.is_empty() {
            ul class="notes" { @for note in &notes { li { (note.trim()) } } }
        }
    }
}

fn policy_section(policy: &PolicyReport) -> Markup {
    let would = if policy.shadow {
        "would be refused if it were not a shadow policy"
    } else {
        "would be refused"
    };
    html! {
        section data-policy=(policy.policy) {
            h2 {
                (policy.policy)
                @if policy.shadow { " " span class="faint" { "(shadow)" } }
            }
            p {
                (count("refused", policy.refused)) " of " (count("requests", policy.requests)) " "
                (noun(policy.requests, "request"))
                " (" (figure("share", &policy.share.to_string())) ") and "
                (count("identities_refused", policy.identities_refused)) " of "
                (count("identities", policy.identities)) " "
                (noun(policy.identities, "identity")) " " (would) "."
                @if let Some(minute) = policy.worst_minute {
                    " The worst minute begins at " (short_time(minute.at)) ": "
                    (count("worst_refused", minute.refused)) " of "
                    (count("worst_requests", minute.requests)) " "
                    (noun(minute.requests, "request")) "."
                }
            }
            (quota_table(&policy.quotas))
            @for quota in &policy.quotas { (quota_charts(quota)) }
            @if !policy.most_refused.is_empty() { (most_refused(policy)) }
        }
    }
}

fn most_refused(policy: &PolicyReport) -> Markup {
    html! {
        h3 { "Refused most" }
        div class="scroll" {
            table class="most" {
                tr { th { "identity" } th { "refused" } th { "requests" } }
                @for own in &policy.most_refused {
                    tr {
                        td class="name" { (own.identity) }
                        td { (grouped(own.refused)) }
                        td { (grouped(own.requests)) }
                    }
                }
            }
        }
    }
}

fn quota_table(quotas: &[QuotaReport]) -> Markup {
    if quotas.is_empty() {
        return Markup::default();
    }
    html! {
        h3 { "What should the limit be?" }
        p class="faint" {
            "The smallest units at which so many identities would never have been refused, had this \
             quota been the only one."
        }
        div class="scroll" {
            table class="quotas" {
                tr {
                    th { "quota" } th { "99%" } th { "99.9%" } th { "all" } th { "identities" }
                    th { "above it" } th { "of these, refused first by others" }
                }
                @for quota in quotas {
                    tr {
                        td class="name" { (quota_name(quota)) }
                        td { (grouped(quota.never_refused.p99)) }
                        td { (grouped(quota.never_refused.p99_9)) }
                        td { (grouped(quota.never_refused.all)) }
                        td { (grouped(quota.identities)) }
                        td { (grouped(quota.identities_above)) }
                        td { (refused_first(&quota.refused_first)) }
                    }
                }
            }
        }
    }
}

/// How many identities other policies refuse first, and which policies.
fn refused_first(first: &RefusedFirst) -> String {
    match first.identities {
        0 => "0".to_owned(),
        many => format!("{}: {}", grouped(many), refusing(first)),
    }
}

fn quota_name(quota: &QuotaReport) -> String {
    quota
        .plan
        .as_ref()
        .map_or_else(|| quota.quota.clone(), |plan| format!("{plan} {}", quota.quota))
}

fn quota_charts(quota: &QuotaReport) -> Markup {
    let Some(busiest) = &quota.busiest else { return Markup::default() };
    let distribution = html! { "The busiest window of each identity, against the quota" };
    let density = html! {
        "The busiest window: " (count("busiest", busiest.units)) " " (noun(busiest.units, "unit"))
        " of " (busiest.identity) " in " (length(quota.window_ms)) " until "
        (short_time(busiest.until))
    };
    html! {
        h3 { (quota_name(quota)) }
        div class="pair" {
            (chart("distribution", &distribution, &svg::distribution(quota)))
            (chart("density", &density, &svg::density(busiest, quota.window_ms)))
        }
    }
}

fn sweep_section(sweep: &SweepReport) -> Markup {
    let caption = html! { "Refused requests of " (sweep.policy) " by quota (logarithmic)" };
    html! {
        section data-part="sweep" {
            h2 { "Sweep of " (sweep.policy) }
            (chart("wide", &caption, &svg::sweep(sweep)))
            div class="scroll" {
                table class="sweep" {
                    tr {
                        th { "quota" } th { "refused" } th { "share" } th { "identities" }
                        th { "refused first by others" }
                    }
                    @for step in &sweep.steps {
                        tr {
                            td class="name" { (step.quota) }
                            td { (grouped(step.refused)) }
                            td { (step.share) }
                            td { (grouped(step.identities_refused)) }
                            td { (refused_first(&step.refused_first)) }
                        }
                    }
                }
            }
        }
    }
}

fn against_section(report: &ReplayReport, against: &AgainstReport) -> Markup {
    html! {
        section data-part="against" {
            h2 { "Against " (against.config) }
            p {
                (against.config) " refuses " (count("refused", against.refused))
                " of the requests (" (against.share) "), " (report.config) " "
                (grouped(report.refused)) " (" (report.share) ")."
            }
            (one_side("only_candidate", &report.config, &against.only_candidate))
            (one_side("only_other", &against.config, &against.only_other))
        }
    }
}

fn one_side(part: &str, config: &str, side: &OneSidedReport) -> Markup {
    html! {
        h3 { "Refused by " (config) " only" }
        p {
            (count(part, side.requests)) " " (noun(side.requests, "request"))
            " (" (side.share) ") of " (counted(side.identities, "identity")) "."
        }
        @if !side.most.is_empty() {
            div class="scroll" {
                table {
                    tr { th { "identity" } th { "policy" } th { "requests" } }
                    @for own in &side.most {
                        tr {
                            td class="name" { (own.identity) }
                            td { (own.policy) }
                            td { (grouped(own.requests)) }
                        }
                    }
                }
            }
        }
    }
}
