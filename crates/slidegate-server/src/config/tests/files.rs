//! Files that are good.

use std::time::Duration;

use slidegate::Facts;
use slidegate_proxy::{Bounds, Timeouts};
use slidegate_tower::AddressSource;

use super::file;
use crate::config::{GatewayConfig, StoreConfig};

/// The example that the design of the configuration began with.
const FIRST: &str = r#"
[gateway]
listen = "127.0.0.1:8080"
upstream = "http://127.0.0.1:3000"
trusted_proxies = ["10.0.0.0/8"]
client_address = "x-forwarded-for"      # or forwarded, x-real-ip, cf-connecting-ip, peer

[decisions]
listen = "127.0.0.1:8081"               # POST /v1/decide, /v1/auth (Caddy, Traefik, Envoy), /v1/auth/nginx

[admin]
listen = "127.0.0.1:9090"               # /metrics /healthz /readyz, operator API, dashboard

[store]
kind = "redis"                          # default: memory
url = "redis://127.0.0.1:6379"

[plans.free]
quotas = ["60/min", "10000/day"]
upgrade_url = "https://app.example.com/upgrade"
[plans.pro]
quotas = ["600/min", "100000/day"]

[[policy]]
name = "flood"
scope = "local"                         # decided in this process, before everything else
identity = ["ip"]
quotas = ["50/s"]
refusal = "bare"

[[policy]]
name = "api"
identity = ["user", "api-key", "ip"]
plan = { header = "x-plan", default = "free" }

[[policy]]
name = "login"
match = { method = "POST", path = "/api/v1/auth/login" }
identity = ["ip"]
quotas = ["5/min"]
on_store_error = "deny"
"#;

fn gateway(text: &str) -> GatewayConfig {
    file(text).unwrap().config.server.gateway.unwrap()
}

#[test]
fn example_of_the_docs_loads_as_written() {
    let config = file(FIRST).unwrap().config;
    let gateway = config.server.gateway.unwrap();
    assert_eq!(gateway.listen[0].to_string(), "127.0.0.1:8080");
    assert_eq!(gateway.proxy.routes[0].servers[0], "http://127.0.0.1:3000");
    assert_eq!(config.server.decisions.unwrap().listen[0].to_string(), "127.0.0.1:8081");
    assert_eq!(config.server.admin.listen[0].to_string(), "127.0.0.1:9090");
    let StoreConfig::Redis(redis) = config.server.store else { panic!("not Redis") };
    assert_eq!(redis.shown(), "127.0.0.1:6379");
    assert_eq!(redis.deadline, Duration::from_millis(50));
    let limiter = config.limiter;
    assert_eq!(limiter.client_address.source(), AddressSource::XForwardedFor);
    assert!(limiter.client_address.trusts("10.1.2.3".parse().unwrap()));
    let facts = Facts::new(&http::Method::POST, "/api/v1/auth/login")
        .client("203.0.113.7".parse().unwrap());
    assert_eq!(
        limiter.policies.explain(&facts).to_string(),
        "flood: takes 1 unit of 50/s from ip:203.0.113.7, in this process\n\
         api: takes 1 unit of 60/min, 10000/day from ip:203.0.113.7, plan free, having no user, api-key\n\
         login: takes 1 unit of 5/min from ip:203.0.113.7\n"
    );
}

#[test]
fn costs_that_envoy_states_are_recorded_unless_the_policy_admits_them() {
    for (line, expected) in [("", false), ("charge = 'record'", false), ("charge = 'admit'", true)]
    {
        let policy = "[[policy]]\nname = 'tokens'\nquotas = '1000/min'\n\
                      match = { domain = 'edge', descriptors = { user = '*' } }\n";
        let loaded = file(&format!("[rls]\n{policy}{line}")).unwrap().config;
        let policies = loaded.limiter.policies;
        assert_eq!(policies.iter().next().unwrap().admit_only, expected, "{line}");
    }
}

#[test]
fn routes_are_found_longest_first() {
    let gateway = gateway(
        r#"
        [gateway]
        upstream = ["http://a", "http://b:81"]
        [[gateway.route]]
        prefix = "/api"
        upstream = "https://api.internal"
        [[gateway.route]]
        prefix = "/api/grpc"
        upstream = "http://grpc:50051"
        http2_upstream = true
        "#,
    );
    let routes: Vec<_> = gateway.proxy.routes.iter().map(|route| route.prefix.as_str()).collect();
    assert_eq!(routes, ["/api/grpc", "/api", "/"]);
    assert!(gateway.proxy.routes[0].http2 && !gateway.proxy.routes[1].http2);
    assert_eq!(gateway.proxy.routes[2].servers.len(), 2);
}

#[test]
fn one_address_has_a_tenth_of_the_bounds_unless_the_file_says_otherwise() {
    let of = |rest: &str| gateway(&format!("[gateway]\nupstream = 'http://a'\n{rest}"));
    let default = of("");
    assert_eq!(default.proxy.bounds, Bounds::default());
    assert_eq!(default.proxy.timeouts, Timeouts::default());
    let bounds = of("[gateway.bounds]\nconnections = 25\nin_flight = 5\n").proxy.bounds;
    assert_eq!((bounds.connections_per_address, bounds.in_flight_per_address), (3, 1));
    let config = of("[gateway.timeouts]\nbody = '5min'\ntunnel = '10min'\n\
                     [gateway.bounds]\nconnections_per_address = 10000\n\
                     in_flight_per_address = 7\nbody_bytes = 1048576\nbody_rate = 0\n");
    assert_eq!(
        config.proxy.timeouts,
        Timeouts {
            body: Duration::from_secs(300),
            tunnel: Duration::from_secs(600),
            ..Timeouts::default()
        }
    );
    assert_eq!(
        config.proxy.bounds,
        Bounds {
            connections_per_address: 10_000,
            in_flight_per_address: 7,
            body_bytes: Some(1_048_576),
            body_rate: 0,
            ..Bounds::default()
        }
    );
}

#[test]
fn the_password_of_a_file_goes_into_a_url_of_any_form() {
    let directory = slidegate_testbed::Directory::new();
    let file_of_password = directory.write("password", "s@cret/1\n");
    for (url, expected) in [
        ("postgres://u@db/app?sslmode=require", "postgres://u:s%40cret%2F1@db/app?sslmode=require"),
        ("postgres://u@db1:5432,db2:5433/app", "postgres://u:s%40cret%2F1@db1:5432,db2:5433/app"),
        ("postgres://u@%2Frun%2Fpg/app", "postgres://u:s%40cret%2F1@%2Frun%2Fpg/app"),
    ] {
        let text = format!(
            "[[policy]]\nname = 'a'\nquotas = '1/s'\nidentity = ['api-key', 'ip']\n\
             [key_source]\nurl = '{url}'\nquery = 'select 1'\npassword_file = {file_of_password:?}\n"
        );
        let config = file(&text).unwrap().config;
        assert_eq!(config.server.customers.key_source.unwrap().url, expected);
    }
}
