//! A file of cases: requests in a sequence over virtual time, and what is expected of each.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use slidegate::limit::Period;
use slidegate_customers::claim;
use slidegate_replay::{DescribedRequest, DescribedResponse};

use super::expectation::Expectation;
use crate::config::{self, ConfigErrors, Flags, JwtConfig, LimiterConfig, Sources, Value};

/// The most repetitions of a step.
const MAX_TIMES: u32 = 1_000_000;
/// The most that a case can last. Windows and bans last a tenth of it at most.
const MAX_LENGTH: Duration = Duration::from_secs(3660 * 86_400);

/// What cases can refer to.
#[derive(Clone, Copy)]
struct NamedInConfig<'c> {
    policies: &'c [&'c str],
    issuers: &'c [JwtConfig],
}

/// Cases, and the configuration that they are for.
#[derive(Debug)]
pub(super) struct CaseFile {
    pub(super) path: PathBuf,
    config: Sources,
    pub(super) cases: Vec<PolicyCase>,
}

/// Steps that begin with empty accounts.
#[derive(Debug)]
pub(super) struct PolicyCase {
    pub(super) name: String,
    pub(super) steps: Vec<CaseStep>,
}

/// A request, as often as it is repeated, and what is expected each time, if anything is.
#[derive(Debug)]
pub(super) struct CaseStep {
    /// Where it stands in the file.
    pub(super) line: usize,
    /// Since the start of the case.
    pub(super) at: Duration,
    pub(super) times: u32,
    pub(super) every: Duration,
    pub(super) request: DescribedRequest,
    /// What answers it if it is allowed.
    pub(super) response: DescribedResponse,
    pub(super) expect: Expectation,
}

impl CaseFile {
    /// Reads cases that are for this configuration, else for the one that the file names, else for
    /// the one beside it.
    pub(super) fn read(
        path: &Path,
        config: Option<Sources>,
        skip_files: bool,
    ) -> anyhow::Result<Self> {
        let mut config_errors: Option<ConfigErrors> = None;
        let read = config::read_toml(path, |root| {
            let named = root.key("config").file().unwrap_or_else(|| configuration_of(path));
            let config = config
                .map_or_else(|| Sources::of_command(Some(&named), Flags::default()).ok(), Some)?
                .skipping_files(skip_files);
            let (mut policies, mut issuers) = (Vec::new(), Vec::new());
            match config::load(&config) {
                Ok(loaded) => {
                    policies.extend(loaded.config.limiter.policies.names().cloned());
                    issuers = loaded.config.server.customers.issuers;
                }
                Err(errors) => config_errors = Some(errors),
            }
            let policies: Vec<&str> = policies.iter().map(|name| &**name).collect();
            let named = NamedInConfig { policies: &policies, issuers: &issuers };
            let cases = read_cases(&root.key("case"), named);
            Some(Self { path: path.to_owned(), config, cases })
        });
        match (read, config_errors) {
            (Ok(file), None) => Ok(file),
            (Err(errors), None) | (Ok(_), Some(errors)) => Err(errors.into()),
            (Err(errors), Some(config_errors)) => anyhow::bail!("{errors}\n{config_errors}"),
        }
    }

    /// The name of the configuration.
    pub(super) fn config(&self) -> String {
        self.config.name()
    }

    /// The configuration that the cases test, once for each case.
    pub(super) fn load(&self) -> Result<LimiterConfig, ConfigErrors> {
        Ok(config::load(&self.config)?.config.limiter)
    }
}

/// `NAME.toml` for `NAME.test.toml`.
fn configuration_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.strip_suffix(".test.toml") {
        Some(name) => path.with_file_name(format!("{name}.toml")),
        None => path.with_file_name("slidegate.toml"),
    }
}

fn read_cases(list: &Value<'_>, named: NamedInConfig<'_>) -> Vec<PolicyCase> {
    let tables = list.clone().required("at least one [[case]]").each(Value::table);
    let mut names = HashSet::new();
    for name in tables.iter().map(|table| table.key("name")) {
        if name.is_text() && !names.insert(name.string()) {
            name.report("another case has this name");
        }
    }
    tables.iter().filter_map(|table| PolicyCase::read(table, named)).collect()
}

impl PolicyCase {
    fn read(table: &Value<'_>, named: NamedInConfig<'_>) -> Option<Self> {
        let name = table.key("name").required("what the case shows").text();
        let name = name.map(str::trim).filter(|name| {
            let is_good = !name.is_empty() && !name.contains(char::is_control);
            if !is_good {
                table.key("name").report("expected a line of text");
            }
            is_good
        });
        let (shared, list) = (table.key("request"), table.key("step"));
        // A case without steps is its own.
        let tables = if list.is_set() { list.each(Value::table) } else { vec![table.clone()] };
        match tables.last() {
            None => list.report("expected at least one [[case.step]]"),
            Some(last) if !tables.iter().any(|table| table.key("expect").is_set()) => {
                let expected = "what is decided, such as { verdict = \"deny\" }";
                let of_step = if list.is_set() { ", in at least one step" } else { "" };
                last.key("expect").report(format!("missing: expected {expected}{of_step}"));
            }
            Some(_) => {}
        }
        let mut steps: Vec<CaseStep> = Vec::new();
        for table in &tables {
            steps.extend(CaseStep::read(table, &shared, steps.last(), named));
        }
        Some(Self { name: name?.to_owned(), steps })
    }
}

