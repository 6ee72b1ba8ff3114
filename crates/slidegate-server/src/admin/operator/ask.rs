//! What an operator asks for, and what is wrong with it.

use std::num::NonZeroU32;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query};
use http::Uri;
use slidegate::{Identity, Name, Policies};

use super::reply::OperatorError;
use crate::calendar::Rfc3339;
use crate::config::Period;
use crate::decisions::ask::{check_members, not_json};
use crate::decisions::identity;
use crate::decisions::json::{Json, shortened};
use crate::decisions::validation::{JsonPath, ValidationErrors};
use crate::overrides::Expiry;

/// The members of a body that mean something for an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyMembers {
    /// A reason.
    Lift,
    /// And a policy.
    Reset,
    /// And until when.
    Override,
    /// And how many units.
    Grant,
}

/// What stands in a body.
#[derive(Debug, Default)]
pub(super) struct OperatorRequest {
    pub(super) policy: Option<Name>,
    pub(super) units: Option<NonZeroU32>,
    pub(super) until: Option<Expiry>,
    pub(super) reason: String,
}

/// Longer ones belong into a ticket, which the reason can name.
const MOST_REASON_CHARS: usize = 200;

impl BodyMembers {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Lift => &["reason"],
            Self::Reset => &["policy", "reason"],
            Self::Override => &["policy", "for", "until", "reason"],
            Self::Grant => &["policy", "units", "for", "until", "reason"],
        }
    }

    fn has_until(self) -> bool {
        matches!(self, Self::Override | Self::Grant)
    }
}

impl OperatorRequest {
    /// Parses a body; the error lists everything that is wrong with it.
    pub(super) fn read(body: &[u8], members: BodyMembers) -> Result<Self, ValidationErrors> {
        let json = Json::parse(body).map_err(|error| ValidationErrors::one(not_json(&error)))?;
        let Json::Object(given) = json else {
            return Err(ValidationErrors::one(format_args!("expected an object, not {json}")));
        };
        let mut problems = ValidationErrors::default();
        if !check_members(&given, &JsonPath::ROOT, &mut problems) {
            return Err(problems);
        }
        let mut asked = Self::default();
        for (name, value) in &given {
            let place = JsonPath::ROOT.member(name);
            if members.names().contains(&&**name) {
                asked.set(name, value, &place, &mut problems);
            } else {
                let expected = members.names().join(", ");
                problems.add(&place, format_args!("unknown member; expected {expected}"));
            }
        }
        let has = |name: &str| given.iter().any(|(other, _)| other == name);
        if !has("reason") {
            problems.add(&JsonPath::ROOT.member("reason"), "missing; expected why it is done");
        }
        if members == BodyMembers::Grant && !has("units") {
            problems.add(&JsonPath::ROOT.member("units"), "missing; expected how many more");
        }
        if members.has_until() && has("for") == has("until") {
            let text = "expected one of for, such as \"1h\", and until, such as \
                        \"2026-01-01T12:00:00Z\"";
            problems.add(&JsonPath::ROOT.member("for"), text);
        }
        if problems.is_empty() { Ok(asked) } else { Err(problems) }
    }

    fn set(
        &mut self,
        name: &str,
        value: &Json<'_>,
        at: &JsonPath<'_>,
        problems: &mut ValidationErrors,
    ) {
        match (name, value) {
            ("policy", Json::Text(text)) => match text.parse() {
                Ok(policy) => self.policy = Some(policy),
                Err(error) => problems.add(at, error),
            },
            ("for", Json::Text(text)) => match text.parse::<Period>() {
                Ok(period) => self.until = Some(Expiry::For(period.0)),
                Err(error) => problems.add(at, format_args!("{:?}: {error}", shortened(text))),
            },
            ("until", Json::Text(text)) => match text.parse::<Rfc3339>() {
                Ok(until) => self.until = Some(Expiry::At(until.0.as_millis())),
                Err(error) => problems.add(at, format_args!("{:?}: {error}", shortened(text))),
            },
            ("units", Json::Whole(units)) if u32::try_from(*units).is_ok_and(|units| units > 0) => {
                self.units = u32::try_from(*units).ok().and_then(NonZeroU32::new);
            }
            ("units", value) => {
                problems.expected(at, format_args!("a whole number from 1 to {}", u32::MAX), value);
            }
            ("reason", Json::Text(text)) => match reason(text) {
                Some(reason) => self.reason = reason,
                None => problems.add(
                    at,
                    format_args!(
                        "expected 1 to {MOST_REASON_CHARS} characters, none of them a control \
                         character"
                    ),
                ),
            },
            (_, value) => problems.expected(at, "a string", value),
        }
    }
}

