//! `[[policy]]`.

use std::num::NonZeroU32;

use http::{HeaderName, Method};
use slidegate::policy::Prefixes;
use slidegate::{Ban, Cost, OnStoreError, Policy, Quota, Scope, Source};

use crate::config::location::{Location, Sourced};
use crate::config::period::Period;
use crate::config::reader::{Table, Value};
use crate::config::written::{WrittenQuotas, WrittenRefusal, WrittenRoster};

/// `[[policy]]`.
#[derive(Debug, Clone)]
pub(in crate::config) struct WrittenPolicy {
    pub(in crate::config) location: Location,
    /// A name that stands for a missing one, so that the rest can be checked.
    pub(in crate::config) name: Sourced<String>,
    pub(in crate::config) methods: Vec<Sourced<Method>>,
    pub(in crate::config) paths: Vec<Sourced<String>>,
    pub(in crate::config) identity: Sourced<Vec<WrittenSource>>,
    pub(in crate::config) quotas: WrittenQuotas,
    pub(in crate::config) plan: Option<Sourced<PlanChoice>>,
    pub(in crate::config) cost: Option<Sourced<Cost>>,
    pub(in crate::config) count_denied: Option<Sourced<bool>>,
    pub(in crate::config) ban: Option<Sourced<Ban>>,
    pub(in crate::config) shadow: bool,
    pub(in crate::config) scope: Scope,
    pub(in crate::config) headers: Option<bool>,
    pub(in crate::config) on_store_error: OnStoreError,
    pub(in crate::config) refusal: Option<WrittenRefusal>,
    pub(in crate::config) exempt: WrittenRoster,
}

/// Where an identity is read from, and how that is written.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::config) struct WrittenSource {
    pub(in crate::config) source: Source,
    pub(in crate::config) shown: String,
}

/// How a policy finds a request's plan.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::config) struct PlanChoice {
    pub(in crate::config) header: Option<HeaderName>,
    pub(in crate::config) default: Sourced<String>,
}

impl WrittenPolicy {
    /// A policy for each client address.
    pub(in crate::config) fn per_address(name: &str, quotas: Vec<Sourced<Quota>>) -> Self {
        let location =
            quotas.first().map_or(Location::default_of(""), |quota| quota.location.clone());
        Self {
            name: location.clone().with_value(name.to_owned()),
            methods: Vec::new(),
            paths: Vec::new(),
            identity: location.clone().with_value(vec![WrittenSource::ip()]),
            quotas: WrittenQuotas { location: location.clone(), quotas, is_whole: true },
            plan: None,
            cost: None,
            count_denied: None,
            ban: None,
            shadow: false,
            scope: Scope::default(),
            headers: None,
            on_store_error: OnStoreError::default(),
            refusal: None,
            exempt: WrittenRoster::default(),
            location,
        }
    }

    pub(super) fn read(table: &Table<'_>) -> Self {
        let matched = table.get("match").and_then(|value| value.table(Matched::read));
        let Matched { methods, paths } = matched.unwrap_or_default();
        let plan = table.sourced("plan", plan);
        let mut quotas = WrittenQuotas::read(table);
        quotas.is_whole &= plan.is_some() || table.get("plan").is_none();
        let scopes = [("shared", Scope::Shared), ("local", Scope::Local)];
        Self {
            location: table.location(),
            name: name(table),
            methods,
            paths,
            identity: identity(table),
            quotas,
            plan,
            cost: table.sourced("cost", cost),
            count_denied: table.sourced("count_denied", Value::boolean),
            ban: table.sourced("ban", |value| value.table(ban)?),
            shadow: table.get("shadow").and_then(|value| value.boolean()).unwrap_or_default(),
            scope: table.get("scope").and_then(|value| value.one_of(&scopes)).unwrap_or_default(),
            headers: table.get("headers").and_then(|value| value.boolean()),
            on_store_error: table
                .get("on_store_error")
                .and_then(|value| value.parsed())
                .unwrap_or_default(),
            refusal: table.get("refusal").and_then(|value| WrittenRefusal::read(&value)),
            exempt: WrittenRoster::read(table.get("exempt")),
        }
    }

    /// The policy as the library knows it.
    pub(in crate::config) fn to_policy(&self) -> Policy {
        let mut policy = Policy::new(self.name.value.clone())
            .identity(self.identity.iter().map(|written| written.source.clone()))
            .scope(self.scope)
            .on_store_error(self.on_store_error)
            .exempt(self.exempt.roster.clone());
        policy = self.methods.iter().fold(policy, |p, method| p.method(method.value.clone()));
        policy = self.paths.iter().fold(policy, |p, path| p.path(path.value.clone()));
        policy = self.quotas.or_stand_in().into_iter().fold(policy, Policy::quota);
        if let Some(plan) = &self.plan {
            policy = match &plan.header {
                Some(header) => policy.plan_header(header.clone(), plan.default.value.clone()),
                None => policy.plans(plan.default.value.clone()),
            };
        }
        policy = match self.headers {
            Some(true) => policy.in_headers(),
            Some(false) => policy.not_in_headers(),
            None => policy,
        };
        policy = match self.cost.as_ref().map(|sourced| sourced.value) {
            Some(Cost::Units(units)) => policy.cost(units.get()),
            Some(Cost::Request) => policy.request_cost(),
            None => policy,
        };
        if self.count_denied.as_ref().is_some_and(|sourced| sourced.value) {
            policy = policy.count_denied();
        }
        if let Some(ban) = &self.ban {
            policy = policy.ban(ban.value);
        }
        if self.shadow { policy.shadow() } else { policy }
    }
}

