//! Ledgers that would share a key, found before the first request.

use std::collections::{BTreeMap, HashSet};

use slidegate::policy::CheckedPolicy;
use slidegate::{Identity, Name, Policies, Quota, Scope, Source};

use crate::key::{KeyTemplate, window_text};

/// Two ledgers that can get the same Redis key, so that each would count what the other admits. It
/// shows the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct KeyCollision {
    policies: [Name; 2],
    message: String,
}

/// All pairs of ledgers that can get the same Redis key, at most one for each pair of policies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct KeyCollisions(Vec<KeyCollision>);

impl KeyCollisions {
    /// Checks every pair of ledgers that shared policies may keep, under all plans.
    pub(crate) fn check<'t>(
        policies: &Policies,
        template_of: impl Fn(&Name) -> &'t KeyTemplate,
    ) -> Result<(), Self> {
        let shared = policies.iter().filter(|policy| policy.scope == Scope::Shared);
        let keys = |policy: &CheckedPolicy| ledger_keys(policy, template_of(&policy.name));
        let shared: Vec<Vec<LedgerKeys<'_>>> = shared.map(keys).collect();
        let mut collisions = Vec::new();
        for (place, first) in shared.iter().enumerate() {
            for second in &shared[place..] {
                let mut pairs = first.iter().flat_map(|a| second.iter().map(move |b| (a, b)));
                let shares = pairs.find(|(a, b)| !a.is_same_ledger(b) && overlap(&a.keys, &b.keys));
                collisions.extend(shares.map(|(a, b)| KeyCollision::new(a, b)));
            }
        }
        if collisions.is_empty() { Ok(()) } else { Err(Self(collisions)) }
    }

    /// The pairs.
    pub fn as_slice(&self) -> &[KeyCollision] {
        &self.0
    }
}

impl KeyCollision {
    /// The policies that the two ledgers belong to: the same name twice if they are two windows of
    /// one policy.
    pub fn policies(&self) -> [&Name; 2] {
        self.policies.each_ref()
    }

    fn new(first: &LedgerKeys<'_>, second: &LedgerKeys<'_>) -> Self {
        let (policy, other_policy) = (&*first.policy, &*second.policy);
        let (template, other) = (first.template.to_string(), second.template.to_string());
        let whose = match first.anonymous && second.anonymous {
            true => {
                " for requests that have none of their identities, which both count as anonymous"
            }
            false => "",
        };
        let message = if policy == other_policy {
            format!(
                "the windows {} and {} of policy {policy:?} would share Redis keys under the key \
                 template {template:?}: add <window> to the template, or keep one window",
                first.window, second.window
            )
        } else if template == other {
            format!(
                "policies {policy:?} and {other_policy:?} would share Redis keys under the key \
                 template {template:?}{whose}: add <policy> to it, or give one of them a key template of \
                 its own"
            )
        } else {
            format!(
                "policy {policy:?} with the key template {template:?} and policy {other_policy:?} with \
                 the key template {other:?} can share Redis keys{whose}: add <policy> to both, or let what \
                 stands before or after <identity> differ"
            )
        };
        Self { policies: [first.policy.clone(), second.policy.clone()], message }
    }
}

/// The keys that a ledger can have for identities of one kind.
struct LedgerKeys<'t> {
    policy: Name,
    window: String,
    template: &'t KeyTemplate,
    anonymous: bool,
    /// A key whose identity has one of the wildcards for its value.
    keys: String,
}

impl LedgerKeys<'_> {
    fn is_same_ledger(&self, other: &Self) -> bool {
        self.policy == other.policy && self.window == other.window
    }
}

/// Stand for the values of identities, which have one character or more. Addresses and networks:
const ADDRESSES: &str = "\x01";
/// Hexadecimal digests, with a `~` before those of values that are not shown.
const DIGESTS: &str = "\x02";
/// Whatever a client or an application chooses.
const TEXTS: &str = "\x03";

fn ledger_keys<'t>(policy: &CheckedPolicy, template: &'t KeyTemplate) -> Vec<LedgerKeys<'t>> {
    let ledgers = policy.consistency.ledgers(&policy.windows);
    let quotas = ledgers.as_slice().iter();
    let windows: BTreeMap<String, Quota> =
        quotas.map(|quota| (window_text(*quota), *quota)).collect();
    let identities = identities(&policy.identity);
    let mut keys = Vec::new();
    for (window, quota) in windows {
        keys.extend(identities.iter().map(|(kind, values)| LedgerKeys {
            policy: policy.name.clone(),
            window: window.clone(),
            template,
            anonymous: kind == Identity::anonymous().kind(),
            keys: template.fill(&policy.name, (kind, values), quota),
        }));
    }
    keys
}

