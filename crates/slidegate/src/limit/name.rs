//! Names of policies and plans.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use crate::policy::digest::Digest;

/// The name of a policy or a plan: letters, digits, `_`, `.` and `-`, at most 64 of them.
///
/// Such a name can stand in a structured header field, a key, a metric's label and a URL as it is.
#[derive(Clone)]
pub struct Name(Arc<Inner>);

struct Inner {
    text: Box<str>,
    digest: Digest,
}

const MAX_LEN: usize = 64;

impl Name {
    /// Stands for the name where comparing texts would take too long.
    pub(crate) fn digest(&self) -> Digest {
        self.0.digest
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// Lets maps of names be searched by text.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        let starts_well = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        if starts_well && text.len() <= MAX_LEN && text.bytes().all(good) {
            Ok(Self(Arc::new(Inner {
                text: text.into(),
                digest: Digest::of("name", text.as_bytes()),
            })))
        } else {
            Err(NameError { text: text.to_owned() })
        }
    }
}

/// A text that cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a name: expected up to 64 letters, digits, _, . and -, starting with a \
     letter or digit"
)]
pub struct NameError {
    text: String,
}
