//! Identities as callers and operators write them.
//!
//! There may be a secret in one, so no error repeats it.

use std::fmt;
use std::net::IpAddr;

use http::HeaderName;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use slidegate::policy::{KeyHash, Network};
use slidegate::{Identity, Policies};

/// An identity as a caller sends it: `"user:42"`, as logs and standings show it, or
/// `{"kind": "user", "value": "42"}` with the value as it is.
pub(crate) enum SentIdentity {
    Known(Identity),
    /// An API key itself. The policies say by which digest it is listed.
    ApiKey(Box<[u8]>),
}

impl SentIdentity {
    /// The identity under these policies.
    pub(crate) fn under(&self, policies: &Policies) -> Identity {
        match self {
            Self::Known(identity) => *identity,
            Self::ApiKey(key) => policies.identity_of_key(key),
        }
    }
}

impl<'de> Deserialize<'de> for SentIdentity {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(IdentityVisitor)
    }
}

impl fmt::Debug for SentIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(identity) => identity.fmt(f),
            Self::ApiKey(_) => f.write_str("an API key"),
        }
    }
}

struct IdentityVisitor;

impl<'de> Visitor<'de> for IdentityVisitor {
    type Value = SentIdentity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an identity such as \"user:42\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SentIdentity, E> {
        from_text(text).map(SentIdentity::Known).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<SentIdentity, A::Error> {
        let IdentityParts { kind, value } =
            IdentityParts::deserialize(MapAccessDeserializer::new(members))?;
        match &*kind {
            "api-key" | "x-api-key" if !value.is_empty() => {
                Ok(SentIdentity::ApiKey(value.into_bytes().into_boxed_slice()))
            }
            kind => of_kind(kind, &value).map(SentIdentity::Known).map_err(Error::custom),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityParts {
    kind: String,
    #[serde(default, deserialize_with = "secret")]
    value: String,
}

fn secret<'de, D: Deserializer<'de>>(json: D) -> Result<String, D::Error> {
    match Value::deserialize(json)? {
        Value::String(text) => Ok(text),
        _ => Err(Error::custom("expected a string")),
    }
}

/// Why a text is no identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdentityTextError {
    #[error(
        "expected the digest of the secret, as logs show it; the secret itself goes into an object \
         with kind and value"
    )]
    Secret,
    #[error("expected an IP address after ip:")]
    Address,
    #[error(
        "expected kind:value as logs show it, such as user:42, or everyone, or anonymous; other \
         values go into an object with kind and value"
    )]
    Form,
}

/// Reads what logs and standings show.
pub(crate) fn from_text(text: &str) -> Result<Identity, IdentityTextError> {
    let (kind, value) = text.split_once(':').unwrap_or((text, ""));
    if kind == "api-key"
        && let Ok(digest) = KeyHash::Sha256.parse(value)
    {
        return Ok(digest.identity());
    }
    if is_secret(kind) && !Identity::is_digest(value) {
        return Err(IdentityTextError::Secret);
    }
    if kind == "ip" && value.parse::<IpAddr>().is_err() && value.parse::<Network>().is_err() {
        return Err(IdentityTextError::Address);
    }
    text.parse().map_err(|_| IdentityTextError::Form)
}

/// Reads what logs show, an API key that has a name by that name, or by `~` and the digest of the name,
/// as our own client sends it.
pub(crate) fn with_key_names(
    text: &str,
    policies: &Policies,
) -> Result<Identity, IdentityTextError> {
    let Some(name) = text.strip_prefix("api-key:") else { return from_text(text) };
    let named = match name.strip_prefix('~') {
        Some(digest) => policies.key_named_by_digest(&from_text(&format!("api-key:{digest}"))?),
        None => policies.key_named(name),
    };
    named.map_or_else(|| from_text(text), Ok)
}

/// Reads what logs and standings show, or a kind and a value as it is if the kind is no secret.
pub(crate) fn from_argument(text: &str) -> Result<Identity, IdentityTextError> {
    match (from_text(text), text.split_once(':')) {
        (Err(IdentityTextError::Form), Some((kind, value))) => {
            of_kind(kind, value).map_err(|_| IdentityTextError::Form)
        }
        (read, _) => read,
    }
}

fn of_kind(kind: &str, value: &str) -> Result<Identity, String> {
    match kind {
        "everyone" => Ok(Identity::everyone()),
        "anonymous" => Ok(Identity::anonymous()),
        _ if value.is_empty() => Err("expected a value that is not empty".to_owned()),
        "user" => Ok(Identity::user(value)),
        "customer" => Ok(Identity::customer(value)),
        "api-key" => Ok(Identity::api_key(value.as_bytes())),
        "authorization" => Ok(Identity::authorization(value.as_bytes())),
        "ip" => from_text(&format!("ip:{value}")).map_err(|error| error.to_string()),
        name => HeaderName::try_from(name)
            .map(|name| Identity::header(&name, value.as_bytes()))
            .map_err(|_| {
                "expected as kind: user, customer, api-key, authorization, ip, everyone, anonymous or a \
                 header's name"
                    .to_owned()
            }),
    }
}

/// Whether identities of this kind are digests.
fn is_secret(kind: &str) -> bool {
    matches!(kind, "api-key" | "x-api-key" | "authorization" | "cookie" | "proxy-authorization")
}