/// The kinds of identities that the policy finds in requests, each with the wildcard for its values,
/// or nothing if it has none.
///
/// A request without any of them is `anonymous`. That can happen to `ip` too: connections to a Unix
/// socket have no address, and a caller of the decision API may leave it out.
fn identities(sources: &[Source]) -> Vec<(String, &'static str)> {
    let mut identities = Vec::new();
    let mut add =
        |identity: Identity, values| identities.push((identity.kind().to_owned(), values));
    for source in sources {
        match source {
            Source::User => add(Identity::user("x"), TEXTS),
            Source::Named(kind) => add(Identity::new(kind, "x"), TEXTS),
            Source::ApiKey => {
                add(Identity::api_key(b"x"), DIGESTS);
                add(Identity::customer("x"), TEXTS);
            }
            Source::Customer => add(Identity::customer("x"), TEXTS),
            Source::Authorization => add(Identity::authorization(b"x"), DIGESTS),
            Source::Ip(prefixes) => add(Identity::ip([0, 0, 0, 0].into(), *prefixes), ADDRESSES),
            Source::Header(name) => {
                // What is no plain text may be of another kind.
                for value in ["x", " "] {
                    let identity = Identity::header(name, value.as_bytes());
                    let is_plain = identity.value() == value;
                    add(identity, if is_plain { TEXTS } else { DIGESTS });
                }
            }
            Source::Descriptor(keys) => {
                // An address, a text, and what is no plain text may be of three kinds.
                for value in ["0.0.0.0", "x", " "] {
                    add(Identity::descriptor(keys.iter().map(|key| (&**key, value))), TEXTS);
                }
            }
            Source::Everyone => add(Identity::everyone(), ""),
        }
    }
    if !sources.contains(&Source::Everyone) {
        add(Identity::anonymous(), "");
    }
    identities
}

/// Whether two keys with wildcards can be the same.
fn overlap(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    // Places in both keys before which they are the same. Each is looked at once.
    let (mut places, mut seen) = (vec![(0, 0)], HashSet::new());
    while let Some((i, j)) = places.pop() {
        match (a.get(i), b.get(j)) {
            (None, None) => return true,
            (Some(own), Some(other)) if can_be_same(*own, *other) && seen.insert((i, j)) => {
                places.push((i + 1, j + 1));
                if is_wildcard(*own) {
                    places.push((i, j + 1));
                }
                if is_wildcard(*other) {
                    places.push((i + 1, j));
                }
            }
            _ => {}
        }
    }
    false
}

fn can_be_same(a: u8, b: u8) -> bool {
    // All wildcards have the digits in common.
    is_wildcard(a) && is_wildcard(b) || stands_for(a, b) || stands_for(b, a)
}

fn is_wildcard(byte: u8) -> bool {
    [ADDRESSES, DIGESTS, TEXTS].into_iter().any(|wildcard| wildcard.as_bytes() == [byte])
}

