//! What flags and the environment change about one policy: its quota, and whether any is enforced.
//!
//! They tune a policy that is there, found by its name. They never add one beside those of a file,
//! and never change which requests a policy is for. What cannot be applied is a problem.

use std::num::NonZeroU32;
use std::time::Duration;

use slidegate::Quota;

use crate::config::environment::{self, Environment};
use crate::config::error::ConfigError;
use crate::config::flags::Flags;
use crate::config::location::{Location, Sourced};
use crate::config::period::Period;
use crate::config::suggestion::nearest;
use crate::config::written::{Written, WrittenPolicy};

/// The policy of a file without policies, and the one that is tuned if none is named.
pub(super) const DEFAULT_POLICY: &str = "default";

/// Changes the written policies as flags and variables say.
pub(super) fn tune(
    written: &mut Written,
    flags: &Flags,
    environment: &Environment,
    problems: &mut Vec<ConfigError>,
) {
    let mut variables = Variables { environment, problems };
    written.enforced = variables.enabled();
    let from_environment = Change::of_variables(&mut variables);
    let named = variables.policy(&written.policies);
    let Some(change) = Change::of_flags(flags).or(from_environment) else { return };
    let target = match named {
        NamedPolicy::Policy(index) => Ok(index),
        NamedPolicy::Nothing => unnamed(&written.policies),
        // Reported already.
        NamedPolicy::Unknown => return,
    };
    let changed = target.and_then(|index| change.apply(&mut written.policies[index]));
    if let Err(expected) = changed {
        problems.push(change.problem(expected));
    }
}

/// The only policy, or the one named `default`.
fn unnamed(policies: &[WrittenPolicy]) -> Result<usize, String> {
    if policies.len() == 1 {
        return Ok(0);
    }
    let default = policies.iter().position(|policy| policy.name.value == DEFAULT_POLICY);
    default.ok_or_else(|| {
        format!(
            "there are the policies {}, and none is named {DEFAULT_POLICY}: say in {} which one \
             is meant",
            names(policies),
            environment::POLICY
        )
    })
}

fn names(policies: &[WrittenPolicy]) -> String {
    policies.iter().map(|policy| policy.name.value.as_str()).collect::<Vec<_>>().join(", ")
}

/// Quotas of a policy from flags or the environment.
enum Change {
    /// By flags: these in place of all.
    Quotas(Vec<Sourced<Quota>>),
    /// By the environment: other units, another window, or both.
    Quota {
        units: Option<Sourced<NonZeroU32>>,
        window: Option<Sourced<Duration>>,
        location: Location,
    },
}

impl Change {
    fn of_flags(flags: &Flags) -> Option<Self> {
        if let Some(profile) = flags.profile {
            let quota = Location::flag("--profile").with_value(profile.quota());
            return Some(Self::Quotas(vec![quota]));
        }
        let quotas = flags.quota.iter().map(|quota| Location::flag("--quota").with_value(*quota));
        let quotas: Vec<_> = quotas.collect();
        (!quotas.is_empty()).then_some(Self::Quotas(quotas))
    }

    fn of_variables(variables: &mut Variables<'_, '_>) -> Option<Self> {
        let expected = "expected a whole number from 1 to 4294967295";
        let units = variables.number(environment::MAX, expected);
        let window = variables.window();
        let location = units
            .as_ref()
            .map(|sourced| &sourced.location)
            .or(window.as_ref().map(|sourced| &sourced.location));
        let location = location?.clone();
        Some(Self::Quota { units, window, location })
    }

    /// Changes the policy's quotas; an error if that is ambiguous.
    fn apply(&self, policy: &mut WrittenPolicy) -> Result<(), String> {
        let name = &policy.name.value;
        if policy.plan.is_some() {
            return Err(format!(
                "policy {name:?} goes by plans, which only the file can change: name another \
                 policy in {}, or change the plans",
                environment::POLICY
            ));
        }
        if !policy.quotas.is_whole || policy.quotas.quotas.is_empty() {
            // Reported already, or about to be.
            return Ok(());
        }
        match self {
            Self::Quotas(quotas) => policy.quotas.quotas.clone_from(quotas),
            Self::Quota { units, window, location } => {
                let (units, window) = (units.as_deref().copied(), window.as_deref().copied());
                let tuned = tuned_quota(policy, units, window)?;
                let units = units.unwrap_or(tuned.units());
                let window = window.unwrap_or(tuned.window());
                let quota = Quota::new(units, window).map_err(|error| error.to_string())?;
                *tuned = location.clone().with_value(quota);
            }
        }
        Ok(())
    }

