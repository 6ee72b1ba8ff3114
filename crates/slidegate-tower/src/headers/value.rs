//! The values of the fields.

use std::cell::Cell;
use std::sync::LazyLock;

use http::HeaderValue;
use slidegate::{Decision, Name, PolicyStanding, Quota, Standing};
use smallvec::SmallVec;

use crate::headers::Reset;
use crate::headers::dialect::Item;
use crate::headers::text::{put_dictionary, put_integer, put_list};

/// Room for the longest value of a policy with a quota or two.
const USUAL_BYTES: usize = 128;

/// Writes one value after the other, and copies each out: that is cheaper than values that share
/// an allocation, which has to be counted.
///
/// Some values are the same for many responses in a row, and are kept for the next.
#[derive(Default)]
pub(super) struct Values {
    buffer: Vec<u8>,
    /// Each in the place of its last digits.
    integers: [Option<(u64, HeaderValue)>; KEPT_INTEGERS],
    /// The list of quotas of a set of policies.
    quotas: Option<(Named, HeaderValue)>,
}

/// Quotas and the policies that they are of.
type Named = SmallVec<[(Name, Quota); 2]>;

/// Enough for the units and the resets of the clients of a moment.
const KEPT_INTEGERS: usize = 16;

thread_local! {
    /// What this thread wrote its last values with.
    static VALUES: Cell<Option<Box<Values>>> = const { Cell::new(None) };
}

impl Values {
    pub(super) fn new() -> Box<Self> {
        let mut values = VALUES.take().unwrap_or_default();
        values.buffer.reserve(USUAL_BYTES);
        values
    }

    /// Leaves what is kept to the next response.
    pub(super) fn finish(self: Box<Self>) {
        VALUES.set(Some(self));
    }

    pub(super) fn integer(&mut self, value: u64) -> HeaderValue {
        if let Some(value) = small(value) {
            return value;
        }
        let place = value as usize % KEPT_INTEGERS;
        if let Some((kept, text)) = &self.integers[place]
            && *kept == value
        {
            return text.clone();
        }
        put_integer(&mut self.buffer, value);
        let text = self.take();
        self.integers[place] = Some((value, text.clone()));
        text
    }

    /// The quotas that headers tell of, by name.
    pub(super) fn quotas(&mut self, decision: &Decision, copy: u32) -> HeaderValue {
        let wanted = || shown(decision).map(|(policy, standing)| (policy, standing.quota()));
        if let (Some((kept, text)), 1) = (&self.quotas, copy)
            && kept.len() == wanted().count()
            && kept.iter().zip(wanted()).all(|((name, quota), (policy, wanted))| {
                name == policy.policy() && *quota == wanted
            })
        {
            return text.clone();
        }
        let text = self.list(decision, Item::Quota, copy);
        if copy == 1 {
            let kept = wanted().map(|(policy, quota)| (policy.policy().clone(), quota)).collect();
            self.quotas = Some((kept, text.clone()));
        }
        text
    }

    /// The dictionary of draft -07.
    pub(super) fn dictionary(&mut self, tightest: &Standing, reset: Reset) -> HeaderValue {
        put_dictionary(&mut self.buffer, tightest, reset);
        self.take()
    }

    /// An item for each quota that headers tell of.
    pub(super) fn list(&mut self, decision: &Decision, item: Item, copy: u32) -> HeaderValue {
        put_list(&mut self.buffer, decision, item, copy);
        self.take()
    }

    fn take(&mut self) -> HeaderValue {
        let value = HeaderValue::from_bytes(&self.buffer);
        self.buffer.clear();
        value.expect("names, digits and punctuation may stand in a header")
    }
}

/// The numbers below a thousand: most quotas, and all that remains of them, need no allocation.
static SMALL: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    let value = |digits: &'static [u8; 3]| {
        let zeros = digits[..2].iter().take_while(|digit| **digit == b'0').count();
        HeaderValue::from_static(str::from_utf8(&digits[zeros..]).expect("digits are ASCII"))
    };
    DIGITS.iter().map(value).collect()
});

/// Three digits for each number below a thousand.
static DIGITS: [[u8; 3]; 1000] = {
    let mut table = [[b'0'; 3]; 1000];
    let mut number = 0;
    while number < 1000 {
        let digits = [number / 100, number / 10 % 10, number % 10];
        table[number] = [b'0' + digits[0] as u8, b'0' + digits[1] as u8, b'0' + digits[2] as u8];
        number += 1;
    }
    table
};

fn small(value: u64) -> Option<HeaderValue> {
    SMALL.get(usize::try_from(value).ok()?).cloned()
}

/// Every quota that headers tell of, with its policy.
pub(super) fn shown(decision: &Decision) -> impl Iterator<Item = (&PolicyStanding, &Standing)> {
    enforced(decision).filter(|(policy, _)| policy.is_in_headers())
}

/// Every quota that binds the client, with its policy.
pub(crate) fn enforced(decision: &Decision) -> impl Iterator<Item = (&PolicyStanding, &Standing)> {
    let policies = decision.policies().iter().filter(|policy| !policy.is_shadow());
    policies.flat_map(|policy| policy.standings().iter().map(move |standing| (policy, standing)))
}

/// Whether another quota has as many units for longer, or the same one came before: drafts -06 and
/// -07 forbid that two items share their units.
pub(super) fn has_stricter_twin(decision: &Decision, standing: &Standing) -> bool {
    let (units, window) = (standing.quota().units(), standing.quota().window());
    let mut before = true;
    shown(decision).map(|(_, other)| other).any(|other| {
        before &= !std::ptr::eq(other, standing);
        let longer = other.quota().window() > window;
        let same_before = before && other.quota().window() == window;
        other.quota().units() == units && (longer || same_before)
    })
}
