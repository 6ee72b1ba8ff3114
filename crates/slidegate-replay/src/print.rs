//! The result of a replay as text for a terminal.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use crate::report::{
    AgainstReport, OneSidedReport, PolicyReport, QuotaReport, RefusedFirst, ReplayReport, Share,
    SweepReport,
};

/// Of headings.
const STRONG: Style = Style::new().bold();
/// Of secondary text.
const FAINT: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// The widest identity that keeps its line straight.
const IDENTITY: usize = 40;

impl ReplayReport {
    /// The whole result in lines of about so many columns, with the escape codes of ANSI terminals for
    /// styles.
    pub fn to_text(&self, columns: usize) -> String {
        let mut text = heading(self);
        for note in notes(self) {
            let _ = writeln!(text, "{BAD}!{BAD:#} {note}");
        }
        for policy in &self.policies {
            text.push('\n');
            add_policy(&mut text, policy);
        }
        if let Some(sweep) = &self.sweep {
            text.push('\n');
            add_sweep(&mut text, sweep, columns);
        }
        if let Some(against) = &self.against {
            text.push('\n');
            add_against(&mut text, self, against);
        }
        text
    }
}

fn heading(report: &ReplayReport) -> String {
    let logs = report.logs.join(", ");
    let mut text = format!("{STRONG}{} with {logs}{STRONG:#}\n", report.config);
    let (Some(first), Some(last)) = (report.first, report.last) else {
        return text + "no requests\n";
    };
    let requests = counted(report.requests, "request");
    let lines = counted(report.lines.lines, "line");
    let _ = writeln!(text, "{requests} in {lines}, {first} to {last}");
    let refused =
        format!("{} of {requests} would be refused ({})", grouped(report.refused), report.share);
    let style = if report.refused > 0 { BAD } else { GOOD };
    let _ = writeln!(text, "{style}{refused}{style:#}");
    text
}

/// What a reader of the figures has to know.
pub(crate) fn notes(report: &ReplayReport) -> Vec<String> {
    let lines = &report.lines;
    let mut notes = Vec::new();
    let mut note = |count: u64, text: &str| {
        if count > 0 {
            notes.push(format!("{text}: {}", grouped(count)));
        }
    };
    note(report.blocked, "refused requests of those on the list of the blocked");
    note(report.bad_requests, "requests that are answered with 400, and that no policy counts");
    note(report.without_room, "decisions without room for another account");
    note(lines.other_lines, "lines about something else than a request");
    note(report.late_lines, "lines that came too late to be sorted, and were left out");
    note(lines.bad_lines, "bad lines, which were left out");
    for bad in &lines.first_bad_lines {
        let shown = bad.text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        notes.push(format!("  {}:{}: {}{shown}", bad.log, bad.line, bad.problem));
    }
    for log in &lines.cut_short {
        notes.push(format!("{log}; what was read before that is counted"));
    }
    if report.whole_seconds {
        let text = "times are whole seconds: a window may in truth have had up to one second's \
                    requests more";
        notes.push(text.to_owned());
    }
    for policy in report.policies.iter().filter(|policy| policy.untracked_requests > 0) {
        let (name, requests) = (&policy.policy, grouped(policy.untracked_requests));
        notes.push(format!("{name}: requests of identities too many to be told apart: {requests}"));
    }
    notes.extend(report.policies.iter().flat_map(response_notes));
    notes
}

/// What a policy looks at in responses, and the log does not have.
fn response_notes(policy: &PolicyReport) -> impl Iterator<Item = String> {
    let status = (policy.requests_without_status, "status", "taken as counted");
    let cost = (policy.requests_without_cost, "response-cost", "taken to cost what is held");
    [status, cost].into_iter().filter(|(requests, ..)| *requests > 0).map(|(requests, field, taken)| {
        let name = &policy.policy;
        if requests == policy.requests {
            return format!(
                "{name}: the log has no {field}, so every request is {taken}; --map {field}=FIELD \
                 names the field"
            );
        }
        format!("{name}: requests without a {field}, {taken}: {}", grouped(requests))
    })
}

fn add_policy(text: &mut String, policy: &PolicyReport) {
    let shadow = if policy.shadow { " (shadow: refuses no requests)" } else { "" };
    let _ = writeln!(text, "{STRONG}{}{STRONG:#}{shadow}", policy.policy);
    if policy.requests == 0 {
        *text += "  no requests\n";
        return;
    }
    let refused = format!(
        "{} of {} ({}), {} of {} ({})",
        grouped(policy.refused),
        counted(policy.requests, "request"),
        policy.share,
        grouped(policy.identities_refused),
        counted(policy.identities, "identity"),
        Share::of(policy.identities_refused, policy.identities),
    );
    let style = if policy.refused > 0 { BAD } else { GOOD };
    let _ = writeln!(text, "  refused        {style}{refused}{style:#}");
    if let Some(minute) = policy.worst_minute {
        let (refused, requests) = (grouped(minute.refused), counted(minute.requests, "request"));
        let _ = writeln!(text, "  worst minute   {}: {refused} of {requests}", minute.at);
    }
    for (index, own) in policy.most_refused.iter().enumerate() {
        let label = if index == 0 { "refused most" } else { "" };
        let (refused, requests) = (grouped(own.refused), grouped(own.requests));
        let identity = &own.identity;
        let _ = writeln!(text, "  {label:<14} {identity:<IDENTITY$} {refused:>11} of {requests}");
    }
    add_quotas(text, &policy.quotas);
}

