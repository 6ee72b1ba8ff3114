//! The JSON of a known key.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use slidegate::limit::{Quota, Quotas};
use slidegate::{QuotaError, Timestamp};

use crate::key::KnownKey;

/// Names longer than this are a mistake, and would be kept for each of a million keys.
const MAX_NAME_BYTES: usize = 256;

/// More windows than an account commonly has, by far.
const MAX_QUOTAS: usize = 16;

/// Digests have at least 32 digits. Texts as long are not repeated in errors.
const MAX_QUOTED_BYTES: usize = 31;

/// Why a body is not that of a known key. It repeats nothing that may be a key or digest.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum AnswerError {
    #[error("its body is not JSON from line {line}, column {column}")]
    NotJson { line: usize, column: usize },
    #[error("its body is not a JSON object")]
    NotAnObject,
    #[error("its body has neither customer nor plan")]
    Nobody,
    #[error("{member} {reason}")]
    Member { member: &'static str, reason: String },
}

/// Members it does not know are left out, and `null` is as good as no member.
pub(super) fn parse(body: &[u8]) -> Result<KnownKey, AnswerError> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| AnswerError::NotJson { line: error.line(), column: error.column() })?;
    let Value::Object(members) = body else { return Err(AnswerError::NotAnObject) };
    let key = KnownKey {
        customer: name(&members, "customer")?,
        plan: name(&members, "plan")?,
        quotas: quotas(&members)?,
        expires: expires(&members)?,
    };
    if key.customer.is_none() && key.plan.is_none() {
        return Err(AnswerError::Nobody);
    }
    Ok(key)
}

fn name(
    members: &Map<String, Value>,
    member: &'static str,
) -> Result<Option<Arc<str>>, AnswerError> {
    let Some(text) = text(members, member)? else { return Ok(None) };
    if text.trim().is_empty() {
        // All keys that have it would share an account.
        return Err(wrong(member, "is empty"));
    }
    if text.len() > MAX_NAME_BYTES {
        return Err(wrong(member, format!("is longer than {MAX_NAME_BYTES} bytes")));
    }
    Ok(Some(text.into()))
}

fn quotas(members: &Map<String, Value>) -> Result<Option<Quotas>, AnswerError> {
    const EXPECTED: &str = "is neither a text nor an array of texts, such as [\"600/min\"]";
    let wrong = |reason: String| wrong("quotas", reason);
    let texts = match members.get("quotas") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(texts)) => texts.as_slice(),
        Some(text) => std::slice::from_ref(text),
    };
    if texts.len() > MAX_QUOTAS {
        return Err(wrong(format!("has more than {MAX_QUOTAS} members")));
    }
    let mut quotas = Vec::with_capacity(texts.len());
    for text in texts {
        let text = text.as_str().ok_or_else(|| wrong(EXPECTED.to_owned()))?;
        quotas.push(quota(text).map_err(wrong)?);
    }
    Quotas::new(quotas).map(Some).map_err(|error| wrong(format!("cannot be used: {error}")))
}

fn quota(text: &str) -> Result<Quota, String> {
    if text.len() > MAX_QUOTED_BYTES {
        return Err("has a text that is too long for a quota, such as 600/min".to_owned());
    }
    text.parse().map_err(|error: QuotaError| format!("has a text that is no quota: {error}"))
}

/// Whole seconds: a fraction is cut off.
fn expires(members: &Map<String, Value>) -> Result<Option<Timestamp>, AnswerError> {
    const EXPECTED: &str = "expected a time such as 2027-01-01T00:00:00Z";
    let Some(text) = text(members, "expires")? else { return Ok(None) };
    let instant: jiff::Timestamp = text.parse().map_err(|_| {
        if text.len() > MAX_QUOTED_BYTES {
            return wrong("expires", format!("is too long: {EXPECTED}"));
        }
        wrong("expires", format!("is {text:?}: {EXPECTED}"))
    })?;
    // What ended before 1970 ended at its beginning just as well.
    let seconds = u64::try_from(instant.as_second()).unwrap_or(0);
    Ok(Some(Timestamp::default() + Duration::from_secs(seconds)))
}

fn text<'m>(
    members: &'m Map<String, Value>,
    member: &'static str,
) -> Result<Option<&'m str>, AnswerError> {
    match members.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(member, "is not a text")),
    }
}

