//! Client addresses and trusted proxies.

use http::HeaderName;
use slidegate::Source;
use slidegate_tower::AddressSource;

use crate::config::location::{Location, Sourced};
use crate::config::warning::ConfigWarning;
use crate::config::written::{Written, WrittenGateway, WrittenSource};

pub(super) fn lint(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    if let Some(gateway) = &written.gateway {
        source(gateway, warnings);
        proxies(gateway, warnings);
    }
    if has_gateway(written) && !trusts_anybody(written) {
        headers(written, warnings);
    }
    if has_gateway(written) && written.decisions.is_none() && user_header(written).is_none() {
        users(written, warnings);
    }
}

/// Programs that ask can say themselves whose headers are to be believed. A gateway cannot.
fn has_gateway(written: &Written) -> bool {
    let section = written.gateway.as_ref();
    section.is_some_and(|gateway| gateway.upstream.is_some() || !gateway.routes.is_empty())
}

fn trusts_anybody(written: &Written) -> bool {
    let proxies = written.gateway.as_ref().and_then(|gateway| gateway.trusted_proxies.as_ref());
    proxies.is_some_and(|proxies| !proxies.is_empty())
}

fn user_header(written: &Written) -> Option<&Sourced<HeaderName>> {
    written.gateway.as_ref()?.user_header.as_ref()
}

/// A client-address header without any trusted proxy.
fn source(gateway: &WrittenGateway, warnings: &mut Vec<ConfigWarning>) {
    if gateway.trusted_proxies.as_ref().is_some_and(|proxies| !proxies.is_empty()) {
        return;
    }
    let header =
        gateway.client_address.as_ref().filter(|sourced| sourced.value != AddressSource::Peer);
    if let Some(header) = header {
        let text = format!(
            "{} is never believed, because there are no trusted proxies: \
             name those that set it in trusted_proxies",
            header.value
        );
        warnings.push(ConfigWarning::new(&header.location, text));
    }
    if let Some(sourced) = gateway.proxy_protocol.as_ref().filter(|sourced| sourced.value) {
        let text = "PROXY headers are never believed, because there are no trusted proxies";
        warnings.push(ConfigWarning::new(&sourced.location, text));
    }
}

/// Trusted proxies without a client-address header, or networks that contain everybody.
fn proxies(gateway: &WrittenGateway, warnings: &mut Vec<ConfigWarning>) {
    let Some(proxies) = gateway.trusted_proxies.as_ref().filter(|p| !p.is_empty()) else { return };
    let source = gateway.client_address.as_ref().map(|sourced| sourced.value).unwrap_or_default();
    let proxy_protocol = gateway.proxy_protocol.as_ref().is_some_and(|sourced| sourced.value);
    if source == AddressSource::Peer && !proxy_protocol {
        let text = "all clients behind a trusted proxy share the proxy's account: say in \
                    client_address which header tells their addresses, such as x-forwarded-for";
        warnings.push(ConfigWarning::new(&proxies.location, text));
    }
    let everybody = |text: &str| matches!(text, "0.0.0.0/0" | "::/0");
    if proxies.iter().any(|network| everybody(&network.to_string())) {
        let text = "everybody is trusted, so anybody can pass for any client";
        warnings.push(ConfigWarning::new(&proxies.location, text));
    }
}

/// Headers that are read from trusted proxies only, and there are none.
fn headers(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    let mut warn = |location: &Location, what: String| {
        let text = format!("the gateway never believes {what}: there are no trusted proxies");
        warnings.push(ConfigWarning::new(location, text));
    };
    if let Some(name) = user_header(written) {
        warn(&name.location, format!("the header {}", name.value));
    }
    for policy in &written.policies {
        for source in policy.identity.iter() {
            if let Source::Header(name) = &source.source {
                warn(&policy.identity.location, format!("the header {name}"));
            }
        }
        let plan = policy.plan.as_ref();
        if let Some((plan, header)) = plan.and_then(|plan| Some((plan, plan.header.as_ref()?))) {
            warn(&plan.location, format!("the header {header}"));
        }
        policy.exempt.headers.iter().for_each(|location| warn(location, "this header".to_owned()));
    }
    let lists = written.exempt.headers.iter().chain(&written.blocked.headers);
    lists.for_each(|location| warn(location, "this header".to_owned()));
}

/// Users in policies and lists where the gateway has no source of user ids.
fn users(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    const REMEDY: &str =
        "say in gateway.user_header which header of a trusted proxy names the user";
    for policy in &written.policies {
        let is_user = |source: &WrittenSource| source.source == Source::User;
        if policy.identity.iter().all(is_user) {
            let text = format!(
                "all requests are one anonymous: the gateway knows no users; {REMEDY}, or add a \
                 source such as api-key or ip"
            );
            warnings.push(ConfigWarning::new(&policy.identity.location, text));
        } else if policy.identity.iter().any(is_user) {
            let text = format!("nobody is counted by user: the gateway knows no users; {REMEDY}");
            warnings.push(ConfigWarning::new(&policy.identity.location, text));
        }
    }
    let of_policies = written.policies.iter().map(|policy| &policy.exempt);
    for list in of_policies.chain([&written.exempt, &written.blocked]) {
        if let Some(location) = &list.users {
            let text = format!("nobody is listed by user: the gateway knows no users; {REMEDY}");
            warnings.push(ConfigWarning::new(location, text));
        }
    }
}
