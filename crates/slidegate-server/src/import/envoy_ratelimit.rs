//! The YAML of envoyproxy/ratelimit.
//!
//! Its rules are a tree, in which a descriptor goes down entry by entry: to the rule with just that
//! value, else to the first pattern that fits, else to the rule without a value, and never back. A
//! policy is for one rule. So it names the values that its neighbours on the way take, as `except`.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::anyhow;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;
use slidegate::Quota;
use slidegate::limit::Name;
use toml::Value;
use toml_writer::ToTomlKey;

use crate::config::SCHEMA_LINE;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Domain {
    domain: Spanned<String>,
    #[serde(default)]
    descriptors: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    key: Spanned<String>,
    value: Option<String>,
    rate_limit: Option<RuleLimit>,
    #[serde(default)]
    descriptors: Vec<Rule>,
    #[serde(default)]
    shadow_mode: bool,
    #[serde(default)]
    quota_mode: bool,
    #[serde(default)]
    detailed_metric: bool,
    #[serde(default)]
    value_to_metric: bool,
    #[serde(default)]
    share_threshold: bool,
    metadata: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleLimit {
    unit: Option<String>,
    #[serde(default)]
    requests_per_unit: u32,
    #[serde(default)]
    unlimited: bool,
    name: Option<String>,
    #[serde(default)]
    replaces: Vec<Replaced>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaced {
    name: String,
}

/// A month and a year are as long as envoyproxy/ratelimit has them.
const UNITS: [(&str, u64); 7] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3600),
    ("day", 24 * 3600),
    ("week", 7 * 24 * 3600),
    ("month", 30 * 24 * 3600),
    ("year", 365 * 24 * 3600),
];

/// The longest name of a policy.
const MAX_NAME_LEN: usize = 64;

/// What was read so far.
#[derive(Default)]
pub(super) struct Import {
    policies: Vec<String>,
    /// Names of policies.
    names: HashSet<String>,
    /// The domains, and their files.
    domains: HashMap<String, String>,
    /// Keys of policies in alphabetical order, and in the first order that was seen.
    orders: HashMap<(String, Vec<String>), Vec<String>>,
    /// What has no equal.
    notes: Vec<String>,
    /// What is wrong.
    pub(super) errors: Vec<String>,
}

/// An entry on the way to a rule.
#[derive(Clone)]
struct Step {
    key: String,
    pattern: String,
    /// Values that other rules take.
    except: Vec<String>,
    /// All values have one account.
    is_shared: bool,
}

/// The way to a rule, and where in a file it is.
struct RulePath<'a> {
    file: &'a str,
    domain: &'a str,
    line: u64,
    steps: &'a [Step],
}

impl RulePath<'_> {
    fn text(&self, problem: &str) -> String {
        let entry = |step: &Step| format!("{}={}", step.key, step.pattern);
        let steps: Vec<_> = self.steps.iter().map(entry).collect();
        format!("{}:{}: {}: {problem}", self.file, self.line, steps.join(" "))
    }
}

impl Rule {
    fn value(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }

    /// The values that fit, in which each `*` stands for any text, as in Slidegate.
    fn pattern(&self) -> &str {
        if self.value().is_empty() { "*" } else { self.value() }
    }

    /// Exact values come first, then patterns in their order, then the rule without a value.
    fn rank(&self, index: usize) -> usize {
        match self.value() {
            "" => usize::MAX,
            value if value.contains('*') => 1 + index,
            _ => 0,
        }
    }

    /// Whether it refuses everything, which no policy can.
    fn is_block(&self) -> bool {
        let limit = self.rate_limit.as_ref();
        limit.is_some_and(|limit| !limit.unlimited && limit.requests_per_unit == 0)
    }
}

impl Import {
    /// Adds a file. What is wrong with its rules is in `errors`.
    pub(super) fn add(&mut self, file: &str, text: &str) -> anyhow::Result<()> {
        let Domain { domain, descriptors } =
            serde_saphyr::from_str(text).map_err(|error| anyhow!("{file}: {error}"))?;
        let line = domain.referenced.line();
        if domain.value.is_empty() {
            self.errors.push(format!("{file}:{line}: domain: expected a name"));
        }
        if let Some(other) = self.domains.insert(domain.value.clone(), file.to_owned()) {
            let problem = format!("domain {:?} is in {other} already", domain.value);
            self.errors.push(format!("{file}:{line}: {problem}: expected one file for each"));
        }
        self.add_rules(&RulePath { file, domain: &domain.value, line, steps: &[] }, &descriptors);
        Ok(())
    }

