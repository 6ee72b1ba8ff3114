//! The text of a refusal's body.
//!
//! Most of a body is constant. It is copied as it is, and only values go through a formatter: the body
//! costs a tenth of what serializing all of it took.

use bytes::Bytes;

use crate::refusal::refused::Refused;

/// Room for the problem details of one violated policy.
const USUAL_BYTES: usize = 512;

/// A body that is being written.
#[derive(Debug)]
pub(super) struct BodyText(String);

impl Default for BodyText {
    fn default() -> Self {
        Self(String::with_capacity(USUAL_BYTES))
    }
}

impl BodyText {
    /// Appends text as it is. In JSON it must need no escapes.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.0.push_str(text);
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.text(itoa::Buffer::new().format(number))
    }

    /// Appends a JSON string, with its quotes.
    pub(super) fn string(&mut self, value: &str) -> &mut Self {
        self.text("\"").escaped(value).text("\"")
    }

    /// Appends the content of a JSON string.
    pub(super) fn escaped(&mut self, value: &str) -> &mut Self {
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        if value.bytes().all(is_plain) {
            return self.text(value);
        }
        let quoted = serde_json::Value::from(value).to_string();
        self.text(&quoted[1..quoted.len() - 1])
    }

    /// Appends a member of a JSON object, with the comma before it, if it has a value.
    pub(super) fn string_member(&mut self, name: &str, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.text(",\"").text(name).text("\":").string(value),
            None => self,
        }
    }

    /// The same for a number.
    pub(super) fn number_member(&mut self, name: &str, value: Option<u64>) -> &mut Self {
        match value {
            Some(value) => self.text(",\"").text(name).text("\":").number(value),
            None => self,
        }
    }

    /// Appends the refusal's message, with these words before the seconds to wait.
    pub(super) fn message(&mut self, refused: &Refused<'_>, retry: &str) -> &mut Self {
        self.text(refused.reason().wording().message);
        match refused.retry_after_s() {
            None => self,
            Some(1) => self.text(" ").text(retry).text(" 1 second."),
            Some(after_s) => self.text(" ").text(retry).text(" ").number(after_s).text(" seconds."),
        }
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }

    pub(super) fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.0).into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn values_are_escaped_as_json_has_them() {
        for value in ["", "api", "a\"b\\c", "a\nb\u{1}", "grün ☃", "\u{7f}\u{2028}"] {
            let mut text = BodyText::default();
            text.text("{\"a\":").string(value).string_member("b", Some(value));
            text.string_member("c", None).number_member("d", Some(7)).text("}");
            let read: Value = serde_json::from_str(&text.into_string()).unwrap();
            assert_eq!(read, serde_json::json!({ "a": value, "b": value, "d": 7 }));
        }
    }
}
