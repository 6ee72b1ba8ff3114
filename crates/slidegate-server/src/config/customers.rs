//! `[key_source]` and `[[jwt]]`: who sends a request, by an operator's own systems.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use slidegate::policy::KeyHash;
use slidegate_customers::{PostgresUrl, TokenAlgorithm};

use crate::config::reader::Value;
use crate::config::values::Secret;

/// Where keys and tokens are looked up.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct CustomersConfig {
    pub(crate) key_source: Option<KeySourceConfig>,
    pub(crate) issuers: Vec<JwtConfig>,
}

/// A system that knows API keys.
#[derive(Clone, PartialEq)]
pub(crate) struct KeySourceConfig {
    /// It may have a password in it.
    pub(crate) url: String,
    pub(crate) hash: KeyHash,
    pub(crate) kind: KeySourceKind,
    pub(crate) refuses_on_error: bool,
    /// The certificates of further authorities, in PEM.
    pub(crate) authorities: Option<Vec<u8>>,
}

/// How it is asked.
#[derive(Clone, PartialEq)]
pub(crate) enum KeySourceKind {
    /// A table that is kept in memory.
    Postgres { query: String, poll: Duration, full: Duration, notify: Option<String> },
    /// One key at a time.
    Http { fresh: Duration, stale: Duration, unknown: Duration, token: Option<Secret> },
}

/// An issuer of tokens.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JwtConfig {
    pub(crate) issuer: String,
    pub(crate) jwks: KeySetPlace,
    pub(crate) audience: Vec<String>,
    pub(crate) algorithms: Vec<TokenAlgorithm>,
    pub(crate) user: Option<String>,
    pub(crate) customer: Option<String>,
    pub(crate) plan: Option<String>,
    pub(crate) refuses_invalid: bool,
    pub(crate) authorities: Option<Vec<u8>>,
}

/// Where the keys are that an issuer signs with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum KeySetPlace {
    Url(String),
    File(PathBuf),
}

/// How often a table is asked for what changed: as long as a revoked key lasts.
const POLL: Duration = Duration::from_secs(2);
/// How often all of it is read again: as long as a deleted row lasts.
const FULL: Duration = Duration::from_secs(60);
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 3600);

const FRESH: Duration = Duration::from_secs(10);
const STALE: Duration = Duration::from_secs(3600);
const UNKNOWN: Duration = Duration::from_secs(5);
/// A key that was just made must work soon.
const MAX_UNKNOWN: Duration = Duration::from_secs(60);

/// No bundle of certificates has half of it.
const MAX_CERTIFICATE_BYTES: u64 = 4 * 1024 * 1024;

const POSTGRES_KEYS: [&str; 5] = ["query", "poll", "full", "notify", "password_file"];
const HTTP_KEYS: [&str; 4] = ["fresh", "stale", "unknown", "token_file"];

impl CustomersConfig {
    pub(super) fn read(root: &Value<'_>) -> Self {
        let key_source = root.key("key_source").table();
        let key_source = key_source.and_then(|table| KeySourceConfig::read(&table));
        let issuers = root.key("jwt").each(Value::table);
        for (i, table) in issuers.iter().enumerate() {
            let issuer = table.key("issuer");
            let is_same = |other: &Value<'_>| other.named("issuer").text() == issuer.text();
            if issuer.is_text() && issuers[..i].iter().any(is_same) {
                issuer.report("another [[jwt]] has this issuer");
            }
        }
        let issuers = issuers.iter().filter_map(JwtConfig::read).collect();
        Self { key_source, issuers }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.key_source.is_none() && self.issuers.is_empty()
    }
}

impl KeySourceConfig {
    fn read(table: &Value<'_>) -> Option<Self> {
        let value = table.key("url").required(
            "where keys are known: postgres://USER@HOST/DATABASE or https://HOST/keys/{digest}",
        );
        let hash = table.key("hash").parsed().unwrap_or_default();
        let refuses = [("deny", true), ("ignore", false)];
        let refuses_on_error = table.key("on_error").one_of(&refuses).unwrap_or(true);
        let authorities = authorities(&table.key("ca"));
        let [query, poll, full, notify, password] = POSTGRES_KEYS.map(|key| table.key(key));
        let [fresh, stale, unknown, token] = HTTP_KEYS.map(|key| table.key(key));
        let text = value.hidden().text()?;
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let only = |keys: &[&'static str], what: &str| {
            for other in keys.iter().map(|key| table.named(key)).filter(Value::is_set) {
                other.report_with(format!("only for {what}"), None);
            }
        };
        let (url, kind) = match scheme {
            "postgres" | "postgresql" => {
                only(&HTTP_KEYS, "a source that is asked over HTTP");
                let url = with_password(&value, text, &password)?;
                let query = query.required(
                    "a query for the keys, such as \"select digest, customer, plan, expires_at, \
                     changed_at from api_keys\"",
                );
                let query = query.string().filter(|text| {
                    !text.trim().is_empty() || {
                        query.report("expected a query");
                        false
                    }
                })?;
                let poll = interval(&poll, POLL);
                let full = interval(&full, FULL);
                (url, KeySourceKind::Postgres { query, poll, full, notify: notify.string() })
            }
            "http" | "https" => {
                only(&POSTGRES_KEYS, "PostgreSQL");
                if !text.contains("{digest}") {
                    return value.hidden().reject("expected {digest} where the key's digest goes");
                }
                if text.replace("{digest}", "0").parse::<Uri>().is_err() {
                    return value.hidden().reject("expected a URL with {digest} in it");
                }
                let kind = KeySourceKind::Http {
                    fresh: interval(&fresh, FRESH),
                    stale: interval(&stale, STALE),
                    unknown: unknown.period(MAX_UNKNOWN).unwrap_or(UNKNOWN),
                    token: token.secret_in_file(),
                };
                if let KeySourceKind::Http { fresh: is_fresh, stale: is_stale, .. } = &kind
                    && is_fresh > is_stale
                {
                    stale.report("expected at least as long as fresh");
                }
                (text.to_owned(), kind)
            }
            _ => {
                let expected = "expected postgres://, http:// or https://";
                return value.hidden().reject(expected);
            }
        };
        Some(Self { url, hash, kind, refuses_on_error, authorities })
    }

