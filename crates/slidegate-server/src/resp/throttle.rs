//! `CL.THROTTLE` and `THROTTLE`: quotas that come with each call, under two policies of their own.
//!
//! A call is charged under [`WINDOW`], an exact window of `count` in `period`. If it asks for less than
//! `count` at once, it is also charged under [`BURST`]: as many as may come at once, in the time in
//! which the rate gives that many. The identity of an account names its window, so that an account
//! has one ledger, and can be listed, inspected and reset by its name alone.

use std::fmt::{self, Display};
use std::num::NonZeroU32;
use std::time::Duration;

use sha2::{Digest, Sha256};
use slidegate::limit::Quotas;
use slidegate::{Identity, NamedCharge, Quota};
use slidegate_replay::described_request::shortened;
use smallvec::SmallVec;

use super::command::whole_number;
use crate::config::throttle::{BURST, WINDOW};

/// Below this the clock's tick of a millisecond would take much of the rate.
const MIN_WINDOW_MS: u64 = 10;

/// Whose command it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThrottleStyle {
    /// `CL.THROTTLE`, where `max_burst` is on top of one.
    RedisCell,
    /// `THROTTLE`
    Throttlecrab,
}

/// What a call asks for.
#[derive(Debug)]
pub(super) struct Call {
    charges: SmallVec<[(&'static str, Identity, Quotas); 2]>,
    /// As many as may come at once.
    pub(super) burst: u32,
    /// None to spend nothing and see what is left.
    pub(super) cost: Option<NonZeroU32>,
}

impl Call {
    /// Reads `key max_burst count period [quantity]`.
    pub(super) fn read(style: ThrottleStyle, arguments: &[&[u8]]) -> Result<Self, String> {
        let number = |at: usize, name: &str, least: u64, most: u64| {
            let number = whole_number(arguments[at]).filter(|n| (least..=most).contains(n));
            number.ok_or_else(|| {
                let given = String::from_utf8_lossy(arguments[at]);
                let given = shortened(&given);
                format!("{name}: expected a whole number from {least} to {most}, not {given:?}")
            })
        };
        let units = u64::from(u32::MAX);
        let above = u64::from(style == ThrottleStyle::RedisCell);
        let max_burst = number(1, "max_burst", 1 - above, units - above)?;
        let count = number(2, "count", 1, units)?;
        let period = number(3, "period", 1, Quota::MAX_WINDOW.as_secs())?;
        let cost = if arguments.len() > 4 { number(4, "quantity", 0, units)? } else { 1 };
        let burst = max_burst + above;
        if burst > count {
            return Err(format!(
                "max_burst: {max_burst} asks for {burst} at once, and a window of {count} in \
                 {period} s has no more than {count}: expected at most {}",
                count - above
            ));
        }
        let (key, period_ms) = (arguments[0], period * 1000);
        let mut charges = SmallVec::new();
        charges.push(charge(WINDOW, key, count, period_ms));
        if burst < count {
            // Of 366 days and of four billion units, the product has more than 64 bits.
            let window_ms = (u128::from(period_ms) * u128::from(burst)).div_ceil(count.into());
            let window_ms = u64::try_from(window_ms).expect("a part of the period");
            if window_ms < MIN_WINDOW_MS {
                let least = (count * MIN_WINDOW_MS).div_ceil(period_ms) - above;
                return Err(format!(
                    "max_burst: {burst} at once of {count} in {period} s are spaced too closely \
                     for the clock: expected at least {least}"
                ));
            }
            charges.push(charge(BURST, key, burst, window_ms));
        }
        let units = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Self { charges, burst: units(burst), cost: NonZeroU32::new(units(cost)) })
    }

    pub(super) fn charges(&self) -> SmallVec<[NamedCharge<'_>; 2]> {
        let charges = self.charges.iter();
        charges
            .map(|(policy, identity, quotas)| NamedCharge {
                policy,
                identity: *identity,
                plan: None,
                cost: Some(self.cost.unwrap_or(NonZeroU32::MIN)),
                quotas: Some(quotas),
            })
            .collect()
    }
}

fn charge(
    policy: &'static str,
    key: &[u8],
    units: u64,
    window_ms: u64,
) -> (&'static str, Identity, Quotas) {
    let units = u32::try_from(units).ok().and_then(NonZeroU32::new);
    let quota = Quota::new(units.unwrap_or(NonZeroU32::MAX), Duration::from_millis(window_ms));
    let quota = quota.expect("a whole number of milliseconds, at most the period");
    (policy, identity(policy, WindowText(window_ms), key), quota.into())
}

/// `throttle:60s:KEY`, with a digest in place of a key that is too long or not plain text.
fn identity(kind: &str, window: WindowText, key: &[u8]) -> Identity {
    let text = std::str::from_utf8(key).ok().filter(|key| !key.starts_with('~'));
    let identity = text.map(|key| Identity::new(kind, &format!("{window}:{key}")));
    identity.filter(|identity| !identity.value().starts_with('~')).unwrap_or_else(|| {
        let digest = Sha256::digest(key);
        let half = digest[..16].iter().fold(0_u128, |half, byte| half << 8 | u128::from(*byte));
        Identity::new(kind, &format!("{window}:~{half:032x}"))
    })
}

/// A window in milliseconds, in seconds if they are whole. It is part of identities, and therefore of
/// keys in Redis, so it must stay the same where the text of a [`Period`](slidegate::limit::Period)
/// changes.
#[derive(Clone, Copy)]
struct WindowText(u64);

impl Display for WindowText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_multiple_of(1000) {
            true => write!(f, "{}s", self.0 / 1000),
            false => write!(f, "{}ms", self.0),
        }
    }
}
