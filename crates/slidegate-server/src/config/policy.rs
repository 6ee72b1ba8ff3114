//! `[[policy]]` and `[plans]`, and what else is written for policies: lists and refusals.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderName, Method, StatusCode};
use slidegate::policy::{CostSource, Network, Prefixes, StatusRange};
use slidegate::{AccessList, Ban, Consistency, Plan, Policy, Quota, Scope, Source};
use slidegate_tower::{Headers, Refusal, Responder, Shape, TemplateError};

use crate::config::api_keys::{IssuedKeys, ListedKey};
use crate::config::reader::Value;
use slidegate::limit::Period;

/// A policy as it is written. What could not be read has been reported, and is left out.
pub(super) struct PolicyConfig<'t> {
    pub(super) table: Value<'t>,
    /// A name that stands for a missing one, so that the rest can be checked.
    pub(super) name: String,
    pub(super) policy: Policy,
}

impl<'t> PolicyConfig<'t> {
    pub(super) fn read(table: Value<'t>, keys: &IssuedKeys<'_, '_>) -> Self {
        let name = table.key("name").required("a name, such as api").string();
        let name = name.unwrap_or_else(|| {
            let key = &table.location.key;
            format!("unnamed-{}", key.replace(|c: char| !c.is_ascii_alphanumeric(), ""))
        });
        let scopes = [("shared", Scope::Shared), ("local", Scope::Local)];
        let mut policy = Policy::new(name.clone())
            .scope(table.key("scope").one_of(&scopes).unwrap_or_default())
            .consistency(consistency(&table))
            .on_store_error(table.key("on_store_error").parsed().unwrap_or_default())
            .exempt(access_list(&table.section("exempt"), keys));
        if let Some(identity) = identity(&table.key("identity")) {
            policy = policy.identity(identity);
        }
        if table.key("anonymous").one_of(&[("share", false), ("skip", true)]) == Some(true) {
            policy = policy.skip_anonymous();
        }
        let matched = table.section("match");
        if let Some((domain, descriptors)) = descriptors(&matched) {
            policy = policy.descriptors(domain, descriptors);
        }
        for (key, values) in matched.key("except").names() {
            policy = values
                .each(Value::text)
                .into_iter()
                .fold(policy, |policy, value| policy.except(key, value));
        }
        for key in ["method", "methods"] {
            let expected = "expected a method such as GET or POST";
            let methods = matched.key(key).each(|value| value.parsed_as::<Method>(expected));
            policy = methods.into_iter().fold(policy, Policy::method);
        }
        for key in ["path", "paths"] {
            policy = matched.key(key).each(Value::text).into_iter().fold(policy, Policy::path);
        }
        let (plans, mut quotas) = (table.key("plan"), quotas(&table.key("quotas")));
        policy = match plan(&plans) {
            Some((Some(header), default)) => policy.plan_header(header, default),
            Some((None, default)) => policy.plans(default),
            None => {
                if plans.is_set() {
                    quotas = vec![STAND_IN];
                }
                policy
            }
        };
        policy = quotas.into_iter().fold(policy, Policy::quota);
        policy = candidate(&table.key("candidate")).into_iter().fold(policy, Policy::candidate);
        policy = match cost(&table.key("cost")) {
            Some(PolicyCost::Units(units)) => policy.cost(units.get()),
            Some(PolicyCost::Request) => policy.request_cost(),
            Some(PolicyCost::Response(source, hold)) => policy.response_cost(source, hold.get()),
            None => policy,
        };
        if let Some(statuses) = statuses(&table.key("count")) {
            policy = policy.count_statuses(statuses);
        }
        if let Some(statuses) = statuses(&table.key("refund")) {
            policy = policy.refund_statuses(statuses);
        }
        if table.key("charge").one_of(&[("record", false), ("admit", true)]) == Some(true) {
            policy = policy.admit_only();
        }
        policy = match table.key("headers").boolean() {
            Some(true) => policy.in_headers(),
            Some(false) => policy.not_in_headers(),
            None => policy,
        };
        if table.key("count_denied").is_true() {
            policy = policy.count_denied();
        }
        if table.key("shadow").is_true() {
            policy = policy.shadow();
        }
        if let Some(ban) = ban(&table.key("ban")) {
            policy = policy.ban(ban);
        }
        Self { table, name, policy }
    }
}

