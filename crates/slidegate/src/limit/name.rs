//! Names of policies and plans.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a policy or a plan: letters, digits, `_`, `.` and `-`, at most 64 of them.
///
/// Such a name can stand in a structured header field, a key, a metric's label and a URL as it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

pub(crate) const MAX_NAME_LEN: usize = 64;

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
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
        if starts_well && text.len() <= MAX_NAME_LEN && text.bytes().all(good) {
            Ok(Self(text.into()))
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