fn wrong(member: &'static str, reason: impl Into<String>) -> AnswerError {
    AnswerError::Member { member, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(customer: Option<&str>, plan: Option<&str>) -> KnownKey {
        KnownKey {
            customer: customer.map(Into::into),
            plan: plan.map(Into::into),
            quotas: None,
            expires: None,
        }
    }

    #[test]
    fn keys_are_read() {
        let quotas = |texts: &[&str]| {
            Some(Quotas::new(texts.iter().map(|text| text.parse().unwrap())).unwrap())
        };
        let until = |seconds: u64| Some(Timestamp::from_millis(seconds * 1000));
        for (body, expected) in [
            (r#"{"customer": "acme"}"#, key(Some("acme"), None)),
            (r#"{"plan": "pro"}"#, key(None, Some("pro"))),
            (r#"{"customer": "acme", "plan": null, "quotas": null}"#, key(Some("acme"), None)),
            (
                r#"{"customer": "Ä & Co", "id": 7, "plan": "pro", "tags": [{}]}"#,
                key(Some("Ä & Co"), Some("pro")),
            ),
            (
                r#"{"plan": "pro", "quotas": ["600/min", "10000/day"]}"#,
                KnownKey { quotas: quotas(&["600/min", "10000/day"]), ..key(None, Some("pro")) },
            ),
            (
                r#"{"customer": "acme", "quotas": "600/min"}"#,
                KnownKey { quotas: quotas(&["600/min"]), ..key(Some("acme"), None) },
            ),
            (
                r#"{"plan": "pro", "expires": "2027-01-01T00:00:00Z"}"#,
                KnownKey { expires: until(1_798_761_600), ..key(None, Some("pro")) },
            ),
            (
                r#"{"plan": "pro", "expires": "2027-01-01T02:00:00.999+02:00"}"#,
                KnownKey { expires: until(1_798_761_600), ..key(None, Some("pro")) },
            ),
            (
                r#"{"plan": "pro", "expires": "1950-01-01T00:00:00Z"}"#,
                KnownKey { expires: until(0), ..key(None, Some("pro")) },
            ),
        ] {
            assert_eq!(parse(body.as_bytes()), Ok(expected), "{body}");
        }
    }

    #[test]
    fn anything_else_is_an_error_with_its_reason() {
        let long_name = format!(r#"{{"customer": "{}"}}"#, "x".repeat(257));
        let many = format!(r#"{{"plan": "a", "quotas": [{}"1/d"]}}"#, r#""1/s", "#.repeat(16));
        for (body, reason) in [
            ("", "not JSON from line 1, column 0"),
            ("<html>", "not JSON from line 1, column 1"),
            (r#"{"plan": "pro""#, "not JSON"),
            (r#"{"plan": "pro"} x"#, "not JSON"),
            ("null", "not a JSON object"),
            (r#"["acme"]"#, "not a JSON object"),
            ("{}", "neither customer nor plan"),
            (r#"{"customer": null, "plan": null}"#, "neither customer nor plan"),
            (r#"{"quotas": "600/min"}"#, "neither customer nor plan"),
            (r#"{"customer": 7}"#, "customer is not a text"),
            (r#"{"customer": " "}"#, "customer is empty"),
            (r#"{"plan": ""}"#, "plan is empty"),
            (r#"{"plan": {"name": "pro"}}"#, "plan is not a text"),
            (&long_name, "customer is longer than 256 bytes"),
            (r#"{"plan": "a", "expires": 1798761600}"#, "expires is not a text"),
            (r#"{"plan": "a", "expires": "soon"}"#, "expires is \"soon\": expected a time"),
            (r#"{"plan": "a", "expires": "2027-01-01"}"#, "expires is \"2027-01-01\""),
            (r#"{"plan": "a", "quotas": 600}"#, "quotas is neither a text nor an array"),
            (r#"{"plan": "a", "quotas": ["1/s", 600]}"#, "quotas is neither a text nor an array"),
            (r#"{"plan": "a", "quotas": []}"#, "expected at least one"),
            (r#"{"plan": "a", "quotas": ["0/min"]}"#, "\"0\" are not units"),
            (r#"{"plan": "a", "quotas": ["1/s", "2/s"]}"#, "same window"),
            (&many, "more than 16"),
        ] {
            let error = parse(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reason), "{body}: {error}");
        }
    }

    #[test]
    fn errors_repeat_no_digest() {
        let digest = "53d5fdfd7de5a25b4a4e26d0b1dcb2f8";
        for body in [
            digest.to_owned(),
            format!("{digest:?}"),
            format!("[{digest:?}]"),
            format!(r#"{{"{digest}": 1}}"#),
            format!(r#"{{"customer": [{digest:?}]}}"#),
            format!(r#"{{"plan": "a", "expires": {digest:?}}}"#),
            format!(r#"{{"plan": "a", "quotas": {digest:?}}}"#),
            format!(r#"{{"plan": "a", "quotas": [{{"a": {digest:?}}}]}}"#),
        ] {
            let error = parse(body.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains(&digest[..8]), "{body}: {error}");
        }
    }
}