/// Stands for quotas or a plan that could not be read, so that the rest can be checked.
const STAND_IN: Quota = Quota::per_day(u32::MAX);

fn quotas(value: &Value<'_>) -> Vec<Quota> {
    let quotas = value.each(Value::parsed);
    if quotas.len() == value.elements().len() { quotas } else { vec![STAND_IN] }
}

/// `{ quotas = ["50/min"] }`.
fn candidate(value: &Value<'_>) -> Vec<Quota> {
    let Some(table) = value.table() else { return Vec::new() };
    table.key("quotas").required("quotas, such as [\"50/min\"]").each(Value::parsed)
}

/// A plan of `[plans]`.
pub(super) fn read_plan(name: &str, table: &Value<'_>) -> Plan {
    let plan = Plan::new(name, quotas(&table.key("quotas")));
    let url = table.key("upgrade_url");
    let Some(text) = url.text() else { return plan };
    if !text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some()) {
        url.report("expected a URL such as https://app.example.com/upgrade");
    }
    plan.upgrade_url(text)
}

/// None is as by default.
fn identity(value: &Value<'_>) -> Option<Vec<Source>> {
    let sources = value.each(source);
    // What could not be read has been reported; an empty list is for the library to report.
    let is_empty = value.is_set() && value.elements().is_empty();
    (is_empty || !sources.is_empty()).then_some(sources)
}

/// `domain = "edge"` and `descriptors = { remote_address = "*" }`, which belong together.
fn descriptors<'t>(matched: &Value<'t>) -> Option<(&'t str, Vec<(&'t str, &'t str)>)> {
    let [domain, entries] = ["domain", "descriptors"].map(|key| matched.key(key));
    if !domain.is_set() && !entries.is_set() {
        return None;
    }
    let domain = domain.required("the domain of the descriptors, such as edge").text();
    let entries = entries.required("descriptors, such as { remote_address = \"*\" }").table()?;
    let entries = entries.names().into_iter().map(|(key, value)| Some((key, value.text()?)));
    let entries: Vec<Option<_>> = entries.collect();
    Some((domain?, entries.into_iter().collect::<Option<_>>()?))
}

/// `"ip"`, `"header:x-tenant"`, `{ ip = { v4 = 32, v6 = 56 } }` or `{ header = "x-tenant" }`.
fn source(value: &Value<'_>) -> Option<Source> {
    if !value.is_table() {
        return value.parsed();
    }
    let (ip, header) = (value.key("ip"), value.key("header"));
    match (ip.is_set(), header.is_set()) {
        (false, true) => header_name(&header).map(Source::Header),
        (true, false) => {
            let (v4, v6) = prefixes(&ip.table()?);
            let prefixes = Prefixes::default().with_v4(v4).and_then(|all| all.with_v6(v6));
            prefixes.ok().map(Source::Ip)
        }
        _ => value.reject("expected ip = { v4 = 32, v6 = 64 } or header = \"x-tenant\""),
    }
}

/// How many bits of an address count, of IPv4 and of IPv6.
pub(super) fn prefixes(table: &Value<'_>) -> (u8, u8) {
    let (v4, v6) = (table.key("v4").number(1..=32), table.key("v6").number(1..=128));
    (v4.unwrap_or(32), v6.unwrap_or(64))
}

pub(super) fn header_name(value: &Value<'_>) -> Option<HeaderName> {
    value.parsed_as("expected the name of a header, such as x-tenant")
}

/// What a request costs, as it is written.
enum PolicyCost {
    Units(NonZeroU32),
    Request,
    /// What the response says, and what is held until then.
    Response(CostSource, NonZeroU32),
}

/// `10`, `"request"` or `{ response_json = "usage.total_tokens", hold = 1000 }`.
fn cost(value: &Value<'_>) -> Option<PolicyCost> {
    if value.is_table() {
        return response_cost(value);
    }
    match value.node?.text() {
        None => NonZeroU32::new(value.number(1..=u32::MAX)?).map(PolicyCost::Units),
        Some("request") => Some(PolicyCost::Request),
        Some(_) => value.reject("expected a whole number of units, or \"request\""),
    }
}

