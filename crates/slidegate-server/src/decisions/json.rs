//! JSON as it was sent, borrowed from its text; validation errors are reported later, all at once.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::quick;

/// A JSON value.
#[derive(Debug, PartialEq)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    Whole(u64),
    Number(f64),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Object(JsonMembers<'a>),
}

/// The members of an object, in the order they came, repeated ones too.
pub(crate) type JsonMembers<'a> = Vec<(Cow<'a, str>, Json<'a>)>;

/// The initial capacity: the members of a typical question.
pub(super) const FEW: usize = 8;
/// The most characters of a text that are shown in a message.
const MOST_SHOWN: usize = 64;

/// The most values in a text, of any kind and at any depth: a hundred for each of a hundred
/// questions. A value takes far more room in memory than in a text.
pub(super) const MOST_VALUES: usize = 10_000;

impl<'a> Json<'a> {
    pub(crate) fn parse(text: &'a [u8]) -> Result<Self, serde_json::Error> {
        quick::read(text).map_or_else(|| Self::parse_any(text), Ok)
    }

    /// Reads any JSON, with serde_json's error messages.
    pub(super) fn parse_any(text: &'a [u8]) -> Result<Self, serde_json::Error> {
        let left = Cell::new(MOST_VALUES);
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let json = BoundedJson { left: &left }.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(json)
    }
}

/// Reads as many values as are left.
#[derive(Clone, Copy)]
struct BoundedJson<'c> {
    left: &'c Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for BoundedJson<'_> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        let Some(left) = self.left.get().checked_sub(1) else {
            return Err(D::Error::custom(format_args!("more than {MOST_VALUES} values")));
        };
        self.left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedJson<'_> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Whole(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json<'de>, A::Error> {
        let mut object = Vec::with_capacity(FEW);
        while let Some(ObjectKey(name)) = members.next_key()? {
            object.push((name, members.next_value_seed(self)?));
        }
        Ok(Json::Object(object))
    }
}

#[derive(serde::Deserialize)]
#[serde(transparent)]
struct ObjectKey<'a>(#[serde(borrow)] Cow<'a, str>);

/// For messages: long texts are cut, and of lists and objects only the kind is shown.
impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::Whole(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(text) => write!(f, "{:?}", shortened(text)),
            Self::List(_) => f.write_str("a list"),
            Self::Object(_) => f.write_str("an object"),
        }
    }
}

/// A text of the caller's, short enough for a message.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}
