//! The result of a replay as a page with pictures, in one file and without scripts.
//!
//! Log content is client-controlled, so every text is escaped, and the page's own
//! policy lets nothing be loaded or run.

use std::fmt::Write as _;

use crate::print::{counted, grouped, notes, noun, refusing};
use crate::report::{
    AgainstReport, OneSidedReport, PolicyReport, QuotaReport, RefusedFirst, ReplayReport,
    SweepReport,
};
use crate::svg::{self, escaped, length, short_time};

const STYLE: &str = include_str!("page.css");

impl ReplayReport {
    /// The whole result as a page with charts: one HTML file that loads nothing and runs no scripts.
    pub fn to_html(&self) -> String {
        let title = escaped(&format!("Whom would {} refuse?", self.config));
        let mut body = format!("<header><h1>{title}</h1>\n{}</header>\n", subtitle(self));
        add_tiles(&mut body, self);
        add_notes(&mut body, self);
        if self.requests > 0 {
            let caption = "<span class=\"key\"></span>requests, and of these \
                           <span class=\"key bad\"></span>refused, over time (UTC)";
            add_figure(&mut body, "wide", caption, &svg::timeline(&self.timeline));
        }
        for policy in &self.policies {
            add_policy(&mut body, policy);
        }
        if let Some(sweep) = &self.sweep {
            add_sweep(&mut body, sweep);
        }
        if let Some(against) = &self.against {
            add_against(&mut body, self, against);
        }
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
        )
    }
}

fn subtitle(report: &ReplayReport) -> String {
    let span = match (report.first, report.last) {
        (Some(first), Some(last)) => {
            format!("{} to {} (UTC)", short_time(first), short_time(last))
        }
        _ => "no requests".to_owned(),
    };
    let logs = escaped(&report.logs.join(", "));
    format!("<p class=\"faint\">{logs} · {span}</p>\n")
}

/// A number that is found by its name.
fn figure(name: &str, text: &str) -> String {
    format!("<span data-figure=\"{name}\">{}</span>", escaped(text))
}

fn count(name: &str, number: u64) -> String {
    figure(name, &grouped(number))
}

fn add_tiles(body: &mut String, report: &ReplayReport) {
    let tone = if report.refused > 0 { "bad" } else { "good" };
    let _ = writeln!(
        body,
        "<div class=\"tiles\" data-part=\"totals\">\n\
         <div class=\"tile\"><b class=\"{tone}\">{}</b><span>of the requests would be refused</span></div>\n\
         <div class=\"tile\"><b class=\"{tone}\">{}</b><span>refused {}</span></div>\n\
         <div class=\"tile\"><b>{}</b><span>{}</span></div>",
        figure("share", &report.share.to_string()),
        count("refused", report.refused),
        noun(report.refused, "request"),
        count("requests", report.requests),
        noun(report.requests, "request"),
    );
    let worst = report.policies.iter().filter(|policy| !policy.shadow);
    let worst = worst.max_by_key(|policy| policy.identities_refused);
    if let Some(policy) = worst {
        let _ = writeln!(
            body,
            "<div class=\"tile\"><b>{}</b><span>{} refused by {}, of {}</span></div>",
            grouped(policy.identities_refused),
            noun(policy.identities_refused, "identity"),
            escaped(&policy.policy),
            grouped(policy.identities),
        );
    }
    *body += "</div>\n";
}

fn add_notes(body: &mut String, report: &ReplayReport) {
    let notes = notes(report);
    if notes.is_empty() {
        return;
    }
    let items = notes.iter().map(|note| format!("<li>{}</li>\n", escaped(note.trim())));
    let _ = writeln!(body, "<ul class=\"notes\">\n{}</ul>", items.collect::<String>());
}

/// The caption is markup already.
fn add_figure(body: &mut String, class: &str, caption: &str, svg: &str) {
    let _ = writeln!(
        body,
        "<figure class=\"{class}\"><figcaption>{caption}</figcaption>\n{svg}</figure>"
    );
}

fn add_policy(body: &mut String, policy: &PolicyReport) {
    let name = escaped(&policy.policy);
    let shadow = if policy.shadow { " <span class=\"faint\">(only watching)</span>" } else { "" };
    let _ = writeln!(body, "<section data-policy=\"{name}\">\n<h2>{name}{shadow}</h2>");
    let would = if policy.shadow {
        "would be refused if it did not only watch"
    } else {
        "would be refused"
    };
    let _ = writeln!(
        body,
        "<p>{} of {} {} ({}) and {} of {} {} {would}.{}</p>",
        count("refused", policy.refused),
        count("requests", policy.requests),
        noun(policy.requests, "request"),
        figure("share", &policy.share.to_string()),
        count("identities_refused", policy.identities_refused),
        count("identities", policy.identities),
        noun(policy.identities, "identity"),
        policy.worst_minute.map_or_else(String::new, |minute| format!(
            " The worst minute begins at {}: {} of {} {}.",
            short_time(minute.at),
            count("worst_refused", minute.refused),
            count("worst_requests", minute.requests),
            noun(minute.requests, "request")
        )),
    );
    add_quotas(body, &policy.quotas);
    for quota in &policy.quotas {
        add_quota_figures(body, quota);
    }
    if !policy.most_refused.is_empty() {
        *body += "<h3>Refused most</h3>\n<div class=\"scroll\"><table class=\"most\">\n\
                  <tr><th>identity</th><th>refused</th><th>requests</th></tr>\n";
        for own in &policy.most_refused {
            let (identity, refused) = (escaped(&own.identity), grouped(own.refused));
            let requests = grouped(own.requests);
            let _ = writeln!(
                body,
                "<tr><td class=\"name\">{identity}</td><td>{refused}</td><td>{requests}</td></tr>"
            );
        }
        *body += "</table></div>\n";
    }
    *body += "</section>\n";
}

