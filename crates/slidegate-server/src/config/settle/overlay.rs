//! Overlays flags and environment on the file.

use slidegate::Quota;

use crate::config::environment::{self, Environment};
use crate::config::error::ConfigError;
use crate::config::flags::Flags;
use crate::config::listen::ListenAddress;
use crate::config::location::{Location, Sourced};
use crate::config::secret::Secret;
use crate::config::settle::tuning;
use crate::config::written::{
    StoreKind, Written, WrittenEndpoint, WrittenGateway, WrittenPolicy, upstream, upstream_problem,
};

/// The default quota.
const DEFAULT_QUOTA: Quota = Quota::per_minute(100);

/// Lays what flags and variables say over what is written.
pub(super) fn overlay(
    written: &mut Written,
    flags: &Flags,
    environment: &Environment,
    problems: &mut Vec<ConfigError>,
) {
    gateway(written, flags, problems);
    endpoints(written, flags, environment);
    store(written, flags, environment);
    log(written, flags);
    policies(written);
    tuning::tune(written, flags, environment, problems);
}

fn gateway(written: &mut Written, flags: &Flags, problems: &mut Vec<ConfigError>) {
    let gateway = &mut written.gateway;
    if !flags.upstream.is_empty() {
        let location = Location::flag("--upstream");
        let section = section(gateway, &location);
        section.upstream = Some(upstreams(flags, problems));
    }
    if !flags.trusted_proxy.is_empty() {
        let location = Location::flag("--trusted-proxy");
        let proxies = location.clone().with_value(flags.trusted_proxy.clone());
        section(gateway, &location).trusted_proxies = Some(proxies);
    }
    if let Some(source) = flags.client_address {
        let location = Location::flag("--client-address");
        section(gateway, &location).client_address = Some(location.clone().with_value(source));
    }
    if !flags.listen.is_empty() {
        let addresses = all(&flags.listen, "--listen");
        section(gateway, &Location::flag("--listen")).listen = addresses;
    }
    if let (Some(workers), Some(gateway)) = (flags.workers, gateway) {
        gateway.value.workers = Some(workers);
    }
}

fn section<'w>(
    gateway: &'w mut Option<Sourced<WrittenGateway>>,
    location: &Location,
) -> &'w mut WrittenGateway {
    &mut gateway.get_or_insert_with(|| location.clone().with_value(WrittenGateway::default())).value
}

fn upstreams(flags: &Flags, problems: &mut Vec<ConfigError>) -> Vec<Sourced<http::Uri>> {
    let mut good = Vec::new();
    for text in &flags.upstream {
        let location = Location::flag("--upstream");
        match upstream(text) {
            Ok(uri) => good.push(location.with_value(uri)),
            Err(expected) => problems.push(upstream_problem(location, text, expected)),
        }
    }
    good
}

fn all(addresses: &[ListenAddress], flag: &'static str) -> Vec<Sourced<ListenAddress>> {
    addresses.iter().cloned().map(|address| Location::flag(flag).with_value(address)).collect()
}

fn endpoints(written: &mut Written, flags: &Flags, environment: &Environment) {
    if !flags.decisions.is_empty() {
        let endpoint = Location::flag("--decisions").with_value(WrittenEndpoint::default());
        let decisions = written.decisions.get_or_insert(endpoint);
        decisions.value.listen = all(&flags.decisions, "--decisions");
    }
    if !flags.admin.is_empty() {
        let admin = written.admin.get_or_insert_with(WrittenEndpoint::default);
        admin.listen = all(&flags.admin, "--admin");
    }
    if let Some(token) = environment.get(environment::ADMIN_TOKEN) {
        let admin = written.admin.get_or_insert_with(WrittenEndpoint::default);
        admin.set_token(environment::ADMIN_TOKEN, token);
    }
}

fn store(written: &mut Written, flags: &Flags, environment: &Environment) {
    let store = &mut written.store;
    if let Some(url) = &flags.redis {
        let location = Location::flag("--redis");
        store.kind = Some(location.clone().with_value(StoreKind::Redis));
        store.url = Some(location.with_value(url.clone()));
        return;
    }
    // An explicit `memory` in the file outweighs a REDIS_URL meant for another application.
    let is_memory = store.kind.as_ref().is_some_and(|kind| kind.value == StoreKind::Memory);
    if let Some(url) = environment.get(environment::REDIS_URL).filter(|_| !is_memory) {
        store.url = Some(Location::variable(environment::REDIS_URL).with_value(Secret::new(url)));
    }
}

fn log(written: &mut Written, flags: &Flags) {
    written.log.format = flags.log.or(written.log.format);
    written.log.access = flags.access_log.then_some(true).or(written.log.access);
}

/// Adds the policy that a profile is, and one for a file that has none.
fn policies(written: &mut Written) {
    let quota = match &written.profile {
        Some(sourced) => sourced.location.clone().with_value(sourced.value.quota()),
        None if written.policies.is_empty() => Location::default_of("").with_value(DEFAULT_QUOTA),
        None => return,
    };
    let default = WrittenPolicy::per_address(tuning::DEFAULT_POLICY, vec![quota]);
    written.policies.push(default);
}
