//! What a server is doing now, as text that fits the terminal.

use std::collections::VecDeque;
use std::iter;

use super::admin_endpoint::AdminEndpoint;
use super::chart::STEPS;
use super::print::{table, time};
use crate::api::{
    AccountList, DecisionTimeSeries, GatewayView, NowView, PolicySeries, RequestSeries, StoreView,
};
use crate::calendar::Rfc3339;
use crate::terminal::{BAD, STRONG};

/// The answers of the server that are shown.
#[derive(Debug)]
pub(super) struct Overview {
    now: NowView,
    nearest: AccountList,
    denied: AccountList,
}

/// The room for a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextSize {
    pub(super) columns: usize,
    /// None if there is room for all of it.
    pub(super) rows: Option<usize>,
}

/// Of each list of accounts, as many as are asked for and shown at most.
const MAX_ACCOUNTS: usize = 10;
/// The lines of a list of accounts besides the accounts: an empty one, the title and the headings.
const LIST_LINES: usize = 3;
/// Policies that are shown even if there is then no room for accounts.
const MIN_POLICIES: usize = 5;
/// The steps of a chart: fifteen minutes of five seconds.
const CHART_STEPS: usize = 180;
/// A chart is as wide as its heading or wider.
const CHART_HEADING: &str = "LAST 15 MIN";
const MAX_CHART: usize = 90;

impl Overview {
    pub(super) async fn read(server: &AdminEndpoint) -> anyhow::Result<Self> {
        let list = |sort| format!("/v1/accounts?sort={sort}&limit={MAX_ACCOUNTS}");
        let (nearest, denied) = (list("nearest"), list("denied"));
        let (now, nearest, denied) =
            tokio::try_join!(server.get("/v1/now"), server.get(&nearest), server.get(&denied))?;
        Ok(Self { now, nearest, denied })
    }

