//! Where an account stands.

use std::time::Duration;

use crate::limit::name::Name;
use crate::limit::store::Standing;

/// Where an account stands now, and what holds for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Where each quota in force stands, for a request that costs one unit. The quotas have the
    /// units that are granted.
    pub standings: Vec<Standing>,
    /// How much longer the account is banned, by itself or by an operator, whichever is longer.
    pub banned: Option<Duration>,
    /// How much longer an operator has exempted it.
    pub exempt: Option<Duration>,
    /// The units that an operator has granted on top of each quota.
    pub granted: u32,
    /// Whether a store's trouble had a part in the standings.
    pub degraded: bool,
    /// The plan that the quotas come from.
    pub plan: Option<Name>,
}
