//! Response headers that tell a client where it stands.

mod dialect;
mod lines;
mod merge;
mod name;
mod text;
mod value;

use std::fmt;
use std::sync::{Arc, LazyLock};

use http::HeaderMap;
use slidegate::limit::SystemClock;
use slidegate::{Clock, Decision, Standing, Timestamp};

pub use self::dialect::{Dialect, DialectError};
use self::dialect::{FieldGroup, Item, Since};
use self::lines::Lines;
pub(crate) use self::name::write_name;
pub use self::text::{Fields, Text};
use self::value::Values;
pub(crate) use self::value::enforced;
use crate::seconds;

/// Which headers tell a client where it stands, in which dialects.
///
/// The default is the IETF draft's fields and `X-RateLimit-*` with the reset in Unix seconds.
/// Shadow policies and those that are [kept out](slidegate::Policy::not_in_headers) are never shown,
/// and a request that no other policy counted gets no headers.
///
/// ```
/// use slidegate_tower::{Dialect, Headers};
///
/// let headers = Headers::new([Dialect::Draft11, Dialect::Draft06]).not_on_redirects();
/// ```
#[derive(Clone)]
pub struct Headers {
    parts: Vec<FieldGroup>,
    on_redirects: bool,
    clock: Arc<dyn Clock>,
}

/// When the request is worth sending again, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reset {
    /// From now.
    pub(crate) after_s: u64,
    /// Since the epoch; zero if no field tells it, because reading a clock takes time.
    pub(crate) at_s: u64,
}

static CALENDAR: LazyLock<Arc<dyn Clock>> = LazyLock::new(|| Arc::new(SystemClock::new()));

impl Headers {
    /// Headers in these dialects. Where two have a field in common, the one that is named first
    /// has it: no field is ever sent in two syntaxes.
    pub fn new(dialects: impl IntoIterator<Item = Dialect>) -> Self {
        let mut parts: Vec<FieldGroup> = Vec::new();
        for part in dialects.into_iter().flat_map(Dialect::parts) {
            if parts.iter().all(|other| other.field() != part.field()) {
                parts.push(part);
            }
        }
        Self { parts, on_redirects: true, clock: CALENDAR.clone() }
    }

    /// No headers.
    pub fn none() -> Self {
        Self::new([])
    }

    /// Leaves the headers out on responses with a status of 3xx, for clients that would wait
    /// before they follow.
    #[must_use]
    pub fn not_on_redirects(self) -> Self {
        Self { on_redirects: false, ..self }
    }

    /// Takes the calendar time from this clock, for resets in Unix seconds.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Writes where the client stands into the headers of a response.
    ///
    /// What is there already stays true: lists get our items added, and of fields that can tell
    /// of one quota only, those with less remaining are kept.
    pub fn write(&self, decision: &Decision, headers: &mut HeaderMap) {
        if self.parts.is_empty() {
            return;
        }
        if let Some((_, tightest)) = decision.tightest_in_headers() {
            self.write_standing(decision, tightest, self.reset(decision, tightest), headers);
        }
    }

    /// [`write`](Self::write) for whoever knows the tightest standing and the reset already.
    pub(crate) fn write_standing(
        &self,
        decision: &Decision,
        tightest: &Standing,
        reset: Reset,
        headers: &mut HeaderMap,
    ) {
        if self.parts.is_empty() {
            return;
        }
        let merging = merge::is_needed(headers);
        let copy = if merging { merge::copy(decision, &self.parts, headers) } else { 1 };
        let mut values = Values::new();
        for part in &self.parts {
            if merging && !merge::admits(part, headers, tightest) {
                continue;
            }
            match part {
                FieldGroup::List(name, Item::Quota) => {
                    headers.append(name, values.quotas(decision, copy));
                }
                FieldGroup::List(name, item) => {
                    headers.append(name, values.list(decision, *item, copy));
                }
                FieldGroup::Dictionary(name) => {
                    headers.insert(name, values.dictionary(tightest, reset));
                }
                FieldGroup::Triple { limit, remaining, reset: field, since } => {
                    let units = tightest.quota().units().get();
                    headers.insert(limit, values.integer(units.into()));
                    headers.insert(remaining, values.integer(tightest.remaining().into()));
                    headers.insert(field, values.integer(reset.since(*since)));
                }
            }
        }
        values.finish();
    }

    /// Tells where the client stands to whoever sends headers in another form than HTTP's.
    pub(crate) fn tell(&self, decision: &Decision, fields: &mut impl Fields) {
        let Some((_, tightest)) = decision.tightest_in_headers() else { return };
        let reset = self.reset(decision, tightest);
        for part in &self.parts {
            match part {
                FieldGroup::List(name, item) => {
                    fields.begin(name);
                    text::put_list(fields, decision, *item, 1);
                }
                FieldGroup::Dictionary(name) => {
                    fields.begin(name);
                    text::put_dictionary(fields, tightest, reset);
                }
                FieldGroup::Triple { limit, remaining, reset: field, since } => {
                    fields.begin(limit);
                    text::put_integer(fields, tightest.quota().units().get().into());
                    fields.begin(remaining);
                    text::put_integer(fields, tightest.remaining().into());
                    fields.begin(field);
                    text::put_integer(fields, reset.since(*since));
                }
            }
        }
    }

    /// The fields that [`write`](Self::write) would add, as lines of HTTP/1. None if there are some
    /// already that they would have to be joined with.
    pub(crate) fn lines(&self, decision: &Decision, headers: &HeaderMap) -> Option<Vec<u8>> {
        if self.parts.is_empty() {
            return Some(Vec::new());
        }
        if merge::is_needed(headers) {
            return None;
        }
        let mut lines = Lines::new();
        self.tell(decision, &mut lines);
        Some(lines.finish())
    }

    pub(crate) fn are_for(&self, status: http::StatusCode) -> bool {
        self.on_redirects || !status.is_redirection()
    }

    pub(crate) fn reset(&self, decision: &Decision, tightest: &Standing) -> Reset {
        let after = seconds::reset_of(decision, tightest);
        let at_s = if self.parts.iter().any(FieldGroup::tells_calendar_time) {
            let at = self.clock.wall() + after;
            seconds::ceil(at.saturating_since(Timestamp::default()))
        } else {
            0
        };
        Reset { after_s: seconds::ceil(after), at_s }
    }
}

impl Reset {
    fn since(self, since: Since) -> u64 {
        match since {
            Since::Now => self.after_s,
            Since::Epoch => self.at_s,
        }
    }
}

impl Default for Headers {
    fn default() -> Self {
        Self::new([Dialect::Draft11, Dialect::XRateLimit])
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.parts.iter().map(|part| part.field().as_str());
        f.debug_list().entries(fields).finish()
    }
}
