//! Sets flags and environment variables in the tree of the file.
//!
//! Quotas of flags and variables change a policy that is there, found by its name. They never add
//! one beside those of a file, and never change which requests a policy is for.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::ValueEnum;
use slidegate::Quota;

use crate::config::error::{Diagnostic, Origin};
use crate::config::flags::{Flags, Profile};
use crate::config::reader::{Reader, nearest};
use crate::config::sources::{self, Environment};
use crate::config::tree::{Content, Node};
use slidegate::limit::Period;

/// The policy of a file without policies, and the one that is changed if none is named.
const DEFAULT_POLICY: &str = "default";
const DEFAULT_QUOTA: Quota = Quota::per_minute(100);

/// Sets everything that flags and variables say.
pub(super) fn overlay(root: &mut Node, flags: &Flags, environment: &Environment, reader: &Reader) {
    set_flags(root, flags);
    set_tokens(root, environment);
    set_redis(root, flags, environment, reader);
    add_default_policy(root);
    if let Err(error) = change_quotas(root, flags, environment, reader) {
        reader.report(error);
    }
}

/// Whether policies are enforced, which only the environment can switch off.
pub(super) fn enforced(environment: &Environment, reader: &Reader) -> bool {
    let text = environment.get(sources::ENABLED).unwrap_or("true").to_ascii_lowercase();
    match text.as_str() {
        "true" | "1" | "yes" | "on" => true,
        "false" | "0" | "no" | "off" => {
            let text = "NO POLICY IS ENFORCED: every request that is not blocked passes, uncounted";
            reader.warn(Origin::Variable(sources::ENABLED), text);
            false
        }
        _ => {
            reader.report(environment.error(sources::ENABLED, "expected true or false"));
            true
        }
    }
}

fn text(text: impl Into<String>, origin: Origin) -> Node {
    Content::Text(text.into()).at(origin)
}

fn set_flags(root: &mut Node, flags: &Flags) {
    fn texts<T: ToString>(items: &[T]) -> Vec<String> {
        items.iter().map(T::to_string).collect()
    }
    let log = flags.log.and_then(|format| format.to_possible_value());
    let log = log.map(|value| value.get_name().to_owned());
    for (path, flag, texts) in [
        (["gateway", "upstream"], "--upstream", flags.upstream.clone()),
        (["gateway", "trusted_proxies"], "--trusted-proxy", texts(&flags.trusted_proxy)),
        (["gateway", "client_address"], "--client-address", texts(flags.client_address.as_slice())),
        (["gateway", "listen"], "--listen", texts(&flags.listen)),
        (["decisions", "listen"], "--decisions", texts(&flags.decisions)),
        (["admin", "listen"], "--admin", texts(&flags.admin)),
        (["log", "format"], "--log", texts(log.as_slice())),
        (["store", "namespace"], "--namespace", texts(flags.namespace.as_slice())),
    ] {
        let origin = Origin::Flag(flag);
        let nodes: Vec<Node> = texts.iter().map(|item| text(item, origin.clone())).collect();
        match <[Node; 1]>::try_from(nodes) {
            Ok([node]) => root.set(&path, node),
            Err(nodes) if nodes.is_empty() => {}
            Err(nodes) => root.set(&path, Content::List(nodes).at(origin)),
        }
    }
    if let (Some(workers), Some(_)) = (flags.workers, root.get(&["gateway"])) {
        let workers = Content::Integer(workers.into()).at(Origin::Flag("--workers"));
        root.set(&["gateway", "workers"], workers);
    }
    if flags.access_log {
        root.set(&["log", "access"], Content::Boolean(true).at(Origin::Flag("--access-log")));
    }
}

