//! Overrides, and resets of accounts.

use std::net::IpAddr;
use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, Serialize};

use super::is_default;
use crate::calendar::Rfc3339;

/// `GET /v1/overrides`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverrideList {
    pub(crate) overrides: Vec<OverrideView>,
    /// Whether there may be others: Redis is unreachable, and these were read last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) stale: bool,
}

/// An override in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OverrideView {
    pub(crate) id: String,
    pub(crate) action: String,
    pub(crate) identity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) units: Option<NonZeroU32>,
    /// Of a grant: the window of the quota that it raises, such as `day`, or `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quota: Option<String>,
    pub(crate) until: Rfc3339,
    pub(crate) ends_in_ms: u64,
    pub(crate) reason: String,
    pub(crate) created: Rfc3339,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<IpAddr>,
}

/// The body of `POST /v1/accounts/IDENTITY/grant`, `exempt` and `ban`. Its texts are as the operator
/// wrote them; the server parses them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct OverrideBody {
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// Of a grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) units: Option<NonZeroU32>,
    /// Of a grant: the window of the quota that it raises, such as `1d`, or `all`.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub(crate) quota: Option<String>,
    /// How long it holds, such as `1h`.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub(crate) r#for: Option<String>,
    /// The instant until which it holds, such as `2026-01-01T12:00:00Z`.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<String>,
    pub(crate) reason: String,
}

/// `POST /v1/accounts/IDENTITY/grant`, `exempt` and `ban`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverrideCreated {
    #[serde(rename = "override")]
    pub(crate) created: OverrideView,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replaced: Option<OverrideView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<OverrideView>,
}

/// The body of `DELETE /v1/overrides/ID`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct LiftBody {
    pub(crate) reason: String,
}

/// `DELETE /v1/overrides/ID`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverrideLifted {
    pub(crate) lifted: OverrideView,
    pub(crate) reason: String,
}

/// The body of `POST /v1/accounts/IDENTITY/reset`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct ResetBody {
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    pub(crate) reason: String,
}

/// `POST /v1/accounts/IDENTITY/reset`
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountsReset {
    /// The identity.
    pub(crate) reset: String,
    pub(crate) policies: Vec<String>,
    /// Those of the policies under which nothing was spent.
    pub(crate) nothing_spent: Vec<String>,
    pub(crate) reason: String,
}

/// Reads a text. `null` is an error: a policy that a program lost on the way would otherwise mean every
/// policy.
fn some<'de, D: Deserializer<'de>>(json: D) -> Result<Option<String>, D::Error> {
    String::deserialize(json).map(Some)
}
