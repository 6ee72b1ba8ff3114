//! The accounts that an identity has.

use slidegate::{Account, Identity, Name, Policies, PolicyOutline, Prefixes, Source};

use super::filed::Target;

/// The accounts of a target: one under each policy, or under the one that is named.
pub(super) fn of(policies: &Policies, target: &Target) -> Vec<Account> {
    let named = |policy: &Name| target.policy.as_ref().is_none_or(|named| named == policy);
    let wanted = policies.outlines().filter(|policy| named(&policy.name));
    wanted
        .map(|policy| {
            let identity = counted(&policy, target.identity);
            Account { policy: policy.name, identity }
        })
        .collect()
}

/// The identity as the policy counts it: an address counts as its network.
fn counted(policy: &PolicyOutline, identity: Identity) -> Identity {
    let prefixes = policy.identity.iter().find_map(|source| match source {
        Source::Ip(prefixes) => Some(*prefixes),
        _ => None,
    });
    match (identity.kind(), identity.value().parse()) {
        ("ip", Ok(address)) => Identity::ip(address, prefixes.unwrap_or(Prefixes::default())),
        _ => identity,
    }
}