fn add_quotas(body: &mut String, quotas: &[QuotaReport]) {
    if quotas.is_empty() {
        return;
    }
    *body += "<h3>What should the limit be?</h3>\n\
              <p class=\"faint\">The smallest units at which so many identities would never have been \
              refused, had this quota been the only one.</p>\n<div class=\"scroll\"><table class=\"quotas\">\n\
              <tr><th>quota</th><th>99%</th><th>99.9%</th><th>all</th><th>identities</th>\
              <th>above it</th><th>of these, refused first by others</th></tr>\n";
    for quota in quotas {
        let never = quota.never_refused;
        let [p99, p99_9, all] = [never.p99, never.p99_9, never.all].map(grouped);
        let (identities, above) = (grouped(quota.identities), grouped(quota.identities_above));
        let _ = writeln!(
            body,
            "<tr><td class=\"name\">{}</td><td>{p99}</td><td>{p99_9}</td><td>{all}</td>\
             <td>{identities}</td><td>{above}</td><td>{}</td></tr>",
            escaped(&quota_name(quota)),
            refused_first(&quota.refused_first)
        );
    }
    *body += "</table></div>\n";
}

/// How many identities other policies refuse first, and which policies.
fn refused_first(first: &RefusedFirst) -> String {
    match first.identities {
        0 => "0".to_owned(),
        many => format!("{}: {}", grouped(many), escaped(&refusing(first))),
    }
}

fn quota_name(quota: &QuotaReport) -> String {
    quota
        .plan
        .as_ref()
        .map_or_else(|| quota.quota.clone(), |plan| format!("{plan} {}", quota.quota))
}

fn add_quota_figures(body: &mut String, quota: &QuotaReport) {
    let Some(busiest) = &quota.busiest else { return };
    let name = escaped(&quota_name(quota));
    let _ = writeln!(body, "<h3>{name}</h3>\n<div class=\"pair\">");
    let caption = "The busiest window of each identity, against the quota";
    add_figure(body, "distribution", caption, &svg::distribution(quota));
    let caption = format!(
        "The busiest window: {} {} of {} in {} until {}",
        count("busiest", busiest.units),
        noun(busiest.units, "unit"),
        escaped(&busiest.identity),
        length(quota.window_ms),
        short_time(busiest.until)
    );
    add_figure(body, "density", &caption, &svg::density(busiest, quota.window_ms));
    *body += "</div>\n";
}

fn add_sweep(body: &mut String, sweep: &SweepReport) {
    let name = escaped(&sweep.policy);
    let _ = writeln!(body, "<section data-part=\"sweep\">\n<h2>Sweep of {name}</h2>");
    let caption = format!("Refused requests of {name} by quota (logarithmic)");
    add_figure(body, "wide", &caption, &svg::sweep(sweep));
    *body += "<div class=\"scroll\"><table class=\"sweep\">\n\
              <tr><th>quota</th><th>refused</th><th>share</th><th>identities</th>\
              <th>refused first by others</th></tr>\n";
    for step in &sweep.steps {
        let _ = writeln!(
            body,
            "<tr><td class=\"name\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&step.quota),
            grouped(step.refused),
            escaped(&step.share.to_string()),
            grouped(step.identities_refused),
            refused_first(&step.refused_first)
        );
    }
    *body += "</table></div>\n</section>\n";
}

fn add_against(body: &mut String, report: &ReplayReport, against: &AgainstReport) {
    let (candidate, other) = (escaped(&report.config), escaped(&against.config));
    let _ = writeln!(
        body,
        "<section data-part=\"against\">\n<h2>Against {other}</h2>\n\
         <p>{other} refuses {} of the requests ({}), {candidate} {} ({}).</p>",
        count("refused", against.refused),
        escaped(&against.share.to_string()),
        grouped(report.refused),
        escaped(&report.share.to_string()),
    );
    add_side(body, "only_candidate", &candidate, &against.only_candidate);
    add_side(body, "only_other", &other, &against.only_other);
    *body += "</section>\n";
}

/// The name is escaped already.
fn add_side(body: &mut String, part: &str, name: &str, side: &OneSidedReport) {
    let _ = writeln!(
        body,
        "<h3>Refused by {name} only</h3>\n<p>{} {} ({}) of {}.</p>",
        count(part, side.requests),
        noun(side.requests, "request"),
        escaped(&side.share.to_string()),
        counted(side.identities, "identity")
    );
    if side.most.is_empty() {
        return;
    }
    *body += "<div class=\"scroll\"><table>\n<tr><th>identity</th><th>policy</th><th>requests</th></tr>\n";
    for own in &side.most {
        let (identity, policy) = (escaped(&own.identity), escaped(&own.policy));
        let requests = grouped(own.requests);
        let _ = writeln!(
            body,
            "<tr><td class=\"name\">{identity}</td><td>{policy}</td><td>{requests}</td></tr>"
        );
    }
    *body += "</table></div>\n";
}
