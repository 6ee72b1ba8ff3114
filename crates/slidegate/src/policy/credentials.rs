//! Which `Authorization` headers name one credential, however another program parses them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// What the value of an `Authorization` header says about its bearer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// One credential, which has no other spelling but for the case of its scheme.
    One,
    /// Parameters, as of `Digest` or `AWS4-HMAC-SHA256`. Their order and spacing are free, unknown
    /// ones are ignored, and most differ from request to request, so they identify no client.
    Parameters,
}

/// Credentials that two parsers can read differently, or one parser in several spellings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MalformedCredentials {
    #[error("expected a scheme, one space and a token")]
    Form,
    #[error("expected the canonical Base64 of user:password after Basic")]
    Basic,
    #[error("expected canonical Base64url in every part of the token")]
    Jwt,
    #[error("expected Bearer in front of a JSON web token")]
    StrayJwt,
}

/// Reads the value of an `Authorization` header.
///
/// Werkzeug, basic-auth of npm and Go's `BasicAuth` decode Base64 leniently, each in its own way, and
/// libraries for JSON web tokens do too; so one credential would have any number of spellings.
pub(crate) fn read(value: &[u8]) -> Result<Credentials, MalformedCredentials> {
    let value = value.trim_ascii();
    let Some(end) = value.iter().position(|byte| matches!(byte, b' ' | b'\t')) else {
        let has_no_token = [&b"basic"[..], b"bearer"].iter().any(|s| value.eq_ignore_ascii_case(s));
        return match is_token(value) && !has_no_token {
            true => check_jwt(value),
            false => Err(MalformedCredentials::Form),
        };
    };
    let (scheme, rest) = (&value[..end], &value[end + 1..]);
    if !is_token(scheme) || value[end] != b' ' || rest[0].is_ascii_whitespace() {
        return Err(MalformedCredentials::Form);
    }
    if scheme.eq_ignore_ascii_case(b"basic") {
        let decoded = STANDARD.decode(rest).map_err(|_| MalformedCredentials::Basic)?;
        let is_pair = decoded.contains(&b':');
        return if is_pair { Ok(Credentials::One) } else { Err(MalformedCredentials::Basic) };
    }
    if is_token(rest) {
        return check_jwt(rest);
    }
    // `Bearer` has a token (RFC 6750, section 2.1). A program that takes the first word for one would
    // find the same in front of any number of parameters.
    match !scheme.eq_ignore_ascii_case(b"bearer") && begins_with_parameter(rest) {
        true => Ok(Credentials::Parameters),
        false => Err(MalformedCredentials::Form),
    }
}

/// Whether the value of an `Authorization` header has a JSON web token that is not after `Bearer`: a limiter
/// that reads tokens does not look there, and many a server takes whatever is after the space.
pub(crate) fn has_stray_jwt(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    let mut words = value.split(|byte| *byte == b' ');
    let is_bearer =
        words.clone().next().is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer"));
    !is_bearer && words.any(is_jwt)
}

/// Visible ASCII but for what separates and quotes in a list. More than the token68 of RFC 9110: tokens
/// with `|` and `!` are in use.
fn is_token(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b'"' | b'\\');
    !text.is_empty() && text.iter().all(is_part)
}

/// A JSON web token is a JSON object and other parts in Base64url, with dots between them.
fn check_jwt(token: &[u8]) -> Result<Credentials, MalformedCredentials> {
    let is_canonical = |part: &[u8]| URL_SAFE_NO_PAD.decode(part).is_ok();
    match !is_jwt(token) || token.split(|byte| *byte == b'.').all(is_canonical) {
        true => Ok(Credentials::One),
        false => Err(MalformedCredentials::Jwt),
    }
}

fn is_jwt(token: &[u8]) -> bool {
    token.starts_with(b"eyJ") && token.contains(&b'.')
}

