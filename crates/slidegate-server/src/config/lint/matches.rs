//! Policies and plans that no request ever has, and policies that are there twice.

use http::Method;
use slidegate::{AccessList, Facts, Policies, Scope};

use crate::config::warning::ConfigWarning;
use crate::config::written::{Written, WrittenPolicy, WrittenRoster};

pub(super) fn lint(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    for (i, policy) in written.policies.iter().enumerate() {
        exempted(written, policy, warnings);
        patterns(written, policy, warnings);
        twin(policy, &written.policies[..i], warnings);
        watching(policy, warnings);
    }
    plans(written, warnings);
    templates(written, warnings);
}

/// A policy all of whose paths are exempt or blocked.
fn exempted(written: &Written, policy: &WrittenPolicy, warnings: &mut Vec<ConfigWarning>) {
    let lists = [
        (&written.exempt, "exempt"),
        (&written.blocked, "blocked"),
        (&policy.exempt, "exempt from it"),
    ];
    for (list, what) in lists {
        let covered = |path: &str| covers(list, path);
        if !policy.paths.is_empty() && policy.paths.iter().all(|path| covered(&path.value)) {
            let text = format!("it never takes part: its paths are {what}");
            warnings.push(ConfigWarning::new(&policy.location, text));
        }
    }
}

/// Whether the list covers every path of a pattern, judged by an unlikely sample path.
fn covers(list: &WrittenRoster, pattern: &str) -> bool {
    let add = |roster: AccessList, path: &String| roster.path(path.clone());
    let roster = list.paths.iter().map(|path| &path.value).fold(AccessList::new(), add);
    let Ok(policies) = Policies::builder().exempt(roster).build() else { return false };
    let any = example(pattern);
    policies.explain(&Facts::new(&Method::GET, &any)).exempt.is_some()
}

fn example(pattern: &str) -> String {
    let segment = |segment: &str| match (segment.find('{'), segment.contains('}')) {
        (Some(start), true) => format!("{}~any~", &segment[..start]),
        _ => segment.to_owned(),
    };
    pattern.split('/').map(segment).collect::<Vec<_>>().join("/")
}

/// Patterns of paths that no request has, or only those that are written in a certain way.
fn patterns(written: &Written, policy: &WrittenPolicy, warnings: &mut Vec<ConfigWarning>) {
    let gateway = written.gateway.as_ref();
    let ignores_case = gateway.and_then(|gateway| gateway.ignore_case).unwrap_or_default();
    for path in &policy.paths {
        let dots = path.split('/').any(|segment| matches!(segment, "." | ".."));
        let fixed = path.split('/').filter(|segment| !segment.contains('{'));
        let capitals = fixed.into_iter().any(|s| s.contains(|c: char| c.is_ascii_uppercase()));
        let text = if path.contains(['?', '#']) {
            "no path has it: paths are matched without their query"
        } else if dots || path.contains("//") {
            "only who writes it exactly so has it: paths are matched without dots and double slashes"
        } else if ignores_case && capitals {
            "only who writes it exactly so has it: with ignore_case, write patterns in small letters"
        } else {
            continue;
        };
        warnings.push(ConfigWarning::new(&path.location, text));
    }
}

/// A policy that duplicates another.
fn twin(policy: &WrittenPolicy, others: &[WrittenPolicy], warnings: &mut Vec<ConfigWarning>) {
    let same = |other: &&WrittenPolicy| {
        let methods = |p: &WrittenPolicy| sorted(p.methods.iter().map(|m| m.value.to_string()));
        let paths = |p: &WrittenPolicy| sorted(p.paths.iter().map(|path| path.value.clone()));
        let quotas = |p: &WrittenPolicy| sorted(p.quotas.values().iter().map(ToString::to_string));
        let plan = |p: &WrittenPolicy| {
            p.plan.as_ref().map(|plan| (plan.header.clone(), plan.default.value.clone()))
        };
        methods(policy) == methods(other)
            && paths(policy) == paths(other)
            && quotas(policy) == quotas(other)
            && plan(policy) == plan(other)
            && policy.identity.value == other.identity.value
            && policy.scope == other.scope
            && policy.shadow == other.shadow
    };
    if let Some(other) = others.iter().find(same) {
        let text = format!("it says what policy {} says already", other.name.value);
        warnings.push(ConfigWarning::new(&policy.location, text));
    }
}

fn sorted(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut items: Vec<String> = items.collect();
    items.sort_unstable();
    items
}

/// A policy that only watches, with what only an enforced one does.
fn watching(policy: &WrittenPolicy, warnings: &mut Vec<ConfigWarning>) {
    if let Some(ban) = policy.ban.as_ref().filter(|_| policy.shadow) {
        let text = "it never bans: the policy is only watching (shadow)";
        warnings.push(ConfigWarning::new(&ban.location, text));
    }
}

/// Plans that no request can have.
fn plans(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    let by_plan: Vec<_> = written.policies.iter().filter_map(|p| p.plan.as_ref()).collect();
    let asked = written.decisions.is_some();
    let by_header = by_plan.iter().any(|plan| plan.header.is_some());
    for plan in &written.plans {
        let name = &plan.name.value;
        let is_default = by_plan.iter().any(|choice| choice.default.value == *name);
        let has_key = written.api_keys.iter().any(|key| key.plan.value == *name);
        let text = if by_plan.is_empty() {
            "no policy goes by plans: say plan = \"…\" in one"
        } else if !(is_default || has_key || by_header || asked) {
            "nobody can have this plan: no API key has it, no header names it, and it is no default"
        } else {
            continue;
        };
        warnings.push(ConfigWarning::new(&plan.name.location, text));
    }
}

/// Names of keys for a policy that has none in Redis.
fn templates(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    let is_local = |name: &str| {
        let named = written.policies.iter().find(|policy| policy.name.value == name);
        named.is_some_and(|policy| policy.scope == Scope::Local)
    };
    for (policy, _) in written.store.key_templates.iter().filter(|(p, _)| is_local(&p.value)) {
        let text = "it has no keys in Redis: the policy is local";
        warnings.push(ConfigWarning::new(&policy.location, text));
    }
}
