//! Ledgers that would share a key, found before the first request.

use slidegate::policy::PolicyOutline;
use slidegate::{Identity, Name, Policies, Quota, Scope, Source};

use crate::key::{ADDRESS, KeyTemplate, TemplatePart, window_text};

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
        let outlines: Vec<PolicyOutline> =
            policies.outlines().filter(|policy| policy.scope == Scope::Shared).collect();
        let keys = |policy| LedgerKeys::of_policy(policies, policy, template_of(&policy.name));
        let shared: Vec<Vec<LedgerKeys<'_>>> = outlines.iter().map(keys).collect();
        let mut collisions = Vec::new();
        for (place, first) in shared.iter().enumerate() {
            let others = shared[place..].iter();
            collisions.extend(others.filter_map(|second| KeyCollision::find(first, second)));
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
        let (policy, other_policy) = (&**first.policy, &**second.policy);
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

    /// Of the first two ledgers of two policies, or of one, that can share a key.
    fn find(first: &[LedgerKeys<'_>], second: &[LedgerKeys<'_>]) -> Option<Self> {
        let mut pairs = first.iter().flat_map(|a| second.iter().map(move |b| (a, b)));
        let (a, b) = pairs.find(|(a, b)| !a.is_same_ledger(b) && a.overlap(b))?;
        Some(Self::new(a, b))
    }
}

/// The keys that a ledger can have for identities of one kind.
struct LedgerKeys<'p> {
    policy: &'p Name,
    window: String,
    template: &'p KeyTemplate,
    pattern: Vec<PatternToken>,
    anonymous: bool,
}

/// A part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternToken {
    Byte(u8),
    One(ValueChars),
    /// Any number of characters.
    Many(ValueChars),
}

/// What the values of identities are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueChars {
    /// Addresses and networks.
    Address,
    /// Hexadecimal digests, with a `~` before those of values that are not shown.
    Digest,
    /// Whatever a client or an application chooses.
    Text,
}

impl ValueChars {
    fn has(self, byte: u8) -> bool {
        let hexadecimal = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match self {
            Self::Address => hexadecimal || matches!(byte, b':' | b'.' | b'/'),
            Self::Digest => hexadecimal || byte == b'~',
            Self::Text => byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}'),
        }
    }
}

impl<'p> LedgerKeys<'p> {
    fn of_policy(
        policies: &Policies,
        policy: &'p PolicyOutline,
        template: &'p KeyTemplate,
    ) -> Vec<Self> {
        let identities = identities(&policy.identity);
        let mut keys = Vec::new();
        for window in windows(policies, policy) {
            keys.extend(identities.iter().map(|(kind, values)| Self {
                policy: &policy.name,
                pattern: pattern(template, &policy.name, &window, kind, *values),
                window: window.clone(),
                template,
                anonymous: kind == Identity::anonymous().kind(),
            }));
        }
        keys
    }

    fn is_same_ledger(&self, other: &Self) -> bool {
        self.policy == other.policy && self.window == other.window
    }

    /// Whether a text matches both patterns.
    fn overlap(&self, other: &Self) -> bool {
        let (a, b) = (self.pattern.as_slice(), other.pattern.as_slice());
        // Nearly all pairs differ in the text before or after the identity.
        !differ(a.iter(), b.iter())
            && !differ(a.iter().rev(), b.iter().rev())
            && have_a_text_in_common(a, b)
    }
}

/// The windows that the policy may keep ledgers for, as they are written in keys.
fn windows(policies: &Policies, policy: &PolicyOutline) -> Vec<String> {
    let plans = policies.plans();
    let quotas: Vec<Quota> = match policy.default_plan {
        None => policy.quotas.clone(),
        Some(_) => plans.iter().flat_map(|plan| plan.quotas()).copied().collect(),
    };
    let mut windows: Vec<String> = quotas.into_iter().map(window_text).collect();
    windows.sort_unstable();
    windows.dedup();
    windows
}