fn set_tokens(root: &mut Node, environment: &Environment) {
    for (section, variable) in [
        ("admin", sources::ADMIN_TOKEN),
        ("decisions", sources::DECISIONS_TOKEN),
        ("resp", sources::RESP_TOKEN),
        ("rls", sources::RLS_TOKEN),
    ] {
        let Some(token) = environment.get(variable) else { continue };
        if root.get(&[section]).is_none() {
            let upstream = root.get(&["gateway", "upstream"]);
            let has_gateway = upstream.or(root.get(&["gateway", "route"])).is_some();
            // A token alone does not open the decision API beside a gateway, nor the endpoints for Redis
            // clients and for Envoy.
            if section == "decisions" && has_gateway || matches!(section, "resp" | "rls") {
                continue;
            }
            root.set(&[section], Node::empty(root.location.below(section)));
        }
        if let Some(Node { content: Content::Table(table), .. }) = root.get_mut(section) {
            table.entries.retain(|(key, _)| key != "token_file");
        }
        root.set(&[section, "token"], text(token, Origin::Variable(variable)));
    }
}

fn set_redis(root: &mut Node, flags: &Flags, environment: &Environment, reader: &Reader) {
    let origin = Origin::Variable(sources::REDIS_URL);
    let kind = root.get(&["store", "kind"]).and_then(Node::text);
    match (&flags.redis, environment.get(sources::REDIS_URL)) {
        (Some(url), _) => {
            root.set(&["store", "kind"], text("redis", Origin::Flag("--redis")));
            root.set(&["store", "url"], text(url.reveal(), Origin::Flag("--redis")));
        }
        // An explicit `memory` in the file outweighs a REDIS_URL meant for another application.
        (None, Some(_)) if kind == Some("memory") => {
            reader.warn(origin, "not used: the file says that the store is in memory");
        }
        (None, Some(url)) => root.set(&["store", "url"], text(url, origin)),
        (None, None) => {}
    }
}

/// Adds the policy that a profile is, and one to a file that has none.
fn add_default_policy(root: &mut Node) {
    let profile = root.get(&["profile"]);
    let named = profile.and_then(Node::text).and_then(|name| Profile::from_str(name, false).ok());
    let (quota, location) = match (profile, named) {
        (Some(node), Some(profile)) => (profile.quota(), node.location.clone()),
        _ if root.get(&["policy"]).is_none() => (DEFAULT_QUOTA, Origin::Default.into()),
        _ => return,
    };
    let mut policy = Node::empty(location.clone());
    policy.set(&["name"], Content::Text(DEFAULT_POLICY.to_owned()).at(location.clone()));
    policy.set(&["quotas"], Content::Text(quota.to_string()).at(location));
    root.extend("policy", vec![policy]);
}

