//! What flags and the environment say, laid over what the file says.

use slidegate::Quota;

use crate::config::environment::{self, Environment};
use crate::config::flags::Flags;
use crate::config::listen::ListenAddress;
use crate::config::problem::Problem;
use crate::config::secret::Secret;
use crate::config::settle::tuning;
use crate::config::spot::{Said, Spot};
use crate::config::written::{
    StoreKind, Written, WrittenDoor, WrittenGateway, WrittenPolicy, upstream, upstream_problem,
};

/// What is limited if nobody says anything.
const DEFAULT_QUOTA: Quota = Quota::per_minute(100);

/// Lays what flags and variables say over what is written.
pub(super) fn overlay(
    written: &mut Written,
    flags: &Flags,
    environment: &Environment,
    problems: &mut Vec<Problem>,
) {
    gateway(written, flags, problems);
    doors(written, flags, environment);
    store(written, flags, environment);
    log(written, flags);
    policies(written);
    tuning::tune(written, flags, environment, problems);
}

fn gateway(written: &mut Written, flags: &Flags, problems: &mut Vec<Problem>) {
    let gateway = &mut written.gateway;
    if !flags.upstream.is_empty() {
        let spot = Spot::flag("--upstream");
        let section = section(gateway, &spot);
        section.upstream = Some(upstreams(flags, problems));
    }
    if !flags.trusted_proxy.is_empty() {
        let spot = Spot::flag("--trusted-proxy");
        let proxies = spot.clone().says(flags.trusted_proxy.clone());
        section(gateway, &spot).trusted_proxies = Some(proxies);
    }
    if let Some(source) = flags.client_address {
        let spot = Spot::flag("--client-address");
        section(gateway, &spot).client_address = Some(spot.clone().says(source));
    }
    if !flags.listen.is_empty() {
        let addresses = all(&flags.listen, "--listen");
        section(gateway, &Spot::flag("--listen")).listen = addresses;
    }
    if let (Some(workers), Some(gateway)) = (flags.workers, gateway) {
        gateway.value.workers = Some(workers);
    }
}

fn section<'w>(
    gateway: &'w mut Option<Said<WrittenGateway>>,
    spot: &Spot,
) -> &'w mut WrittenGateway {
    &mut gateway.get_or_insert_with(|| spot.clone().says(WrittenGateway::default())).value
}

fn upstreams(flags: &Flags, problems: &mut Vec<Problem>) -> Vec<Said<http::Uri>> {
    let mut good = Vec::new();
    for text in &flags.upstream {
        let spot = Spot::flag("--upstream");
        match upstream(text) {
            Ok(uri) => good.push(spot.says(uri)),
            Err(expected) => problems.push(upstream_problem(spot, text, expected)),
        }
    }
    good
}

fn all(addresses: &[ListenAddress], flag: &'static str) -> Vec<Said<ListenAddress>> {
    addresses.iter().cloned().map(|address| Spot::flag(flag).says(address)).collect()
}

fn doors(written: &mut Written, flags: &Flags, environment: &Environment) {
    if !flags.decisions.is_empty() {
        let door = Spot::flag("--decisions").says(WrittenDoor::default());
        let decisions = written.decisions.get_or_insert(door);
        decisions.value.listen = all(&flags.decisions, "--decisions");
    }
    if !flags.admin.is_empty() {
        let admin = written.admin.get_or_insert_with(WrittenDoor::default);
        admin.listen = all(&flags.admin, "--admin");
    }
    if let Some(token) = environment.get(environment::ADMIN_TOKEN) {
        let admin = written.admin.get_or_insert_with(WrittenDoor::default);
        admin.set_token(environment::ADMIN_TOKEN, token);
    }
}

fn store(written: &mut Written, flags: &Flags, environment: &Environment) {
    let store = &mut written.store;
    if let Some(url) = &flags.redis {
        let spot = Spot::flag("--redis");
        store.kind = Some(spot.clone().says(StoreKind::Redis));
        store.url = Some(spot.says(url.clone()));
        return;
    }
    // Who writes `memory` into the file means it, even where an application has its REDIS_URL.
    let is_memory = store.kind.as_ref().is_some_and(|kind| kind.value == StoreKind::Memory);
    if let Some(url) = environment.get(environment::REDIS_URL).filter(|_| !is_memory) {
        store.url = Some(Spot::variable(environment::REDIS_URL).says(Secret::new(url)));
    }
}

fn log(written: &mut Written, flags: &Flags) {
    written.log.format = flags.log.or(written.log.format);
    written.log.access = flags.access_log.then_some(true).or(written.log.access);
}

/// Adds the policy that a profile is, and one for a file that has none.
fn policies(written: &mut Written) {
    let quota = match &written.profile {
        Some(said) => said.spot.clone().says(said.value.quota()),
        None if written.policies.is_empty() => Spot::default_of("").says(DEFAULT_QUOTA),
        None => return,
    };
    let default = WrittenPolicy::per_address(tuning::DEFAULT_POLICY, vec![quota]);
    written.policies.push(default);
}
