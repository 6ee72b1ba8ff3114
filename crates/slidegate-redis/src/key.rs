//! Key templates.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use slidegate::limit::Period;
use slidegate::{Identity, Name, Quota};

/// How the key of a ledger is named: a text with `<kind>`, `<identity>`, `<policy>` and `<window>`
/// in it. In place of `<identity>` it can have `<account>`: a client's address as it is, and any
/// other identity with its kind, such as `user:42`.
///
/// The default, `slidegate:{<kind>:<identity>}:<policy>:<window>`, gives every ledger a separate
/// key. Its braces are the hash tag of Redis Cluster, so all ledgers of one identity are in one
/// slot. `<window>` is written as in quotas: `min`, `day`, `90s`.
///
/// ```
/// use slidegate_redis::KeyTemplate;
///
/// let template: KeyTemplate = "ratelimit:<window>:<identity>".parse()?;
/// assert_eq!(template.to_string(), "ratelimit:<window>:<identity>");
/// # Ok::<(), slidegate_redis::KeyTemplateError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    text: String,
    parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Kind,
    Identity,
    Account,
    Policy,
    Window,
}

const PLACEHOLDERS: [(&str, TemplatePart); 5] = [
    ("kind", TemplatePart::Kind),
    ("identity", TemplatePart::Identity),
    ("account", TemplatePart::Account),
    ("policy", TemplatePart::Policy),
    ("window", TemplatePart::Window),
];

impl KeyTemplate {
    /// The key of a ledger.
    pub(crate) fn key(&self, policy: &Name, identity: &Identity, quota: Quota) -> String {
        self.fill(policy, (identity.kind(), identity.value()), quota)
    }

    /// The key of the ledger of an identity with this kind and value. `everyone` and `anonymous`
    /// have no value.
    pub(crate) fn fill(&self, policy: &Name, (kind, value): (&str, &str), quota: Quota) -> String {
        let mut key = String::with_capacity(64);
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => key.push_str(text),
                TemplatePart::Kind => key.push_str(kind),
                TemplatePart::Identity | TemplatePart::Account if value.is_empty() => {
                    key.push_str(kind);
                }
                TemplatePart::Account if kind != ADDRESS => key.extend([kind, ":", value]),
                TemplatePart::Identity | TemplatePart::Account => key.push_str(value),
                TemplatePart::Policy => key.push_str(policy),
                TemplatePart::Window => {
                    write!(key, "{:#}", Period(quota.window())).expect("a string takes any text");
                }
            }
        }
        key
    }

    /// The ACL key pattern of all keys of a policy: its ledgers and their marks.
    pub(crate) fn pattern(&self, policy: &Name) -> String {
        let piece = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => escaped(text),
            TemplatePart::Policy => policy.to_string(),
            _ => "*".to_owned(),
        };
        let mut pieces: Vec<String> = self.parts.iter().map(piece).collect();
        pieces.push("*".to_owned());
        pieces.dedup_by(|next, piece| next == "*" && piece == "*");
        pieces.concat()
    }

    /// The prefix of the shared state's keys: the common prefix of all ledger keys, and a word. No ledger
    /// can have such a key: it has a brace where ledger keys have none, or the reverse.
    pub(crate) fn shared_prefix(&self) -> String {
        let text = &self.text;
        match text.find(['<', '{']) {
            Some(end) if text[end..].starts_with('{') => format!("{}shared", &text[..end]),
            end => format!("{}{{shared}}", &text[..end.unwrap_or(text.len())]),
        }
    }

    /// The template with its keys prefixed by this namespace.
    pub(crate) fn within(&self, namespace: &Name) -> Self {
        format!("{namespace}:{self}").parse().expect("a name has no brackets")
    }

    /// Whether all windows of an account are in one cluster slot.
    pub(crate) fn keeps_windows_together(&self) -> bool {
        let tag = self.text.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        tag.is_some_and(|(tag, _)| !tag.is_empty() && !tag.contains("<window>"))
    }
}

