//! What a customer buys.

use crate::limit::name::Name;
use crate::limit::quota::{Quota, Quotas};

/// A named set of quotas that a customer buys, as it is written down.
///
/// ```
/// use slidegate::{Plan, Quota};
///
/// let free = Plan::new("free", [Quota::per_minute(60), Quota::per_day(10_000)])
///     .upgrade_url("https://app.example.com/upgrade");
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) name: String,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) upgrade_url: Option<String>,
}

impl Plan {
    /// A plan with these quotas.
    pub fn new(name: impl Into<String>, quotas: impl IntoIterator<Item = Quota>) -> Self {
        Self { name: name.into(), quotas: quotas.into_iter().collect(), upgrade_url: None }
    }

    /// Where a customer who ran out can get more.
    #[must_use]
    pub fn upgrade_url(mut self, url: impl Into<String>) -> Self {
        self.upgrade_url = Some(url.into());
        self
    }
}

/// A plan that has been checked.
#[derive(Debug)]
pub struct CheckedPlan {
    pub(crate) name: Name,
    pub(crate) quotas: Quotas,
    pub(crate) upgrade_url: Option<String>,
}

impl CheckedPlan {
    /// The plan's name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// What it allows.
    pub fn quotas(&self) -> &[Quota] {
        self.quotas.as_slice()
    }

    /// Where a customer who ran out can get more.
    pub fn upgrade_url(&self) -> Option<&str> {
        self.upgrade_url.as_deref()
    }
}
