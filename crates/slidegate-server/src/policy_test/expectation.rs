//! What is expected of a decision, and what was decided instead.

use std::fmt::{self, Display};
use std::time::Duration;

use slidegate::{Decision, Policies, PolicyStanding, Standing, Verdict};
use slidegate_replay::Undecided;

use crate::config::Value;
use crate::observe::BlockReason;
use slidegate::limit::Period;

/// What is expected. What is not said may be anything.
#[derive(Debug, Default)]
pub(super) struct Expectation {
    verdict: Option<CaseVerdict>,
    /// Why it is blocked.
    reason: Option<BlockReason>,
    policy: Option<ExpectedPolicy>,
    /// Of the policy that is named, else of the tightest.
    remaining: Option<u32>,
    retry_after: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaseVerdict {
    Allow,
    Deny,
    Block,
    /// It is refused with 400.
    BadRequest,
    /// The store has no room, which no case expects.
    Unavailable,
}

#[derive(Debug)]
enum ExpectedPolicy {
    Named(String),
    /// No policy counts the request.
    None,
}

/// What was decided.
pub(super) type CaseOutcome = Result<Decision, Undecided>;

const VERDICTS: [(&str, CaseVerdict); 4] = [
    ("allow", CaseVerdict::Allow),
    ("deny", CaseVerdict::Deny),
    ("block", CaseVerdict::Block),
    ("bad-request", CaseVerdict::BadRequest),
];

/// The reasons that a case can produce: no operator suspends an identity in it.
const REASONS: [BlockReason; 3] = [BlockReason::Listed, BlockReason::Cost, BlockReason::Banned];

impl Expectation {
    /// Reads the table, in which one of these policies can be named.
    pub(super) fn read(table: &Value<'_>, policies: &[&str]) -> Option<Self> {
        let keys = ["verdict", "reason", "policy", "remaining", "retry_after"];
        if !keys.into_iter().any(|key| table.key(key).is_set()) {
            table.report(format!("expected at least one of {}", keys.join(", ")));
            return None;
        }
        let reasons = REASONS.map(|reason| (reason.as_str(), reason));
        let retry_after = table.key("retry_after").parsed().map(|Period(after)| after);
        Some(Self {
            verdict: table.key("verdict").one_of(&VERDICTS),
            reason: table.key("reason").one_of(&reasons),
            policy: ExpectedPolicy::read(&table.key("policy"), policies),
            remaining: table.key("remaining").number(0..=u32::MAX),
            retry_after,
        })
    }

    /// The keys whose values are others in the outcome.
    pub(super) fn differences(&self, outcome: &CaseOutcome) -> Vec<&'static str> {
        let decision = outcome.as_ref().ok();
        let verdict = CaseVerdict::of(outcome);
        let is_policy = match &self.policy {
            Some(ExpectedPolicy::Named(name)) => policies(outcome).contains(&name.as_str()),
            Some(ExpectedPolicy::None) => policies(outcome).is_empty(),
            None => true,
        };
        let reason = decision.and_then(BlockReason::of);
        let retry_after = decision.and_then(Decision::retry_after);
        let remaining = decision.and_then(|decision| self.standing(decision));
        let remaining = remaining.map(Standing::remaining);
        let results = [
            ("verdict", self.allows(verdict)),
            ("reason", self.reason.is_none_or(|expected| Some(expected) == reason)),
            ("policy", is_policy),
            ("remaining", self.remaining.is_none_or(|expected| Some(expected) == remaining)),
            ("retry_after", self.retry_after.is_none_or(|expected| Some(expected) == retry_after)),
        ];
        results.into_iter().filter_map(|(key, is_met)| (!is_met).then_some(key)).collect()
    }

    fn allows(&self, verdict: CaseVerdict) -> bool {
        match self.verdict {
            Some(expected) => expected == verdict,
            None => verdict != CaseVerdict::Unavailable,
        }
    }

    /// The standing that `remaining` is about.
    fn standing<'d>(&self, decision: &'d Decision) -> Option<&'d Standing> {
        let Some(ExpectedPolicy::Named(name)) = &self.policy else {
            return decision.tightest().map(|(_, standing)| standing);
        };
        decision.policies().iter().find(|own| *own.policy == **name)?.tightest()
    }
}

