//! What flags and the environment say, laid over what the file says.

use std::num::NonZeroU32;
use std::time::Duration;

use slidegate::Quota;

use crate::config::environment::{self, Environment};
use crate::config::flags::Flags;
use crate::config::listen::ListenAddress;
use crate::config::problem::Problem;
use crate::config::profile::Profile;
use crate::config::secret::Secret;
use crate::config::spot::{Said, Spot};
use crate::config::written::{
    StoreKind, Written, WrittenAdmin, WrittenDoor, WrittenGateway, WrittenPolicy, upstream,
    upstream_problem,
};

/// The policy that flags, the environment, a profile and the default make.
const DEFAULT_POLICY: &str = "default";

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
    let variables = Variables { environment, problems };
    policies(written, flags, variables);
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
        let listen = all(&flags.decisions, "--decisions");
        written.decisions = Some(Spot::flag("--decisions").says(WrittenDoor { listen }));
    }
    if !flags.admin.is_empty() {
        let admin = written.admin.get_or_insert_with(WrittenAdmin::default);
        admin.listen = all(&flags.admin, "--admin");
    }
    if let Some(token) = environment.get(environment::ADMIN_TOKEN) {
        let admin = written.admin.get_or_insert_with(WrittenAdmin::default);
        admin.token = Some(Spot::variable(environment::ADMIN_TOKEN).says(Secret::new(token)));
        admin.is_in_file = false;
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

fn policies(written: &mut Written, flags: &Flags, mut variables: Variables<'_, '_>) {
    written.enforced = variables.enabled();
    let from_variables = variables.quota();
    let profile = |profile: Profile, spot: Spot| vec![spot.says(profile.quota())];
    let from_flags: Vec<Said<Quota>> = match flags.profile {
        Some(name) => profile(name, Spot::flag("--profile")),
        None => flags.quota.iter().map(|quota| Spot::flag("--quota").says(*quota)).collect(),
    };
    let over = if from_flags.is_empty() { Vec::from_iter(from_variables) } else { from_flags };
    if !over.is_empty() {
        written.policies.retain(|policy| policy.name.value != DEFAULT_POLICY);
        written.policies.push(WrittenPolicy::per_address(DEFAULT_POLICY, over));
    } else if let Some(said) = &written.profile {
        let quotas = profile(said.value, said.spot.clone());
        written.policies.push(WrittenPolicy::per_address(DEFAULT_POLICY, quotas));
    } else if written.policies.is_empty() {
        let quotas = vec![Spot::default_of("").says(DEFAULT_QUOTA)];
        written.policies.push(WrittenPolicy::per_address(DEFAULT_POLICY, quotas));
    }
}

/// The variables that say what is limited.
struct Variables<'e, 'p> {
    environment: &'e Environment,
    problems: &'p mut Vec<Problem>,
}

impl<'e> Variables<'e, '_> {
    fn enabled(&mut self) -> Option<Said<bool>> {
        let name = environment::ENABLED;
        let text = self.environment.get(name)?;
        let spot = Spot::variable(name);
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(spot.says(true)),
            "false" | "0" | "no" | "off" => Some(spot.says(false)),
            _ => {
                self.report(name, text, "expected true or false");
                None
            }
        }
    }

    /// So many in so long; what is missing is 100 or a minute.
    fn quota(&mut self) -> Option<Said<Quota>> {
        let units = self.number(environment::MAX, "expected a whole number from 1 to 4294967295");
        let window = self.window();
        let spot = units.as_ref().map(|said| &said.spot).or(window.as_ref().map(|said| &said.spot));
        let spot = spot?.clone();
        let units = units.map_or(DEFAULT_QUOTA.units(), |said| said.value);
        let window = window.map_or(DEFAULT_QUOTA.window(), |said| said.value);
        Quota::new(units, window).ok().map(|quota| spot.says(quota))
    }

    fn window(&mut self) -> Option<Said<Duration>> {
        let expected = "expected a whole number of at least 1, and at most 366 days";
        let mut read = |name, length_ms: u64| {
            let count: Said<NonZeroU32> = self.number(name, expected)?;
            let ms = u64::from(count.get()).saturating_mul(length_ms);
            let window = Duration::from_millis(ms);
            if window > Quota::MAX_WINDOW {
                self.report(name, &count.to_string(), expected);
                return None;
            }
            Some(count.spot.says(window))
        };
        let (seconds, ms) = (read(environment::TTL, 1000), read(environment::WINDOW_MS, 1));
        if let (Some(seconds), Some(ms)) = (&seconds, &ms)
            && seconds.value != ms.value
        {
            let text = self.environment.get(environment::WINDOW_MS).unwrap_or_default();
            let expected =
                "RATE_LIMIT_TTL has another length: expected one of the two, or the same";
            self.report(environment::WINDOW_MS, text, expected);
        }
        seconds.or(ms)
    }

    fn number(&mut self, name: &'static str, expected: &str) -> Option<Said<NonZeroU32>> {
        let text = self.environment.get(name)?;
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        match text.parse().ok().filter(|_| digits) {
            Some(number) => Some(Spot::variable(name).says(number)),
            None => {
                self.report(name, text, expected);
                None
            }
        }
    }

    fn report(&mut self, name: &'static str, value: &str, expected: &str) {
        let problem = Problem::new(Spot::variable(name), expected);
        self.problems.push(problem.with_value(format!("{value:?}")));
    }
}
