//! The usual JSON, read quickly.
//!
//! Anything unusual is left to serde_json, which also reports syntax errors.

use std::borrow::Cow;

use super::json::{FEW, Json, JsonMembers, MOST_VALUES};
use super::writer::needs_escape;

/// Deeper than any question.
const MOST_DEPTH: u32 = 8;

/// Reads a text, unless there is anything unusual in it: an escape, a number that is not whole,
/// an empty list or object, or what is not JSON at all.
pub(super) fn read(text: &[u8]) -> Option<Json<'_>> {
    let mut reader = Reader { text: str::from_utf8(text).ok()?, at: 0, left: MOST_VALUES };
    let json = reader.value(MOST_DEPTH)?;
    reader.next().is_none().then_some(json)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// How many more values there may be.
    left: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: u32) -> Option<Json<'a>> {
        self.left = self.left.checked_sub(1)?;
        match self.next()? {
            b'"' => self.text().map(Json::Text),
            b'{' => self.object(depth.checked_sub(1)?).map(Json::Object),
            b'[' => self.list(depth.checked_sub(1)?).map(Json::List),
            b'1'..=b'9' => self.whole().map(Json::Whole),
            b't' => self.word("rue", Json::Bool(true)),
            b'f' => self.word("alse", Json::Bool(false)),
            b'n' => self.word("ull", Json::Null),
            _ => None,
        }
    }

    fn object(&mut self, depth: u32) -> Option<JsonMembers<'a>> {
        let mut members = Vec::with_capacity(FEW);
        loop {
            self.expect(b'"')?;
            let name = self.text()?;
            self.expect(b':')?;
            members.push((name, self.value(depth)?));
            match self.next()? {
                b',' => {}
                b'}' => return Some(members),
                _ => return None,
            }
        }
    }

    fn list(&mut self, depth: u32) -> Option<Vec<Json<'a>>> {
        let mut items = Vec::new();
        loop {
            items.push(self.value(depth)?);
            match self.next()? {
                b',' => {}
                b']' => return Some(items),
                _ => return None,
            }
        }
    }

    /// The rest of a text that has begun.
    fn text(&mut self) -> Option<Cow<'a, str>> {
        let rest = &self.text[self.at..];
        let end = rest.bytes().position(needs_escape)?;
        self.at += end + 1;
        (rest.as_bytes()[end] == b'"').then(|| Cow::Borrowed(&rest[..end]))
    }

    /// The rest of a number that has begun. If it is not whole, what follows is not usual either.
    fn whole(&mut self) -> Option<u64> {
        let number = &self.text[self.at - 1..];
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        self.at += digits - 1;
        number[..digits].parse().ok()
    }

    /// The rest of a word that has begun.
    fn word(&mut self, rest: &str, meaning: Json<'a>) -> Option<Json<'a>> {
        let is_it = self.text[self.at..].starts_with(rest);
        self.at += rest.len();
        is_it.then_some(meaning)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// The next byte that is not a space.
    fn next(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            self.at += 1;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What serde_json makes of a text.
    fn carefully(text: &str) -> Option<Json<'_>> {
        Json::parse_any(text.as_bytes()).ok()
    }

    #[test]
    fn usual_questions_are_read_quickly() {
        let usual = [
            r#"{"method":"GET","path":"/","client":"10.0.0.1"}"#,
            r#" { "path" : "/grün" , "plan": null, "cost": 120, "trusted": true } "#,
            r#"{"headers":{"x-api-key":"k","accept":["a","b"]},"trusted":false}"#,
            r#"[{"charges":[{"policy":"api","identity":"user:42"}]},{"path":"/"}]"#,
            "{\r\n\t\"user\": \"\"\r\n}\r\n",
        ];
        for text in usual {
            assert!(read(text.as_bytes()).is_some(), "{text}");
            assert_eq!(read(text.as_bytes()), carefully(text));
        }
    }

    #[test]
    fn unusual_texts_are_left_to_serde_json() {
        let unusual = [
            "",
            " ",
            "{}",
            "[]",
            "0",
            "-1",
            "1.5",
            "1e3",
            "01",
            "18446744073709551616",
            "tru",
            "nul",
            "fals",
            "truer",
            "1 2",
            r#"""#,
            r#""a"#,
            r#""\n""#,
            "\"a\n\"",
            "\"\t\"",
            "{",
            r#"{""#,
            r#"{"a""#,
            r#"{"a":"#,
            r#"{"a":1"#,
            r#"{"a":1,"#,
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            r#"{1:2}"#,
            r#"{"a":1]"#,
            "[1",
            "[1,",
            "[1,]",
            "[1}",
            "[[[[[[[[[1]]]]]]]]]",
            "\u{feff}1",
            "\u{a0}1",
        ];
        for text in unusual {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(read(b"\"\xff\""), None);
    }

    #[test]
    fn values_are_counted_by_both_alike() {
        // The list itself is a value, too.
        let list = |items: usize| format!("[{}]", vec!["1"; items].join(","));
        assert!(read(list(MOST_VALUES - 1).as_bytes()).is_some());
        assert!(carefully(&list(MOST_VALUES - 1)).is_some());
        assert_eq!(read(list(MOST_VALUES).as_bytes()), None);
        let error = Json::parse(list(MOST_VALUES).as_bytes()).unwrap_err();
        assert!(error.is_data() && error.to_string().contains("more than 10000 values"), "{error}");
    }

    proptest! {
        #[test]
        fn nothing_is_read_otherwise_than_by_serde_json(
            text in r#"([\[\]{}:,"\\ \n]|"a"|"b":|1|20|0|-|\.|e|true|null|ü){0,12}"#
        ) {
            let read = read(text.as_bytes());
            prop_assert!(read.is_none() || read == carefully(&text), "{}", text);
        }
    }
}
