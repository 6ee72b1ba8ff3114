//! The accounts that an identity has.

use slidegate::{Account, Policies};

use super::filed::Target;

/// The accounts of a target: one under each policy, or under the one that is named.
pub(super) fn of(policies: &Policies, target: &Target) -> Vec<Account> {
    let named = target.policy.as_ref();
    let wanted = policies.names().filter(|policy| named.is_none_or(|named| named == *policy));
    wanted.map(|policy| Account { policy: policy.clone(), identity: target.identity }).collect()
}
