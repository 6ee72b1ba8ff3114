//! When an identity that keeps being denied is refused for a while.

use std::fmt;
use std::time::Duration;

use crate::limit::charge::Account;
use crate::limit::quota::Quota;

/// How often an identity may be denied under a policy, and how long it is refused after that.
///
/// ```
/// use std::time::Duration;
///
/// use slidegate::{Ban, Policy, Quota};
///
/// let twenty_a_minute = Ban::after(Quota::per_minute(20));
/// let login = Policy::new("login")
///     .quota(Quota::per_minute(5))
///     .ban(twenty_a_minute.lasting(Duration::from_secs(600)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ban {
    denials: Quota,
    length: Duration,
}

impl Ban {
    /// The longest ban that a policy can have.
    pub const MAX_LENGTH: Duration = Quota::MAX_WINDOW;

    /// A ban on who is denied as often as this: after `20/min`, the 20th denial in any minute
    /// begins it. It lasts as long as the quota's window.
    pub fn after(denials: Quota) -> Self {
        Self { denials, length: denials.window() }
    }

    /// Makes it last longer or shorter: more than no time, and at most [`Ban::MAX_LENGTH`].
    #[must_use]
    pub fn lasting(self, length: Duration) -> Self {
        Self { length, ..self }
    }

    /// How many denials in which window begin it.
    pub fn denials(self) -> Quota {
        self.denials
    }

    /// How long it lasts.
    pub fn length(self) -> Duration {
        self.length
    }
}

impl fmt::Display for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after {} denials", self.length, self.denials)
    }
}

/// A ban that is in force, as gates pass it to each other, or save it for a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveBan {
    /// Whom it refuses, and under which policy.
    pub account: Account,
    /// How much of it is left.
    pub rest: Duration,
    /// When the account is to come back: not before the ban is over, and later if a quota that
    /// denied when it began has no room for longer.
    pub retry_after: Duration,
}
