//! The dialects of the headers, all in one table.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;

/// A family of response headers that say where a client stands.
///
/// Written down as `ietf-draft-11`, `ietf-draft-07`, `ietf-draft-06`, `x-ratelimit` and
/// `x-ratelimit-delta`.
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

/// A field, or three that belong together.
#[derive(Debug, Clone)]
pub(super) enum FieldGroup {
    /// A list of one item for each quota.
    List(HeaderName, Item),
    /// The tightest quota in one dictionary.
    Dictionary(HeaderName),
    /// The tightest quota in three fields.
    Triple { limit: HeaderName, remaining: HeaderName, reset: HeaderName, since: Since },
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
                FieldGroup::list("ratelimit-policy", Item::Quota),
                FieldGroup::list("ratelimit", Item::Standing),
            ],
            Self::Draft07 => vec![
                FieldGroup::list("ratelimit-policy", Item::Unnamed),
                FieldGroup::Dictionary(HeaderName::from_static("ratelimit")),
            ],
            Self::Draft06 => vec![
                FieldGroup::list("ratelimit-policy", Item::Unnamed),
                FieldGroup::Triple {
                    limit: HeaderName::from_static("ratelimit-limit"),
                    remaining: HeaderName::from_static("ratelimit-remaining"),
                    reset: HeaderName::from_static("ratelimit-reset"),
                    since: Since::Now,
                },
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
    fn list(name: &'static str, item: Item) -> Self {
        Self::List(HeaderName::from_static(name), item)
    }

    fn x_ratelimit(since: Since) -> Self {
        Self::Triple {
            limit: HeaderName::from_static("x-ratelimit-limit"),
            remaining: HeaderName::from_static("x-ratelimit-remaining"),
            reset: HeaderName::from_static("x-ratelimit-reset"),
            since,
        }
    }

    /// The field that no other group of the same response may also have.
    pub(super) fn field(&self) -> &HeaderName {
        match self {
            Self::List(field, _) | Self::Dictionary(field) => field,
            Self::Triple { limit, .. } => limit,
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
