//! `[[policy]]` and `[plans]`.

use std::num::NonZeroU32;

use http::{HeaderName, Method};
use slidegate::policy::Prefixes;
use slidegate::{Ban, Cost, Plan, Policy, Scope, Source};
use slidegate_tower::Refusal;

use crate::config::access_list::AccessListConfig;
use crate::config::reader::Value;
use crate::config::responses;
use crate::config::values::Period;

/// A policy as it is written. What could not be read has been reported, and is left out.
pub(super) struct PolicyConfig<'t> {
    pub(super) table: Value<'t>,
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
    pub(super) fn read(table: Value<'t>) -> Self {
        let name = table.key("name").required("a name, such as api").string();
        let name = name.unwrap_or_else(|| {
            let key = &table.location.key;
            format!("unnamed-{}", key.replace(|c: char| !c.is_ascii_alphanumeric(), ""))
        });
        let identity = match table.key("identity") {
            sources if sources.is_set() => sources.each(source),
            _ => vec![(Source::ip(), "ip".to_owned())],
        };
        let exempt = AccessListConfig::read(&table.section("exempt"));
        let scopes = [("shared", Scope::Shared), ("local", Scope::Local)];
        let mut policy = Policy::new(name.clone())
            .identity(identity.iter().map(|(source, _)| source.clone()))
            .scope(table.key("scope").one_of(&scopes).unwrap_or_default())
            .on_store_error(table.key("on_store_error").parsed().unwrap_or_default())
            .exempt(exempt.list.clone());
        let matched = table.section("match");
        for key in ["method", "methods"] {
            let expected = "expected a method such as GET or POST";
            let methods = matched.key(key).each(|value| value.parsed_as::<Method>(expected));
            policy = methods.into_iter().fold(policy, Policy::method);
        }
        for key in ["path", "paths"] {
            policy = matched.key(key).each(Value::text).into_iter().fold(policy, Policy::path);
        }
        policy = table.key("quotas").each(Value::text).into_iter().fold(policy, Policy::quota);
        policy = match plan(&table.key("plan")) {
            Some((Some(header), default)) => policy.plan_header(header, default),
            Some((None, default)) => policy.plans(default),
            None => policy,
        };
        policy = match cost(&table.key("cost")) {
            Some(Cost::Units(units)) => policy.cost(units.get()),
            Some(Cost::Request) => policy.request_cost(),
            None => policy,
        };
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
        let identity = identity.into_iter().map(|(_, shown)| shown).collect();
        let refusal = responses::refusal(&table.key("refusal"));
        Self { table, name, policy, identity, exempt, refusal }
    }
}

/// A plan of `[plans]`.
pub(super) fn read_plan(name: &str, table: &Value<'_>) -> Plan {
    let plan = Plan::new(name, table.key("quotas").each(Value::text));
    let url = table.key("upgrade_url");
    let Some(text) = url.text() else { return plan };
    if !text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some()) {
        url.report("expected a URL such as https://app.example.com/upgrade");
    }
    plan.upgrade_url(text)
}

/// `"ip"`, `"header:x-tenant"`, `{ ip = { v4 = 32, v6 = 56 } }` or `{ header = "x-tenant" }`, and
/// how it is shown.
fn source(value: &Value<'_>) -> Option<(Source, String)> {
    let shown = |source: Source| (source.clone(), source.to_string());
    if !value.is_table() {
        return value.parsed().map(shown);
    }
    let (ip, header) = (value.key("ip"), value.key("header"));
    if ip.is_set() == header.is_set() {
        value.report("expected ip = { v4 = 32, v6 = 64 } or header = \"x-tenant\"");
        return None;
    }
    if header.is_set() {
        return header_name(&header).map(Source::Header).map(shown);
    }
    let table = ip.table()?;
    let v4 = table.key("v4").number(1..=32).unwrap_or(32);
    let v6 = table.key("v6").number(1..=128).unwrap_or(64);
    let prefixes = Prefixes::default().with_v4(v4).and_then(|all| all.with_v6(v6));
    Some((Source::Ip(prefixes.ok()?), format!("ip (/{v4} of IPv4, /{v6} of IPv6)")))
}

pub(super) fn header_name(value: &Value<'_>) -> Option<HeaderName> {
    value.parsed_as("expected the name of a header, such as x-tenant")
}

/// `10` or `"request"`.
fn cost(value: &Value<'_>) -> Option<Cost> {
    if !value.is_text() {
        return NonZeroU32::new(value.number(1..=u32::MAX)?).map(Cost::Units);
    }
    let is_request = value.text() == Some("request");
    if !is_request {
        value.report("expected a whole number of units, or \"request\"");
    }
    is_request.then_some(Cost::Request)
}

/// `"free"` or `{ header = "x-plan", default = "free" }`. An empty name stands for one that could not
/// be read.
fn plan(value: &Value<'_>) -> Option<(Option<HeaderName>, String)> {
    if value.is_text() || !value.is_set() {
        return Some((None, value.string()?));
    }
    let Some(table) = value.table() else { return Some((None, String::new())) };
    let header = header_name(&table.key("header"));
    let default = table.key("default").required("the name of a plan").string();
    Some((header, default.unwrap_or_default()))
}

/// `{ after = "20/min", for = "10min" }`.
fn ban(value: &Value<'_>) -> Option<Ban> {
    let table = value.table()?;
    let after = table.key("after").required("how many denials begin it, such as 20/min").parsed();
    let length = table.key("for").parsed::<Period>();
    let ban = Ban::after(after?);
    Some(length.map_or(ban, |length| ban.lasting(length.0)))
}