/// `match = { … }`.
#[derive(Debug, Default)]
struct Matched {
    methods: Vec<Sourced<Method>>,
    paths: Vec<Sourced<String>>,
}

impl Matched {
    fn read(table: &Table<'_>) -> Self {
        let methods = ["method", "methods"].into_iter().filter_map(|key| table.get(key));
        let paths = ["path", "paths"].into_iter().filter_map(|key| table.get(key));
        Self {
            methods: methods.flat_map(|value| value.each(method)).collect(),
            paths: paths.flat_map(|value| value.each(|v| v.text().map(str::to_owned))).collect(),
        }
    }
}

/// A method. The library checks that it is one that clients send.
fn method(value: &Value<'_>) -> Option<Method> {
    let method = value.text()?.parse().ok();
    if method.is_none() {
        value.report("expected a method such as GET or POST");
    }
    method
}

fn name(table: &Table<'_>) -> Sourced<String> {
    let name = table.sourced("name", |value| value.text().map(str::to_owned));
    if name.is_none() && table.get("name").is_none() {
        table.missing("name", "a name, such as api");
    }
    let unnamed = || {
        let plain: String =
            table.location().key.chars().filter(char::is_ascii_alphanumeric).collect();
        table.location().with_value(format!("unnamed-{plain}"))
    };
    name.unwrap_or_else(unnamed)
}

fn identity(table: &Table<'_>) -> Sourced<Vec<WrittenSource>> {
    let Some(value) = table.get("identity") else {
        return table.location().below("identity").with_value(vec![WrittenSource::ip()]);
    };
    let sources: Vec<_> =
        value.each(WrittenSource::read).into_iter().map(|sourced| sourced.value).collect();
    // What could not be read has been reported; an empty list is for the library to report.
    let failed = sources.is_empty() && value.count() > 0;
    value.location().with_value(if failed { vec![WrittenSource::ip()] } else { sources })
}

impl WrittenSource {
    fn ip() -> Self {
        Self { source: Source::ip(), shown: "ip".to_owned() }
    }

    /// `"ip"`, `"header:x-tenant"`, `{ ip = { v4 = 32, v6 = 56 } }` or `{ header = "x-tenant" }`.
    fn read(value: &Value<'_>) -> Option<Self> {
        if !value.is_table() {
            let source: Source = value.parsed()?;
            return Some(Self { shown: source.to_string(), source });
        }
        value.table(|table| match (table.get("ip"), table.get("header")) {
            (Some(ip), None) => ip.table(prefixes)?,
            (None, Some(header)) => {
                let source = Source::Header(header_name(&header)?);
                Some(Self { shown: source.to_string(), source })
            }
            _ => {
                value.report("expected ip = { v4 = 32, v6 = 64 } or header = \"x-tenant\"");
                None
            }
        })?
    }
}

fn prefixes(table: &Table<'_>) -> Option<WrittenSource> {
    let v4: Option<u8> = table.get("v4").map_or(Some(32), |value| value.number(1..=32));
    let v6: Option<u8> = table.get("v6").map_or(Some(64), |value| value.number(1..=128));
    let (v4, v6) = (v4?, v6?);
    let prefixes = Prefixes::default().with_v4(v4).and_then(|prefixes| prefixes.with_v6(v6));
    Some(WrittenSource {
        source: Source::Ip(prefixes.ok()?),
        shown: format!("ip (/{v4} of IPv4, /{v6} of IPv6)"),
    })
}

pub(super) fn header_name(value: &Value<'_>) -> Option<HeaderName> {
    let name = value.text()?.parse().ok();
    if name.is_none() {
        value.report("expected the name of a header, such as x-tenant");
    }
    name
}

/// `10` or `"request"`.
fn cost(value: &Value<'_>) -> Option<Cost> {
    if value.is_text() {
        let is_request = value.text()? == "request";
        if !is_request {
            value.report("expected a whole number of units, or \"request\"");
        }
        return is_request.then_some(Cost::Request);
    }
    let units = NonZeroU32::new(value.number(1..=u32::MAX)?);
    units.map(Cost::Units)
}

/// `"free"` or `{ header = "x-plan", default = "free" }`.
fn plan(value: &Value<'_>) -> Option<PlanChoice> {
    if value.is_text() {
        let default = value.location().with_value(value.text()?.to_owned());
        return Some(PlanChoice { header: None, default });
    }
    value.table(|table| {
        let header = table.get("header").and_then(|value| header_name(&value));
        let default = table.sourced("default", |value| value.text().map(str::to_owned));
        if default.is_none() && table.get("default").is_none() {
            table.missing("default", "the name of a plan");
        }
        Some(PlanChoice { header, default: default? })
    })?
}

/// `{ after = "20/min", for = "10min" }`.
fn ban(table: &Table<'_>) -> Option<Ban> {
    let after = table.get("after");
    if after.is_none() {
        table.missing("after", "how many denials begin it, such as 20/min");
    }
    let length = table.get("for").map(|value| value.parsed::<Period>());
    let ban = Ban::after(after?.parsed()?);
    match length {
        Some(length) => Some(ban.lasting(length?.0)),
        None => Some(ban),
    }
}
