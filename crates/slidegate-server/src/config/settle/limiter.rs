//! The limiter's configuration: policies, responses and client addresses.

use std::collections::HashMap;

use http::HeaderName;
use slidegate::policy::{PoliciesBuilder, PolicyError, UnknownKeys};
use slidegate::{Plan, Policies};
use slidegate_tower::{ClientAddress, Headers, Responder};

use crate::config::error::ConfigError;
use crate::config::limiter::LimiterConfig;
use crate::config::location::{Location, Sourced};
use crate::config::settle::store::check_keys;
use crate::config::store::StoreConfig;
use crate::config::summary::ConfigSummary;
use crate::config::written::{Written, WrittenApiKey, WrittenPlan, WrittenPolicy, WrittenRoster};

pub(super) fn rules(
    written: &Written,
    store: Option<&StoreConfig>,
    problems: &mut Vec<ConfigError>,
) -> Option<LimiterConfig> {
    let enforced = written.enforced.as_ref().is_none_or(|sourced| sourced.value);
    check_names(written, problems);
    let policies = builder(written, true).build();
    if let (Ok(policies), Some(store)) = (&policies, store) {
        check_keys(written, store, policies, problems);
    }
    let policies = match policies {
        Ok(policies) if enforced => Some(policies),
        Ok(_) => builder(written, false).build().ok(),
        Err(errors) => {
            let index = KeyIndex::of(written);
            let errors = errors.as_slice().iter().filter(|error| !follows(written, error));
            problems.extend(errors.map(|error| index.problem(error)));
            None
        }
    };
    let gateway = written.gateway.as_ref().map(|sourced| &sourced.value);
    let policies = policies?;
    let outline = ConfigSummary::of(written, &policies);
    Some(LimiterConfig {
        policies,
        answers: answers(written),
        client_address: client_address(written),
        encoded_slashes: gateway.and_then(|g| g.encoded_slashes).unwrap_or_default(),
        path_parameters: gateway.and_then(|g| g.path_parameters).unwrap_or_default(),
        ignore_case: gateway.and_then(|g| g.ignore_case).unwrap_or_default(),
        enforced,
        outline,
    })
}

/// Whether the error only follows from another: a plan that is there is not found because it is
/// wrong itself.
fn follows(written: &Written, error: &PolicyError) -> bool {
    error.key == "plan" && written.plans.iter().any(|plan| plan.name.value == error.value)
}

/// Reports names that two policies have. The library looks only at policies that are otherwise
/// good.
fn check_names(written: &Written, problems: &mut Vec<ConfigError>) {
    for (i, policy) in written.policies.iter().enumerate() {
        let name = &policy.name;
        if written.policies[..i].iter().any(|other| other.name.value == name.value) {
            let problem = ConfigError::new(name.location.clone(), "another policy has this name");
            problems.push(problem.with_value(format!("{:?}", name.value)));
        }
    }
}

fn builder(written: &Written, with_policies: bool) -> PoliciesBuilder {
    let mut builder = Policies::builder()
        .exempt(written.exempt.roster.clone())
        .blocked(written.blocked.roster.clone());
    builder = written.plans.iter().map(WrittenPlan::to_plan).fold(builder, PoliciesBuilder::plan);
    builder = builder.api_keys(written.api_keys.iter().map(WrittenApiKey::to_key));
    // With a keys file there is a table, even while the file is empty.
    let of_file = written.keys_file.as_ref().map(|_| UnknownKeys::Ignore);
    if let Some(unknown_keys) = written.unknown_keys.or(of_file) {
        builder = builder.unknown_keys(unknown_keys);
    }
    if let Some(name) = user_header(written) {
        builder = builder.user_header(name.value.clone());
    }
    let policies = written.policies.iter().filter(|_| with_policies);
    policies.map(WrittenPolicy::to_policy).fold(builder, PoliciesBuilder::policy)
}

fn user_header(written: &Written) -> Option<&Sourced<HeaderName>> {
    written.gateway.as_ref()?.user_header.as_ref()
}

impl WrittenPlan {
    fn to_plan(&self) -> Plan {
        let plan = Plan::new(self.name.value.clone(), self.quotas.or_stand_in());
        self.upgrade_url.iter().fold(plan, |plan, url| plan.upgrade_url(url.clone()))
    }
}

