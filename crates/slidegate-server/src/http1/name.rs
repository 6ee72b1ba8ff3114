//! The names of fields.

use http::HeaderName;

use super::Malformed;

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(crate) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A field's name.
pub(crate) fn name(bytes: &[u8]) -> Result<HeaderName, Malformed> {
    match usual_name(bytes) {
        Some(name) => Ok(name),
        None => HeaderName::from_bytes(bytes).map_err(|_| Malformed),
    }
}

/// The name, if it is one that requests often have and that the crate `http` knows nothing of: that
/// would put it on the heap, every time.
fn usual_name(bytes: &[u8]) -> Option<HeaderName> {
    match bytes.len() {
        9 if is(bytes, b"x-real-ip") => Some(X_REAL_IP),
        9 if is(bytes, b"x-api-key") => Some(X_API_KEY),
        11 if is(bytes, b"traceparent") => Some(TRACEPARENT),
        12 if is(bytes, b"x-request-id") => Some(X_REQUEST_ID),
        15 if is(bytes, b"x-forwarded-for") => Some(X_FORWARDED_FOR),
        16 if is(bytes, b"x-forwarded-host") => Some(X_FORWARDED_HOST),
        17 if is(bytes, b"x-forwarded-proto") => Some(X_FORWARDED_PROTO),
        _ => None,
    }
}

/// Whether it is this name in letters of any case. Where the length is known, all bytes are compared
/// at once.
fn is<const N: usize>(bytes: &[u8], name: &[u8; N]) -> bool {
    <[u8; N]>::try_from(bytes).is_ok_and(|bytes| bytes.map(|b| b.to_ascii_lowercase()) == *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_whether_they_are_usual_or_not() {
        for text in [
            "X-Forwarded-For",
            "x-forwarded-for",
            "X-FORWARDED-HOST",
            "X-Forwarded-Proto",
            "X-Real-IP",
            "X-Api-Key",
            "x-api-kex",
            "X-Request-Id",
            "Traceparent",
            "trailerssss",
            "Host",
            "X",
            "x-forwarded-fox",
            "Content-Length",
            "X-Forwarded-Port",
        ] {
            let known = name(text.as_bytes()).unwrap();
            assert_eq!(known, HeaderName::from_bytes(text.as_bytes()).unwrap());
            assert_eq!(known.as_str(), text.to_ascii_lowercase());
        }
        for bad in ["", "a b", "x-forwarded fo", "x-real\0ip", "\u{fc}"] {
            assert!(name(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
