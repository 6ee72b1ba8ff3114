//! One member of a JSON document, read without keeping the rest.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use slidegate::policy::JsonPath;

/// The number of units at a path of a document: none if the member is missing, null or not a number.
pub(super) fn units_at(document: &[u8], path: &JsonPath) -> Result<Option<u32>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(document);
    let units = Member(path.names()).deserialize(&mut json)?;
    json.end()?;
    Ok(units)
}

/// The names from here on to the member.
#[derive(Clone, Copy)]
struct Member<'p>(&'p [Box<str>]);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Option<u32>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (first, rest) = match self.0 {
            [first, rest @ ..] => (&**first, rest),
            [] => ("", &[][..]),
        };
        let mut found = None;
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if !self.0.is_empty() && name == first {
                found = map.next_value_seed(Member(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_u64<E>(self, units: u64) -> Result<Self::Value, E> {
        Ok(self.0.is_empty().then(|| u32::try_from(units).unwrap_or(u32::MAX)))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    /// A fraction of a unit is a unit.
    fn visit_f64<E>(self, units: f64) -> Result<Self::Value, E> {
        Ok((self.0.is_empty() && units >= 0.0).then(|| units.ceil() as u32))
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(document: &str) -> Option<Option<u32>> {
        units_at(document.as_bytes(), &"usage.total_tokens".parse().unwrap()).ok()
    }

    #[test]
    fn a_member_is_found_wherever_it_is() {
        let found = [
            (r#"{"usage":{"total_tokens":7}}"#, 7),
            (r#" {"a":[1,{"usage":3}],"usage":{"x":null,"total_tokens":8,"y":{}},"z":"}"} "#, 8),
            (r#"{"usage":{"total_tokens":1},"usage":{"total_tokens":2}}"#, 2),
            (r#"{"usage":{"total_tokens":12.1}}"#, 13),
            (r#"{"usage":{"total_tokens":5000000000}}"#, u32::MAX),
            (r#"{"usage":{"total_tokens":1e30}}"#, u32::MAX),
        ];
        for (document, expected) in found {
            assert_eq!(units(document), Some(Some(expected)), "{document}");
        }
    }

    #[test]
    fn what_is_no_number_there_is_not_found() {
        for document in [
            "{}",
            "[]",
            "null",
            "7",
            r#"{"usage":null}"#,
            r#"{"usage":7}"#,
            r#"{"usage":{"total_tokens":null}}"#,
            r#"{"usage":{"total_tokens":"7"}}"#,
            r#"{"usage":{"total_tokens":-7}}"#,
            r#"{"usage":{"total_tokens":{"total_tokens":7}}}"#,
            r#"{"total_tokens":7}"#,
            r#"[{"usage":{"total_tokens":7}}]"#,
        ] {
            assert_eq!(units(document), Some(None), "{document}");
        }
        for document in
            ["", "{", r#"{"usage":{"total_tokens":7}"#, r#"{"usage":{"total_tokens":7}}x"#]
        {
            assert_eq!(units(document), None, "{document}");
        }
    }
}
