//! How much of a quota one process may admit by itself.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use slidegate::Quota;
use slidegate::limit::{Charge, Quotas};

/// One part of so many equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalShare(NonZeroU32);

impl LocalShare {
    /// Everything.
    pub const WHOLE: Self = Self(NonZeroU32::MIN);

    /// One of `parts` equal parts.
    pub const fn one_of(parts: NonZeroU32) -> Self {
        Self(parts)
    }

    pub(crate) fn is_whole(self) -> bool {
        self == Self::WHOLE
    }

    /// The charge's quotas, cut down to the share, but not below what one such request costs: it
    /// could never be paid.
    pub(crate) fn of(self, charge: &Charge<'_>) -> Quotas {
        let cut = |quota: &Quota| {
            let units = (quota.units().get() / self.0).max(charge.cost().get());
            let units = NonZeroU32::new(units).unwrap_or(charge.cost());
            Quota::new(units, quota.window()).expect("a window that is in use")
        };
        let quotas = charge.quotas().as_slice().iter().map(cut);
        Quotas::new(quotas).expect("windows that stand together already")
    }
}

impl fmt::Display for LocalShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", self.0)
    }
}

impl FromStr for LocalShare {
    type Err = LocalShareError;

    fn from_str(text: &str) -> Result<Self, LocalShareError> {
        let parts = text.strip_prefix("1/").and_then(|parts| parts.parse().ok());
        parts.map(Self).ok_or_else(|| LocalShareError(text.to_owned()))
    }
}

/// A text that is no share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no share: expected one part of some, such as 1/4")]
pub struct LocalShareError(String);

#[cfg(test)]
mod tests {
    use slidegate::{Identity, Name};

    use super::*;

    #[test]
    fn a_share_is_rounded_down_but_a_request_can_be_paid() {
        let (policy, identity): (Name, _) = ("api".parse().unwrap(), Identity::everyone());
        let quotas = Quotas::new([Quota::per_second(2), Quota::per_minute(10)]).unwrap();
        let charge = Charge::new(&policy, &identity, &quotas);
        let share: LocalShare = "1/4".parse().unwrap();
        let units = |charge: &Charge<'_>| {
            share.of(charge).as_slice().iter().map(|q| q.units().get()).collect::<Vec<_>>()
        };
        assert_eq!(units(&charge), [1, 2]);
        assert_eq!(units(&charge.with_cost(NonZeroU32::new(2).unwrap()).unwrap()), [2, 2]);
        for text in ["", "1/0", "2/4", "0.5", "1/-1"] {
            assert_eq!(text.parse::<LocalShare>(), Err(LocalShareError(text.to_owned())));
        }
    }
}
