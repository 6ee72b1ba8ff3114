//! The URL of a key, with a place for its digest.

use http::Uri;
use url::Url;

const PLACEHOLDER: &str = "{digest}";

/// As long as the longest digest.
const SAMPLE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A URL that is one for every digest.
#[derive(Debug)]
pub(super) struct UrlTemplate {
    text: String,
    service: String,
}

/// Why a URL is not one that keys can be looked up by. The URL may have secrets, so it is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlTemplateError {
    /// It is not a URL.
    #[error("it is not a URL: {0}")]
    Malformed(String),
    /// It is neither `http` nor `https`.
    #[error("it has scheme {0:?}: expected http or https")]
    Scheme(String),
    /// It has a user or a password.
    #[error("it has a user or password, which is not sent: use an Authorization header")]
    Credentials,
    /// The URL has no `{digest}`.
    #[error(
        "it has no {{digest}} in its path or query, as in https://api.example.com/keys/{{digest}}"
    )]
    NoDigest,
    /// The digest would be part of the host.
    #[error("it has {{digest}} in its host: expected it in the path or query")]
    DigestInHost,
    /// There is another placeholder.
    #[error("it has braces other than those of {{digest}}, which is all that is filled in")]
    Placeholder,
}

impl UrlTemplate {
    pub(super) fn new(text: String) -> Result<Self, UrlTemplateError> {
        if text.replace(PLACEHOLDER, "").contains(['{', '}']) {
            return Err(UrlTemplateError::Placeholder);
        }
        let sample = text.replace(PLACEHOLDER, SAMPLE);
        // `Uri` alone takes ports that are none.
        let url = Url::parse(&sample).map_err(malformed)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UrlTemplateError::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlTemplateError::Credentials);
        }
        let uri = Uri::try_from(sample).map_err(malformed)?;
        let (Some(authority), Some(path)) = (uri.authority(), uri.path_and_query()) else {
            return Err(UrlTemplateError::Malformed("expected http:// or https://".to_owned()));
        };
        if authority.as_str().contains(SAMPLE) {
            return Err(UrlTemplateError::DigestInHost);
        }
        if !path.as_str().contains(SAMPLE) {
            return Err(UrlTemplateError::NoDigest);
        }
        Ok(Self { service: format!("{}://{authority}", url.scheme()), text })
    }

    /// Scheme, host and port, for operators.
    pub(super) fn service(&self) -> String {
        self.service.clone()
    }

    pub(super) fn fill(&self, digest_hex: &str) -> Uri {
        let url = self.text.replace(PLACEHOLDER, digest_hex);
        Uri::try_from(url).expect("it is a URL with a sample of 64 hexadecimal digits")
    }
}

fn malformed(error: impl std::error::Error) -> UrlTemplateError {
    UrlTemplateError::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        for (template, filled) in [
            ("http://a.example/keys/{digest}", "http://a.example/keys/00ff"),
            ("https://a.example:8443/k?d={digest}&v=1", "https://a.example:8443/k?d=00ff&v=1"),
            ("http://[::1]:9000/{digest}/{digest}.json", "http://[::1]:9000/00ff/00ff.json"),
            ("http://a.example?d={digest}", "http://a.example/?d=00ff"),
        ] {
            let template = UrlTemplate::new(template.to_owned()).unwrap();
            assert_eq!(template.fill("00ff").to_string(), filled);
        }
    }

    #[test]
    fn the_service_is_shown_without_path_and_query() {
        let url = "https://a.example:8443/keys/{digest}?token=secret".to_owned();
        assert_eq!(UrlTemplate::new(url).unwrap().service(), "https://a.example:8443");
    }

    #[test]
    fn other_urls_are_refused_without_repeating_them() {
        for (url, reason) in [
            ("secret", "not a URL"),
            ("/keys/secret/{digest}", "not a URL"),
            ("http:///", "not a URL"),
            ("http:secret.example/{digest}", "not a URL"),
            ("http://a.example:99999/secret/{digest}", "not a URL"),
            ("http://a.example/secret with space/{digest}", "not a URL"),
            ("ftp://a.example/secret/{digest}", "\"ftp\""),
            ("postgres://secret@a.example/{digest}", "\"postgres\""),
            ("https://user:secret@a.example/{digest}", "Authorization"),
            ("https://secret@a.example/{digest}", "Authorization"),
            ("https://a.example/secret", "no {digest}"),
            ("https://a.example/secret#{digest}", "no {digest}"),
            ("https://{digest}.example/secret", "in its host"),
            ("https://{digest}.example/secret/{digest}", "in its host"),
            ("https://a.example/secret/{key}", "braces"),
            ("https://a.example/secret/{digest}/{}", "braces"),
        ] {
            let error = UrlTemplate::new(url.to_owned()).unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{url}: {error}");
        }
    }
}