    /// What is asked, without a password.
    pub(crate) fn shown(&self) -> String {
        match (&self.kind, self.url.parse::<PostgresUrl>()) {
            (KeySourceKind::Http { .. }, _) | (_, Err(_)) => {
                // Of a template, the host alone.
                let host = self.url.split('/').nth(2).unwrap_or_default();
                let host = host.rsplit('@').next().unwrap_or_default();
                format!("keys are looked up at {host}")
            }
            (KeySourceKind::Postgres { poll, .. }, Ok(url)) => {
                let (hosts, poll) = (url.hosts(), slidegate::limit::Period(*poll));
                format!("keys are those of PostgreSQL at {hosts}, asked for changes every {poll}")
            }
        }
    }
}

impl fmt::Debug for KeySourceConfig {
    /// Without the URL, which may have a password in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySourceConfig").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl JwtConfig {
    fn read(table: &Value<'_>) -> Option<Self> {
        let issuer =
            table.key("issuer").required("the iss claim, such as https://auth.example.com/");
        let jwks = table.key("jwks").required(
            "where its keys are: https://auth.example.com/.well-known/jwks.json, or a file",
        );
        let audience = table.key("audience").required("the aud claim, such as \"api\"");
        let audiences = audience.each(Value::string);
        if audience.is_set() && audience.elements().is_empty() {
            audience.report("expected at least one audience");
        }
        let algorithms = table.key("algorithms").required("a list such as [\"RS256\", \"ES256\"]");
        if algorithms.is_set() && algorithms.elements().is_empty() {
            algorithms.report("expected at least one algorithm, such as RS256");
        }
        let algorithms = algorithms.each(Value::parsed);
        let claims = ["user", "customer", "plan"].map(|claim| table.key(claim));
        if !claims.iter().any(Value::is_set) {
            table.key("user").report("missing: expected a claim, such as sub, in user or customer");
        }
        let [user, customer, plan] = claims.map(|claim| {
            let text = claim.string()?;
            if text.is_empty() { claim.reject("expected the name of a claim") } else { Some(text) }
        });
        let invalid = [("ignore", false), ("refuse", true)];
        let refuses_invalid = table.key("invalid").one_of(&invalid).unwrap_or(false);
        let authorities = authorities(&table.key("ca"));
        let place = jwks.text()?;
        let place = match place.split_once("://").map(|(scheme, _)| scheme) {
            Some("http" | "https") if place.parse::<Uri>().is_ok() => {
                KeySetPlace::Url(place.to_owned())
            }
            Some(_) => return jwks.reject("expected a URL with http:// or https://, or a file"),
            None => KeySetPlace::File(jwks.file()?),
        };
        Some(Self {
            issuer: issuer.string()?,
            jwks: place,
            audience: audiences,
            algorithms,
            user,
            customer,
            plan,
            refuses_invalid,
            authorities,
        })
    }
}

fn interval(value: &Value<'_>, default: Duration) -> Duration {
    let Some(interval) = value.period(MAX_INTERVAL) else { return default };
    if interval < Duration::from_millis(100) {
        value.report("expected at least 100ms");
    }
    interval
}

/// The URL with the password of a file in it.
fn with_password(value: &Value<'_>, text: &str, file: &Value<'_>) -> Option<String> {
    let Ok(url) = text.parse::<PostgresUrl>() else {
        return value.hidden().reject("expected a URL such as postgres://slidegate@10.0.2.7/app");
    };
    if url.has_password() {
        if file.is_set() {
            file.report_with("a password is given already, in url", None);
        }
        value.warn_of_secret("a secret in the file: name a password_file");
    }
    let Some(password) = file.secret_in_file() else { return Some(text.to_owned()) };
    let Some((user, host)) = text.split_once('@') else {
        return file.hidden().reject("expected a user in url, whose password it is");
    };
    let password = utf8_percent_encode(password.reveal(), NON_ALPHANUMERIC);
    Some(format!("{user}:{password}@{host}"))
}

/// The certificates in a PEM file.
fn authorities(value: &Value<'_>) -> Option<Vec<u8>> {
    let path = value.file()?;
    if value.is_skipped_file() {
        return None;
    }
    let contents = value.contents(&path, MAX_CERTIFICATE_BYTES)?;
    if !contents.bytes.windows(11).any(|window| window == b"-----BEGIN ") {
        return value.reject("expected certificates in PEM");
    }
    Some(contents.bytes)
}
