//! Whose account is to be charged, as a caller writes it.
//!
//! There may be a secret in it, so no problem repeats it.

use std::net::IpAddr;

use http::HeaderName;
use slidegate::Identity;
use slidegate::policy::Network;

use super::json::{Json, JsonMembers};
use super::validation::{JsonPath, ValidationErrors};

/// Reads `"user:42"`, as logs and standings show it, or `{"kind": "user", "value": "42"}` with the
/// value as it is.
pub(crate) fn read(
    value: &Json<'_>,
    place: &JsonPath<'_>,
    problems: &mut ValidationErrors,
) -> Option<Identity> {
    let read = match value {
        Json::Text(text) => from_text(text),
        Json::Object(members) => {
            let (kind, value) = parts(members, place, problems)?;
            of_kind(kind, value)
        }
        _ => Err("expected an identity such as \"user:42\""),
    };
    read.map_err(|problem| problems.add(place, problem)).ok()
}

/// Reads what logs and standings show.
pub(crate) fn from_text(text: &str) -> Result<Identity, &'static str> {
    let (kind, value) = text.split_once(':').unwrap_or((text, ""));
    if is_secret(kind) && !Identity::is_digest(value) {
        return Err("expected the digest of the secret, as logs show it; the secret itself goes \
                    into an object with kind and value");
    }
    if kind == "ip" && value.parse::<IpAddr>().is_err() && value.parse::<Network>().is_err() {
        return Err("expected an IP address after ip:");
    }
    text.parse().map_err(|_| {
        "expected kind:value as logs show it, such as user:42, or everyone, or anonymous; other \
         values go into an object with kind and value"
    })
}

fn of_kind(kind: &str, value: &str) -> Result<Identity, &'static str> {
    match kind {
        "everyone" => Ok(Identity::everyone()),
        "anonymous" => Ok(Identity::anonymous()),
        _ if value.is_empty() => Err("expected a value that is not empty"),
        "user" => Ok(Identity::user(value)),
        "api-key" => Ok(Identity::api_key(value.as_bytes())),
        "authorization" => Ok(Identity::authorization(value.as_bytes())),
        "ip" => from_text(&format!("ip:{value}")),
        name => HeaderName::try_from(name)
            .map(|name| Identity::header(&name, value.as_bytes()))
            .map_err(|_| {
                "expected as kind: user, api-key, authorization, ip, everyone, anonymous or a \
                 header's name"
            }),
    }
}

/// The kind and the value of an identity that is written as an object.
fn parts<'m>(
    members: &'m JsonMembers<'_>,
    place: &JsonPath<'_>,
    problems: &mut ValidationErrors,
) -> Option<(&'m str, &'m str)> {
    let (mut kind, mut value) = (None, None);
    for (name, member) in members {
        let place = place.member(name);
        let known = match &**name {
            "kind" => &mut kind,
            "value" => &mut value,
            _ => {
                problems.add(&place, "unknown member; expected kind and value");
                continue;
            }
        };
        match member {
            Json::Text(_) if known.is_some() => problems.add(&place, "given twice"),
            Json::Text(text) => *known = Some(&**text),
            _ => problems.add(&place, "expected a string"),
        }
    }
    if kind.is_none() {
        problems.add(&place.member("kind"), "missing");
    }
    Some((kind?, value.unwrap_or_default()))
}

/// Whether identities of this kind are digests.
fn is_secret(kind: &str) -> bool {
    matches!(kind, "api-key" | "x-api-key" | "authorization" | "cookie" | "proxy-authorization")
}