/// Changes the quotas of the named policy, the only one, or the one that is called `default`: the
/// quotas of flags take the place of all, units and a window of the environment that of one.
fn change_quotas(
    root: &mut Node,
    flags: &Flags,
    environment: &Environment,
    reader: &Reader,
) -> Result<(), Diagnostic> {
    // Wrong variables are reported even if a flag outweighs them.
    let expected = "expected a whole number from 1 to 4294967295";
    let units = number(sources::MAX, expected, environment, reader);
    let window = window(environment, reader);
    let (by_flag, flag) = match flags.profile {
        Some(profile) => (vec![profile.quota()], "--profile"),
        None => (flags.quota.clone(), "--quota"),
    };
    let name = |policy: &Node| policy.get(&["name"]).and_then(Node::text).unwrap_or("").to_owned();
    let names: Vec<String> = root.all("policy").iter().map(name).collect();
    let named = environment.get(sources::POLICY);
    if let Some(name) = named.filter(|name| !names.iter().any(|known| known == name)) {
        let expected = match nearest(name, names.iter().map(String::as_str)) {
            Some(meant) => format!("there is no such policy: did you mean {meant}?"),
            None => format!("there is no such policy; there is {}", names.join(", ")),
        };
        return Err(environment.error(sources::POLICY, &expected));
    }
    let (origin, value) = match (by_flag.as_slice(), units, window) {
        ([], None, None) => return Ok(()),
        ([], None, Some((variable, _))) => (Origin::Variable(variable), None),
        ([], Some(units), _) => (Origin::Variable(sources::MAX), Some(units.to_string())),
        (quotas, ..) => (Origin::Flag(flag), Some(join(quotas, ", "))),
    };
    let error = |text: String| Diagnostic::new(origin.clone(), text).with_text(value.as_deref());
    let index = match named {
        None if names.len() == 1 => Some(0),
        named => names.iter().position(|name| name == named.unwrap_or(DEFAULT_POLICY)),
    };
    let (Some(index), Some(policies)) = (index, root.get_mut("policy")) else {
        return Err(error(format!(
            "there are the policies {}, and none is named {DEFAULT_POLICY}: say in {} which one is \
             meant",
            names.join(", "),
            sources::POLICY
        )));
    };
    let (name, policy) = (&names[index], &mut policies.elements_mut()[index]);
    if policy.get(&["plan"]).is_some() {
        return Err(error(format!(
            "policy {name:?} uses plans, which only the file can change: name another policy in \
             {}, or change the plans",
            sources::POLICY
        )));
    }
    let mut nodes = policy.all("quotas").to_vec();
    let quotas: Option<Vec<Quota>> = nodes.iter().map(|node| node.text()?.parse().ok()).collect();
    // What is missing or wrong is reported when it is read.
    let (Some(quotas), Some(list)) = (quotas, policy.get_mut("quotas")) else { return Ok(()) };
    if !by_flag.is_empty() {
        let nodes = by_flag.iter().map(|quota| text(quota.to_string(), origin.clone())).collect();
        *list = Content::List(nodes).at(origin);
    } else if !quotas.is_empty() {
        let window = window.map(|(_, window)| window);
        let index = match (units, window) {
            _ if quotas.len() == 1 => Some(0),
            (Some(_), Some(window)) => quotas.iter().position(|quota| quota.window() == window),
            _ => None,
        };
        let index = index.ok_or_else(|| {
            let windows: Vec<_> = quotas.iter().map(|quota| Period(quota.window())).collect();
            error(format!(
                "policy {name:?} has the quotas {}: set {} together with {} or {} to the window of \
                 the one that is meant ({})",
                join(&quotas, " and "),
                sources::MAX,
                sources::TTL,
                sources::WINDOW_MS,
                join(&windows, " or "),
            ))
        })?;
        let old = quotas[index];
        let quota = Quota::new(units.unwrap_or(old.units()), window.unwrap_or(old.window()));
        let quota = quota.map_err(|problem| error(problem.to_string()))?;
        nodes[index] = text(quota.to_string(), origin.clone());
        list.content = Content::List(nodes);
    }
    Ok(())
}

fn join<T: ToString>(items: &[T], between: &str) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(between)
}

/// The window of a variable, and which one that is.
fn window(environment: &Environment, reader: &Reader) -> Option<(&'static str, Duration)> {
    let expected = "expected a whole number of at least 1, and at most 366 days";
    let read = |name, unit: Duration| {
        let number = number(name, expected, environment, reader)?;
        let window = unit.saturating_mul(number.get());
        if window > Quota::MAX_WINDOW {
            reader.report(environment.error(name, expected));
            return None;
        }
        Some((name, window))
    };
    let seconds = read(sources::TTL, Duration::from_secs(1));
    let ms = read(sources::WINDOW_MS, Duration::from_millis(1));
    if let (Some((_, seconds)), Some((_, ms))) = (seconds, ms)
        && seconds != ms
    {
        let expected = "RATE_LIMIT_TTL has another length: expected one of the two, or the same";
        reader.report(environment.error(sources::WINDOW_MS, expected));
    }
    seconds.or(ms)
}

fn number(
    name: &'static str,
    expected: &str,
    environment: &Environment,
    reader: &Reader,
) -> Option<NonZeroU32> {
    let text = environment.get(name)?;
    let has_digits = text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| has_digits);
    if number.is_none() {
        reader.report(environment.error(name, expected));
    }
    number
}
