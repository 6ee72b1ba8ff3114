//! Identities as callers write them.
//!
//! There may be a secret in one, so no problem repeats it.

use std::net::IpAddr;

use http::HeaderName;
use serde_json_borrow::Value;
use slidegate::Identity;
use slidegate::policy::Network;

use super::validation::ValidationErrors;

/// Reads the member `identity`: `"user:42"`, as logs and standings show it, or
/// `{"kind": "user", "value": "42"}` with the value as it is.
pub(super) fn read(value: &Value<'_>, problems: &mut ValidationErrors) -> Option<Identity> {
    let read = match value {
        Value::Str(text) => from_text(text).map_err(|error| error.to_string()),
        Value::Object(_) => {
            let (kind, value) = problems.within("identity", |problems| parts(value, problems))?;
            of_kind(kind, value)
        }
        _ => Err("expected an identity such as \"user:42\"".to_owned()),
    };
    read.map_err(|problem| problems.add("identity", problem)).ok()
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
    if is_secret(kind) && !Identity::is_digest(value) {
        return Err(IdentityTextError::Secret);
    }
    if kind == "ip" && value.parse::<IpAddr>().is_err() && value.parse::<Network>().is_err() {
        return Err(IdentityTextError::Address);
    }
    text.parse().map_err(|_| IdentityTextError::Form)
}

fn of_kind(kind: &str, value: &str) -> Result<Identity, String> {
    match kind {
        "everyone" => Ok(Identity::everyone()),
        "anonymous" => Ok(Identity::anonymous()),
        _ if value.is_empty() => Err("expected a value that is not empty".to_owned()),
        "user" => Ok(Identity::user(value)),
        "api-key" => Ok(Identity::api_key(value.as_bytes())),
        "authorization" => Ok(Identity::authorization(value.as_bytes())),
        "ip" => from_text(&format!("ip:{value}")).map_err(|error| error.to_string()),
        name => HeaderName::try_from(name)
            .map(|name| Identity::header(&name, value.as_bytes()))
            .map_err(|_| {
                "expected as kind: user, api-key, authorization, ip, everyone, anonymous or a \
                 header's name"
                    .to_owned()
            }),
    }
}

/// The kind and the value of an identity that is written as an object.
fn parts<'v>(object: &'v Value<'v>, problems: &mut ValidationErrors) -> Option<(&'v str, &'v str)> {
    let (mut kind, mut value) = (None, None);
    for (name, member) in problems.object(object)?.iter() {
        let known = match name {
            "kind" => &mut kind,
            "value" => &mut value,
            _ => {
                problems.add(name, "unknown member; expected kind and value");
                continue;
            }
        };
        *known = member.as_str();
        if known.is_none() {
            problems.add(name, "expected a string");
        }
    }
    if kind.is_none() {
        problems.add("kind", "missing");
    }
    Some((kind?, value.unwrap_or_default()))
}

/// Whether identities of this kind are digests.
fn is_secret(kind: &str) -> bool {
    matches!(kind, "api-key" | "x-api-key" | "authorization" | "cookie" | "proxy-authorization")
}