    pub(super) fn text(&self, size: TextSize) -> String {
        let mut lines = self.status();
        let policies = self.policies(size.columns);
        let times = decision_time(&self.now.decision_time);
        // The requests, and empty lines before and after them and before the decision time.
        let room = size.rows.map(|rows| rows.saturating_sub(lines.len() + times.len() + 4));
        let most = room.map_or(usize::MAX, |room| room.saturating_sub(2 * (LIST_LINES + 3)));
        let policies = cut(policies, most.max(MIN_POLICIES));
        let room = room.map_or(usize::MAX, |room| room.saturating_sub(policies.len()));
        let accounts = (room / 2).saturating_sub(LIST_LINES).min(MAX_ACCOUNTS);

        lines.push(String::new());
        lines.push(self.requests());
        lines.push(String::new());
        lines.extend(policies);
        lines.push(String::new());
        lines.extend(times);
        if accounts > 0 {
            lines.extend(list("nearest to a quota", &self.nearest, accounts));
            lines.extend(list("most denied", &self.denied, accounts));
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }

    /// What there is to know of the server itself.
    fn status(&self) -> Vec<String> {
        let now = &self.now;
        let ago = |then: Rfc3339| time(now.at.0.saturating_since(then.0).as_millis() as u64);
        let version = &now.version;
        let (up, read) = (ago(now.started), ago(now.reload.last));
        let mut lines = vec![
            format!(
                "{STRONG}slidegate {version}{STRONG:#}  up {up}  configuration read {read} ago"
            ),
            format!("store: {}", store(&now.store)),
        ];
        if let [_, others @ ..] = &now.gateways[..]
            && !others.is_empty()
        {
            let name = |gateway: &GatewayView| match gateway.this {
                true => format!("{} (this one)", gateway.name),
                false => gateway.name.clone(),
            };
            let names: Vec<String> = now.gateways.iter().map(name).collect();
            let names = names.join(", ");
            lines.push(format!("{} gateways: {names}; figures are of this one", others.len() + 1));
        }
        let reload = &now.reload;
        let restart = reload.restart_needed.iter().map(|part| format!("[{part}]"));
        let restart: Vec<String> = restart.collect();
        let troubles = [
            now.store.reason.as_ref().map(|reason| format!("{}: {reason}", now.store.state)),
            (reload.failures > 0).then(|| {
                let (failures, last) = (reload.failures, reload.last);
                format!("reload failed ({failures}): the configuration in force is of {last}")
            }),
            (!restart.is_empty())
                .then(|| format!("restart needed: {} changed in the file", restart.join(", "))),
        ];
        lines.extend(troubles.into_iter().flatten().map(|text| format!("{BAD}{text}{BAD:#}")));
        lines
    }

    /// Requests of the last step.
    fn requests(&self) -> String {
        let per_second =
            |list: &VecDeque<u32>| rate(self.per_second(list.back().copied().unwrap_or(0)));
        let RequestSeries { allowed, refused, unavailable } = &self.now.requests;
        let [allowed, refused] = [allowed, refused].map(per_second);
        let mut line = format!("requests/s: {allowed} allowed, {refused} refused");
        if unavailable.iter().any(|count| *count > 0) {
            line += &format!(", {} not counted and refused", per_second(unavailable));
        }
        line
    }

    fn per_second(&self, count: u32) -> f64 {
        f64::from(count) * 1000.0 / self.step_ms()
    }

    /// A line of headings, and one for each policy.
    fn policies(&self, columns: usize) -> Vec<String> {
        let policies = &self.now.policies;
        let has_candidates = policies.iter().any(|series| series.candidate.iter().any(|n| *n > 0));
        let names = policies.iter().map(|series| series.policy.chars().count());
        // The columns besides the chart: the name, four or five of 9 characters, and the last, which
        // terminals clear with the rest of a full line.
        let numbers = if has_candidates { 5 } else { 4 };
        let others = names.max().unwrap_or(0).max("POLICY".len()) + 11 * numbers + 3;
        let width = columns.saturating_sub(others).min(MAX_CHART);
        let row = |series: &PolicySeries| {
            let rate = |list: &VecDeque<u32>| {
                format!("{:>9}", rate(self.per_second(list.back().copied().unwrap_or(0))))
            };
            let candidate = if has_candidates { rate(&series.candidate) } else { String::new() };
            [
                ("POLICY", series.policy.clone()),
                ("ALLOWED/s", rate(&series.allowed)),
                ("REFUSED/s", rate(&series.refused)),
                (" SHADOW/s", rate(&series.shadow)),
                ("CANDID./s", candidate),
                (" FAILED/s", rate(&series.failed)),
                (CHART_HEADING, chart(series, width)),
            ]
        };
        let text = table(policies.iter().map(row));
        match policies.is_empty() {
            true => vec!["no decisions yet: the first five seconds are being counted".to_owned()],
            false => text.lines().map(str::to_owned).collect(),
        }
    }

    fn step_ms(&self) -> f64 {
        self.now.step_ms.max(1) as f64
    }
}

fn store(store: &StoreView) -> String {
    let mut words = match &store.url {
        Some(url) => format!("{} {url} {}", store.kind, store.state),
        None => format!("{} {}", store.kind, store.state),
    };
    if let (Some(accounts), Some(capacity)) = (store.accounts, store.capacity) {
        words += &format!(", {accounts} of {capacity} accounts");
    }
    if let Some(breaker) = &store.breaker {
        words += &format!(", breaker {breaker}");
    }
    let locally = store.decided_locally.filter(|decided| *decided > 0);
    words + &locally.map(|n| format!(", {n} decided without it")).unwrap_or_default()
}

/// What decisions took in the last step that had any, and the most of all steps.
fn decision_time(series: &DecisionTimeSeries) -> Vec<String> {
    let last = series.p50_us.iter().zip(&series.p99_us).rev().find_map(|(p50, p99)| p50.zip(*p99));
    let longest = series.p99_us.iter().copied().flatten().fold(0.0, f64::max);
    let line = last.map(|(p50, p99)| {
        let (p50, p99, longest) = (micros(p50), micros(p99), micros(longest));
        format!("decision time  p50 {p50}  p99 {p99}  longest p99 in 15 min {longest}")
    });
    line.into_iter().collect()
}

/// A list of accounts with its title.
fn list(title: &str, list: &AccountList, most: usize) -> Vec<String> {
    let title = format!("{STRONG}{title}{STRONG:#}");
    match list.accounts.is_empty() {
        true => vec![String::new(), format!("{title}: none")],
        false => {
            let text = list.to_string();
            let rows = text.lines().take(most + 1).map(str::to_owned);
            [String::new(), title].into_iter().chain(rows).collect()
        }
    }
}

/// As many lines, the last of which says how many there are besides; the first is of headings.
fn cut(mut lines: Vec<String>, most: usize) -> Vec<String> {
    let besides = lines.len().saturating_sub(most.saturating_sub(1));
    if lines.len() > most {
        lines.truncate(most - 1);
        let noun = if besides == 1 { "policy" } else { "policies" };
        lines.push(format!("and {besides} more {noun}: slidegate top --once"));
    }
    lines
}

/// All decisions of a policy as bars, of fifteen minutes whether or not there are as many; those with
/// a refusal among them are red. Empty if there is no room.
fn chart(series: &PolicySeries, width: usize) -> String {
    if width < CHART_HEADING.len() {
        return String::new();
    }
    let missing = CHART_STEPS.saturating_sub(series.allowed.len());
    let counts = series.allowed.iter().zip(&series.refused);
    let counts = counts.map(|(allowed, refused)| (u64::from(*allowed), u64::from(*refused)));
    let counts: Vec<(u64, u64)> = iter::repeat_n((0, 0), missing).chain(counts).collect();
    // A column has the mean of its steps, because some have a step more than others.
    let columns = (0..width).map(|column| {
        let at = |column: usize| column * counts.len() / width;
        let steps = &counts[at(column)..at(column + 1)];
        let all: u64 = steps.iter().map(|(allowed, refused)| allowed + refused).sum();
        (all as f64 / steps.len() as f64, steps.iter().any(|(_, refused)| *refused > 0))
    });
    let columns: Vec<(f64, bool)> = columns.collect();
    let highest = columns.iter().map(|(mean, _)| *mean).fold(f64::MIN_POSITIVE, f64::max);
    let bar = |(mean, has_refused): &(f64, bool)| {
        let bar = STEPS[(mean / highest * 8.0).ceil() as usize];
        if *has_refused { format!("{BAD}{bar}{BAD:#}") } else { bar.to_string() }
    };
    columns.iter().map(bar).collect()
}

/// In three digits or more.
fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".to_owned(),
        few if few < 9.95 => format!("{few:.1}"),
        many => format!("{many:.0}"),
    }
}

