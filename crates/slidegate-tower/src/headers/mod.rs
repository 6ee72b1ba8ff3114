//! Response headers that say where a client stands.

mod dialect;
mod merge;
mod value;

use std::fmt;
use std::sync::{Arc, LazyLock};

use http::{HeaderMap, StatusCode};
use slidegate::limit::SystemClock;
use slidegate::{Clock, Decision, Timestamp};
use smallvec::SmallVec;

pub use self::dialect::{Dialect, DialectError};
use self::dialect::{FieldGroup, Since};
use self::value::ValueWriter;
pub(crate) use self::value::{QuotaName, ceil_s, reset};

/// Which headers say where a client stands, in which dialects.
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
    groups: Vec<FieldGroup>,
    on_redirects: bool,
    clock: Arc<dyn Clock>,
}

static SYSTEM_CLOCK: LazyLock<Arc<dyn Clock>> = LazyLock::new(|| Arc::new(SystemClock::new()));

impl Headers {
    /// Headers in these dialects. Where two have a field in common, the one that is named first
    /// has it: no field is ever sent in two syntaxes.
    pub fn new(dialects: impl IntoIterator<Item = Dialect>) -> Self {
        let mut groups: Vec<FieldGroup> = Vec::new();
        for group in dialects.into_iter().flat_map(Dialect::groups) {
            if groups.iter().all(|other| other.field() != group.field()) {
                groups.push(group);
            }
        }
        Self { groups, on_redirects: true, clock: SYSTEM_CLOCK.clone() }
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
    /// Fields that are there already stay true: lists get our items appended, and of fields with
    /// room for one quota only, those with less remaining are kept.
    pub fn write(&self, decision: &Decision, headers: &mut HeaderMap) {
        if self.groups.is_empty() {
            return;
        }
        let Some((_, tightest)) = decision.tightest_in_headers() else { return };
        let reset = value::reset_of(decision, tightest);
        let merging = merge::is_needed(headers);
        let copy = if merging { merge::copy(decision, &self.groups, headers) } else { 1 };
        let written = |group: &&FieldGroup| !merging || merge::admits(group, headers, tightest);
        let groups: SmallVec<[&FieldGroup; 4]> = self.groups.iter().filter(written).collect();
        let mut values = ValueWriter::new();
        for group in &groups {
            match group {
                FieldGroup::List(_, item) => values.list(decision, *item, copy),
                FieldGroup::Dictionary(_) => values.dictionary(tightest, reset),
                FieldGroup::Triple { since, .. } => {
                    let reset_s = match since {
                        Since::Now => ceil_s(reset),
                        Since::Epoch => {
                            let at = self.clock.wall() + reset;
                            ceil_s(at.saturating_since(Timestamp::default()))
                        }
                    };
                    values.integer(tightest.quota().units().get().into());
                    values.integer(tightest.remaining().into());
                    values.integer(reset_s);
                }
            }
        }
        let mut values = values.finish();
        // Once, and not in two steps: a response usually has room for what it has.
        headers.reserve(values.len());
        for group in groups {
            let mut value = || values.next().expect("every field of the group was written");
            match group {
                FieldGroup::List(name, _) => drop(headers.append(name, value())),
                FieldGroup::Dictionary(name) => drop(headers.insert(name, value())),
                FieldGroup::Triple { limit, remaining, reset, .. } => {
                    for name in [limit, remaining, reset] {
                        headers.insert(name, value());
                    }
                }
            }
        }
    }

    pub(crate) fn are_for(&self, status: StatusCode) -> bool {
        self.on_redirects || !status.is_redirection()
    }
}

impl Default for Headers {
    fn default() -> Self {
        Self::new([Dialect::Draft11, Dialect::XRateLimit])
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.groups.iter().map(|group| group.field().as_str());
        f.debug_list().entries(fields).finish()
    }
}