fn answers(written: &Written) -> Responder {
    let written_headers = &written.headers;
    let mut headers = match &written_headers.dialects {
        Some(dialects) => Headers::new(dialects.iter().copied()),
        None => Headers::default(),
    };
    if written_headers.on_redirects == Some(false) {
        headers = headers.not_on_redirects();
    }
    let mut answers = Responder::new().headers(headers);
    if let Some(written) = &written.refusal {
        answers = answers.refusal(written.refusal.clone());
    }
    for policy in &written.policies {
        if let Some(written) = &policy.refusal {
            answers = answers.refusal_for(policy.name.value.as_str(), written.refusal.clone());
        }
    }
    answers
}

fn client_address(written: &Written) -> ClientAddress {
    let Some(gateway) = &written.gateway else { return ClientAddress::default() };
    let source = gateway.client_address.as_ref().map(|sourced| sourced.value).unwrap_or_default();
    let trusted = gateway.trusted_proxies.as_ref().map(|sourced| sourced.value.clone());
    ClientAddress::new(source, trusted.unwrap_or_default())
}

/// Where everything stands that the library checks, by the names that it has for it.
///
/// By place, because there may be as many as there are API keys.
#[derive(Default)]
struct KeyIndex(HashMap<String, Vec<IndexedKey>>);

struct IndexedKey {
    key: &'static str,
    value: Option<String>,
    location: Location,
}

impl KeyIndex {
    fn of(written: &Written) -> Self {
        let mut index = Self::default();
        written.plans.iter().for_each(|plan| index.plan(plan));
        written.api_keys.iter().for_each(|key| index.api_key(key));
        written.policies.iter().for_each(|policy| index.policy(policy));
        if let Some(name) = user_header(written) {
            index.add("policies", "user_header", Some(name.as_str()), &name.location);
        }
        index.roster("exempt", "path", &written.exempt);
        index.roster("blocked", "path", &written.blocked);
        index
    }

    fn add(&mut self, place: &str, key: &'static str, value: Option<&str>, location: &Location) {
        let entry = IndexedKey { key, value: value.map(str::to_owned), location: location.clone() };
        self.0.entry(place.to_owned()).or_default().push(entry);
    }

    fn plan(&mut self, plan: &WrittenPlan) {
        let place = format!("plan {:?}", plan.name.value);
        self.add(&place, "name", None, &plan.name.location);
        self.add(&place, "quotas", None, &plan.quotas.location);
    }

    fn api_key(&mut self, key: &WrittenApiKey) {
        let place = key.identity.as_str();
        self.add(place, "plan", Some(&key.plan.value), &key.plan.location);
        self.add(place, "plan", Some(""), &key.location);
        if let Some(name) = &key.name {
            self.add(place, "name", Some(&name.value), &name.location);
        }
    }

    fn policy(&mut self, policy: &WrittenPolicy) {
        let place = format!("policy {:?}", policy.name.value);
        self.add(&place, "name", None, &policy.name.location);
        self.add(&place, "identity", None, &policy.identity.location);
        self.add(&place, "quotas", None, &policy.quotas.location);
        for method in &policy.methods {
            self.add(&place, "method", Some(method.as_str()), &method.location);
        }
        for path in &policy.paths {
            self.add(&place, "path", Some(&path.value), &path.location);
        }
        if let Some(plan) = &policy.plan {
            self.add(&place, "plan", None, &plan.default.location);
        }
        if let Some(cost) = &policy.cost {
            self.add(&place, "cost", None, &cost.location);
        }
        if let Some(ban) = &policy.ban {
            self.add(&place, "ban", None, &ban.location);
        }
        self.roster(&place, "exempt", &policy.exempt);
    }

    fn roster(&mut self, place: &str, key: &'static str, roster: &WrittenRoster) {
        for path in &roster.paths {
            self.add(place, key, Some(&path.value), &path.location);
        }
    }

    /// An error of the library with its place in the file. Of two that have one name, the later is
    /// the one that is wrong.
    fn problem(&self, error: &PolicyError) -> ConfigError {
        let key = |entry: &&IndexedKey| entry.key == error.key;
        let value = |entry: &&IndexedKey| {
            key(entry) && entry.value.as_deref().is_none_or(|value| value == error.value)
        };
        let here = self.0.get(&error.place).map_or(&[][..], Vec::as_slice);
        let found = here.iter().rev().find(value).or_else(|| here.iter().rev().find(key));
        let found = found.or(here.last()).map(|entry| entry.location.clone());
        let location = found.unwrap_or_else(|| Location::default_of(&error.place));
        let problem = ConfigError::new(location, &*error.problem);
        match error.value.as_str() {
            "" => problem,
            value => problem.with_value(format!("{value:?}")),
        }
    }
}