impl ExpectedPolicy {
    fn read(value: &Value<'_>, policies: &[&str]) -> Option<Self> {
        if value.is_text() {
            // Of a configuration that is wrong itself, no names are known.
            let known = (!policies.is_empty()).then(|| {
                let names: Vec<_> = policies.iter().map(|name| (*name, *name)).collect();
                value.one_of(&names)
            });
            return known.unwrap_or_else(|| value.text()).map(|name| Self::Named(name.to_owned()));
        }
        let is_none = value.is_set() && value.is_false();
        if value.is_set() && !is_none {
            value.report("expected the name of a policy, or false for none");
        }
        is_none.then_some(Self::None)
    }
}

impl CaseVerdict {
    fn of(outcome: &CaseOutcome) -> Self {
        match outcome {
            Ok(decision) => match decision.verdict() {
                Verdict::Allow => Self::Allow,
                Verdict::Deny { .. } => Self::Deny,
                _ => Self::Block,
            },
            Err(Undecided::BadRequest(_)) => Self::BadRequest,
            Err(Undecided::Store(_)) => Self::Unavailable,
        }
    }

    fn as_str(self) -> &'static str {
        let word = VERDICTS.iter().find(|(_, verdict)| *verdict == self).map(|(word, _)| *word);
        word.unwrap_or("unavailable")
    }
}

/// The policies that denied it or banned its identity; if it is allowed, those that counted it.
fn policies(outcome: &CaseOutcome) -> Vec<&str> {
    let Ok(decision) = outcome else { return Vec::new() };
    let has_part =
        |own: &&PolicyStanding| decision.is_allowed() || own.is_violated() && !own.shadow;
    let counted = decision.policies().iter().filter(has_part).map(|own| &*own.policy);
    counted.chain(decision.banned_by().map(|name| &**name)).collect()
}

impl Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.verdict.map(|verdict| verdict.as_str().to_owned()));
        parts.extend(self.reason.map(|reason| format!("reason {}", reason.as_str())));
        parts.extend(self.policy.as_ref().map(|policy| match policy {
            ExpectedPolicy::Named(name) => format!("policy {name}"),
            ExpectedPolicy::None => "no policy".to_owned(),
        }));
        parts.extend(self.remaining.map(|units| format!("remaining {units}")));
        parts.extend(self.retry_after.map(|after| format!("retry_after {}", Period(after))));
        if parts.is_empty() {
            parts.push("any verdict".to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}

/// The outcome in a line, and a line for where each policy stands.
pub(super) fn outcome_lines(outcome: &CaseOutcome, policies: &Policies) -> Vec<String> {
    let verdict = CaseVerdict::of(outcome).as_str();
    let decision = match outcome {
        Ok(decision) => decision,
        Err(why) => return vec![format!("{verdict}: {why}")],
    };
    let mut parts = vec![verdict.to_owned()];
    parts.extend(BlockReason::of(decision).map(|reason| format!("reason {}", reason.as_str())));
    parts.extend(decision.banned_by().map(|policy| format!("policy {policy}")));
    parts.extend(decision.retry_after().map(|after| format!("retry_after {}", Period(after))));
    if decision.policies().is_empty() {
        parts.push("no policy counts it".to_owned());
    }
    let standings = decision.policies().iter().map(|own| standing_line(own, policies));
    std::iter::once(parts.join(", ")).chain(standings).collect()
}

fn standing_line(own: &PolicyStanding, policies: &Policies) -> String {
    let standing = |one: &Standing| format!("{} of {}", one.remaining(), one.quota());
    let quotas: Vec<String> = own.standings.iter().map(standing).collect();
    let mut line = format!(
        "{}: {} remaining for {}",
        own.policy,
        quotas.join(", "),
        policies.shown(&own.identity)
    );
    if let Some(plan) = &own.plan {
        line += &format!(", plan {}", plan.name);
    }
    line += match (own.is_violated(), own.shadow) {
        (true, true) => ": would deny (shadow)",
        (true, false) => ": denied",
        (false, _) => "",
    };
    line
}