fn reason(text: &str) -> Option<String> {
    let text = text.trim();
    let is_good = (1..=MOST_REASON_CHARS).contains(&text.chars().count())
        && !text.chars().any(char::is_control);
    is_good.then(|| text.to_owned())
}

/// The identity in a path, as logs show it: an API key that has a name by that name, or by `~` and
/// the digest of the name, as our own client sends it.
pub(super) fn identity(text: &str, policies: &Policies) -> Result<Identity, OperatorError> {
    // There may be a secret in it, so it is not repeated.
    let refusal = |problem| {
        let mut problems = ValidationErrors::default();
        problems.add(&JsonPath::ROOT.member("identity"), in_a_path(problem));
        OperatorError::Invalid(problems)
    };
    let Some(name) = text.strip_prefix("api-key:") else {
        return identity::from_text(text).map_err(refusal);
    };
    let named = match name.strip_prefix('~') {
        Some(digest) => {
            let digest = identity::from_text(&format!("api-key:{digest}")).map_err(refusal)?;
            policies.key_named_by_digest(&digest)
        }
        None => policies.key_named(name),
    };
    named.map_or_else(|| identity::from_text(text).map_err(refusal), Ok)
}

/// A path has no room for an object.
fn in_a_path(problem: &'static str) -> &'static str {
    if problem.starts_with("expected the digest") {
        "expected the name of an API key, or the digest of the secret, as logs show it; of the \
         secret itself it is made by `slidegate inspect api-key:-`, which reads it from standard \
         input, or api-key:@FILE"
    } else if problem.starts_with("expected kind:value") {
        "expected kind:value as logs show it, such as ip:203.0.113.7 or user:42, or everyone, or \
         anonymous"
    } else {
        problem
    }
}

/// The parts of a path, or why it has none.
pub(super) fn path<T>(path: Result<Path<T>, PathRejection>) -> Result<T, OperatorError> {
    path.map(|Path(parts)| parts).map_err(|rejection| OperatorError::one(rejection.body_text()))
}

/// The parameters of a query, each of which is known and there once.
pub(super) fn query<const N: usize>(
    uri: &Uri,
    names: [&str; N],
) -> Result<[Option<String>; N], OperatorError> {
    let Query(pairs): Query<Vec<(String, String)>> = Query::try_from_uri(uri)
        .map_err(|_| OperatorError::one("expected a query such as ?sort=denied&limit=10"))?;
    let mut values = [const { None }; N];
    let mut problems = ValidationErrors::default();
    let expected = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    for (name, value) in pairs {
        let place = JsonPath::ROOT.member(&name);
        match names.iter().position(|known| *known == name) {
            Some(index) if values[index].is_none() => values[index] = Some(value),
            Some(_) => problems.add(&place, "given twice"),
            None => problems.add(&place, format_args!("unknown parameter; expected {expected}")),
        }
    }
    if problems.is_empty() { Ok(values) } else { Err(problems.into()) }
}

/// An error for an invalid parameter.
pub(super) fn expected(name: &str, what: &str, value: &str) -> OperatorError {
    let mut problems = ValidationErrors::default();
    problems.expected(&JsonPath::ROOT.member(name), what, &Json::Text(value.into()));
    OperatorError::Invalid(problems)
}
