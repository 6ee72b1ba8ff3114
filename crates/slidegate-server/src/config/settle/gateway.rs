//! What the proxying endpoint is to do.

use std::collections::BTreeSet;

use http::HeaderName;

use crate::config::error::ConfigError;
use crate::config::gateway::{Bounds, GatewayConfig, HeaderRules, RouteConfig, Timeouts};
use crate::config::limiter::LimiterConfig;
use crate::config::location::Sourced;
use crate::config::written::{Written, WrittenGateway, WrittenRoute};

const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

pub(super) fn gateway(
    written: &mut Written,
    problems: &mut Vec<ConfigError>,
) -> Option<GatewayConfig> {
    let section = written.gateway.as_mut()?;
    if section.upstream.is_none() && section.routes.is_empty() {
        check_doorless(section, problems);
        return None;
    }
    if section.listen.is_empty() {
        let location = section.location.below("listen");
        section.value.listen.push(location.with_value(super::endpoints::known(DEFAULT_LISTEN)));
    }
    Some(GatewayConfig {
        listen: section.listen.iter().map(|sourced| sourced.value.clone()).collect(),
        tls: section.tls.as_ref().map(|sourced| sourced.value.clone()),
        proxy_protocol: section.proxy_protocol.as_ref().is_some_and(|sourced| sourced.value),
        routes: routes(section, problems),
        host: section.host.unwrap_or_default(),
        headers: HeaderRules {
            underscores: section.underscores_in_headers.unwrap_or_default(),
            refuse_overrides: section.refuse_overrides.unwrap_or_default(),
        },
        workers: section.workers.map_or_else(processors, usize::from),
        timeouts: timeouts(section),
        bounds: bounds(section, problems),
    })
}

/// A section without an upstream can still name trusted proxies, for the other endpoints.
fn check_doorless(section: &Sourced<WrittenGateway>, problems: &mut Vec<ConfigError>) {
    let useful = section.trusted_proxies.is_some()
        || section.client_address.is_some()
        || section.user_header.is_some()
        || section.encoded_slashes.is_some()
        || section.path_parameters.is_some()
        || section.ignore_case.is_some();
    if !section.listen.is_empty() || section.tls.is_some() || !useful {
        let expected = "missing: expected where allowed requests go, such as http://127.0.0.1:3000";
        problems.push(ConfigError::new(section.location.below("upstream"), expected));
    }
}

/// Reports headers that policies read and the gateway drops.
pub(super) fn check_dropped_headers(
    written: &Written,
    gateway: &GatewayConfig,
    rules: &LimiterConfig,
    problems: &mut Vec<ConfigError>,
) {
    let Some(section) = written.gateway.as_ref().filter(|_| !gateway.headers.underscores) else {
        return;
    };
    let dropped = rules.policies.identity_headers().filter(|name| name.as_str().contains('_'));
    let names: BTreeSet<&str> = dropped.map(HeaderName::as_str).collect();
    if !names.is_empty() {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let expected = format!(
            "missing: the gateway drops headers with underscores in their names, so that nobody is \
             counted or listed by {names}: expected true, or a name with hyphens"
        );
        problems.push(ConfigError::new(section.location.below("underscores_in_headers"), expected));
    }
}

fn routes(section: &WrittenGateway, problems: &mut Vec<ConfigError>) -> Vec<RouteConfig> {
    let rest = section.upstream.as_ref().map(|servers| RouteConfig {
        prefix: "/".to_owned(),
        servers: servers.iter().map(|sourced| sourced.value.clone()).collect(),
        http2: section.http2_upstream.as_ref().is_some_and(|sourced| sourced.value),
    });
    let mut routes: Vec<RouteConfig> = rest.into_iter().collect();
    for route in &section.routes {
        let Some(prefix) = &route.prefix else { continue };
        if routes.iter().any(|other| other.prefix == prefix.value) {
            let expected = "another route has this prefix: expected each once";
            let problem = ConfigError::new(prefix.location.clone(), expected);
            problems.push(problem.with_value(format!("{:?}", prefix.value)));
        }
        routes.push(route.to_route(prefix));
    }
    routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.len()));
    routes
}

impl WrittenRoute {
    fn to_route(&self, prefix: &str) -> RouteConfig {
        let servers = self.servers.iter().map(|sourced| sourced.value.clone()).collect();
        RouteConfig { prefix: prefix.to_owned(), servers, http2: self.http2 }
    }
}

fn timeouts(section: &WrittenGateway) -> Timeouts {
    let (written, default) = (&section.timeouts, Timeouts::default());
    Timeouts {
        head: written.head.unwrap_or(default.head),
        idle: written.idle.unwrap_or(default.idle),
        connect: written.connect.unwrap_or(default.connect),
        response: written.response.unwrap_or(default.response),
        drain: written.drain.unwrap_or(default.drain),
        body: written.body.unwrap_or(default.body),
        tunnel: written.tunnel.unwrap_or(default.tunnel),
    }
}

fn bounds(section: &WrittenGateway, problems: &mut Vec<ConfigError>) -> Bounds {
    let (written, default) = (&section.bounds, Bounds::default());
    let or = |number: Option<u32>, default| number.map_or(default, |number| number as usize);
    let connections = or(written.connections, default.connections);
    let in_flight = or(written.in_flight, default.in_flight);
    let mut share = |written: &Option<Sourced<u32>>, (key, total): (&str, usize)| {
        let Some(sourced) = written else { return Bounds::per_address(total) };
        if sourced.value as usize > total {
            let expected = format!("expected at most {key}, which is {total}");
            let problem = ConfigError::new(sourced.location.clone(), expected);
            problems.push(problem.with_value(sourced.value.to_string()));
        }
        sourced.value as usize
    };
    Bounds {
        head_bytes: or(written.head_bytes, default.head_bytes),
        connections,
        connections_per_address: share(
            &written.connections_per_address,
            ("connections", connections),
        ),
        in_flight,
        in_flight_per_address: share(&written.in_flight_per_address, ("in_flight", in_flight)),
        idle_upstream: or(written.idle_upstream, default.idle_upstream),
        body_bytes: written.body_bytes.or(default.body_bytes),
        body_rate: written.body_rate.unwrap_or(default.body_rate),
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