    fn add_rules(&mut self, parent: &RulePath<'_>, rules: &[Rule]) {
        for (i, rule) in rules.iter().enumerate() {
            let outranks = |(j, other): &(usize, &Rule)| {
                other.key.value == rule.key.value
                    && other.rank(*j) < rule.rank(i)
                    && may_meet(other.pattern(), rule.pattern())
                    // It has no policy, and a broader one is better than none.
                    && !(other.is_block() && other.descriptors.is_empty())
            };
            let others = rules.iter().enumerate().filter(outranks);
            let mut steps = parent.steps.to_vec();
            steps.push(Step {
                key: rule.key.value.clone(),
                pattern: rule.pattern().to_owned(),
                except: others.map(|(_, other)| other.pattern().to_owned()).collect(),
                is_shared: rule.share_threshold,
            });
            let path = RulePath { line: rule.key.referenced.line(), steps: &steps, ..*parent };
            let name = |rule: &Rule| (rule.key.value.clone(), rule.value().to_owned());
            if rules[..i].iter().any(|other| name(other) == name(rule)) {
                self.error(&path, "there is one already: expected each key and value once");
            }
            self.add_rule(&path, rule);
        }
    }

    fn add_rule(&mut self, path: &RulePath<'_>, rule: &Rule) {
        let key = &rule.key.value;
        if key.is_empty() {
            self.error(path, "key: expected a name");
        }
        if rule.share_threshold && !rule.value().contains('*') {
            self.error(path, "share_threshold: expected a value with a *");
        }
        for (is_set, name, reason) in [
            (rule.quota_mode, "quota_mode", "the policy refuses without regard to others"),
            (rule.detailed_metric, "detailed_metric", NO_VALUES),
            (rule.value_to_metric, "value_to_metric", NO_VALUES),
            (rule.metadata.is_some(), "metadata", "responses have none"),
        ] {
            if is_set {
                self.note(path, &format!("{name} has no equal: {reason}"));
            }
        }
        let repeated = path.steps.iter().filter(|step| step.key == *key).count() > 1;
        if repeated || key.contains(|c: char| "*+".contains(c) || c.is_control()) {
            let what = if repeated { "a key that comes twice" } else { "such a key" };
            self.note(path, &format!("{what} has no equal: left out, with all below it"));
            return;
        }
        match &rule.rate_limit {
            Some(limit) => self.add_limit(path, rule, limit),
            None if rule.shadow_mode => {
                self.note(path, "shadow_mode without a rate_limit: left out");
            }
            None if rule.descriptors.is_empty() => {
                self.note(path, "no rate_limit: not limited, there as here");
            }
            None => {}
        }
        self.add_rules(path, &rule.descriptors);
    }

    fn add_limit(&mut self, path: &RulePath<'_>, rule: &Rule, limit: &RuleLimit) {
        for replaced in &limit.replaces {
            let name = &replaced.name;
            if name.is_empty() || Some(name) == limit.name.as_ref() {
                self.error(path, "replaces: expected the name of another rate_limit");
            }
            let both = "if both match, both count";
            self.note(path, &format!("replaces {name:?} has no equal: {both}"));
        }
        if limit.unlimited {
            match limit.unit {
                Some(_) => self.error(path, "unit: expected none beside unlimited"),
                None => self.note(path, "unlimited: no policy"),
            }
            return;
        }
        let unit = limit.unit.as_deref().unwrap_or_default();
        let Some((_, secs)) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) else {
            let expected = UNITS.map(|(name, _)| name).join(", ");
            self.error(path, &format!("unit {unit:?}: expected one of {expected}"));
            return;
        };
        let Some(units) = NonZeroU32::new(limit.requests_per_unit) else {
            let instead = "refuse in Envoy, or ban the identity";
            self.note(path, &format!("requests_per_unit 0 has no equal: left out; {instead}"));
            return;
        };
        let quota = Quota::new(units, Duration::from_secs(*secs)).expect("at most 366 days");
        self.note_order(path);
        let name = self.name(path, limit.name.as_deref());
        self.policies.push(policy(path, &name, quota, rule.shadow_mode));
    }

    /// Slidegate does not go by the order of a descriptor's entries.
    fn note_order(&mut self, path: &RulePath<'_>) {
        let keys: Vec<String> = path.steps.iter().map(|step| step.key.clone()).collect();
        let mut sorted = keys.clone();
        sorted.sort();
        let first = self.orders.entry((path.domain.to_owned(), sorted)).or_insert(keys.clone());
        if *first != keys {
            let other = first.join(", ");
            let both = "entries have no order here, so the policies of both count";
            self.note(path, &format!("the same keys as {other} in another order: {both}"));
        }
    }

    /// A name that no other policy has: the rule's own, or one of the domain, the keys and values.
    fn name(&mut self, path: &RulePath<'_>, own: Option<&str>) -> String {
        let is_free = |name: &str| !self.names.contains(name);
        let name = match own.filter(|own| is_free(own) && own.parse::<Name>().is_ok()) {
            Some(own) => own.to_owned(),
            None => {
                let made = made_name(path);
                let numbered = (2..).map(|number| format!("{made}-{number}"));
                let mut names = std::iter::once(made.clone()).chain(numbered);
                names.find(|name| is_free(name)).expect("there are endless numbers")
            }
        };
        if let Some(own) = own.filter(|own| *own != name) {
            self.note(path, &format!("name {own:?} cannot be a policy's: it is {name:?}"));
        }
        self.names.insert(name.clone());
        name
    }

    fn note(&mut self, path: &RulePath<'_>, note: &str) {
        self.notes.push(path.text(note));
    }

    fn error(&mut self, path: &RulePath<'_>, problem: &str) {
        self.errors.push(path.text(problem));
    }

    /// What has no equal, for the operator.
    pub(super) fn report(&self) -> String {
        let count = self.policies.len();
        let mut text = format!(
            "policies: {count}. Their windows were fixed and are exact now: never more than the limit \
             in any window.\n"
        );
        self.notes.iter().for_each(|note| text += &format!("{note}\n"));
        text
    }

    /// The configuration for Slidegate.
    pub(super) fn toml(&self) -> String {
        let head = "\
# From the YAML of envoyproxy/ratelimit, whose windows were fixed. These are exact: never more than the
# units in any window, wherever it begins.

[rls]
";
        format!("{SCHEMA_LINE}\n{head}{}", self.policies.concat())
    }
}