fn micros(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.1} µs"),
        us if us < 1000.0 => format!("{us:.0} µs"),
        us if us < 10_000.0 => format!("{:.1} ms", us / 1000.0),
        us => format!("{:.0} ms", us / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use serde_json::json;

    use super::*;

    fn overview(policies: &[&str], steps: usize) -> Overview {
        let list = |n: u32| vec![n; steps];
        let policies = policies.iter().map(|policy| {
            json!({
                "policy": policy, "allowed": list(600), "refused": list(7), "shadow": list(0),
                "candidate": list(0), "failed": list(0),
            })
        });
        let now = json!({
            "version": "1.2.3", "at": "2026-01-01T01:30:00Z", "started": "2026-01-01T00:00:00Z",
            "reload": { "last": "2026-01-01T00:10:00Z", "failures": 0, "restart_needed": ["log"] },
            "store": { "kind": "redis", "state": "degraded", "reason": "why", "breaker": "open",
                "url": "10.0.0.5:6379", "decided_locally": 12 },
            "gateways": [
                { "name": "a:1", "this": true, "version": "1.2.3",
                    "started": "2026-01-01T00:00:00Z", "seen_ms": 0 },
                { "name": "b:1", "this": false, "version": "1.2.3",
                    "started": "2026-01-01T00:00:00Z", "seen_ms": 9 },
            ],
            "step_ms": 5000,
            "requests": { "allowed": list(610), "refused": list(7), "unavailable": list(0) },
            "policies": policies.collect::<Vec<_>>(),
            "decision_time": { "p50_us": [2.25, null], "p99_us": [1500.0, null] },
        });
        let account = |i: u32| {
            json!({ "identity": format!("ip:10.0.0.{i}"), "policy": "api", "used": 0.5,
                "quotas": [] })
        };
        let accounts: Vec<_> = (0..10).map(account).collect();
        let list =
            |sort| serde_json::from_value(json!({ "sort": sort, "accounts": accounts })).unwrap();
        Overview {
            now: serde_json::from_value(now).unwrap(),
            nearest: list("nearest"),
            denied: list("denied"),
        }
    }

    fn plain(overview: &Overview, size: TextSize) -> String {
        strip_str(&overview.text(size)).to_string()
    }

    #[test]
    fn a_page_has_what_there_is_to_know() {
        let text = plain(&overview(&["api", "login"], 120), TextSize { columns: 80, rows: None });
        let expected = "\
slidegate 1.2.3  up 1h 30min  configuration read 1h 20min ago
store: redis 10.0.0.5:6379 degraded, breaker open, 12 decided without it
2 gateways: a:1 (this one), b:1; figures are of this one
degraded: why
restart needed: [log] changed in the file

requests/s: 122 allowed, 1.4 refused

POLICY  ALLOWED/s  REFUSED/s   SHADOW/s   FAILED/s  LAST 15 MIN
api           120        1.4          0          0           ██████████████████
login         120        1.4          0          0           ██████████████████

decision time  p50 2.2 µs  p99 1.5 ms  longest p99 in 15 min 1.5 ms

nearest to a quota
IDENTITY     POLICY  USED
";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("\n\nmost denied\nIDENTITY"), "{text}");
    }

    #[test]
    fn a_page_fits_its_terminal() {
        let policies: Vec<String> = (0..40).map(|i| format!("policy-{i}")).collect();
        let policies: Vec<&str> = policies.iter().map(String::as_str).collect();
        for (count, rows, columns) in
            [(2, 24, 80), (40, 24, 80), (40, 60, 200), (40, 18, 60), (2, 100, 300), (0, 24, 80)]
        {
            let size = TextSize { columns, rows: Some(rows) };
            let text = plain(&overview(&policies[..count], 180), size);
            assert!(text.lines().count() <= rows, "{rows} rows:\n{text}");
            let has_accounts = text.contains("nearest to a quota");
            assert_eq!(has_accounts, rows >= 24, "{rows} rows:\n{text}");
            let table = text.lines().filter(|line| line.starts_with("policy-"));
            let widest = table.map(|line| line.chars().count()).max();
            assert!(widest < Some(columns), "{columns} columns:\n{text}");
        }
        let text = plain(&overview(&policies, 1), TextSize { columns: 80, rows: Some(24) });
        assert!(text.contains(" more policies: slidegate top --once"), "{text}");
    }
}
