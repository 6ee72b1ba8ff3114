//! The endpoints besides the gateway, and that no two are in one place.

use crate::config::endpoints::{AdminConfig, DecisionsConfig};
use crate::config::environment::{self, Environment};
use crate::config::error::ConfigError;
use crate::config::listen::ListenAddress;
use crate::config::location::{Location, Sourced};
use crate::config::secret::Secret;
use crate::config::written::{Written, WrittenEndpoint};

const DEFAULT_DECISIONS: &str = "127.0.0.1:8081";
const DEFAULT_ADMIN: &str = "127.0.0.1:9090";

/// An address that this program has in it.
pub(super) fn known(address: &str) -> ListenAddress {
    address.parse().expect("an address that is well formed")
}

/// The decision API: if configured, or if there would be no other public endpoint.
pub(super) fn decisions(
    written: &mut Written,
    environment: &Environment,
    has_gateway: bool,
) -> Option<DecisionsConfig> {
    if written.decisions.is_none() && has_gateway {
        return None;
    }
    let endpoint = written.decisions.get_or_insert_with(|| {
        Location::default_of("decisions").with_value(WrittenEndpoint::default())
    });
    if endpoint.listen.is_empty() {
        let location = endpoint.location.below("listen");
        endpoint.value.listen.push(location.with_value(known(DEFAULT_DECISIONS)));
    }
    if let Some(token) = environment.get(environment::DECISIONS_TOKEN) {
        endpoint.value.set_token(environment::DECISIONS_TOKEN, token);
    }
    Some(DecisionsConfig { listen: values(&endpoint.listen), token: token(&endpoint.value) })
}

pub(super) fn admin(written: &mut Written) -> AdminConfig {
    let admin = written.admin.get_or_insert_with(WrittenEndpoint::default);
    if admin.listen.is_empty() {
        let location = Location::default_of("admin.listen");
        admin.listen.push(location.with_value(known(DEFAULT_ADMIN)));
    }
    AdminConfig { listen: values(&admin.listen), token: token(admin) }
}

fn token(endpoint: &WrittenEndpoint) -> Option<Secret> {
    endpoint.token.as_ref().map(|sourced| sourced.value.clone())
}

fn values(listen: &[Sourced<ListenAddress>]) -> Vec<ListenAddress> {
    listen.iter().map(|sourced| sourced.value.clone()).collect()
}

/// Reports listeners that would be in one another's place.
pub(super) fn check_collisions(written: &Written, problems: &mut Vec<ConfigError>) {
    let gateway = written.gateway.iter().flat_map(|section| &section.listen);
    let decisions = written.decisions.iter().flat_map(|endpoint| &endpoint.listen);
    let admin = written.admin.iter().flat_map(|admin| &admin.listen);
    let all: Vec<&Sourced<ListenAddress>> = gateway.chain(decisions).chain(admin).collect();
    for (i, one) in all.iter().enumerate() {
        if let Some(other) = all[..i].iter().find(|other| one.collides_with(other)) {
            let expected =
                format!("{} is there already: expected a place of its own", other.location);
            let problem = ConfigError::new(one.location.clone(), expected);
            problems.push(problem.with_value(format!("{:?}", one.to_string())));
        }
    }
}

/// Reports listeners that other machines can reach without a token. The admin API can ban and
/// exempt; the decision API trusts its callers.
pub(super) fn check_tokens(written: &Written, problems: &mut Vec<ConfigError>) {
    let decisions = written.decisions.as_ref().map(|sourced| &sourced.value);
    for (section, endpoint, variable) in [
        ("admin", written.admin.as_ref(), environment::ADMIN_TOKEN),
        ("decisions", decisions, environment::DECISIONS_TOKEN),
    ] {
        let Some(endpoint) = endpoint.filter(|endpoint| endpoint.token.is_none()) else { continue };
        for open in endpoint.listen.iter().filter(|address| !address.is_of_this_machine()) {
            let expected = format!(
                "others than this machine can reach it, and there is no token: set {variable} or \
                 {section}.token_file, or listen on 127.0.0.1"
            );
            let problem = ConfigError::new(open.location.clone(), expected);
            problems.push(problem.with_value(format!("{:?}", open.to_string())));
        }
    }
}