impl CaseStep {
    fn read(
        table: &Value<'_>,
        shared: &Value<'_>,
        before: Option<&Self>,
        named: NamedInConfig<'_>,
    ) -> Option<Self> {
        let expect = table.key("expect");
        // A step without it only sends.
        let expect = match expect.is_set() {
            true => expect.table().and_then(|expect| Expectation::read(&expect, named.policies)),
            false => Some(Expectation::default()),
        };
        let request = read_request(&table.key("request"), shared, named.issuers);
        let response = read_response(table);
        let times = table.key("times");
        let count = times.number(1..=MAX_TIMES).unwrap_or(1);
        let every = table.key("every").parsed().map_or(Duration::ZERO, |Period(every)| every);
        if table.key("every").is_set() && !times.is_set() {
            table.key("every").report("expected `times` too: how often it is");
        }
        let at = table.key("at");
        let start =
            if at.is_set() { instant(&at)? } else { before.map_or(Duration::ZERO, Self::end) };
        if let Some(before) = before.filter(|before| start < before.last()) {
            let text = format!("in the past: the step before is at {}", Period(before.last()));
            at.report(text);
        }
        let (expect, request) = (expect?, request?);
        let line = table.line();
        let step = Self { line, at: start, times: count, every, request, response, expect };
        if step.checked_end().is_none() {
            let what = if times.is_set() { &times } else { &at };
            what.report(format!("a case lasts at most {}", Period(MAX_LENGTH)));
            return None;
        }
        Some(step)
    }

    /// When each repetition is.
    pub(super) fn instants(&self) -> impl Iterator<Item = Duration> {
        (0..self.times).map(|i| self.at + self.every * i)
    }

    /// When the last repetition is.
    fn last(&self) -> Duration {
        self.at + self.every * (self.times - 1)
    }

    /// When the next step is that does not say.
    fn end(&self) -> Duration {
        self.at + self.every * self.times
    }

    fn checked_end(&self) -> Option<Duration> {
        let end = self.at.checked_add(self.every.checked_mul(self.times)?)?;
        Some(end).filter(|end| *end <= MAX_LENGTH)
    }
}

/// An instant since the start of the case.
fn instant(value: &Value<'_>) -> Option<Duration> {
    match value.text()? {
        "0" | "0ms" | "0s" | "0min" | "0h" | "0d" => Some(Duration::ZERO),
        _ => value.parsed().map(|Period(at)| at),
    }
}

/// The request of a step: what it does not say is as in the case's.
fn read_request(
    own: &Value<'_>,
    shared: &Value<'_>,
    issuers: &[JwtConfig],
) -> Option<DescribedRequest> {
    // What is no table is reported once.
    own.table();
    shared.table();
    let key = |name: &'static str| {
        let (own, shared) = (own.key(name), shared.key(name));
        if own.is_set() { own } else { shared }
    };
    let address = |name| key(name).parsed_as("expected an IP address");
    let method = key("method").parsed_as::<Method>("expected a method, such as GET");
    let path = key("path");
    let text = path.clone().required("a path, such as /login").string();
    if text.as_ref().is_some_and(|text| !text.starts_with('/')) {
        path.report("expected a path that starts with /");
    }
    let mut headers = HeaderMap::new();
    add_headers(&mut headers, &shared.key("headers"));
    add_headers(&mut headers, &own.key("headers"));
    let [user, customer, plan] = claimed(&key("claims"), issuers);
    Some(DescribedRequest {
        method: method.unwrap_or_default(),
        headers,
        client: address("client"),
        peer: address("peer"),
        user: key("user").string().or(user),
        customer: key("customer").string().or(customer),
        plan: key("plan").string().or(plan),
        cost: key("cost").number(1..=u32::MAX).and_then(NonZeroU32::new),
        path: text?,
    })
}

/// The user, the customer and the plan that a verified token names whose claims are these. Without
/// `iss`, it is of the first issuer.
fn claimed(claims: &Value<'_>, issuers: &[JwtConfig]) -> [Option<String>; 3] {
    if !claims.is_set() {
        return Default::default();
    }
    let json = claims.json();
    let Some(members) = json.as_object() else {
        claims.table();
        return Default::default();
    };
    let named = members.get("iss").and_then(|issuer| issuer.as_str());
    let issuer = issuers.iter().find(|issuer| named.is_none_or(|named| named == issuer.issuer));
    let Some(issuer) = issuer else {
        claims.report_with("no [[jwt]] of the configuration has this issuer", named);
        return Default::default();
    };
    [&issuer.user, &issuer.customer, &issuer.plan].map(|name| claim(members, name.as_deref()?))
}

/// The response of a step: 200 unless it says another status.
fn read_response(table: &Value<'_>) -> DescribedResponse {
    let status = table.key("status").number(100..=599_u16);
    let status = status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or_default();
    let cost = table.key("response_cost").number(0..=u32::MAX);
    DescribedResponse { end: Some(status.into()), cost }
}

/// Sets headers in place of those of the same name. A list repeats one. No error shows a value.
fn add_headers(headers: &mut HeaderMap, table: &Value<'_>) {
    for (name, value) in table.names() {
        let Ok(name) = name.parse::<HeaderName>() else {
            value.hidden().report("expected the name of a header");
            continue;
        };
        let values = value.hidden().elements();
        let values = values
            .iter()
            .filter_map(|value| value.parsed_as::<HeaderValue>("expected visible text"));
        if let Entry::Occupied(entry) = headers.entry(&name) {
            entry.remove_entry_mult().1.for_each(drop);
        }
        values.for_each(|value| {
            headers.append(&name, value);
        });
    }
}
