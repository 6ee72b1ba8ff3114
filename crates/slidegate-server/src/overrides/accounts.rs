//! The accounts of a target.

use std::net::IpAddr;

use slidegate::{Account, Identity, Policies, Source};

use super::record::Target;

/// The accounts of a target: one under each policy, or under the one that is named.
pub(super) fn of(policies: &Policies, target: &Target) -> Vec<Account> {
    let named = target.policy.as_ref();
    let wanted = policies.names().filter(|policy| named.is_none_or(|named| named == *policy));
    wanted.map(|policy| Account { policy: policy.clone(), identity: target.identity }).collect()
}

/// Whether the target can be an account at all. A network is one only if a policy counts addresses
/// by just such networks.
pub(super) fn are_there(policies: &Policies, target: &Target) -> bool {
    let identity = target.identity;
    let network = identity.value().split_once('/').filter(|_| identity.kind() == "ip");
    let Some((address, _)) = network else { return true };
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let counts = |source: &Source| match source {
        Source::Ip(prefixes) => Identity::ip(address, *prefixes) == identity,
        _ => false,
    };
    let named = |policy: &_| target.policy.as_ref().is_none_or(|named| named == policy);
    let mut wanted = policies.iter().filter(|policy| named(&policy.name));
    wanted.any(|policy| policy.identity.iter().any(counts))
}
