//! `[[policy]]` and `[plans]`.

use std::num::NonZeroU32;

use http::{HeaderName, Method};
use slidegate::policy::Prefixes;
use slidegate::{Ban, Cost, Plan, Policy, Quota, Scope, Source};
use slidegate_tower::Refusal;

use crate::config::access_list::AccessListConfig;
use crate::config::reader::{Table, Value};
use crate::config::responses;
use crate::config::tree::Node;
use crate::config::values::Period;

/// A policy as it is written.
pub(super) struct PolicyConfig<'t> {
    pub(super) node: &'t Node,
    /// A name that stands for a missing one, so that the rest can be checked.
    pub(super) name: String,
    pub(super) policy: Policy,
    /// Identity sources as they are shown.
    pub(super) identity: Vec<String>,
    pub(super) exempt: AccessListConfig,
    /// With the word for it.
    pub(super) refusal: Option<(Refusal, String)>,
}

impl<'t> PolicyConfig<'t> {
    pub(super) fn read(table: &Table<'t>) -> Option<Self> {
        let name = table.require("name", "a name, such as api", Value::string);
        let name = name.unwrap_or_else(|| {
            let key = &table.location.key;
            format!("unnamed-{}", key.replace(|c: char| !c.is_ascii_alphanumeric(), ""))
        });
        let identity = identity(table);
        let exempt = AccessListConfig::read(&table.table("exempt"));
        let scopes = [("shared", Scope::Shared), ("local", Scope::Local)];
        let mut policy = Policy::new(name.clone())
            .identity(identity.iter().map(|(source, _)| source.clone()))
            .scope(table.read("scope", |value| value.one_of(&scopes)).unwrap_or_default())
            .on_store_error(table.read("on_store_error", Value::parsed).unwrap_or_default())
            .exempt(exempt.list.clone());
        let matched = table.table("match");
        for key in ["method", "methods"] {
            let expected = "expected a method such as GET or POST";
            let methods = matched.list(key, |value| value.parsed_as::<Method>(expected));
            policy = methods.into_iter().fold(policy, Policy::method);
        }
        for key in ["path", "paths"] {
            policy = matched.list(key, Value::string).into_iter().fold(policy, Policy::path);
        }
        let plan = table.read("plan", plan);
        let is_lost = plan.is_none() && table.has("plan");
        policy = match plan {
            Some((Some(header), default)) => policy.plan_header(header, default),
            Some((None, default)) => policy.plans(default),
            None => policy,
        };
        let quotas = quotas(table);
        let quotas = if is_lost { vec![STAND_IN] } else { quotas };
        policy = quotas.into_iter().fold(policy, Policy::quota);
        policy = match table.read("cost", cost) {
            Some(Cost::Units(units)) => policy.cost(units.get()),
            Some(Cost::Request) => policy.request_cost(),
            None => policy,
        };
        policy = match table.read("headers", Value::boolean) {
            Some(true) => policy.in_headers(),
            Some(false) => policy.not_in_headers(),
            None => policy,
        };
        if table.boolean("count_denied") {
            policy = policy.count_denied();
        }
        if table.boolean("shadow") {
            policy = policy.shadow();
        }
        if let Some(ban) = table.read("ban", |value| ban(&value.table()?)) {
            policy = policy.ban(ban);
        }
        Some(Self {
            node: table.node?,
            name,
            policy,
            identity: identity.into_iter().map(|(_, shown)| shown).collect(),
            exempt,
            refusal: table.read("refusal", responses::refusal),
        })
    }
}

/// Stands for quotas or a plan that could not be read, so that the rest can be checked.
const STAND_IN: Quota = Quota::per_day(u32::MAX);

fn quotas(table: &Table<'_>) -> Vec<Quota> {
    let Some(value) = table.get("quotas") else { return Vec::new() };
    let quotas = value.each(Value::parsed);
    let is_whole = quotas.len() == value.node.elements().len();
    if is_whole { quotas } else { vec![STAND_IN] }
}

/// Every plan of `[plans]`, with its name.
pub(super) fn plans<'t>(root: &Table<'t>) -> Vec<(&'t str, Plan)> {
    let plan = |(name, value): (&'t str, Value<'t>)| {
        let table = value.table()?;
        let plan = Plan::new(name, quotas(&table));
        let url = table.read("upgrade_url", |value| {
            let text = value.text()?;
            if !text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some()) {
                value.report("expected a URL such as https://app.example.com/upgrade");
            }
            Some(text)
        });
        Some((name, url.into_iter().fold(plan, Plan::upgrade_url)))
    };
    root.names("plans").into_iter().filter_map(plan).collect()
}

/// Identity sources, and how they are shown.
fn identity(table: &Table<'_>) -> Vec<(Source, String)> {
    let ip = || vec![(Source::ip(), "ip".to_owned())];
    let Some(value) = table.get("identity") else { return ip() };
    let sources = value.each(source);
    // What could not be read has been reported; an empty list is for the library to report.
    let has_failed = sources.is_empty() && !value.node.elements().is_empty();
    if has_failed { ip() } else { sources }
}

/// `"ip"`, `"header:x-tenant"`, `{ ip = { v4 = 32, v6 = 56 } }` or `{ header = "x-tenant" }`.
fn source(value: &Value<'_>) -> Option<(Source, String)> {
    let shown = |source: Source| (source.clone(), source.to_string());
    if !value.is_table() {
        return value.parsed().map(shown);
    }
    let table = value.table()?;
    match (table.get("ip"), table.get("header")) {
        (Some(ip), None) => {
            let table = ip.table()?;
            let v4 = table.get("v4").map_or(Some(32), |value| value.number(1..=32_u8));
            let v6 = table.get("v6").map_or(Some(64), |value| value.number(1..=128_u8));
            let (v4, v6) = (v4?, v6?);
            let prefixes = Prefixes::default().with_v4(v4).and_then(|all| all.with_v6(v6));
            let shown = format!("ip (/{v4} of IPv4, /{v6} of IPv6)");
            Some((Source::Ip(prefixes.ok()?), shown))
        }
        (None, Some(header)) => header_name(&header).map(Source::Header).map(shown),
        _ => {
            value.report("expected ip = { v4 = 32, v6 = 64 } or header = \"x-tenant\"");
            None
        }
    }
}

pub(super) fn header_name(value: &Value<'_>) -> Option<HeaderName> {
    value.parsed_as("expected the name of a header, such as x-tenant")
}

/// `10` or `"request"`.
fn cost(value: &Value<'_>) -> Option<Cost> {
    match value.node.text() {
        Some("request") => Some(Cost::Request),
        Some(_) => {
            value.report("expected a whole number of units, or \"request\"");
            None
        }
        None => NonZeroU32::new(value.number(1..=u32::MAX)?).map(Cost::Units),
    }
}

/// `"free"` or `{ header = "x-plan", default = "free" }`.
fn plan(value: &Value<'_>) -> Option<(Option<HeaderName>, String)> {
    if value.is_text() {
        return Some((None, value.string()?));
    }
    let table = value.table()?;
    let header = table.read("header", header_name);
    Some((header, table.require("default", "the name of a plan", Value::string)?))
}

/// `{ after = "20/min", for = "10min" }`.
fn ban(table: &Table<'_>) -> Option<Ban> {
    let after = table.require("after", "how many denials begin it, such as 20/min", Value::parsed);
    let length = table.get("for").map(|value| value.parsed::<Period>());
    let ban = Ban::after(after?);
    match length {
        Some(length) => Some(ban.lasting(length?.0)),
        None => Some(ban),
    }
}