/// A pattern that matches only this text.
pub(crate) fn escaped(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// The kind of identities that are addresses.
const ADDRESS: &str = "ip";

/// The window as keys have it: `min`, `30s`.
pub(crate) fn window_text(quota: Quota) -> String {
    format!("{:#}", Period(quota.window()))
}

impl Default for KeyTemplate {
    fn default() -> Self {
        "slidegate:{<kind>:<identity>}:<policy>:<window>".parse().expect("a good template")
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for KeyTemplate {
    type Err = KeyTemplateError;

    fn from_str(template: &str) -> Result<Self, KeyTemplateError> {
        let mut parts = Vec::new();
        let mut rest = template;
        while let Some((text, after)) = rest.split_once('<') {
            let (name, after) = after
                .split_once('>')
                .ok_or_else(|| KeyTemplateError::Unclosed(template.to_owned()))?;
            let known = PLACEHOLDERS.iter().find(|(place, _)| *place == name);
            let (_, part) = known.ok_or_else(|| KeyTemplateError::UnknownPlace {
                template: template.to_owned(),
                place: name.to_owned(),
            })?;
            if !text.is_empty() {
                parts.push(TemplatePart::Text(text.to_owned()));
            }
            parts.push(part.clone());
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Text(rest.to_owned()));
        }
        if !parts.contains(&TemplatePart::Identity) && !parts.contains(&TemplatePart::Account) {
            return Err(KeyTemplateError::NoIdentity(template.to_owned()));
        }
        Ok(Self { text: template.to_owned(), parts })
    }
}

/// Why a text is not a valid key template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyTemplateError {
    /// All identities would share one key.
    #[error("key template {0:?} has no <identity>: all identities would share one budget")]
    NoIdentity(String),
    /// The placeholder is unknown.
    #[error(
        "key template {template:?} has <{place}>, which is unknown: expected <kind>, <identity>, <account>, <policy> or <window>"
    )]
    UnknownPlace {
        /// The whole template.
        template: String,
        /// The text between the angle brackets.
        place: String,
    },
    /// A bracket is not closed.
    #[error("key template {0:?} has a < without its >")]
    Unclosed(String),
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use slidegate::policy::Prefixes;

    use super::*;

    fn key(template: &str, policy: &str, identity: &Identity, quota: Quota) -> String {
        template.parse::<KeyTemplate>().unwrap().key(&policy.parse().unwrap(), identity, quota)
    }

    #[test]
    fn templates_make_the_keys_of_the_sources() {
        let ip = Identity::ip("203.0.113.7".parse::<IpAddr>().unwrap(), Prefixes::default());
        let user = Identity::user("42");
        let (minute, day) = (Quota::per_minute(10), Quota::per_day(10));
        for (template, identity, quota, expected) in [
            (
                "rate_limit:<identity>:post_shorten",
                &ip,
                minute,
                "rate_limit:203.0.113.7:post_shorten",
            ),
            ("ratelimit:<window>:<identity>", &user, minute, "ratelimit:min:42"),
            ("ratelimit:<window>:<identity>", &user, day, "ratelimit:day:42"),
            ("ratelimit:<kind>:<identity>", &user, minute, "ratelimit:user:42"),
            ("throttle:<kind>:<identity>:<policy>", &user, minute, "throttle:user:42:api"),
            ("ratelimit:<identity>", &ip, minute, "ratelimit:203.0.113.7"),
            ("ratelimit:<account>", &ip, minute, "ratelimit:203.0.113.7"),
            ("ratelimit:<account>", &user, minute, "ratelimit:user:42"),
            ("ratelimit:<account>", &Identity::everyone(), minute, "ratelimit:everyone"),
        ] {
            assert_eq!(key(template, "api", identity, quota), expected);
        }
        let default = KeyTemplate::default().key(&"api".parse().unwrap(), &user, minute);
        assert_eq!(default, "slidegate:{user:42}:api:min");
    }

    #[test]
    fn keys_of_the_shared_state_are_no_ledgers() {
        for (template, expected) in [
            ("slidegate:{<kind>:<identity>}:<policy>:<window>", "slidegate:shared"),
            ("shop:{<identity>}", "shop:shared"),
            ("ratelimit:<identity>", "ratelimit:{shared}"),
            ("<identity>", "{shared}"),
            ("{<identity>}", "shared"),
        ] {
            let prefix = template.parse::<KeyTemplate>().unwrap().shared_prefix();
            assert_eq!(prefix, expected);
            for name in ["shared", "{shared}"] {
                let ledger = key(template, "shared", &Identity::user(name), Quota::per_minute(1));
                assert!(!ledger.starts_with(&format!("{prefix}:")) && ledger != prefix);
            }
        }
    }

    #[test]
    fn a_pattern_covers_the_ledgers_of_a_policy_and_what_is_beside_them() {
        for (template, expected) in [
            ("slidegate:{<kind>:<identity>}:<policy>:<window>", "slidegate:{*:*}:api:*"),
            ("rate_limit:<identity>:post_shorten", "rate_limit:*:post_shorten*"),
            ("<identity>", "*"),
            ("a*[b]<kind><identity>", "a\\*\\[b\\]*"),
            ("<identity>*", "*\\**"),
        ] {
            let template: KeyTemplate = template.parse().unwrap();
            assert_eq!(template.pattern(&"api".parse().unwrap()), expected);
        }
    }

    #[test]
    fn bad_templates_say_what_is_wrong() {
        for (template, part) in [
            ("rl:<policy>", "no <identity>"),
            ("rl:<ip>", "<ip>"),
            ("rl:<identity", "without its >"),
        ] {
            let error = template.parse::<KeyTemplate>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(template), "{error}");
        }
    }

    #[test]
    fn cluster_wants_the_windows_of_an_account_together() {
        for (template, together) in [
            ("slidegate:{<kind>:<identity>}:<policy>:<window>", true),
            ("rl:{<identity>}:<window>", true),
            ("rl:<identity>:<window>", false),
            ("rl:{<identity>:<window>}", false),
            ("rl:{}<identity>:<window>", false),
        ] {
            let template: KeyTemplate = template.parse().unwrap();
            assert_eq!(template.keeps_windows_together(), together, "{template}");
        }
    }
}