fn response_cost(value: &Value<'_>) -> Option<PolicyCost> {
    let (header, json) = (value.key("response_header"), value.key("response_json"));
    let hold = value.key("hold");
    let held = if hold.is_set() { hold.number(1..=u32::MAX) } else { Some(1) };
    let source = match (header.is_set(), json.is_set()) {
        (true, false) => header
            .parsed_as("expected the name of a header, such as x-cost")
            .map(CostSource::Header),
        (false, true) => json.parsed().map(CostSource::Json),
        _ => value.reject(
            "expected response_json = \"usage.total_tokens\" or response_header = \"x-cost\", \
             with hold = 1000 or without",
        ),
    };
    Some(PolicyCost::Response(source?, NonZeroU32::new(held?)?))
}

/// `{ status = [401, 403, "5xx"] }`, or nothing.
fn statuses(value: &Value<'_>) -> Option<Vec<StatusRange>> {
    let table = value.table()?;
    let list = table.key("status");
    if !list.is_set() {
        // Another key in its place is reported as unknown.
        if table.names().is_empty() {
            list.required("statuses, such as [401, 403, \"5xx\"]");
        }
        return None;
    }
    let status = |value: &Value<'_>| {
        if value.is_text() {
            return value.parsed();
        }
        let status = value.number(100..=599_u16)?;
        StatusCode::from_u16(status).ok().map(StatusRange::from)
    };
    let statuses = list.each(status);
    // What could not be read has been reported; an empty list is for the library to report.
    (statuses.len() == list.elements().len()).then_some(statuses)
}

/// `"free"` or `{ header = "x-plan", default = "free" }`.
fn plan(value: &Value<'_>) -> Option<(Option<HeaderName>, String)> {
    if value.is_text() {
        return Some((None, value.string()?));
    }
    let table = value.table()?;
    let header = header_name(&table.key("header"));
    Some((header, table.key("default").required("the name of a plan").string()?))
}

/// `consistency = "async"`, with a `lease` or the usual one.
fn consistency(table: &Value<'_>) -> Consistency {
    let modes = [("sync", Consistency::Sync), ("async", Consistency::ASYNC)];
    let mode = table.key("consistency").one_of(&modes).unwrap_or_default();
    let lease = table.key("lease");
    match (mode, lease.parsed()) {
        (Consistency::Async { .. }, Some(Period(lease))) => {
            Consistency::Async { lease: Some(lease) }
        }
        (Consistency::Sync, Some(_)) => {
            lease.report("only a policy with consistency = \"async\" has leases");
            mode
        }
        (mode, None) => mode,
    }
}

/// `{ after = "20/min", for = "10min" }`.
fn ban(value: &Value<'_>) -> Option<Ban> {
    let table = value.table()?;
    let after = table.key("after").required("how many denials begin it, such as 20/min").parsed();
    let length = table.key("for").parsed::<Period>();
    let ban = Ban::after(after?);
    Some(length.map_or(ban, |length| ban.lasting(length.0)))
}

/// `[exempt]`, `[blocked]` or the exemptions of a policy.
pub(super) fn access_list(table: &Value<'_>, keys: &IssuedKeys<'_, '_>) -> AccessList {
    let warn = |value: &Value<'_>| {
        value.warn_of_secret("secrets in the file: make sure that only the server can read it");
    };
    let mut list = AccessList::new();
    list = table.key("users").each(Value::text).into_iter().fold(list, AccessList::user);
    list = table.key("customers").each(Value::text).into_iter().fold(list, AccessList::customer);
    let api_keys = table.key("api_keys");
    let listed = api_keys.each(|value| keys.find(value));
    if !keys.are_incomplete && listed.iter().any(ListedKey::is_secret) {
        warn(&api_keys);
    }
    list = listed.into_iter().fold(list, |list, key| key.add_to(list));
    let authorizations = table.key("authorizations");
    let secrets = authorizations.each(Value::secret);
    if !secrets.is_empty() {
        warn(&authorizations);
    }
    for value in secrets {
        list = list.authorization(value.reveal());
    }
    for network in table.key("networks").each(Value::parsed::<Network>) {
        list = list.network(network);
    }
    list = networks_file(&table.key("networks_file"), list);
    list = table.key("paths").each(Value::text).into_iter().fold(list, AccessList::path);
    for (name, value) in table.key("headers").names() {
        let Ok(header) = name.parse::<HeaderName>() else {
            value.hidden().report("expected the name of a header, such as x-tenant");
            continue;
        };
        for value in value.each(Value::secret) {
            list = list.header(header.clone(), value.reveal());
        }
    }
    list
}

