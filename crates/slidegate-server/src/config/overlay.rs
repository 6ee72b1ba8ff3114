//! Sets flags and environment variables in the tree of the file.
//!
//! Quotas of flags and variables change a policy that is there, found by its name. They never add
//! one beside those of a file, and never change which requests a policy is for.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::ValueEnum;
use slidegate::Quota;

use crate::config::error::{ConfigError, Location, Origin};
use crate::config::flags::{Flags, Profile};
use crate::config::reader::{Reader, nearest};
use crate::config::sources::{self, Environment};
use crate::config::tree::{Content, Node};
use crate::config::values::Period;

/// The policy of a file without policies, and the one that is changed if none is named.
const DEFAULT_POLICY: &str = "default";
const DEFAULT_QUOTA: Quota = Quota::per_minute(100);

/// Sets everything that flags and variables say.
pub(super) fn overlay(root: &mut Node, flags: &Flags, environment: &Environment, reader: &Reader) {
    set_flags(root, flags);
    set_tokens(root, environment);
    set_redis(root, flags, environment);
    add_default_policy(root);
    let variables = Variables { environment, reader };
    // Wrong variables are reported even if a flag outweighs them.
    let by_variables = variables.change();
    let named = environment.get(sources::POLICY);
    let is_known = named.is_none_or(|name| variables.check_policy(name, &policy_names(root)));
    if let Some(change) = Change::of_flags(flags).or(by_variables).filter(|_| is_known)
        && let Err(expected) = change.apply(root, named)
    {
        reader.report(change.error(&expected));
    }
}

/// Whether policies are enforced, which only the environment can switch off.
pub(super) fn enforced(environment: &Environment, reader: &Reader) -> bool {
    let Some(text) = environment.get(sources::ENABLED) else { return true };
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => true,
        "false" | "0" | "no" | "off" => false,
        _ => {
            Variables { environment, reader }.report(sources::ENABLED, "expected true or false");
            true
        }
    }
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
    ] {
        match texts.as_slice() {
            [] => {}
            [text] => root.set_text(&path, text, &Location::flag(flag)),
            texts => root.set(&path, list(texts, &Location::flag(flag))),
        }
    }
    if let (Some(workers), Some(_)) = (flags.workers, root.get(&["gateway"])) {
        let workers = Content::Integer(workers.into()).at(&Location::flag("--workers"));
        root.set(&["gateway", "workers"], workers);
    }
    if flags.access_log {
        let access = Content::Boolean(true).at(&Location::flag("--access-log"));
        root.set(&["log", "access"], access);
    }
}

fn list<T: ToString>(items: &[T], location: &Location) -> Node {
    let node = |item: &T| Content::Text(item.to_string()).at(location);
    Content::List(items.iter().map(node).collect()).at(location)
}

fn set_tokens(root: &mut Node, environment: &Environment) {
    for (section, variable) in
        [("admin", sources::ADMIN_TOKEN), ("decisions", sources::DECISIONS_TOKEN)]
    {
        let Some(token) = environment.get(variable) else { continue };
        if root.get(&[section]).is_none() {
            let upstream = root.get(&["gateway", "upstream"]);
            let has_gateway = upstream.or(root.get(&["gateway", "route"])).is_some();
            // A token alone does not open the decision API beside a gateway.
            if section == "decisions" && has_gateway {
                continue;
            }
            root.set(&[section], Content::Table(Vec::new()).at(&root.location(&[section])));
        }
        root.remove(&[section, "token_file"]);
        root.set_text(&[section, "token"], token, &Location::variable(variable));
    }
}

