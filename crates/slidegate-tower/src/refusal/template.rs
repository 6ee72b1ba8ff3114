//! A refusal's body by a template.

use http::HeaderValue;

use crate::refusal::body::{Body, BodyTerms, BodyText, Wait};

/// A text with placeholders, such as `Try again in {retry_after} seconds.`
#[derive(Debug, Clone)]
pub(super) struct Template {
    pub(super) content_type: HeaderValue,
    is_json: bool,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone)]
enum Segment {
    Text(String),
    Placeholder(Lookup),
}

/// The value of a placeholder: a text, a number that may be unknown, or the time to wait.
enum Placeholder<'r> {
    Text(&'r str),
    Message,
    Number(Option<u64>),
    Wait(Wait),
}

/// Finds the value of a placeholder.
type Lookup = for<'r> fn(&'r BodyTerms<'_>) -> Placeholder<'r>;

const PLACEHOLDERS: [(&str, Lookup); 9] = [
    ("status", |terms| Placeholder::Number(Some(terms.reason.wording().status.as_u16().into()))),
    ("error", |terms| text(terms.reason.wording().status.canonical_reason())),
    ("message", |_| Placeholder::Message),
    ("retry_after", |_| Placeholder::Wait(Wait::Seconds)),
    ("retry_after_ms", |_| Placeholder::Wait(Wait::Milliseconds)),
    ("limit", |terms| Placeholder::Number(terms.limit.map(u64::from))),
    ("policy", |terms| text(terms.policy)),
    ("plan", |terms| text(terms.plan_name())),
    ("upgrade_url", |terms| text(terms.upgrade_url())),
];

fn text(text: Option<&str>) -> Placeholder<'_> {
    Placeholder::Text(text.unwrap_or_default())
}

impl Template {
    pub(super) fn parse(content_type: &str, text: &str) -> Result<Self, TemplateError> {
        let header = HeaderValue::from_str(content_type);
        let content_type =
            header.map_err(|_| TemplateError::ContentType(content_type.to_owned()))?;
        let is_json = is_json(&content_type);
        Ok(Self { content_type, is_json, segments: segments(text)? })
    }

    /// The body. Numbers that are not known are `null` in JSON and nothing elsewhere.
    pub(super) fn body(&self, terms: &BodyTerms<'_>) -> Body {
        let mut body = BodyText::default();
        for segment in &self.segments {
            let value = match segment {
                Segment::Text(text) => {
                    body.text(text);
                    continue;
                }
                Segment::Placeholder(value) => value(terms),
            };
            match value {
                // The quotes around it are the template's.
                Placeholder::Text(text) if self.is_json => body.escaped(text),
                Placeholder::Text(text) => body.text(text),
                // None has a character that JSON escapes.
                Placeholder::Message => body.message(terms, "Try again in"),
                Placeholder::Number(Some(number)) => body.number(number),
                Placeholder::Wait(wait) if terms.has_wait => body.wait(wait),
                Placeholder::Number(None) | Placeholder::Wait(_) if self.is_json => {
                    body.text("null")
                }
                Placeholder::Number(None) | Placeholder::Wait(_) => continue,
            };
        }
        body.finish()
    }
}

/// Only a word of small letters in braces is a placeholder, so JSON can be written as it is.
fn segments(mut text: &str) -> Result<Vec<Segment>, TemplateError> {
    let mut segments = Vec::new();
    let mut plain = String::new();
    while let Some((before, after)) = text.split_once('{') {
        plain.push_str(before);
        let word_len = after.bytes().take_while(|b| b.is_ascii_lowercase() || *b == b'_').count();
        let (word, rest) = after.split_at(word_len);
        match rest.strip_prefix('}') {
            Some(rest) if !word.is_empty() => {
                let known = PLACEHOLDERS.into_iter().find(|(name, _)| *name == word);
                let (_, value) = known.ok_or_else(|| unknown(word))?;
                segments.push(Segment::Text(std::mem::take(&mut plain)));
                segments.push(Segment::Placeholder(value));
                text = rest;
            }
            _ => {
                plain.push('{');
                text = after;
            }
        }
    }
    plain.push_str(text);
    segments.push(Segment::Text(plain));
    Ok(segments)
}

fn unknown(word: &str) -> TemplateError {
    let known = PLACEHOLDERS.map(|(name, _)| format!("{{{name}}}")).join(", ");
    TemplateError::Placeholder { word: word.to_owned(), known }
}

fn is_json(content_type: &HeaderValue) -> bool {
    let media_type = content_type.as_bytes().split(|b| *b == b';').next().unwrap_or_default();
    media_type.trim_ascii().to_ascii_lowercase().ends_with(b"json")
}

/// Why a text cannot be a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// It has a placeholder that nothing is known for.
    #[error("{{{word}}} is not a placeholder: expected one of {known}")]
    Placeholder {
        /// What stands between the braces.
        word: String,
        /// What may stand there.
        known: String,
    },
    /// The content type cannot stand in a header.
    #[error("{0:?} is not a content type")]
    ContentType(String),
}