/// A million networks have about 20 MiB.
const MAX_NETWORKS_BYTES: u64 = 256 * 1024 * 1024;

/// Bad lines of a file that are reported one by one.
const MAX_BAD_LINES: usize = 20;

/// Adds the networks of a file: one on each line, and comments after `#`.
fn networks_file(value: &Value<'_>, mut list: AccessList) -> AccessList {
    let Some(path) = value.file() else { return list };
    if value.is_skipped_file() {
        return list;
    }
    let Some(contents) = value.watched_contents(&path, MAX_NETWORKS_BYTES) else { return list };
    let Ok(text) = std::str::from_utf8(&contents.bytes) else {
        value.report("the file is not UTF-8 text");
        return list;
    };
    let path: Arc<Path> = path.into();
    let mut bad = 0;
    for (index, line) in text.lines().enumerate() {
        let written = line.split('#').next().unwrap_or_default().trim();
        if written.is_empty() {
            continue;
        }
        match written.parse::<Network>() {
            Ok(network) => list = list.network(network),
            // Without the text: the file may be another one, with secrets in it.
            Err(_) if bad < MAX_BAD_LINES => {
                bad += 1;
                let expected = "expected a network such as 10.0.0.0/8 or 2001:db8::/32, with no bits \
                                set after the prefix";
                value.report_line(&path, index + 1, expected);
            }
            Err(_) => {
                value.report("more lines of the file are not networks");
                break;
            }
        }
    }
    let is_all = list.has_every_address();
    value.warn_if(is_all, "the list contains every address: it has 0.0.0.0/0 or ::/0");
    list
}

/// `[headers]`, `[refusal]` and the refusals of policies.
pub(super) fn responder(root: &Value<'_>, policies: &[PolicyConfig<'_>]) -> Responder {
    let table = root.section("headers");
    let dialects = table.key("dialects");
    let mut headers = match dialects.is_set() {
        // An empty list is not the default.
        true => Headers::new(dialects.each(Value::parsed)),
        false => Headers::default(),
    };
    if table.key("on_redirects").boolean() == Some(false) {
        headers = headers.not_on_redirects();
    }
    let mut responder = Responder::new().headers(headers);
    if let Some(refusal) = refusal(&root.key("refusal")) {
        responder = responder.refusal(refusal);
    }
    for policy in policies {
        if let Some(refusal) = refusal(&policy.table.key("refusal")) {
            responder = responder.refusal_for(policy.name.as_str(), refusal);
        }
    }
    responder
}

/// A shape's name, or a table with a shape or a template.
fn refusal(value: &Value<'_>) -> Option<Refusal> {
    if value.is_text() {
        return value.parsed::<Shape>().map(Refusal::from);
    }
    let table = value.table()?;
    let [named, text, content_type] =
        ["shape", "template", "content_type"].map(|key| table.key(key));
    if text.is_set() {
        if named.is_set() {
            named.report("a template is given too: expected a shape or a template, not both");
        }
        return template(&content_type, &text);
    }
    if named.is_set() && content_type.is_set() {
        content_type.report("a shape has its own: expected it with a template only");
    }
    let named = named.required("shape = \"problem\" or a template");
    named.parsed::<Shape>().map(Refusal::from)
}

fn template(content_type: &Value<'_>, text: &Value<'_>) -> Option<Refusal> {
    let kind = content_type.text().unwrap_or("text/plain; charset=utf-8");
    let is_json = kind.starts_with("text/plain") && text.text().is_some_and(looks_like_json);
    text.warn_if(is_json, "this is JSON, sent as text: say content_type = \"application/json\"");
    let report = |error| match error {
        TemplateError::ContentType(_) => content_type.report(error),
        _ => text.report(error),
    };
    Refusal::template(kind, text.text()?).map_err(report).ok()
}

/// Whether a template begins as JSON does. A placeholder, such as `{retry_after}`, begins otherwise.
fn looks_like_json(template: &str) -> bool {
    let mut start = template.chars().filter(|c| !c.is_whitespace());
    match (start.next(), start.next()) {
        (Some('{'), second) => second == Some('"'),
        (Some('['), second) => matches!(second, Some('{' | '[' | '"')),
        _ => false,
    }
}
