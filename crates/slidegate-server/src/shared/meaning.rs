//! What a policy means, in so few characters that gateways can tell each other.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use slidegate::policy::CheckedPolicy;
use slidegate::{Consistency, Policies, Scope};

/// The shared policies of a gateway: for each of them eight hexadecimal digits of its name, and eight
/// of what it means.
pub(super) fn meanings(policies: &Policies) -> String {
    let shared = policies.iter().filter(|policy| is_shared(policy)).take(MAX_POLICIES);
    shared.fold(String::new(), |mut text, policy| {
        let meaning = digest(&describe(policy, policies));
        let _ = write!(text, "{:08x}{meaning:08x}", digest(&policy.name));
        text
    })
}

/// The names of this gateway's policies that mean something else in another's
/// [`meanings`]. What that one does not have, or does not tell, is no difference.
pub(super) fn differing(policies: &Policies, own: &str, other: &str) -> Vec<String> {
    let pairs = |text: &str| -> Vec<(u32, u32)> {
        let number = |digits: Option<&str>| u32::from_str_radix(digits?, 16).ok();
        let pair =
            |at: usize| Some((number(text.get(at..at + 8))?, number(text.get(at + 8..at + 16))?));
        (0..text.len()).step_by(16).map_while(pair).take(MAX_POLICIES).collect()
    };
    let (own, other) = (pairs(own), pairs(other));
    let differs = |policy: &&CheckedPolicy| {
        let name = digest(&policy.name);
        let of = |pairs: &[(u32, u32)]| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1);
        of(&own).zip(of(&other)).is_some_and(|(own, other)| own != other)
    };
    policies.iter().filter(differs).map(|policy| policy.name.to_string()).collect()
}

/// As many policies as fit into a heartbeat, with the rest of it. Others are left out.
const MAX_POLICIES: usize = 40;

/// Whether gateways count in the same accounts.
fn is_shared(policy: &CheckedPolicy) -> bool {
    policy.scope == Scope::Shared && !policy.has_caller_quotas()
}

/// All that two gateways have to agree in so that they admit together what the policy says.
fn describe(policy: &CheckedPolicy, policies: &Policies) -> String {
    let mut text = String::new();
    for source in &policy.identity {
        let _ = write!(text, "{source} ");
    }
    for quota in policy.quotas() {
        let _ = write!(text, "{quota} ");
    }
    if policy.default_plan().is_some() {
        for plan in policies.plans() {
            let _ = write!(text, "{} ", plan.name);
            plan.quotas.as_slice().iter().for_each(|quota| _ = write!(text, "{quota} "));
        }
    }
    let _ = match policy.consistency {
        Consistency::Sync => write!(text, "None"),
        // With the lease, because an older gateway derives it otherwise.
        leased => write!(text, "{leased:?} {:?}", policy.lease),
    };
    text
}

/// The same in every version and on every machine.
fn digest(text: &str) -> u32 {
    let digest = Sha256::digest(text);
    u32::from_be_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use slidegate::{Plan, Policy, Source};

    use super::*;

    fn build(policies: impl IntoIterator<Item = Policy>) -> Policies {
        let plan = Plan::new("free", ["60/min".parse().unwrap()] as [slidegate::Quota; 1]);
        policies
            .into_iter()
            .fold(Policies::builder().plan(plan), |all, one| all.policy(one))
            .build()
            .unwrap()
    }

    #[test]
    fn what_differs_is_named_and_what_is_missing_is_not() {
        let own = build([Policy::new("a").quota("5/min"), Policy::new("b").plans("free")]);
        for (other, expected) in [
            (Policy::new("a").quota("5/min"), None),
            (Policy::new("a").quota("6/min"), Some("a")),
            (Policy::new("a").quota("5/h"), Some("a")),
            (Policy::new("a").quota("5/min").identity(Source::User), Some("a")),
            (Policy::new("a").quota("5/min").consistency(Consistency::ASYNC), Some("a")),
            (Policy::new("a").quota("5/min").scope(Scope::Local), None),
            (Policy::new("b").quota("60/min"), Some("b")),
            (Policy::new("c").quota("6/min"), None),
        ] {
            let other = meanings(&build([other]));
            let found = differing(&own, &meanings(&own), &other);
            assert_eq!(found.first().map(String::as_str), expected, "{other}");
        }
        assert!(differing(&own, &meanings(&own), "not hexadecimal, ünd odd").is_empty());
    }
}
