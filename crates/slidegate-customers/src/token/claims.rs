//! What a token says of its bearer.

use std::sync::Arc;

use serde_json::{Map, Value};
use slidegate::Timestamp;

use super::config::IssuerConfig;

/// Bounds what is remembered: an identity is digested beyond 63 bytes anyway, and no name of a plan
/// is this long.
const MAX_CLAIM_LEN: usize = 512;

/// What a token says of its bearer, after it was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenClaims {
    /// The user.
    pub user: Option<String>,
    /// The customer.
    pub customer: Option<String>,
    /// The name of the customer's plan.
    pub plan: Option<Arc<str>>,
    /// Who issued the token.
    pub issuer: Arc<str>,
    /// When it ends (exclusive), with the leeway for clocks that differ.
    pub expires: Timestamp,
}

/// The claims to read from tokens of one issuer.
#[derive(Debug)]
pub(super) struct ClaimNames {
    user: Option<String>,
    customer: Option<String>,
    plan: Option<String>,
}

impl ClaimNames {
    pub(super) fn new(config: &IssuerConfig) -> Self {
        let (user, customer) = (config.user.clone(), config.customer.clone());
        Self { user, customer, plan: config.plan.clone() }
    }

    /// The claims of a token; none if it has not one of them.
    pub(super) fn read(
        &self,
        claims: &Map<String, Value>,
        issuer: &Arc<str>,
        expires: Timestamp,
    ) -> Option<TokenClaims> {
        let text = |name: &Option<String>| claim(claims, name.as_deref()?);
        let (user, customer, plan) = (text(&self.user), text(&self.customer), text(&self.plan));
        let has_any = user.is_some() || customer.is_some() || plan.is_some();
        let plan = plan.map(Arc::from);
        has_any.then(|| TokenClaims { user, customer, plan, issuer: Arc::clone(issuer), expires })
    }
}

/// The text of a claim, by its name or by a path of names with dots.
///
/// ```
/// let claims = serde_json::json!({ "sub": "ann", "org": { "id": 42 } });
/// let claims = claims.as_object().unwrap();
/// assert_eq!(slidegate_customers::claim(claims, "org.id").as_deref(), Some("42"));
/// ```
pub fn claim(claims: &Map<String, Value>, name: &str) -> Option<String> {
    text(value(claims, name)?)
}

/// The claim of the whole name, or else what a part before a dot leads to.
fn value<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    claims.get(name).or_else(|| {
        name.match_indices('.').find_map(|(dot, _)| {
            let nested = claims.get(&name[..dot])?.as_object()?;
            value(nested, &name[dot + 1..])
        })
    })
}

fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        // A number that is not whole has lost digits if it was long, and might be another user's.
        Value::Number(number) if number.is_u64() || number.is_i64() => number.to_string(),
        _ => return None,
    };
    // All tokens with a blank one would share an account.
    let is_name = text.len() <= MAX_CLAIM_LEN && !text.trim().is_empty();
    is_name.then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(claims: &Value, name: &str, expected: Option<&str>) {
        let claims = claims.as_object().expect("claims are an object");
        assert_eq!(value(claims, name).and_then(text).as_deref(), expected, "{name}");
    }

    #[test]
    fn claims_are_found_by_name_and_by_path() {
        let claims = json!({
            "sub": "ann",
            "https://example.com/org": "acme",
            "https://example.com/app": { "plan": { "name": "pro" } },
            "app": { "org": { "id": 42 }, "a.b": "dotted" },
            "app.org": "whole",
        });
        check(&claims, "sub", Some("ann"));
        check(&claims, "https://example.com/org", Some("acme"));
        check(&claims, "https://example.com/app.plan.name", Some("pro"));
        check(&claims, "app.org", Some("whole"));
        check(&claims, "app.org.id", Some("42"));
        check(&claims, "app.a.b", Some("dotted"));
        for name in ["app", "app.", ".app", ".", "app.org.id.x", "sub.x", "https://example.com/no"]
        {
            check(&claims, name, None);
        }
    }

    #[test]
    fn text_and_whole_numbers_count() {
        let longest = "x".repeat(MAX_CLAIM_LEN);
        for (value, expected) in [
            (json!("ann"), Some("ann")),
            (json!(42), Some("42")),
            (json!(-7), Some("-7")),
            (json!(u64::MAX), Some("18446744073709551615")),
            (json!(longest), Some(longest.as_str())),
            (json!(format!("{longest}x")), None),
            (json!(1.5), None),
            (serde_json::from_str("18446744073709551616").unwrap(), None),
            (json!(""), None),
            (json!("  "), None),
            (json!(true), None),
            (json!(null), None),
            (json!(["ann"]), None),
        ] {
            check(&json!({ "claim": value }), "claim", expected);
        }
    }
}
