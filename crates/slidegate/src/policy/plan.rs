//! What a customer buys.

use std::fmt;

use crate::limit::{Name, Quota, Quotas};
use crate::policy::builder::InvalidValues;

/// A named set of quotas that a customer buys, as it is written down.
///
/// ```
/// use slidegate::Plan;
///
/// let free = Plan::new("free", ["60/min", "10000/day"])
///     .upgrade_url("https://app.example.com/upgrade");
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) name: String,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) upgrade_url: Option<String>,
    pub(crate) invalid: InvalidValues,
}

impl Plan {
    /// A plan with these quotas. A text that is no quota is an error when the policies are built.
    pub fn new<Q>(name: impl Into<String>, quotas: impl IntoIterator<Item = Q>) -> Self
    where
        Q: TryInto<Quota, Error: fmt::Display> + fmt::Display,
    {
        let mut invalid = InvalidValues::default();
        let accept = |quota: Q| invalid.accept("quotas", quota.to_string(), quota.try_into());
        let quotas = quotas.into_iter().filter_map(accept).collect();
        Self { name: name.into(), quotas, upgrade_url: None, invalid }
    }

    /// Where a customer who ran out can get more.
    #[must_use]
    pub fn upgrade_url(self, url: impl Into<String>) -> Self {
        Self { upgrade_url: Some(url.into()), ..self }
    }
}

/// A plan that has been checked.
#[derive(Debug)]
#[non_exhaustive]
pub struct CheckedPlan {
    /// The plan's name.
    pub name: Name,
    /// What it allows.
    pub quotas: Quotas,
    /// Where a customer who ran out can get more.
    pub upgrade_url: Option<String>,
}
