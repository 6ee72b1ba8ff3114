//! The dialects of the headers, all in one table.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;

/// A family of response headers that say where a client stands.
///
/// Written down as `ietf-draft-11`, `ietf-draft-07`, `ietf-draft-06`, `x-ratelimit` and
/// `x-ratelimit-delta`.
///
/// ```
/// use slidegate::{Facts, Gate, MemoryStore, Policies, Policy};
/// use slidegate_tower::{Dialect, Headers};
///
/// let policies = Policies::builder().policy(Policy::new("api").quota("100/min")).build()?;
/// let gate = Gate::new(policies, MemoryStore::new());
/// let decision = gate.decide_now(&Facts::new(&http::Method::GET, "/"))?;
///
/// let mut fields = http::HeaderMap::new();
/// Headers::new(["ietf-draft-11".parse()?, Dialect::XRateLimit]).write(&decision, &mut fields);
/// assert_eq!(fields["ratelimit-policy"], "\"api\";q=100;w=60");
/// assert_eq!(fields["x-ratelimit-remaining"], "99");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-11: every quota.
    Draft11,
    /// `RateLimit` as a dictionary, and `RateLimit-Policy`, of draft -07: the tightest quota.
    Draft07,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` in seconds from now, and `RateLimit-Policy`, of
    /// draft -06: the tightest quota.
    Draft06,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` in Unix seconds: the tightest quota.
    XRateLimit,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` in seconds from now: the tightest quota.
    XRateLimitDelta,
}

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
static RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
static RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
static X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// A field, or three that belong together.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldGroup {
    /// A list of one item for each quota.
    List(&'static HeaderName, Item),
    /// The tightest quota in one dictionary.
    Dictionary(&'static HeaderName),
    /// The tightest quota in three fields: the limit, what remains, and the reset.
    Triple([&'static HeaderName; 3], Since),
}

/// What an item of a list says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// Where the quota stands: `"api";r=50;t=30`.
    Standing,
    /// What the quota is: `"api";q=100;w=60`.
    Quota,
    /// What the quota is, without a name: `100;w=60`.
    Unnamed,
}

/// Where the seconds of a reset are counted from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Since {
    Now,
    Epoch,
}

impl Dialect {
    const ALL: [Self; 5] =
        [Self::Draft11, Self::Draft07, Self::Draft06, Self::XRateLimit, Self::XRateLimitDelta];

    /// The table: which fields a dialect has.
    pub(super) fn groups(self) -> Vec<FieldGroup> {
        match self {
            Self::Draft11 => vec![
                FieldGroup::List(&RATELIMIT_POLICY, Item::Quota),
                FieldGroup::List(&RATELIMIT, Item::Standing),
            ],
            Self::Draft07 => vec![
                FieldGroup::List(&RATELIMIT_POLICY, Item::Unnamed),
                FieldGroup::Dictionary(&RATELIMIT),
            ],
            Self::Draft06 => vec![
                FieldGroup::List(&RATELIMIT_POLICY, Item::Unnamed),
                FieldGroup::Triple(
                    [&RATELIMIT_LIMIT, &RATELIMIT_REMAINING, &RATELIMIT_RESET],
                    Since::Now,
                ),
            ],
            Self::XRateLimit => vec![FieldGroup::x_ratelimit(Since::Epoch)],
            Self::XRateLimitDelta => vec![FieldGroup::x_ratelimit(Since::Now)],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Draft11 => "ietf-draft-11",
            Self::Draft07 => "ietf-draft-07",
            Self::Draft06 => "ietf-draft-06",
            Self::XRateLimit => "x-ratelimit",
            Self::XRateLimitDelta => "x-ratelimit-delta",
        }
    }
}

impl FieldGroup {
    fn x_ratelimit(since: Since) -> Self {
        Self::Triple([&X_RATELIMIT_LIMIT, &X_RATELIMIT_REMAINING, &X_RATELIMIT_RESET], since)
    }

    /// The names of its fields, in order.
    pub(super) fn names(&self) -> &[&'static HeaderName] {
        match self {
            Self::List(name, _) | Self::Dictionary(name) => std::slice::from_ref(name),
            Self::Triple(names, _) => names,
        }
    }

    /// The field that no other group of the same response may also have.
    pub(super) fn field(&self) -> &'static HeaderName {
        match self {
            Self::List(field, _) | Self::Dictionary(field) | Self::Triple([field, ..], _) => field,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dialect {
    type Err = DialectError;

    fn from_str(text: &str) -> Result<Self, DialectError> {
        let found = Self::ALL.into_iter().find(|dialect| dialect.name() == text);
        found.ok_or_else(|| DialectError { text: text.to_owned() })
    }
}

/// A text that names no dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a dialect of headers: expected ietf-draft-11, ietf-draft-07, ietf-draft-06, \
     x-ratelimit or x-ratelimit-delta"
)]
pub struct DialectError {
    text: String,
}
