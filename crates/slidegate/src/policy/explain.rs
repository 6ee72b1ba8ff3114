//! Why a request is charged as it is.

use std::fmt;

use crate::limit::{Name, Quota};
use crate::policy::{
    Ban, CheckedPolicy, Facts, Identity, ListMatch, Policies, Scope, Skip, Source,
};

/// Which policies a request falls under, for which identity, and why not under the others.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// Set if the operator blocks the request, whatever the policies say.
    pub blocked: Option<ListMatch>,
    /// Set if no policy is for the request.
    pub exempt: Option<ListMatch>,
    /// Each policy, in order.
    pub policies: Vec<ExplainedPolicy>,
}

/// What one policy makes of the request.
#[derive(Debug, Clone)]
pub struct ExplainedPolicy {
    /// The policy's name.
    pub policy: Name,
    /// What it makes of the request.
    pub effect: Effect,
}

/// What a policy makes of a request.
#[derive(Debug, Clone)]
pub enum Effect {
    /// It passes the request over.
    Skipped {
        /// Why.
        why: Skip,
        /// The methods the policy is for; none means all.
        methods: Vec<http::Method>,
        /// The paths the policy is for; none means all.
        paths: Vec<String>,
    },
    /// The request can never pass it.
    TooCostly,
    /// It charges the request.
    Charged(ExplainedCharge),
}

/// How a policy charges a request.
#[derive(Debug, Clone)]
pub struct ExplainedCharge {
    /// Whose account is charged.
    pub identity: Identity,
    /// Where the identity was read; `None` for `anonymous`.
    pub source: Option<Source>,
    /// The sources before it, which the request does not have or which are not believed.
    pub missing: Vec<Source>,
    /// Whether one of those is an API key that is ignored because nobody has issued it.
    pub has_unknown_key: bool,
    /// The plan that the quotas come from.
    pub plan: Option<Name>,
    /// The plan that the request names, if there is none of that name: `plan` is the default then.
    pub unknown_plan: Option<String>,
    /// The quotas, all of which must allow the request.
    pub quotas: Vec<Quota>,
    /// What the request takes from each.
    pub cost: u32,
    /// The ban that denials lead to; none if the policy is only watching.
    pub ban: Option<Ban>,
    /// Whether the policy is only watching.
    pub shadow: bool,
    /// Where the account is kept.
    pub scope: Scope,
}

impl Policies {
    /// Tells which policies a request falls under, for which identity, and why not the others.
    pub fn explain(&self, facts: &Facts<'_>) -> Explanation {
        let facts = &facts.user_header(self.user_header.as_ref());
        Explanation {
            blocked: self.blocked.find_any(facts),
            exempt: self.exempt.find(facts),
            policies: self
                .policies
                .iter()
                .map(|policy| ExplainedPolicy {
                    policy: policy.name.clone(),
                    effect: self.effect(policy, facts),
                })
                .collect(),
        }
    }

    fn effect(&self, policy: &CheckedPolicy, facts: &Facts<'_>) -> Effect {
        let skipped = |why| {
            let (methods, paths) = (policy.methods.clone(), policy.paths().to_vec());
            Effect::Skipped { why, methods, paths }
        };
        let matched = match self.draft(policy, facts) {
            Ok(matched) if matched.is_payable() => matched,
            Ok(_) if policy.shadow => return skipped(Skip::ShadowTooCostly),
            Ok(_) => return Effect::TooCostly,
            Err(skip) => return skipped(skip),
        };
        let found = policy.identity.iter().position(|source| self.read(source, facts).is_some());
        let missing = &policy.identity[..found.unwrap_or(policy.identity.len())];
        Effect::Charged(ExplainedCharge {
            identity: matched.identity,
            source: found.map(|i| policy.identity[i].clone()),
            missing: missing.to_vec(),
            has_unknown_key: missing.iter().any(|source| source.read(facts).is_some()),
            plan: matched.plan.map(|plan| plan.name().clone()),
            unknown_plan: matched.unknown_plan,
            quotas: matched.quotas.as_slice().to_vec(),
            cost: matched.cost.get(),
            ban: policy.ban,
            shadow: policy.shadow,
            scope: policy.scope,
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(listed) = &self.blocked {
            return writeln!(f, "blocked for {listed}");
        }
        if let Some(listed) = &self.exempt {
            return writeln!(f, "exempt for {listed}");
        }
        if self.policies.is_empty() {
            return writeln!(f, "no policies");
        }
        self.policies.iter().try_for_each(|policy| writeln!(f, "{policy}"))
    }
}

impl fmt::Display for ExplainedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.policy, self.effect)
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooCostly => f.write_str("refuses; the request costs more than its quotas allow"),
            Self::Charged(charge) => charge.fmt(f),
            Self::Skipped { why: Skip::Method, methods, .. } => {
                write!(f, "not for this method, only {}", list(methods))
            }
            Self::Skipped { why: Skip::Path, paths, .. } => {
                write!(f, "not for this path, only {}", list(paths))
            }
            Self::Skipped { why: Skip::Exempt(listed), .. } => write!(f, "exempt for {listed}"),
            Self::Skipped { why: Skip::ShadowTooCostly, .. } => {
                f.write_str("watches only; the request costs more than its quotas allow")
            }
        }
    }
}

impl fmt::Display for ExplainedCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.cost == 1 { "unit" } else { "units" };
        write!(f, "takes {} {unit} of {} from {}", self.cost, list(&self.quotas), self.identity)?;
        if let Some(plan) = &self.plan {
            write!(f, ", plan {plan}")?;
        }
        if let Some(unknown) = &self.unknown_plan {
            write!(f, " (the default, as there is no plan {unknown:?})")?;
        }
        if !self.missing.is_empty() {
            write!(f, ", having no {}", list(&self.missing))?;
        }
        if self.has_unknown_key {
            f.write_str(" (the API key is unknown)")?;
        }
        if self.scope == Scope::Local {
            f.write_str(", in this process")?;
        }
        if let Some(ban) = &self.ban {
            write!(f, ", banned for {ban}")?;
        }
        if self.shadow {
            f.write_str(", only watching")?;
        }
        Ok(())
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
