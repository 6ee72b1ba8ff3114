//! The values of the fields.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use slidegate::limit::Period;
use slidegate::{Decision, Name, PolicyStanding, Quota, Standing};
use smallvec::SmallVec;

use crate::headers::dialect::Item;

/// The fields that say where a client stands, with their values.
///
/// The values share one buffer, so that five fields cost two allocations instead of five.
#[derive(Debug, Default)]
pub struct StandingFields {
    text: String,
    fields: SmallVec<[StandingField; 5]>,
}

#[derive(Debug)]
struct StandingField {
    name: &'static HeaderName,
    /// Where its value ends.
    end: usize,
    /// Whether a response may have others of this name.
    is_list: bool,
}

/// Room for the fields of a policy with a quota or two.
const USUAL_BYTES: usize = 256;

impl StandingFields {
    /// Names and values, in the order in which responses have them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static HeaderName, &str)> {
        let mut begin = 0;
        self.fields.iter().map(move |field| {
            let value = &self.text[std::mem::replace(&mut begin, field.end)..field.end];
            (field.name, value)
        })
    }

    pub(super) fn with_room() -> Self {
        Self { text: String::with_capacity(USUAL_BYTES), fields: SmallVec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Appends the lists, and puts the others in place of fields of the same name.
    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        // Once, and not in two steps: a response usually has room for what it has.
        headers.reserve(self.fields.len());
        for (name, value, is_list) in self.into_values() {
            if is_list {
                headers.append(name, value);
            } else {
                headers.insert(name, value);
            }
        }
    }

    /// Names and values, and whether a response may have others of the name.
    pub(crate) fn into_values(
        self,
    ) -> impl Iterator<Item = (&'static HeaderName, HeaderValue, bool)> {
        let (all, mut begin) = (Bytes::from(self.text), 0);
        self.fields.into_iter().map(move |StandingField { name, end, is_list }| {
            let value = all.slice(std::mem::replace(&mut begin, end)..end);
            let value = HeaderValue::from_maybe_shared(value)
                .expect("names, digits and punctuation are valid in a header");
            (name, value, is_list)
        })
    }

    pub(super) fn integer(&mut self, name: &'static HeaderName, value: u64) {
        self.put_integer("", value);
        self.end(name, false);
    }

    /// The dictionary of draft -07.
    pub(super) fn dictionary(
        &mut self,
        name: &'static HeaderName,
        tightest: &Standing,
        reset: Duration,
    ) {
        self.put_integer("limit=", tightest.quota().units().get().into());
        self.put_integer(", remaining=", tightest.remaining().into());
        self.put_integer(", reset=", ceil_s(reset));
        self.end(name, false);
    }

    /// An item for each quota in the headers. Of some policies, `items` knows those that say what their
    /// quotas are.
    pub(super) fn list<'i>(
        &mut self,
        name: &'static HeaderName,
        decision: &Decision,
        item: Item,
        copy: u32,
        items: impl Fn(&PolicyStanding) -> Option<&'i str>,
    ) {
        let begin = self.text.len();
        for policy in decision.policies().iter().filter(|policy| policy.in_headers) {
            if item == Item::Quota
                && copy == 1
                && let Some(items) = items(policy)
            {
                self.separate(begin);
                self.text.push_str(items);
                continue;
            }
            for standing in &policy.standings {
                if item == Item::Unnamed && has_stricter_twin(decision, standing) {
                    continue;
                }
                self.separate(begin);
                self.put_item(item, standing, &QuotaName::of(policy, standing, copy));
            }
        }
        self.end(name, true);
    }

    /// Begins another item of a list.
    fn separate(&mut self, list: usize) {
        if self.text.len() > list {
            self.text.push_str(", ");
        }
    }

    /// The parameters `r` and `t` are going to be renamed by the draft after -11.
    fn put_item(&mut self, item: Item, standing: &Standing, name: &QuotaName<'_>) {
        match item {
            Item::Standing => {
                name.put_quoted(&mut self.text);
                self.put_integer(";r=", standing.remaining().into());
                self.put_integer(";t=", effective_window_s(standing));
            }
            Item::Quota => {
                name.put_quoted(&mut self.text);
                put_quota(&mut self.text, ";q=", name.quota);
            }
            Item::Unnamed => put_quota(&mut self.text, "", name.quota),
        }
    }

    fn put_integer(&mut self, before: &str, value: u64) {
        put_integer(&mut self.text, before, value);
    }

    fn end(&mut self, name: &'static HeaderName, is_list: bool) {
        self.fields.push(StandingField { name, end: self.text.len(), is_list });
    }
}

/// The items of a policy's quotas in `RateLimit-Policy`.
pub(crate) fn policy_items(policy: &Name, quotas: &[Quota]) -> String {
    let item = |quota: &Quota| {
        let mut item = String::new();
        let name = QuotaName { policy, quota: *quota, has_window: quotas.len() > 1, copy: 1 };
        name.put_quoted(&mut item);
        put_quota(&mut item, ";q=", *quota);
        item
    };
    quotas.iter().map(item).collect::<Vec<_>>().join(", ")
}

