//! Policies and plans that no request has, quotas that do not matter, and bans that hit others.

use http::Method;
use slidegate::policy::{CheckedPlan, CheckedPolicy};
use slidegate::{AccessList, Cost, Facts, Policies, Quota, Scope, Source};

use super::Lint;
use crate::config::reader::Value;

impl Lint<'_> {
    pub(super) fn lint_policies(&self) {
        for (i, (written, policy)) in self.policies().enumerate() {
            let table = &written.table;
            lint_quotas(table, policy.quotas());
            lint_cost(table, policy);
            self.lint_paths(table);
            lint_sharing(table, policy);
            let mut others = self.policies().take(i);
            if let Some((twin, _)) = others.find(|(_, other)| is_same(policy, other)) {
                table.warn_if(true, format!("it says what policy {} says already", twin.name));
            }
            let ban = table.named("ban");
            let text = "it never bans: the policy is only watching (shadow)";
            ban.warn_if(policy.shadow && ban.is_set(), text);
            let template = self.root.named("store").named("key_templates").named(&policy.name);
            let text = "it has no keys in Redis: the policy is local";
            template.warn_if(policy.scope == Scope::Local && template.is_set(), text);
        }
    }

    /// Paths that are all exempt or blocked, and patterns of paths that no request has.
    fn lint_paths(&self, table: &Value<'_>) {
        let matched = table.named("match");
        let mut paths = matched.named("path").elements();
        paths.extend(matched.named("paths").elements());
        for (list, what) in [
            (self.root.named("exempt"), "exempt"),
            (self.root.named("blocked"), "blocked"),
            (table.named("exempt"), "exempt from it"),
        ] {
            let list = list.named("paths").each(Value::text);
            let is_covered = |path: &Value<'_>| path.text().is_some_and(|path| covers(&list, path));
            let text = format!("it never takes part: its paths are {what}");
            table.warn_if(!paths.is_empty() && paths.iter().all(is_covered), text);
        }
        let ignores_case = self.root.named("gateway").named("ignore_case").is_true();
        for value in paths {
            let path = value.text().unwrap_or_default();
            let has_dots = path.split('/').any(|segment| matches!(segment, "." | ".."));
            let mut fixed = path.split('/').filter(|segment| !segment.contains('{'));
            let has_capitals = fixed.any(|s| s.contains(|c: char| c.is_ascii_uppercase()));
            let text = if path.contains(['?', '#']) {
                "no path has it: paths are matched without their query"
            } else if has_dots || path.contains("//") {
                "it matches only if it is sent exactly like this: paths are matched without dots and double slashes"
            } else if ignores_case && has_capitals {
                "it matches only if it is sent exactly like this: with ignore_case, write patterns in small letters"
            } else {
                continue;
            };
            value.warn_if(true, text);
        }
    }

    /// Plans that no request can have, and their quotas.
    pub(super) fn lint_plans(&self) {
        let defaults: Vec<_> =
            self.policies.iter().filter_map(CheckedPolicy::default_plan).collect();
        let is_named =
            self.has_decisions || self.policies.iter().any(|policy| policy.plan_header().is_some());
        for plan in self.policies.plans() {
            let name = plan.name();
            let table = self.root.named("plans").named(name);
            lint_quotas(&table, plan.quotas());
            let is_default = defaults.iter().any(|plan| plan.name() == name);
            let has_key = || self.limiter.api_keys.iter().any(|key| key.plan() == Some(name));
            let text = "no policy goes by plans: say plan = \"…\" in one";
            table.warn_if(defaults.is_empty(), text);
            let text = "nobody can have this plan: no API key has it, no header names it, and it is no default";
            let is_unused = !(defaults.is_empty() || is_default || is_named || has_key());
            table.warn_if(is_unused, text);
        }
    }
}

/// Quotas that another one of the same account keeps from ever being reached.
fn lint_quotas(table: &Value<'_>, quotas: &[Quota]) {
    let warn = |quota: &Quota, text: String| {
        let all = table.named("quotas");
        let is_meant =
            |value: &Value<'_>| value.text().and_then(|text| text.parse().ok()) == Some(*quota);
        all.elements().into_iter().find(is_meant).unwrap_or(all).warn_if(true, text);
    };
    for short in quotas {
        for long in quotas.iter().filter(|long| long.window() > short.window()) {
            let windows = long.window().as_millis().div_ceil(short.window().as_millis());
            let most = windows * u128::from(short.units().get());
            if long.units() <= short.units() {
                warn(short, format!("{short} never matters: {long} is tighter"));
            } else if u128::from(long.units().get()) >= most {
                let text =
                    format!("{long} is never reached: {short} allows at most {most} in that time");
                warn(long, text);
            }
        }
    }
}

/// A cost that only one request of a whole window can pay.
fn lint_cost(table: &Value<'_>, policy: &CheckedPolicy) {
    let Cost::Units(cost) = policy.cost else { return };
    let Some(fewest) = policy.quotas().iter().min_by_key(|quota| quota.units()) else { return };
    let (units, cost) = (fewest.units().get(), cost.get());
    let rest = units.saturating_sub(cost);
    let text = format!("one request fits {fewest}, and {rest} units of it can never be spent");
    table.named("cost").warn_if(cost > 1 && cost > units / 2 && cost < units, text);
}

/// Bans and counted denials of an account that clients of the policy can share.
fn lint_sharing(table: &Value<'_>, policy: &CheckedPolicy) {
    let is_decisive = |source: &&Source| matches!(source, Source::Everyone | Source::Ip(_));
    let shared = match policy.identity.iter().find(is_decisive) {
        Some(Source::Everyone) => "the account everyone",
        Some(_) => return,
        None => "the account anonymous, if they have none of the identities",
    };
    let ban = table.named("ban");
    let text = format!("one client can have all others banned: they share {shared}");
    ban.warn_if(ban.is_set(), text);
    let text = format!("one client can keep all others out: they share {shared}");
    table.named("count_denied").warn_if(policy.count_denied, text);
}

/// Whether the list covers every path of a pattern, judged by an unlikely sample path.
fn covers(list: &[&str], pattern: &str) -> bool {
    let listed = list.iter().copied().fold(AccessList::new(), AccessList::path);
    let Ok(policies) = Policies::builder().exempt(listed).build() else { return false };
    let sample = |segment: &str| match (segment.find('{'), segment.contains('}')) {
        (Some(start), true) => format!("{}~any~", &segment[..start]),
        _ => segment.to_owned(),
    };
    let path = pattern.split('/').map(sample).collect::<Vec<_>>().join("/");
    policies.explain(&Facts::new(&Method::GET, &path)).exempt.is_some()
}

/// Whether two policies limit the same requests in the same way.
fn is_same(one: &CheckedPolicy, other: &CheckedPolicy) -> bool {
    fn sorted<T: ToString>(items: &[T]) -> Vec<String> {
        let mut items: Vec<String> = items.iter().map(T::to_string).collect();
        items.sort_unstable();
        items
    }
    let plan = |policy: &CheckedPolicy| policy.default_plan().map(CheckedPlan::name).cloned();
    sorted(&one.methods) == sorted(&other.methods)
        && sorted(one.paths()) == sorted(other.paths())
        && one.quotas() == other.quotas()
        && plan(one) == plan(other)
        && one.plan_header() == other.plan_header()
        && one.identity == other.identity
        && one.scope == other.scope
        && one.shadow == other.shadow
}
