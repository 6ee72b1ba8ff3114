//! The banner printed at startup: limits, identities and addresses.

use std::fmt::Write;

use slidegate::Policies;
use slidegate_proxy::{ListenAddress, RouteConfig};

use crate::config::{EndpointConfig, ServerConfig, StoreConfig};

/// Where each endpoint is in truth: a port that was chosen by the system is known only now.
#[derive(Debug, Default)]
pub(crate) struct LocalAddresses {
    pub(crate) gateway: Vec<ListenAddress>,
    pub(crate) decisions: Vec<ListenAddress>,
    pub(crate) resp: Vec<ListenAddress>,
    pub(crate) rls: Vec<ListenAddress>,
    pub(crate) admin: Vec<ListenAddress>,
}

impl LocalAddresses {
    /// Logs the listening addresses, and what the banner tells besides.
    pub(crate) fn log(&self, config: &ServerConfig, limits: &[String]) {
        let list = |addresses: &[ListenAddress]| {
            let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            (!texts.is_empty()).then(|| texts.join(", "))
        };
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            gateway = list(&self.gateway),
            decisions = list(&self.decisions),
            resp = list(&self.resp),
            rls = list(&self.rls),
            admin = list(&self.admin),
            limits = limits.join("; "),
            store = describe_store(&config.store),
            "listening"
        );
    }
}

/// A line for each thing to know.
pub(crate) fn banner(
    config: &ServerConfig,
    limits: &[String],
    endpoints: &LocalAddresses,
) -> String {
    let mut text = format!("slidegate {}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |word: &str, rest: String| {
        let _ = writeln!(text, "  {word:<10} {rest}");
    };
    if let Some(gateway) = &config.gateway {
        let scheme = if gateway.tls.is_some() { "https" } else { "http" };
        for address in &endpoints.gateway {
            for route in &gateway.proxy.routes {
                line("gateway", format!("{} -> {}", url(scheme, address), upstream(route)));
            }
        }
    }
    for address in &endpoints.decisions {
        line("decisions", format!("{}/v1/decide", url("http", address)));
    }
    for address in &endpoints.resp {
        line("resp", url("redis", address));
    }
    let has_tls = |rls: &EndpointConfig| rls.tls.is_some();
    let scheme = if config.rls.as_ref().is_some_and(has_tls) { "grpcs" } else { "grpc" };
    for address in &endpoints.rls {
        line("rls", url(scheme, address));
    }
    for limit in limits {
        line("limits", limit.clone());
    }
    line("store", describe_store(&config.store));
    for address in &endpoints.admin {
        line("metrics", format!("{}/metrics", url("http", address)));
        if let ListenAddress::Tcp(_) = address {
            line("dashboard", format!("{}/", url("http", address)));
        }
    }
    if let Some(curl) = curl(config, endpoints) {
        line("try", curl);
    }
    text
}

/// A text for each policy and plan, of those in force unless the operator has switched them off.
pub(crate) fn limits(policies: &Policies, enforced: bool) -> Vec<String> {
    if !enforced {
        return vec!["NOTHING: all policies are switched off".to_owned()];
    }
    if policies.names().next().is_none() {
        return vec!["nothing: there are no policies".to_owned()];
    }
    let own = policies.iter().filter(|policy| !policy.has_caller_quotas());
    let plans = policies.plans().into_iter().map(|plan| format!("plan {plan}"));
    own.map(ToString::to_string).chain(plans).collect()
}

fn url(scheme: &str, address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(address) => format!("{scheme}://{address}"),
        ListenAddress::Unix(_) => address.to_string(),
    }
}

fn upstream(route: &RouteConfig) -> String {
    let servers: Vec<String> =
        route.servers.iter().map(|uri| uri.to_string().trim_end_matches('/').to_owned()).collect();
    match route.prefix.as_str() {
        "" | "/" => servers.join(", "),
        prefix => format!("{} for {prefix}", servers.join(", ")),
    }
}

fn describe_store(store: &StoreConfig) -> String {
    match store {
        StoreConfig::Memory { .. } => "memory, for this process alone".to_owned(),
        StoreConfig::Redis(redis) => format!("Redis at {}", redis.shown()),
    }
}

/// A line that shows a decision when it is pasted into a shell on this machine.
fn curl(config: &ServerConfig, endpoints: &LocalAddresses) -> Option<String> {
    let reached = |addresses: &[ListenAddress]| addresses.first()?.reached_at();
    if let Some(address) = reached(&endpoints.gateway) {
        let tls = config.gateway.as_ref().is_some_and(|gateway| gateway.tls.is_some());
        // The certificate is for the server's name, not for its address.
        let start = if tls { "curl -ik https" } else { "curl -i http" };
        return Some(format!("{start}://{address}/"));
    }
    let address = reached(&endpoints.decisions)?;
    let facts = r#"{"method":"GET","path":"/","client":"203.0.113.7"}"#;
    let has_token = config.decisions.as_ref().is_some_and(|decisions| decisions.token.is_some());
    let token = match has_token {
        true => "-H \"Authorization: Bearer $SLIDEGATE_DECISIONS_TOKEN\" ",
        false => "",
    };
    Some(format!(
        "curl {token}-H 'Content-Type: application/json' -d '{facts}' http://{address}/v1/decide"
    ))
}