fn add_quotas(text: &mut String, quotas: &[QuotaReport]) {
    let heading =
        "  units that refuse none of:              99%       99.9%         all   identities";
    let _ = writeln!(text, "{FAINT}{heading}{FAINT:#}");
    for quota in quotas {
        let plan = quota.plan.as_ref().map(|plan| format!("{plan} ")).unwrap_or_default();
        let name = format!("{plan}{}", quota.quota);
        let never = quota.never_refused;
        let [p99, p99_9, all] = [never.p99, never.p99_9, never.all].map(grouped);
        let identities = grouped(quota.identities);
        let _ = writeln!(text, "  {name:<30} {p99:>12} {p99_9:>11} {all:>11}   {identities}");
        if let Some(busiest) = &quota.busiest {
            let (units, identity, until) =
                (grouped(busiest.units), &busiest.identity, busiest.until);
            let _ =
                writeln!(text, "{FAINT}    busiest: {units} of {identity} until {until}{FAINT:#}");
        }
        let first = &quota.refused_first;
        if first.identities > 0 {
            let (by, identities) = (refusing(first), counted(first.identities, "identity"));
            let _ = writeln!(text, "    over this quota, but refused first by {by}: {identities}");
        }
    }
}

/// The policies that refuse identities first, and how many requests.
pub(crate) fn refusing(first: &RefusedFirst) -> String {
    let policies = first.by.iter();
    let policies =
        policies.map(|own| format!("{} ({})", own.policy, counted(own.requests, "request")));
    policies.collect::<Vec<_>>().join(", ")
}

fn add_sweep(text: &mut String, sweep: &SweepReport, columns: usize) {
    let _ = writeln!(text, "{STRONG}sweep of {}{STRONG:#}", sweep.policy);
    let width = columns.saturating_sub(60).clamp(10, 40);
    let shares = sweep.steps.iter().map(|step| step.share.fraction());
    let most = shares.fold(f64::MIN_POSITIVE, f64::max);
    for step in &sweep.steps {
        let cells = (step.share.fraction() / most * width as f64).ceil() as usize;
        let bar = format!("{BAD}{:<width$}{BAD:#}", "█".repeat(cells));
        let (quota, refused) = (&step.quota, grouped(step.refused));
        let share = step.share;
        let identities = counted(step.identities_refused, "identity");
        let first = match step.refused_first.identities {
            0 => String::new(),
            many => {
                let by: Vec<&str> = step.refused_first.by.iter().map(|own| &*own.policy).collect();
                format!(", {} refused first by {}", grouped(many), by.join(", "))
            }
        };
        let _ = writeln!(text, "  {quota:<14} {bar} {refused:>11} ({share}), {identities}{first}");
    }
}

fn add_against(text: &mut String, report: &ReplayReport, against: &AgainstReport) {
    let _ = writeln!(text, "{STRONG}against {}{STRONG:#}", against.config);
    for (name, refused, share) in [
        (&against.config, against.refused, against.share),
        (&report.config, report.refused, report.share),
    ] {
        let _ = writeln!(text, "  refused by {name}: {} ({share})", grouped(refused));
    }
    for (name, side) in
        [(&report.config, &against.only_candidate), (&against.config, &against.only_other)]
    {
        add_side(text, name, side);
    }
}

fn add_side(text: &mut String, name: &str, side: &OneSidedReport) {
    let requests = counted(side.requests, "request");
    let identities = counted(side.identities, "identity");
    let share = side.share;
    let _ = writeln!(text, "  only by {name}: {requests} ({share}) of {identities}");
    for own in &side.most {
        let (policy, identity, requests) = (&own.policy, &own.identity, grouped(own.requests));
        let _ = writeln!(text, "    {policy:<14} {identity:<IDENTITY$} {requests:>11}");
    }
}

/// A number with commas between its thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number and what it counts: `1 identity`, `2,000 identities`.
pub(crate) fn counted(number: u64, singular: &str) -> String {
    format!("{} {}", grouped(number), noun(number, singular))
}

/// What a number counts, in the singular or the plural: `identity` or `identities`.
pub(crate) fn noun(number: u64, singular: &str) -> String {
    match singular.strip_suffix('y') {
        _ if number == 1 => singular.to_owned(),
        Some(stem) => format!("{stem}ies"),
        None => format!("{singular}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        for (number, singular, text) in [
            (1, "request", "1 request"),
            (0, "request", "0 requests"),
            (2, "identity", "2 identities"),
        ] {
            assert_eq!(counted(number, singular), text);
        }
    }
}