fn set_redis(root: &mut Node, flags: &Flags, environment: &Environment) {
    let kind = root.get(&["store", "kind"]).and_then(Node::text);
    if let Some(url) = &flags.redis {
        let location = Location::flag("--redis");
        root.set_text(&["store", "kind"], "redis", &location);
        root.set_text(&["store", "url"], url.reveal(), &location);
    } else if let Some(url) = environment.get(sources::REDIS_URL)
        // An explicit `memory` in the file outweighs a REDIS_URL meant for another application.
        && kind != Some("memory")
    {
        root.set_text(&["store", "url"], url, &Location::variable(sources::REDIS_URL));
    }
}

/// Adds the policy that a profile is, and one to a file that has none.
fn add_default_policy(root: &mut Node) {
    let profile = root.get(&["profile"]);
    let named = profile.and_then(Node::text).and_then(|name| Profile::from_str(name, false).ok());
    let (quota, location) = match (profile, named) {
        (Some(node), Some(profile)) => (profile.quota(), node.location.clone()),
        _ if root.get(&["policy"]).is_none() => (DEFAULT_QUOTA, Location::of(Origin::Default)),
        _ => return,
    };
    let mut policy = Content::Table(Vec::new()).at(&location);
    policy.set_text(&["name"], DEFAULT_POLICY, &location);
    policy.set_text(&["quotas"], &quota.to_string(), &location);
    root.push("policy", policy);
}

/// Quotas of a policy from flags or the environment.
enum Change {
    /// By flags: these in place of all.
    Quotas { quotas: Vec<Quota>, location: Location },
    /// By the environment: other units, another window, or both.
    Quota { units: Option<NonZeroU32>, window: Option<Duration>, location: Location },
}

impl Change {
    fn of_flags(flags: &Flags) -> Option<Self> {
        let (quotas, flag) = match flags.profile {
            Some(profile) => (vec![profile.quota()], "--profile"),
            None => (flags.quota.clone(), "--quota"),
        };
        let location = Location::flag(flag);
        (!quotas.is_empty()).then_some(Self::Quotas { quotas, location })
    }

    /// Changes the named policy, the only one, or the one that is called `default`.
    fn apply(&self, root: &mut Node, named: Option<&str>) -> Result<(), String> {
        let names = policy_names(root);
        let index = match named {
            None if names.len() == 1 => Some(0),
            named => names.iter().position(|name| name == named.unwrap_or(DEFAULT_POLICY)),
        };
        let index = index.ok_or_else(|| {
            format!(
                "there are the policies {}, and none is named {DEFAULT_POLICY}: say in {} which \
                 one is meant",
                names.join(", "),
                sources::POLICY
            )
        })?;
        let mut policies = root.all(&["policy"]).to_vec();
        let policy = &mut policies[index];
        if policy.get(&["plan"]).is_some() {
            return Err(format!(
                "policy {:?} goes by plans, which only the file can change: name another policy \
                 in {}, or change the plans",
                names[index],
                sources::POLICY
            ));
        }
        let written = policy.all(&["quotas"]).iter();
        let quotas: Option<Vec<Quota>> = written.map(|node| node.text()?.parse().ok()).collect();
        // What is missing or wrong is reported when it is read.
        let Some(quotas) = quotas.filter(|quotas| !quotas.is_empty()) else { return Ok(()) };
        let changed = match self {
            Self::Quotas { quotas, location } => list(quotas, location),
            Self::Quota { units, window, location } => {
                let index = meant(&quotas, *units, *window)
                    .map_err(|expected| format!("policy {:?} {expected}", names[index]))?;
                let units = units.unwrap_or(quotas[index].units());
                let window = window.unwrap_or(quotas[index].window());
                let quota = Quota::new(units, window).map_err(|error| error.to_string())?;
                let mut nodes = policy.all(&["quotas"]).to_vec();
                nodes[index] = Content::Text(quota.to_string()).at(location);
                Content::List(nodes).at(&policy.location(&["quotas"]))
            }
        };
        policy.set(&["quotas"], changed);
        let location = root.location(&["policy"]);
        root.set(&["policy"], Content::List(policies).at(&location));
        Ok(())
    }