/// The kinds of identities that the policy finds in requests, and what their values are made of;
/// no value if they have none.
///
/// A request without any of them is `anonymous`. That can happen to `ip` too: connections to a Unix
/// socket have no address, and who asks for a decision may leave it out.
fn identities(sources: &[Source]) -> Vec<(String, Option<ValueChars>)> {
    let mut identities = Vec::new();
    let mut add = |identity: Identity, values| {
        identities.push((identity.kind().to_owned(), values));
    };
    for source in sources {
        match source {
            Source::User => add(Identity::user("x"), Some(ValueChars::Text)),
            Source::Named(kind) => add(Identity::new(kind, "x"), Some(ValueChars::Text)),
            Source::ApiKey => add(Identity::api_key(b"x"), Some(ValueChars::Digest)),
            Source::Authorization => add(Identity::authorization(b"x"), Some(ValueChars::Digest)),
            Source::Ip(prefixes) => {
                add(Identity::ip([0, 0, 0, 0].into(), *prefixes), Some(ValueChars::Address));
            }
            Source::Header(name) => {
                // What is no plain text may be of another kind.
                for value in ["x", " "] {
                    let identity = Identity::header(name, value.as_bytes());
                    let plain = identity.value() == value;
                    add(identity, Some(if plain { ValueChars::Text } else { ValueChars::Digest }));
                }
            }
            Source::Everyone => add(Identity::everyone(), None),
        }
    }
    if !sources.contains(&Source::Everyone) {
        add(Identity::anonymous(), None);
    }
    identities
}

fn pattern(
    template: &KeyTemplate,
    policy: &str,
    window: &str,
    kind: &str,
    values: Option<ValueChars>,
) -> Vec<PatternToken> {
    let mut pattern = Vec::new();
    for piece in template.parts() {
        let text = match (piece, values) {
            (TemplatePart::Text(text), _) => text.as_str(),
            (TemplatePart::Policy, _) => policy,
            (TemplatePart::Window, _) => window,
            // Who has no value is called by the kind.
            (TemplatePart::Kind, _) | (TemplatePart::Identity | TemplatePart::Account, None) => {
                kind
            }
            (TemplatePart::Identity | TemplatePart::Account, Some(values)) => {
                if *piece == TemplatePart::Account && kind != ADDRESS {
                    pattern.extend(kind.bytes().chain([b':']).map(PatternToken::Byte));
                }
                pattern.extend([PatternToken::One(values), PatternToken::Many(values)]);
                continue;
            }
        };
        pattern.extend(text.bytes().map(PatternToken::Byte));
    }
    pattern
}

/// Whether two patterns begin with different texts.
fn differ<'a>(
    a: impl Iterator<Item = &'a PatternToken>,
    b: impl Iterator<Item = &'a PatternToken>,
) -> bool {
    for pair in a.zip(b) {
        match pair {
            (PatternToken::Byte(a), PatternToken::Byte(b)) if a == b => {}
            (PatternToken::Byte(_), PatternToken::Byte(_)) => return true,
            _ => return false,
        }
    }
    false
}

fn have_a_text_in_common(a: &[PatternToken], b: &[PatternToken]) -> bool {
    // For each place in `b`: whether what follows there has a text in common with what follows in
    // `a`, whose places are taken from the end.
    let mut after = vec![false; b.len() + 1];
    for i in (0..=a.len()).rev() {
        let mut here = vec![false; b.len() + 1];
        for j in (0..=b.len()).rev() {
            here[j] = match (a.get(i), b.get(j)) {
                (None, None) => true,
                (Some(PatternToken::Many(values)), other) => {
                    let takes = |other: &PatternToken| {
                        meet(&PatternToken::One(*values), other) && here[j + 1]
                    };
                    after[j] || other.is_some_and(takes)
                }
                (own, Some(PatternToken::Many(values))) => {
                    let takes =
                        |own: &PatternToken| meet(own, &PatternToken::One(*values)) && after[j];
                    here[j + 1] || own.is_some_and(takes)
                }
                (Some(own), Some(other)) => meet(own, other) && after[j + 1],
                (None, Some(_)) | (Some(_), None) => false,
            };
        }
        after = here;
    }
    after[0]
}

/// Whether both can be the same character. All kinds of values have the digits in common.
fn meet(a: &PatternToken, b: &PatternToken) -> bool {
    match (a, b) {
        (PatternToken::Byte(a), PatternToken::Byte(b)) => a == b,
        (PatternToken::Byte(byte), PatternToken::One(values) | PatternToken::Many(values))
        | (PatternToken::One(values) | PatternToken::Many(values), PatternToken::Byte(byte)) => {
            values.has(*byte)
        }
        _ => true,
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
            &[("api", "api-key ip", "1/min", "<identity>"), ("b", "ip", "1/min", "xyz<identity>")],
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
    fn every_pair_of_policies_is_told_and_local_ones_keep_no_keys() {
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
