//! Why a request is charged as it is.

use std::fmt;

use crate::limit::Name;
use crate::policy::found_key::KeyState;
use crate::policy::matching::{Match, Skip};
use crate::policy::{CheckedPolicy, Facts, Identity, ListMatch, Policies, Scope, Source, join};
use crate::verdict::Block;

/// Which policies a request falls under, for which identity, and why not under the others. Its
/// text has a line for each policy.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// Set if the operator blocks the request, whatever the policies say.
    pub blocked: Option<ListMatch>,
    /// Set if no policy is for the request.
    pub exempt: Option<ListMatch>,
    /// Each policy, in order.
    pub policies: Vec<ExplainedPolicy>,
    /// What it is blocked or exempt for, as an operator reads it.
    listed: Option<String>,
}

/// What one policy makes of the request.
#[derive(Debug, Clone)]
pub struct ExplainedPolicy {
    /// The policy's name.
    pub policy: Name,
    /// Whose account it charges; none if it passes the request over, or could never allow it.
    pub identity: Option<Identity>,
    /// What it makes of the request and why, such as `not for this method, only POST`.
    pub effect: String,
}

impl Policies {
    /// Tells which policies a request falls under, for which identity, and why not the others.
    pub fn explain(&self, facts: &Facts<'_>) -> Explanation {
        let readings = self.readings(facts);
        let key = self.find_key(facts);
        let facts = &facts.user_header(self.user_header.as_ref()).readings(&readings).key(&key);
        let (blocked, exempt) = (self.blocked.find_any(facts), self.exempt.find(facts));
        Explanation {
            listed: blocked.or(exempt).map(|listed| listed.shown(self)),
            blocked,
            exempt,
            policies: self.policies.iter().map(|policy| self.explain_one(policy, facts)).collect(),
        }
    }

    fn explain_one(&self, policy: &CheckedPolicy, facts: &Facts<'_>) -> ExplainedPolicy {
        let refusal = self.refusal(policy, facts);
        let (identity, effect) = match self.draft(policy, facts, |_| true) {
            Ok(_) if refusal.is_some() => {
                let why = match refusal {
                    Some(Block::KeysUnavailable) => {
                        "the source of its key or token cannot be reached"
                    }
                    Some(Block::InvalidToken) => "the token is not valid",
                    Some(Block::UncheckedCredentials { .. }) => {
                        "too many keys or tokens of this address"
                    }
                    _ => "the API key is unknown",
                };
                (None, format!("refuses; {why}"))
            }
            Ok(matched) if matched.is_payable() => {
                (Some(matched.identity), self.explain_charge(&matched, facts))
            }
            Ok(_) => {
                let what = if policy.shadow { "refuses nothing (shadow)" } else { "refuses" };
                (None, format!("{what}; the request costs more than its quotas allow"))
            }
            Err(Skip::Request) => {
                let only = policy.descriptors.as_ref().map(ToString::to_string);
                let only = only.unwrap_or_else(|| "charges by name".to_owned());
                (None, format!("not for requests, only for {only}"))
            }
            Err(Skip::Method) => {
                (None, format!("not for this method, only {}", join(&policy.methods, ", ")))
            }
            Err(Skip::Path) => {
                (None, format!("not for this path, only {}", join(policy.paths(), ", ")))
            }
            Err(Skip::Exempt(listed)) => (None, format!("exempt for {}", listed.shown(self))),
            Err(Skip::Anonymous) => {
                let sources = join(&policy.identity, ", ");
                let why = passed_over(&policy.identity, facts).unwrap_or_default();
                (None, format!("not for anonymous requests; this one has no {sources}{why}"))
            }
        };
        ExplainedPolicy { policy: policy.name.clone(), identity, effect }
    }

    fn explain_charge(&self, matched: &Match<'_>, facts: &Facts<'_>) -> String {
        let Match { policy, identity, quotas, plan, unknown_plan, cost, .. } = matched;
        let unit = if cost.get() == 1 { "unit" } else { "units" };
        let (quotas, identity) = (join(quotas.as_slice(), ", "), self.shown(identity));
        let mut text = match &policy.response {
            None => format!("takes {cost} {unit} of {quotas} from {identity}"),
            Some(_) => {
                format!("holds {cost} {unit} of {quotas} from {identity} until the response")
            }
        };
        if let Some(plan) = plan {
            text += &format!(", plan {}", plan.name);
        }
        if let Some(unknown) = unknown_plan {
            text += &format!(" (the default, as there is no plan {unknown:?})");
        }
        let sources = policy.identity.iter();
        let missing: Vec<_> =
            sources.take_while(|source| source.read(facts).is_none()).cloned().collect();
        if !missing.is_empty() {
            text += &format!(", having no {}", join(&missing, ", "));
        }
        text += passed_over(&missing, facts).unwrap_or_default();
        if policy.scope == Scope::Local {
            text += ", in this process";
        }
        if let Some(ban) = policy.ban {
            text += &format!(", bans for {ban}");
        }
        if policy.shadow {
            text += ", shadow";
        }
        if let Some(rule) = &policy.response {
            text += &format!("; {rule}");
        }
        text
    }
}

/// Why the request's key is passed over, if it has one and these sources would read it.
fn passed_over(sources: &[Source], facts: &Facts<'_>) -> Option<&'static str> {
    let is_ignored = facts.key?.state == KeyState::Ignored;
    let would_read = sources.iter().any(Source::gives_api_keys);
    (is_ignored && would_read).then_some(" (the API key is unknown)")
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(listed) = &self.listed {
            let what = if self.blocked.is_some() { "blocked" } else { "exempt" };
            return writeln!(f, "{what} for {listed}");
        }
        if self.policies.is_empty() {
            return writeln!(f, "no policies");
        }
        let mut policies = self.policies.iter();
        policies.try_for_each(|one| writeln!(f, "{}: {}", one.policy, one.effect))
    }
}
