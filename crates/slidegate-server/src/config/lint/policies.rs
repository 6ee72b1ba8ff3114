//! Policies and plans that no request has, quotas that do not matter, and bans that hit others.

use http::Method;
use slidegate::policy::CheckedPolicy;
use slidegate::{AccessList, Cost, Facts, Policies, Quota, Scope, Source};

use super::Lint;
use crate::config::api_keys::IssuedKey;
use crate::config::policy::PolicyConfig;
use crate::config::tree::Node;

impl Lint<'_> {
    pub(super) fn lint_policies(&mut self) {
        for (i, (written, policy)) in self.policies().enumerate() {
            self.lint_quotas(written.node, policy.quotas());
            self.lint_cost(written.node, policy);
            self.lint_paths(written);
            self.lint_sharing(written.node, policy);
            if let Some((twin, _)) =
                self.policies().take(i).find(|(_, other)| is_same(policy, other))
            {
                let text = format!("it says what policy {} says already", twin.name);
                self.warn(written.node.location.clone(), text);
            }
            if policy.shadow && written.node.get(&["ban"]).is_some() {
                let text = "it never bans: the policy is only watching (shadow)";
                self.warn(written.node.location(&["ban"]), text);
            }
            let template = self.root.get(&["store", "key_templates", &policy.name]);
            if let Some(template) = template.filter(|_| policy.scope == Scope::Local) {
                let text = "it has no keys in Redis: the policy is local";
                self.warn(template.location.clone(), text);
            }
        }
        self.lint_plans();
    }

    /// Quotas that another one of the same account keeps from ever being reached.
    fn lint_quotas(&mut self, node: &Node, quotas: &[Quota]) {
        let location = |quota: &Quota| {
            let is_meant =
                |node: &&Node| node.text().and_then(|text| text.parse().ok()) == Some(*quota);
            let found = node.all(&["quotas"]).iter().find(is_meant);
            found.map_or_else(|| node.location(&["quotas"]), |node| node.location.clone())
        };
        for short in quotas {
            for long in quotas.iter().filter(|long| long.window() > short.window()) {
                let windows = long.window().as_millis().div_ceil(short.window().as_millis());
                let most = windows * u128::from(short.units().get());
                if long.units() <= short.units() {
                    let text = format!("{short} never matters: {long} is tighter");
                    self.warn(location(short), text);
                } else if u128::from(long.units().get()) >= most {
                    let text = format!(
                        "{long} is never reached: {short} allows at most {most} in that time"
                    );
                    self.warn(location(long), text);
                }
            }
        }
    }

    /// A cost that only one request of a whole window can pay.
    fn lint_cost(&mut self, node: &Node, policy: &CheckedPolicy) {
        let Cost::Units(cost) = policy.cost else { return };
        let Some(fewest) = policy.quotas().iter().min_by_key(|quota| quota.units()) else { return };
        let (units, cost) = (fewest.units().get(), cost.get());
        if cost > 1 && cost > units / 2 && cost < units {
            let rest = units - cost;
            let text =
                format!("one request fits {fewest}, and {rest} units of it can never be spent");
            self.warn(node.location(&["cost"]), text);
        }
    }

    /// Paths that are all exempt or blocked, and patterns of paths that no request has.
    fn lint_paths(&mut self, written: &PolicyConfig<'_>) {
        let node = written.node;
        let paths: Vec<(&Node, &str)> = [["match", "path"], ["match", "paths"]]
            .iter()
            .flat_map(|path| node.all(path))
            .filter_map(|path| Some((path, path.text()?)))
            .collect();
        for (list, what) in [
            (self.root.all(&["exempt", "paths"]), "exempt"),
            (self.root.all(&["blocked", "paths"]), "blocked"),
            (node.all(&["exempt", "paths"]), "exempt from it"),
        ] {
            if !paths.is_empty() && paths.iter().all(|(_, path)| covers(list, path)) {
                let text = format!("it never takes part: its paths are {what}");
                self.warn(node.location.clone(), text);
            }
        }
        let ignores_case = self.root.get(&["gateway", "ignore_case"]).is_some_and(Node::is_true);
        for (node, path) in paths {
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
            self.warn(node.location.clone(), text);
        }
    }

    /// Bans and counted denials of an account that clients of the policy can share.
    fn lint_sharing(&mut self, node: &Node, policy: &CheckedPolicy) {
        let decisive =
            policy.identity.iter().find(|s| matches!(s, Source::Everyone | Source::Ip(_)));
        let shared = match decisive {
            Some(Source::Everyone) => "the account everyone",
            Some(_) => return,
            None => "the account anonymous, if they have none of the identities",
        };
        if node.get(&["ban"]).is_some() {
            let text = format!("one client can have all others banned: they share {shared}");
            self.warn(node.location(&["ban"]), text);
        }
        if policy.count_denied {
            let text = format!("one client can keep all others out: they share {shared}");
            self.warn(node.location(&["count_denied"]), text);
        }
    }

    /// Plans that no request can have, and their quotas.
    fn lint_plans(&mut self) {
        let by_plan: Vec<_> =
            self.policies.iter().filter(|policy| policy.default_plan().is_some()).collect();
        let is_named =
            self.has_decisions || by_plan.iter().any(|policy| policy.plan_header().is_some());
        for plan in self.policies.plans() {
            let name = &plan.name;
            let Some(node) = self.root.get(&["plans", name]) else { continue };
            self.lint_quotas(node, plan.quotas.as_slice());
            let is_default = by_plan
                .iter()
                .any(|policy| policy.default_plan().is_some_and(|plan| plan.name == *name));
            let has_key = || {
                let plan = |key: &IssuedKey| key.plan == **name;
                self.limiter.api_keys.keys.iter().any(plan)
            };
            let text = if by_plan.is_empty() {
                "no policy goes by plans: say plan = \"…\" in one"
            } else if !(is_default || is_named || has_key()) {
                "nobody can have this plan: no API key has it, no header names it, and it is no default"
            } else {
                continue;
            };
            self.warn(node.location.clone(), text);
        }
    }
}

/// Whether the list covers every path of a pattern, judged by an unlikely sample path.
fn covers(list: &[Node], pattern: &str) -> bool {
    let listed = list.iter().filter_map(Node::text).fold(AccessList::new(), AccessList::path);
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
    let plan = |policy: &CheckedPolicy| policy.default_plan().map(|plan| plan.name.clone());
    sorted(&one.methods) == sorted(&other.methods)
        && sorted(one.paths()) == sorted(other.paths())
        && one.quotas() == other.quotas()
        && plan(one) == plan(other)
        && one.plan_header() == other.plan_header()
        && one.identity == other.identity
        && one.scope == other.scope
        && one.shadow == other.shadow
}
