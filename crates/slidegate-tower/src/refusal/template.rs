//! A refusal's body as a text with gaps.

use std::fmt::Write as _;

use bytes::Bytes;
use http::HeaderValue;

use crate::refusal::refused::Refused;

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
    Gap(Placeholder),
}

#[derive(Debug, Clone, Copy)]
enum Placeholder {
    Status,
    Error,
    Message,
    RetryAfter,
    RetryAfterMs,
    Limit,
    Policy,
    Plan,
    UpgradeUrl,
}

/// What fills a gap.
enum Filling<'a> {
    Number(Option<u64>),
    Text(std::borrow::Cow<'a, str>),
}

impl Template {
    pub(super) fn parse(content_type: &str, text: &str) -> Result<Self, TemplateError> {
        let header = HeaderValue::from_str(content_type);
        let content_type =
            header.map_err(|_| TemplateError::ContentType(content_type.to_owned()))?;
        let is_json = is_json(&content_type);
        Ok(Self { content_type, is_json, segments: segments(text)? })
    }

    pub(super) fn fill(&self, refused: &Refused<'_>) -> Bytes {
        let mut text = String::new();
        for segment in &self.segments {
            match segment {
                Segment::Text(segment) => text.push_str(segment),
                Segment::Gap(placeholder) => self.push(&mut text, placeholder.filling(refused)),
            }
        }
        text.into()
    }

    /// Numbers that are not known are `null` in JSON and nothing elsewhere.
    fn push(&self, text: &mut String, filling: Filling<'_>) {
        match filling {
            Filling::Number(Some(number)) => text.push_str(itoa::Buffer::new().format(number)),
            Filling::Number(None) if self.is_json => text.push_str("null"),
            Filling::Number(None) => {}
            Filling::Text(value) if self.is_json => {
                let quoted = serde_json::Value::from(value).to_string();
                text.push_str(&quoted[1..quoted.len() - 1]);
            }
            Filling::Text(value) => text.push_str(&value),
        }
    }
}

impl Placeholder {
    const ALL: [(&'static str, Self); 9] = [
        ("status", Self::Status),
        ("error", Self::Error),
        ("message", Self::Message),
        ("retry_after", Self::RetryAfter),
        ("retry_after_ms", Self::RetryAfterMs),
        ("limit", Self::Limit),
        ("policy", Self::Policy),
        ("plan", Self::Plan),
        ("upgrade_url", Self::UpgradeUrl),
    ];

    fn filling<'a>(self, refused: &Refused<'a>) -> Filling<'a> {
        let text = |text: Option<&'a str>| Filling::Text(text.unwrap_or_default().into());
        match self {
            Self::Status => Filling::Number(Some(refused.status().as_u16().into())),
            Self::Error => text(refused.status().canonical_reason()),
            Self::Message => Filling::Text(refused.message().into()),
            Self::RetryAfter => Filling::Number(refused.retry_after_s()),
            Self::RetryAfterMs => Filling::Number(refused.retry_after_ms()),
            Self::Limit => Filling::Number(refused.limit().map(u64::from)),
            Self::Policy => text(refused.policy_name()),
            Self::Plan => text(refused.plan_name()),
            Self::UpgradeUrl => text(refused.upgrade_url()),
        }
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
                let known = Placeholder::ALL.into_iter().find(|(name, _)| *name == word);
                let (_, placeholder) = known.ok_or_else(|| unknown(word))?;
                segments.push(Segment::Text(std::mem::take(&mut plain)));
                segments.push(Segment::Gap(placeholder));
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
    let mut known = String::new();
    for (i, (name, _)) in Placeholder::ALL.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        let _ = write!(known, "{comma}{{{name}}}");
    }
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