    fn problem(&self, expected: String) -> ConfigError {
        match self {
            Self::Quotas(quotas) => {
                let texts: Vec<String> = quotas.iter().map(|quota| quota.to_string()).collect();
                let location = quotas
                    .first()
                    .map_or(Location::flag("--quota"), |sourced| sourced.location.clone());
                ConfigError::new(location, expected).with_value(format!("{:?}", texts.join(", ")))
            }
            Self::Quota { units: Some(units), location, .. } => {
                let value = format!("{:?}", units.value.to_string());
                ConfigError::new(location.clone(), expected).with_value(value)
            }
            Self::Quota { location, .. } => ConfigError::new(location.clone(), expected),
        }
    }
}

/// The quota that units and a window are meant for: the only one, or the one that has this window.
fn tuned_quota(
    policy: &mut WrittenPolicy,
    units: Option<NonZeroU32>,
    window: Option<Duration>,
) -> Result<&mut Sourced<Quota>, String> {
    let name = policy.name.value.clone();
    let quotas = &mut policy.quotas.quotas;
    let texts: Vec<String> = quotas.iter().map(|quota| quota.to_string()).collect();
    let windows: Vec<String> =
        quotas.iter().map(|quota| Period(quota.window()).to_string()).collect();
    let several = || {
        format!(
            "policy {name:?} has the quotas {}: set {} together with {} or {} to the window of \
             the one that is meant ({})",
            texts.join(" and "),
            environment::MAX,
            environment::TTL,
            environment::WINDOW_MS,
            windows.join(" or "),
        )
    };
    let index = match (quotas.len(), units, window) {
        (1, ..) => Some(0),
        (_, Some(_), Some(window)) => quotas.iter().position(|quota| quota.window() == window),
        _ => None,
    };
    index.and_then(|index| quotas.get_mut(index)).ok_or_else(several)
}

/// The value of `RATE_LIMIT_POLICY`.
enum NamedPolicy {
    Policy(usize),
    Unknown,
    Nothing,
}

/// The variables that say what is limited.
struct Variables<'e, 'p> {
    environment: &'e Environment,
    problems: &'p mut Vec<ConfigError>,
}

impl Variables<'_, '_> {
    fn enabled(&mut self) -> Option<Sourced<bool>> {
        let name = environment::ENABLED;
        let text = self.environment.get(name)?;
        let location = Location::variable(name);
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(location.with_value(true)),
            "false" | "0" | "no" | "off" => Some(location.with_value(false)),
            _ => {
                self.report(name, text, "expected true or false");
                None
            }
        }
    }

    fn policy(&mut self, policies: &[WrittenPolicy]) -> NamedPolicy {
        let Some(name) = self.environment.get(environment::POLICY) else {
            return NamedPolicy::Nothing;
        };
        let known = || policies.iter().map(|policy| policy.name.value.as_str());
        if let Some(index) = known().position(|known| known == name) {
            return NamedPolicy::Policy(index);
        }
        let expected = match nearest(name, known()) {
            Some(meant) => format!("there is no such policy: did you mean {meant}?"),
            None => format!("there is no such policy; there is {}", names(policies)),
        };
        self.report(environment::POLICY, name, &expected);
        NamedPolicy::Unknown
    }

    fn window(&mut self) -> Option<Sourced<Duration>> {
        let expected = "expected a whole number of at least 1, and at most 366 days";
        let mut read = |name, length_ms: u64| {
            let count: Sourced<NonZeroU32> = self.number(name, expected)?;
            let ms = u64::from(count.get()).saturating_mul(length_ms);
            let window = Duration::from_millis(ms);
            if window > Quota::MAX_WINDOW {
                self.report(name, &count.to_string(), expected);
                return None;
            }
            Some(count.location.with_value(window))
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

    fn number(&mut self, name: &'static str, expected: &str) -> Option<Sourced<NonZeroU32>> {
        let text = self.environment.get(name)?;
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        match text.parse().ok().filter(|_| digits) {
            Some(number) => Some(Location::variable(name).with_value(number)),
            None => {
                self.report(name, text, expected);
                None
            }
        }
    }

    fn report(&mut self, name: &'static str, value: &str, expected: &str) {
        let problem = ConfigError::new(Location::variable(name), expected);
        self.problems.push(problem.with_value(format!("{value:?}")));
    }
}