    fn error(&self, expected: &str) -> ConfigError {
        let (location, value) = match self {
            Self::Quotas { quotas, location } => (location, Some(join(quotas, ", "))),
            Self::Quota { units, location, .. } => (location, units.map(|units| units.to_string())),
        };
        ConfigError::new(location.clone(), expected).with_text(value.as_deref())
    }
}

/// The quota that units and a window are meant for: the only one, or the one that has this window.
fn meant(
    quotas: &[Quota],
    units: Option<NonZeroU32>,
    window: Option<Duration>,
) -> Result<usize, String> {
    let index = match (units, window) {
        _ if quotas.len() == 1 => Some(0),
        (Some(_), Some(window)) => quotas.iter().position(|quota| quota.window() == window),
        _ => None,
    };
    index.ok_or_else(|| {
        let windows: Vec<_> = quotas.iter().map(|quota| Period(quota.window())).collect();
        format!(
            "has the quotas {}: set {} together with {} or {} to the window of the one that is \
             meant ({})",
            join(quotas, " and "),
            sources::MAX,
            sources::TTL,
            sources::WINDOW_MS,
            join(&windows, " or "),
        )
    })
}

fn join<T: ToString>(items: &[T], between: &str) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(between)
}

fn policy_names(root: &Node) -> Vec<String> {
    let name = |policy: &Node| policy.get(&["name"]).and_then(Node::text).map(str::to_owned);
    root.all(&["policy"]).iter().map(|policy| name(policy).unwrap_or_default()).collect()
}

/// The variables that change a policy.
struct Variables<'e> {
    environment: &'e Environment,
    reader: &'e Reader,
}

impl Variables<'_> {
    fn change(&self) -> Option<Change> {
        let expected = "expected a whole number from 1 to 4294967295";
        let units = self.number(sources::MAX, expected);
        let window = self.window();
        let variable = match (units, window) {
            (Some(_), _) => sources::MAX,
            (None, Some((variable, _))) => variable,
            (None, None) => return None,
        };
        let location = Location::variable(variable);
        Some(Change::Quota { units, window: window.map(|(_, window)| window), location })
    }

    /// Reports a name that no policy has.
    fn check_policy(&self, name: &str, names: &[String]) -> bool {
        let is_known = names.iter().any(|known| known == name);
        if !is_known {
            let expected = match nearest(name, names.iter().map(String::as_str)) {
                Some(meant) => format!("there is no such policy: did you mean {meant}?"),
                None => format!("there is no such policy; there is {}", names.join(", ")),
            };
            self.report(sources::POLICY, &expected);
        }
        is_known
    }

    fn window(&self) -> Option<(&'static str, Duration)> {
        let expected = "expected a whole number of at least 1, and at most 366 days";
        let read = |name, unit: Duration| {
            let window =
                self.number(name, expected).map(|count| unit.saturating_mul(count.get()))?;
            if window > Quota::MAX_WINDOW {
                self.report(name, expected);
                return None;
            }
            Some((name, window))
        };
        let seconds = read(sources::TTL, Duration::from_secs(1));
        let ms = read(sources::WINDOW_MS, Duration::from_millis(1));
        if let (Some((_, seconds)), Some((_, ms))) = (seconds, ms)
            && seconds != ms
        {
            let expected =
                "RATE_LIMIT_TTL has another length: expected one of the two, or the same";
            self.report(sources::WINDOW_MS, expected);
        }
        seconds.or(ms)
    }

    fn number(&self, name: &'static str, expected: &str) -> Option<NonZeroU32> {
        let text = self.environment.get(name)?;
        let has_digits = text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|_| has_digits);
        if number.is_none() {
            self.report(name, expected);
        }
        number
    }

    fn report(&self, name: &'static str, expected: &str) {
        let error = ConfigError::new(Location::variable(name), expected);
        self.reader.report(error.with_text(self.environment.get(name)));
    }
}