fn put_quota(text: &mut String, units: &str, quota: Quota) {
    put_integer(text, units, quota.units().get().into());
    put_integer(text, ";w=", ceil_s(quota.window()));
}

fn put_integer(text: &mut String, before: &str, value: u64) {
    text.push_str(before);
    text.push_str(itoa::Buffer::new().format(value));
}

/// The name of a quota in headers and problem details: the policy's name if it has one quota, else
/// the name and the window, such as `api/60s`.
///
/// A policy's name has no slash, so names made with it are unique. Copies beyond the first are
/// numbered: `api/2`.
pub(crate) struct QuotaName<'a> {
    pub(crate) policy: &'a Name,
    pub(crate) quota: Quota,
    /// Whether the policy has other quotas.
    pub(crate) has_window: bool,
    pub(crate) copy: u32,
}

impl<'a> QuotaName<'a> {
    pub(crate) fn of(policy: &'a PolicyStanding, standing: &Standing, copy: u32) -> Self {
        let has_window = policy.standings.len() > 1;
        Self { policy: &policy.policy, quota: standing.quota(), has_window, copy }
    }

    /// The text, borrowed where it is the policy's name alone.
    pub(crate) fn text(&self) -> Cow<'a, str> {
        if self.has_window || self.copy > 1 {
            let mut text = String::new();
            self.write_to(&mut text).expect("a string takes any text");
            return Cow::Owned(text);
        }
        Cow::Borrowed(self.policy)
    }

    /// Appends the text in quotation marks.
    fn put_quoted(&self, text: &mut String) {
        text.push('"');
        self.write_to(text).expect("a string takes any text");
        text.push('"');
    }

    /// Writes the text piece by piece: formatting it would take as long as all else in an item.
    fn write_to(&self, text: &mut impl fmt::Write) -> fmt::Result {
        text.write_str(self.policy)?;
        if self.has_window {
            let window = self.quota.window();
            let (length, unit) = match window.subsec_millis() {
                0 => (window.as_secs().into(), "s"),
                _ => (window.as_millis(), "ms"),
            };
            text.write_str("/")?;
            text.write_str(itoa::Buffer::new().format(length))?;
            text.write_str(unit)?;
        }
        if self.copy > 1 {
            text.write_str("/")?;
            text.write_str(itoa::Buffer::new().format(self.copy))?;
        }
        Ok(())
    }
}

/// Every quota in the headers, with its policy.
pub(super) fn in_headers(
    decision: &Decision,
) -> impl Iterator<Item = (&PolicyStanding, &Standing)> {
    let policies = decision.policies().iter().filter(|policy| policy.in_headers);
    policies.flat_map(|policy| policy.standings.iter().map(move |standing| (policy, standing)))
}

/// Whether another quota has as many units for longer, or the same one came before: drafts -06 and
/// -07 forbid that two items share their units.
fn has_stricter_twin(decision: &Decision, standing: &Standing) -> bool {
    let (units, window) = (standing.quota().units(), standing.quota().window());
    let mut before = true;
    in_headers(decision).map(|(_, other)| other).any(|other| {
        before &= !std::ptr::eq(other, standing);
        let longer = other.quota().window() > window;
        let same_before = before && other.quota().window() == window;
        other.quota().units() == units && (longer || same_before)
    })
}

/// Whole seconds, rounded up, so that a client that waits for them is not early.
///
/// Standings are kept in nanoseconds of 64 bits, so this has at most 11 digits, and fits the 15
/// that a structured field has room for.
pub(crate) const fn ceil_s(time: Duration) -> u64 {
    Period(time).ceil_seconds()
}

/// When the same request is worth sending again, as far as this quota is concerned.
pub(crate) fn reset(standing: &Standing) -> Duration {
    effective_window(standing).max(standing.retry_after())
}

/// When the request is worth sending again, in headers that have room for the tightest quota only:
/// not before a ban is over that its denial has begun, nor before another policy has room, if one
/// of these takes longer than the quota itself.
pub(super) fn reset_of(decision: &Decision, tightest: &Standing) -> Duration {
    let own = reset(tightest).min(tightest.quota().longest_reset());
    let wait = decision.retry_after().unwrap_or_default();
    if wait > tightest.retry_after() { own.max(wait) } else { own }
}

/// How long the client can use no more than what remains: until the first spent unit is free
/// again, or for a whole window if none is spent.
fn effective_window(standing: &Standing) -> Duration {
    let reset_after = standing.reset_after();
    if reset_after.is_zero() { standing.quota().window() } else { reset_after }
}

/// The effective window in headers: never longer than the quota can hold a unit.
fn effective_window_s(standing: &Standing) -> u64 {
    ceil_s(effective_window(standing).min(standing.quota().longest_reset()))
}
