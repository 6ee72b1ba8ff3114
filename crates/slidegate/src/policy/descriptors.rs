//! Descriptors: what Envoy tells of a request instead of the request itself.

use std::fmt;

use smallvec::SmallVec;

use crate::policy::matching::NamedCharge;
use crate::policy::{Identity, Policies, Source};

/// Which descriptors a policy is for.
///
/// A descriptor is a list of keys with values that a caller has made of a request. The policy is for
/// those of its domain that have exactly its keys, in any order, with values that fit. In a value
/// each `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Descriptors {
    /// The name under which a caller asks.
    pub domain: String,
    /// Keys, and the values that they must have.
    pub entries: Vec<(String, String)>,
    /// Keys, and values that are left to other policies.
    pub except: Vec<(String, String)>,
}

impl Descriptors {
    /// Whether the policy is for this descriptor. Of a key that comes several times, the values are
    /// compared in order.
    fn contain(&self, domain: &str, descriptor: &[(&str, &str)]) -> bool {
        self.domain == domain
            && self.entries.len() == descriptor.len()
            && self.entries.iter().enumerate().all(|(i, (key, pattern))| {
                let before = self.entries[..i].iter().filter(|(other, _)| other == key).count();
                let mut values = descriptor.iter().filter(|(other, _)| other == key);
                values.nth(before).is_some_and(|(_, value)| fits(pattern, value))
            })
            && !self.except.iter().any(|(key, pattern)| {
                descriptor.iter().any(|(other, value)| other == key && fits(pattern, value))
            })
    }

    /// What tells its descriptors apart: the values that are not fixed.
    pub(crate) fn identity(&self) -> Source {
        let is_open = |(_, pattern): &&(String, String)| pattern.contains('*');
        let mut open: Vec<String> = Vec::new();
        for (key, _) in self.entries.iter().filter(is_open) {
            if !open.contains(key) {
                open.push(key.clone());
            }
        }
        if open.is_empty() { Source::Everyone } else { Source::Descriptor(open) }
    }

    /// What is wrong with them, and with the policy's identity, by key and value.
    pub(crate) fn problems(&self, identity: &[Source]) -> Vec<(&'static str, String, String)> {
        let mut problems = Vec::new();
        if self.domain.is_empty() {
            let problem = "expected the name under which the caller asks, such as edge";
            problems.push(("domain", String::new(), problem.to_owned()));
        }
        if self.entries.is_empty() || self.entries.iter().any(|(key, _)| key.is_empty()) {
            let problem = "expected keys with values, such as { remote_address = \"*\" }";
            problems.push(("descriptors", String::new(), problem.to_owned()));
        }
        let known = self.entries.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>();
        for (key, _) in self.except.iter().filter(|(key, _)| !known.contains(&key.as_str())) {
            let problem =
                format!("descriptors have only {}: expected one of them", known.join(", "));
            problems.push(("except", key.clone(), problem));
        }
        for source in identity {
            let problem = match source {
                _ if identity.len() > 1 => {
                    "a descriptor always has the first: expected one source, and descriptor:a+b \
                     for an account of each two values"
                        .to_owned()
                }
                Source::Everyone => continue,
                Source::Descriptor(keys)
                    if keys.iter().all(|key| known.contains(&key.as_str())) =>
                {
                    continue;
                }
                _ => format!("descriptors have only {}: expected descriptor:KEY", known.join(", ")),
            };
            problems.push(("identity", source.to_string(), problem));
        }
        problems
    }
}

impl fmt::Display for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |(key, value): &(String, String)| format!("{key}={value}");
        let entries: Vec<_> = self.entries.iter().map(entry).collect();
        write!(f, "{} of domain {}", entries.join(" "), self.domain)?;
        match self.except.iter().map(entry).collect::<Vec<_>>() {
            none if none.is_empty() => Ok(()),
            except => write!(f, ", except {}", except.join(" ")),
        }
    }
}

/// Whether a value fits a pattern, in which each `*` stands for any text.
fn fits(pattern: &str, value: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == value };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let rest = value.strip_prefix(start).and_then(|value| {
        let mut parts = middle.split('*');
        parts.try_fold(value, |value, part| value.split_once(part).map(|(_, after)| after))
    });
    rest.is_some_and(|rest| rest.ends_with(end))
}

impl Policies {
    /// Whether any policy is for descriptors of this domain.
    pub fn has_domain(&self, domain: &str) -> bool {
        let mut descriptors = self.policies.iter().filter_map(|policy| policy.descriptors.as_ref());
        descriptors.any(|descriptors| descriptors.domain == domain)
    }

    /// A charge for each policy that is for this descriptor, for
    /// [`Gate::decide_named`](crate::Gate::decide_named).
    ///
    /// ```
    /// use slidegate::{Policies, Policy};
    ///
    /// let login = Policy::new("login")
    ///     .descriptors("edge", [("remote_address", "*"), ("path", "/login")])
    ///     .quota("5/min");
    /// let policies = Policies::builder().policy(login).build()?;
    ///
    /// let descriptor = [("path", "/login"), ("remote_address", "203.0.113.7")];
    /// let charge = policies.descriptor_charges("edge", &descriptor).next().expect("a policy");
    /// assert_eq!(charge.identity.to_string(), "ip:203.0.113.7");
    /// # Ok::<(), slidegate::PolicyErrors>(())
    /// ```
    pub fn descriptor_charges<'a>(
        &'a self,
        domain: &str,
        descriptor: &[(&str, &str)],
    ) -> impl Iterator<Item = NamedCharge<'a>> {
        self.policies.iter().filter_map(move |policy| {
            let descriptors = policy.descriptors.as_ref()?;
            if !descriptors.contain(domain, descriptor) {
                return None;
            }
            let identity = match policy.identity.first() {
                Some(Source::Descriptor(keys)) => self.described(keys, descriptor),
                _ => Identity::everyone(),
            };
            Some(NamedCharge {
                policy: &policy.name,
                identity,
                plan: None,
                cost: None,
                quotas: None,
            })
        })
    }

    /// The identity of these keys of a descriptor.
    fn described(&self, keys: &[String], descriptor: &[(&str, &str)]) -> Identity {
        // All values of a key that comes several times: one of them may be the same for every request.
        let entries = keys
            .iter()
            .flat_map(|key| descriptor.iter().filter(move |(other, _)| other == key).copied());
        let entries: SmallVec<[(&str, &str); 2]> = entries.collect();
        match entries[..] {
            // It may be listed by another digest than ours.
            [(key, value)] if Identity::is_api_key_entry(key) => {
                self.identity_of_key(value.as_bytes())
            }
            _ => Identity::descriptor(entries),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, fitting, others) in [
            ("", &[""][..], &["a"][..]),
            ("*", &["", "a", "*"], &[]),
            ("/login", &["/login"], &["/login/", "/log", ""]),
            ("/api/*", &["/api/", "/api/v1"], &["/api", "x/api/"]),
            ("*.png", &[".png", "a.png.png"], &["png", "a.png/"]),
            ("a*b*c", &["abc", "a-b-c", "abcbc"], &["ac", "acb", "abcd"]),
            ("a*a", &["aa", "aba"], &["a"]),
        ] {
            for value in fitting {
                assert!(fits(pattern, value), "{pattern} {value}");
            }
            for value in others {
                assert!(!fits(pattern, value), "{pattern} {value}");
            }
        }
    }
}