/// Whether a byte of a key is this one, or a wildcard that can stand for it.
fn stands_for(own: u8, byte: u8) -> bool {
    let is_hex = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match str::from_utf8(&[own]).unwrap_or_default() {
        ADDRESSES => is_hex || matches!(byte, b':' | b'.' | b'/'),
        DIGESTS => is_hex || byte == b'~',
        TEXTS => byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}'),
        _ => own == byte,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use slidegate::policy::{PoliciesBuilder, Prefixes};
    use slidegate::{Plan, Policy};

    use super::*;

    const DEFAULT: &str = "slidegate:{<kind>:<identity>}:<policy>:<window>";

    /// Policies by name, identity sources, quotas and template.
    type Written<'a> = (&'a str, &'a str, &'a str, &'a str);

    fn policies(list: &[Written<'_>]) -> PoliciesBuilder {
        list.iter().fold(Policies::builder(), |builder, (name, sources, quotas, _)| {
            let sources = sources.split(' ').map(|source| source.parse::<Source>().unwrap());
            let policy = Policy::new(*name).identity(sources);
            let quotas = quotas.split(' ').map(|quota| quota.parse::<Quota>().unwrap());
            builder.policy(quotas.fold(policy, Policy::quota))
        })
    }

    fn check(list: &[Written<'_>], builder: PoliciesBuilder) -> Vec<String> {
        let template =
            |written: &Written<'_>| (written.0.parse().unwrap(), written.3.parse().unwrap());
        let templates: HashMap<Name, KeyTemplate> = list.iter().map(template).collect();
        let checked = KeyCollisions::check(&builder.build().unwrap(), |name| &templates[name]);
        checked.err().iter().flat_map(|all| all.as_slice()).map(ToString::to_string).collect()
    }

    fn collisions(list: &[Written<'_>]) -> Vec<String> {
        check(list, policies(list))
    }

    #[test]
    fn templates_that_tell_ledgers_apart_pass() {
        let apart: &[&[Written<'_>]] = &[
            &[
                ("api", "user api-key ip", "1/min 1/day", DEFAULT),
                ("login", "ip", "1/min", DEFAULT),
            ],
            &[("api", "user ip", "1/min", "rl:<identity>")],
            &[("a", "ip", "1/min", "rl:<account>"), ("b", "user", "1/min", "rl:user:b:<account>")],
            &[("a", "user", "1/min", "rl:<account>"), ("b", "ip", "1/min", "rl:b/<account>")],
            &[("api", "user ip", "1/min 1/day", "rl:<window>:<identity>")],
            &[("a", "ip", "1/min", "rl:<identity>:a"), ("b", "ip", "1/min", "rl:<identity>:b")],
            &[
                ("a", "ip", "1/s", "t:<kind>:<identity>:<policy>"),
                ("b", "ip", "1/s", "t:<kind>:<identity>:<policy>"),
            ],
            // Kinds that are never the same.
            &[
                ("a", "ip", "1/s", "rl:<kind>:<identity>"),
                ("b", "user ip", "1/s", "other:<identity>"),
            ],
            &[
                ("a", "ip", "1/s", "rl:<kind>:<identity>"),
                ("b", "api-key everyone", "1/s", "rl:<kind>:<identity>"),
            ],
            // No kind is called login, and no address begins with it.
            &[
                ("api", "header:x-user-id api-key ip", "1/min", "ratelimit:<kind>:<identity>"),
                ("login", "ip", "1/min", "ratelimit:login:<kind>:<identity>"),
            ],
            &[
                ("api", "ip", "1/min", "rl:<identity>"),
                ("login", "ip", "1/min", "rl:login:<identity>"),
            ],
            &[
                ("api", "authorization ip", "1/min", "<identity>"),
                ("b", "ip", "1/min", "xyz<identity>"),
            ],
        ];
        for list in apart {
            assert_eq!(collisions(list), Vec::<String>::new(), "{list:?}");
        }
    }

    #[test]
    fn ledgers_that_could_share_a_key_are_named_with_the_remedy() {
        let shared: &[(&[Written<'_>], &str)] = &[
            (
                &[("api", "ip", "1/min 1/day", "rl:<identity>")],
                "the windows day and min of policy \"api\" would share Redis keys under the key template \"rl:<identity>\": add <window> to the template",
            ),
            (
                &[
                    ("api", "ip", "1/min", "rl:<kind>:<identity>"),
                    ("default", "ip", "1/min", "rl:<kind>:<identity>"),
                ],
                "policies \"api\" and \"default\" would share Redis keys under the key template \"rl:<kind>:<identity>\": add <policy> to it",
            ),
            // Windows of two policies differ, but the key does not have them.
            (
                &[("a", "ip", "1/min", "rl:<identity>"), ("b", "ip", "1/day", "rl:<identity>")],
                "policies \"a\" and \"b\"",
            ),
            // A user may be called like an address, or like everything else.
            (
                &[
                    ("a", "ip", "1/min", "rl:<identity>"),
                    ("b", "user ip", "1/min", "rl:<identity>"),
                ],
                "policies \"a\" and \"b\"",
            ),
            (
                &[("a", "user", "1/min", "rl:<identity>"), ("b", "ip", "1/min", "rl:<identity>")],
                "policies \"a\" and \"b\"",
            ),
            // An API key may be a customer's, who may be called so too.
            (
                &[
                    ("a", "api-key", "1/min", "rl:<identity>"),
                    ("b", "ip", "1/min", "rl:<identity>"),
                ],
                "policies \"a\" and \"b\"",
            ),
            (
                &[
                    ("api", "user", "1/min", "rl:<identity>"),
                    ("login", "ip", "1/min", "rl:login:<identity>"),
                ],
                "policy \"api\" with the key template \"rl:<identity>\" and policy \"login\" with the key template \"rl:login:<identity>\" can share Redis keys: add <policy> to both",
            ),
            // A header can be called login.
            (
                &[
                    ("api", "header:login ip", "1/min", "rl:<kind>:<identity>"),
                    ("login", "ip", "1/min", "rl:login:<kind>:<identity>"),
                ],
                "policy \"api\" with",
            ),
            // Who has none of the identities is anonymous to both.
            (
                &[
                    ("a", "user", "1/s", "rl:<kind>:<identity>"),
                    ("b", "header:x-tenant", "1/s", "rl:<kind>:<identity>"),
                ],
                "policies \"a\" and \"b\"",
            ),
            // A request need not have an address.
            (
                &[
                    ("a", "ip", "1/s", "rl:<kind>:<identity>"),
                    ("b", "user", "1/s", "rl:<kind>:<identity>"),
                ],
                "policies \"a\" and \"b\" would share Redis keys under the key template \"rl:<kind>:<identity>\" for requests that have none of their identities, which both count as anonymous: add <policy> to it",
            ),
            (
                &[
                    ("a", "everyone", "1/s", "rl:<kind>:<identity>"),
                    ("b", "everyone", "1/s", "rl:<kind>:<identity>"),
                ],
                "policies \"a\" and \"b\"",
            ),
            // The end of one name is the beginning of an identity.
            (
                &[
                    ("api", "user ip", "1/s", "rl<policy><identity>"),
                    ("api-2", "user ip", "1/s", "rl<policy><identity>"),
                ],
                "policies \"api\" and \"api-2\"",
            ),
            (
                &[("api", "user ip", "1/min 1/5min", "rl:<identity><window>")],
                "the windows 5min and min of policy \"api\"",
            ),
            (
                &[
                    ("a", "user ip", "1/s", "<identity>"),
                    ("b", "ip", "1/s", DEFAULT),
                    ("c", "user ip", "1/s", "c<identity>"),
                ],
                "policy \"a\" with",
            ),
        ];
        for (list, expected) in shared {
            let found = collisions(list);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{list:?}: {found:?}");
        }
    }

    #[test]
    fn every_pair_of_policies_is_reported_and_local_ones_keep_no_keys() {
        let list: Vec<Written<'_>> =
            ["a", "b", "c"].map(|name| (name, "ip", "1/min", "rl:<identity>")).to_vec();
        assert_eq!(collisions(&list).len(), 3);
        let local = ["a", "b"]
            .map(|name| Policy::new(name).scope(Scope::Local).quota(Quota::per_second(1)));
        let builder = local.into_iter().fold(Policies::builder(), PoliciesBuilder::policy);
        assert_eq!(check(&list, builder), Vec::<String>::new());
    }

    #[test]
    fn windows_of_all_plans_are_seen() {
        let builder = |other| {
            Policies::builder()
                .plan(Plan::new("free", [Quota::per_minute(1)]))
                .plan(Plan::new("pro", [other]))
                .policy(Policy::new("api").plans("free"))
        };
        let list = [("api", "ip", "", "rl:<identity>")];
        assert_eq!(check(&list, builder(Quota::per_minute(9))), Vec::<String>::new());
        assert_eq!(
            check(&list, builder(Quota::per_day(1))).len(),
            1,
            "a change of plan would mix them"
        );
    }

    fn identities_of(source: &str) -> Vec<Identity> {
        let tricky =
            ["1", "15", "ip:1", "login", "a", "min", "user:1", ":", "a:b", "1:min", "user"];
        let mut identities = match source.parse().unwrap() {
            Source::User => tricky.map(Identity::user).to_vec(),
            Source::Header(name) => {
                tricky.map(|value| Identity::header(&name, value.as_bytes())).to_vec()
            }
            Source::ApiKey => vec![Identity::api_key(b"a")],
            Source::Everyone => return vec![Identity::everyone()],
            _ => ["1.2.3.4", "::1"]
                .map(|ip| Identity::ip(ip.parse().unwrap(), Prefixes::default()))
                .to_vec(),
        };
        identities.push(Identity::anonymous());
        identities
    }

    proptest! {
        /// Whatever passes gives no two ledgers the same key, for identities that try.
        #[test]
        fn what_passes_never_shares_a_key(
            templates in prop::collection::vec(
                prop::collection::vec(
                    prop::sample::select(vec!["<kind>", "<policy>", "<window>", ":", "a", "ip", "1", "user"]),
                    0..5,
                ),
                2,
            ),
            at in prop::collection::vec(0usize..5, 2),
            sources in prop::collection::vec(
                prop::sample::select(vec!["user", "ip", "api-key", "everyone", "header:a", "header:user"]),
                2,
            ),
        ) {
            let template = |i: usize| {
                let mut pieces = templates[i].clone();
                pieces.insert(at[i].min(pieces.len()), "<identity>");
                pieces.concat()
            };
            let (first, second) = (template(0), template(1));
            let list: [Written<'_>; 2] = [
                ("a", sources[0], "1/min 1/5min", &first),
                ("b", sources[1], "1/min", &second),
            ];
            if collisions(&list).is_empty() {
                let mut keys = HashMap::new();
                for (name, source, quotas, template) in list {
                    let template: KeyTemplate = template.parse().unwrap();
                    for quota in quotas.split(' ').map(|quota| quota.parse::<Quota>().unwrap()) {
                        for identity in identities_of(source) {
                            let key = template.key(&name.parse().unwrap(), &identity, quota);
                            let ledger = (name, window_text(quota));
                            let other = keys.insert(key.clone(), ledger.clone());
                            prop_assert!(other.is_none_or(|other| other == ledger), "{}", key);
                        }
                    }
                }
            }
        }
    }
}
