//! The body of a refusal: constant text, with places for the time to wait.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use slidegate::limit::Period;
use slidegate::policy::CheckedPlan;
use smallvec::SmallVec;

use crate::headers::ceil_s;
use crate::refusal::refused::Reason;

/// A body that lacks only the time to wait: it can be made before any request is refused.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    text: Bytes,
    /// Where something is to be inserted, in order.
    places: SmallVec<[(usize, Wait); 2]>,
}

/// In which form a body has the time to wait.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    /// `45`.
    Seconds,
    /// `45 seconds`.
    SecondsInWords,
    /// `45000`.
    Milliseconds,
}

/// What a body says of a refusal besides the time to wait.
#[derive(Debug)]
pub(crate) struct BodyTerms<'a> {
    pub(crate) reason: Reason,
    /// Whether waiting helps.
    pub(crate) has_wait: bool,
    /// The units of the violated quota that binds the client most.
    pub(crate) limit: Option<u32>,
    /// The policy that refused the request.
    pub(crate) policy: Option<&'a str>,
    /// The plan that the quota came from.
    pub(crate) plan: Option<&'a CheckedPlan>,
    /// The names of the violated quotas.
    pub(crate) violated: SmallVec<[Cow<'a, str>; 2]>,
}

impl<'a> BodyTerms<'a> {
    pub(super) fn plan_name(&self) -> Option<&'a str> {
        self.plan.map(|plan| &*plan.name)
    }

    /// Where a customer of the plan can get more.
    pub(super) fn upgrade_url(&self) -> Option<&'a str> {
        self.plan?.upgrade_url.as_deref()
    }

    /// One or two sentences for people.
    pub(super) fn message(&self) -> Body {
        let mut message = BodyText::default();
        message.message(self, "Try again in");
        message.finish()
    }
}

impl Body {
    /// A body that is always the same.
    pub(super) fn fixed(text: &'static str) -> Self {
        Self { text: Bytes::from_static(text.as_bytes()), places: SmallVec::new() }
    }

    /// The body for a refusal of this long.
    pub(crate) fn with_wait(&self, wait: Option<Duration>) -> Bytes {
        /// Room for a wait of a year: 11 digits of milliseconds, or 8 of seconds and the word.
        const MAX_WAIT_LEN: usize = 16;
        let Some(wait) = wait.filter(|_| !self.places.is_empty()) else { return self.text.clone() };
        let mut body = Vec::with_capacity(self.text.len() + self.places.len() * MAX_WAIT_LEN);
        let mut begin = 0;
        for (place, form) in &self.places {
            body.extend_from_slice(&self.text[begin..*place]);
            begin = *place;
            let number = match form {
                Wait::Seconds | Wait::SecondsInWords => wait_s(wait),
                Wait::Milliseconds => Period(wait).ceil_milliseconds(),
            };
            body.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            if let Wait::SecondsInWords = form {
                let unit: &[u8] = if number == 1 { b" second" } else { b" seconds" };
                body.extend_from_slice(unit);
            }
        }
        body.extend_from_slice(&self.text[begin..]);
        body.into()
    }
}

/// Whole seconds to wait, rounded up and at least one.
pub(super) fn wait_s(wait: Duration) -> u64 {
    ceil_s(wait).max(1)
}

/// A body that is being written.
#[derive(Debug, Default)]
pub(super) struct BodyText {
    text: String,
    places: SmallVec<[(usize, Wait); 2]>,
}

impl BodyText {
    /// Appends text as it is. In JSON it must need no escapes.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.text(itoa::Buffer::new().format(number))
    }

    /// Leaves a place for the time to wait.
    pub(super) fn wait(&mut self, wait: Wait) -> &mut Self {
        self.places.push((self.text.len(), wait));
        self
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
            Some(value) => self.member(name).string(value),
            None => self,
        }
    }

    /// The same for a number.
    pub(super) fn number_member(&mut self, name: &str, value: Option<u64>) -> &mut Self {
        match value {
            Some(value) => self.member(name).number(value),
            None => self,
        }
    }

    /// The same for the time to wait, if waiting helps.
    pub(super) fn wait_member(
        &mut self,
        name: &str,
        terms: &BodyTerms<'_>,
        wait: Wait,
    ) -> &mut Self {
        if terms.has_wait { self.member(name).wait(wait) } else { self }
    }

    fn member(&mut self, name: &str) -> &mut Self {
        self.text(",\"").text(name).text("\":")
    }

    /// Appends the refusal's message, with these words before the seconds to wait.
    pub(super) fn message(&mut self, terms: &BodyTerms<'_>, retry: &str) -> &mut Self {
        self.text(terms.reason.wording().message);
        if terms.has_wait {
            self.text(" ").text(retry).text(" ").wait(Wait::SecondsInWords).text(".");
        }
        self
    }

    pub(super) fn finish(&mut self) -> Body {
        let Self { text, places } = std::mem::take(self);
        Body { text: text.into(), places }
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
            let read: Value = serde_json::from_slice(&text.finish().with_wait(None)).unwrap();
            assert_eq!(read, serde_json::json!({ "a": value, "b": value, "d": 7 }));
        }
    }

    #[test]
    fn the_wait_is_rounded_up_and_told_in_its_places() {
        let mut text = BodyText::default();
        text.wait(Wait::Milliseconds).text("|").wait(Wait::Seconds).text("|");
        let body = text.wait(Wait::SecondsInWords).finish();
        for (wait, expected) in [
            (Duration::ZERO, "0|1|1 second"),
            (Duration::from_nanos(1), "1|1|1 second"),
            (Duration::from_millis(1000), "1000|1|1 second"),
            (Duration::from_millis(1001), "1001|2|2 seconds"),
        ] {
            assert_eq!(body.with_wait(Some(wait)), expected);
        }
    }
}
