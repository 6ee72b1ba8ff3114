//! Response headers that say where a client stands.

mod dialect;
mod merge;
mod value;

use std::fmt;
use std::sync::{Arc, LazyLock};

use http::{HeaderMap, HeaderName, StatusCode};
use slidegate::limit::SystemClock;
use slidegate::{Clock, Decision, PolicyStanding, Timestamp};

pub use self::dialect::{Dialect, DialectError};
use self::dialect::{FieldGroup, Since};
pub use self::value::StandingFields;
pub(crate) use self::value::{QuotaName, ceil_s, policy_items, reset};

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
        self.fields_beside(headers, decision, |_| None).add_to(headers);
    }

    /// Where the client stands, for a response that has no such fields yet. Of some policies, `items`
    /// knows the [items](policy_items) that say what their quotas are.
    pub(crate) fn fields<'i>(
        &self,
        decision: &Decision,
        items: impl Fn(&PolicyStanding) -> Option<&'i str>,
    ) -> StandingFields {
        self.fields_of(&self.groups, decision, 1, items)
    }

    /// The fields that are to be added to these headers. If there are such fields already, ours are
    /// merged with them, and none is left to add.
    pub(crate) fn fields_beside<'i>(
        &self,
        headers: &mut HeaderMap,
        decision: &Decision,
        items: impl Fn(&PolicyStanding) -> Option<&'i str>,
    ) -> StandingFields {
        if !merge::is_needed(headers) {
            return self.fields(decision, items);
        }
        if let Some((_, tightest)) = decision.tightest_in_headers() {
            let copy = merge::copy(decision, &self.groups, headers);
            let admitted = |group: &&FieldGroup| merge::admits(group, headers, tightest);
            let groups: Vec<FieldGroup> = self.groups.iter().filter(admitted).copied().collect();
            self.fields_of(&groups, decision, copy, items).add_to(headers);
        }
        StandingFields::default()
    }

    fn fields_of<'i>(
        &self,
        groups: &[FieldGroup],
        decision: &Decision,
        copy: u32,
        items: impl Fn(&PolicyStanding) -> Option<&'i str>,
    ) -> StandingFields {
        let tightest = decision.tightest_in_headers().filter(|_| !groups.is_empty());
        let Some((_, tightest)) = tightest else { return StandingFields::default() };
        let mut fields = StandingFields::with_room();
        let reset = value::reset_of(decision, tightest);
        for group in groups {
            match *group {
                FieldGroup::List(name, item) => fields.list(name, decision, item, copy, &items),
                FieldGroup::Dictionary(name) => fields.dictionary(name, tightest, reset),
                FieldGroup::Triple([limit, remaining, reset_name], since) => {
                    let reset_s = match since {
                        Since::Now => ceil_s(reset),
                        Since::Epoch => {
                            let at = self.clock.wall() + reset;
                            ceil_s(at.saturating_since(Timestamp::default()))
                        }
                    };
                    fields.integer(limit, tightest.quota().units().get().into());
                    fields.integer(remaining, tightest.remaining().into());
                    fields.integer(reset_name, reset_s);
                }
            }
        }
        fields
    }

    /// The names of all fields, in the order in which responses have them.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static HeaderName> {
        self.groups.iter().flat_map(FieldGroup::names).copied()
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
        let fields: Vec<&str> = self.groups.iter().map(|group| group.field().as_str()).collect();
        let mut shown = f.debug_struct("Headers");
        shown.field("fields", &fields).field("on_redirects", &self.on_redirects);
        shown.finish_non_exhaustive()
    }
}