/// Whether the first word is `name=value`, so that nothing takes it for a token.
fn begins_with_parameter(text: &[u8]) -> bool {
    let word = text.split(|byte| matches!(byte, b' ' | b'\t' | b',')).next().unwrap_or_default();
    let Some(sign) = word.iter().position(|byte| *byte == b'=') else { return false };
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    sign > 0 && word[..sign].iter().all(is_name) && word[sign..].iter().any(|byte| *byte != b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_credential_has_one_form() {
        for value in [
            "Basic YWxpY2U6c2VjcmV0MQ==",
            "basic YWxpY2U6c2VjcmV0MQ==",
            " Basic YWxpY2U6c2VjcmV0MQ== ",
            "Basic Og==",
            "Bearer t0ken",
            "BEARER t0ken",
            "Bearer 1|laravel",
            "Bearer 00D!sales.force",
            "Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2ln",
            "Bearer eyJhbGciOiJub25lIn0.e30.",
            "Token abc",
            "ApiKey abc==",
            "token-without-a-scheme",
        ] {
            assert_eq!(read(value.as_bytes()), Ok(Credentials::One), "{value}");
        }
    }

    #[test]
    fn other_spellings_of_a_basic_credential_are_malformed() {
        for value in [
            "Basic YWxpY2U6c2VjcmV0MQ",
            "Basic YWxpY2U6c2VjcmV0MQ=",
            "Basic YWxpY2U6c2VjcmV0MQ===",
            "Basic YWxpY2U6c2VjcmV0MQ====",
            "Basic YWxpY2U6c2VjcmV0MR==",
            "Basic YWxpY2U6*c2VjcmV0MQ==",
            "Basic YWxpY2U6.c2VjcmV0MQ==",
            "Basic \"YWxpY2U6c2VjcmV0MQ==\"",
            "Basic YWxpY2U6 c2VjcmV0MQ==",
            "Basic YWxpY2U6\tc2VjcmV0MQ==",
            "Basic YWxpY2U6c2VjcmV0MQ==,x",
            "Basic YWxpY2U6c2VjcmV0MQ== x=1",
            "Basic YWxpY2U_c2VjcmV0-Q==",
            "Basic bm8gY29sb24=",
        ] {
            assert_eq!(read(value.as_bytes()), Err(MalformedCredentials::Basic), "{value}");
        }
        for value in ["Basic", "BASIC", "Basic  Og==", "Basic\tOg==", "\"Basic\" Og=="] {
            assert_eq!(read(value.as_bytes()), Err(MalformedCredentials::Form), "{value}");
        }
    }

    #[test]
    fn other_spellings_of_a_token_are_malformed() {
        for value in [
            "Bearer",
            "Bearer  t0ken",
            "Bearer\tt0ken",
            "Bearer t0ken x",
            "Bearer t0ken x=1",
            "Bearer t0ken,x",
            "Bearer t0ken, Bearer other",
            "Bearer \"t0ken\"",
            "Bearer a=b c=d",
            "Token t0ken x=1",
            "Token t0ken= x=1",
            "Bearer t\u{f6}ken",
            "a,b",
        ] {
            assert_eq!(read(value.as_bytes()), Err(MalformedCredentials::Form), "{value}");
        }
        for value in [
            "Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2ln=",
            "Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2ln*",
            "Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2~ln",
            "Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2k+",
            "Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2l",
            "eyJhbGciOiJIUzI1NiJ9.e30.c2ln==",
        ] {
            assert_eq!(read(value.as_bytes()), Err(MalformedCredentials::Jwt), "{value}");
        }
    }

    #[test]
    fn tokens_belong_to_bearer() {
        for value in
            ["eyJh.e30.c2ln", "Token eyJh.e30.c2ln", "JWT eyJh.e30.", " Bearer: eyJh.e30.x"]
        {
            assert!(has_stray_jwt(value.as_bytes()), "{value}");
        }
        for value in
            ["Bearer eyJh.e30.c2ln", "bearer eyJh.e30.c2ln", "Token abc", "Basic Og==", "eyJ"]
        {
            assert!(!has_stray_jwt(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn parameters_are_no_credential() {
        for value in [
            "Digest username=\"alice\", realm=\"r\", nonce=\"n\"",
            "AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu/s3/aws4_request, SignedHeaders=host",
            "Token token=\"abc\", nonce=\"1\"",
        ] {
            assert_eq!(read(value.as_bytes()), Ok(Credentials::Parameters), "{value}");
        }
    }
}