const NO_VALUES: &str = "metrics are by policy, and `slidegate accounts` shows single values";

/// Whether a value could fit both patterns, as far as their beginnings and ends tell.
fn may_meet(one: &str, other: &str) -> bool {
    let start = |pattern| str::split(pattern, '*').next().unwrap_or_default();
    let end = |pattern| str::rsplit(pattern, '*').next().unwrap_or_default();
    let (a, b) = (start(one), start(other));
    let (y, z) = (end(one), end(other));
    (a.starts_with(b) || b.starts_with(a)) && (y.ends_with(z) || z.ends_with(y))
}

/// `domain.key.key-value`, of what may be in a name.
fn made_name(path: &RulePath<'_>) -> String {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    let clean = |text: String| {
        let words = text.split(|c| !is_good(c)).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("-").trim_matches('.').to_owned()
    };
    let steps = path.steps.iter().map(|step| format!("{}-{}", step.key, step.pattern));
    let parts = std::iter::once(path.domain.to_owned()).chain(steps).map(clean);
    let name = parts.collect::<Vec<_>>().join(".");
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    // Room for a number.
    let name = &name[..name.len().min(MAX_NAME_LEN - 4)];
    if name.is_empty() { "policy".to_owned() } else { name.to_owned() }
}

fn policy(path: &RulePath<'_>, name: &str, quota: Quota, shadow: bool) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let entry = |step: &Step| format!("{} = {}", step.key.to_toml_key(), quoted(&step.pattern));
    let entries: Vec<_> = path.steps.iter().map(entry).collect();
    let kept = path.steps.iter().filter(|step| !step.except.is_empty());
    let except: Vec<_> = kept
        .map(|step| format!("{} = {}", step.key.to_toml_key(), Value::from(step.except.clone())))
        .collect();
    let except = match except.is_empty() {
        true => String::new(),
        false => format!(", except = {{ {} }}", except.join(", ")),
    };
    let open = path.steps.iter().filter(|step| step.pattern.contains('*') && !step.is_shared);
    let open: Vec<_> = open.map(|step| step.key.as_str()).collect();
    let identity = match open.is_empty() {
        true => "everyone".to_owned(),
        false => format!("descriptor:{}", open.join("+")),
    };
    let mut text = format!("\n[[policy]]\nname = {}\n", quoted(name));
    let (domain, entries) = (quoted(path.domain), entries.join(", "));
    let _ =
        writeln!(text, "match = {{ domain = {domain}, descriptors = {{ {entries} }}{except} }}");
    let _ = writeln!(text, "identity = [{}]", quoted(&identity));
    let _ = writeln!(text, "quotas = [\"{quota}\"]");
    if shadow {
        text += "shadow = true\n";
    }
    text
}
