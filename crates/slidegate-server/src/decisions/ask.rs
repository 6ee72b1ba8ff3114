//! What a caller asks.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::error::Category;
use slidegate::Policies;

use super::charges::{self, ChargeAsk};
use super::json::{Json, JsonMembers};
use super::request::RequestAsk;
use super::validation::{JsonPath, ValidationErrors};

/// One question.
#[derive(Debug)]
pub(super) enum Ask<'a> {
    /// May this request pass?
    Request(Box<RequestAsk<'a>>),
    /// Can all of these be spent?
    Charges(Vec<ChargeAsk<'a>>),
}

/// One question, or several that are answered in order.
#[derive(Debug)]
pub(super) enum Asks<'a> {
    One(Ask<'a>),
    Many(Vec<Ask<'a>>),
}

/// The most questions at once: each is a call to the store.
pub(super) const MOST_ASKS: usize = 100;

impl<'a> Asks<'a> {
    /// Parses a body; the error lists everything that is wrong with it.
    /// The policies are those that charges can be under.
    pub(super) fn parse(
        body: &'a [u8],
        policies: impl Fn() -> Arc<Policies>,
    ) -> Result<Self, ValidationErrors> {
        let asks = Self::read(body)?;
        let mut problems = ValidationErrors::default();
        for (i, ask) in asks.as_slice().iter().enumerate() {
            let item = JsonPath::ROOT.item(i);
            let place = if matches!(asks, Self::One(_)) { JsonPath::ROOT } else { item };
            if let Ask::Charges(list) = ask {
                charges::check(list, &policies(), &place, &mut problems);
            }
        }
        if problems.is_empty() { Ok(asks) } else { Err(problems) }
    }

    pub(super) fn as_slice(&self) -> &[Ask<'a>] {
        match self {
            Self::One(ask) => std::slice::from_ref(ask),
            Self::Many(asks) => asks,
        }
    }

    fn read(body: &'a [u8]) -> Result<Self, ValidationErrors> {
        let json = Json::parse(body).map_err(|error| ValidationErrors::one(not_json(&error)))?;
        let mut problems = ValidationErrors::default();
        let asks = match json {
            Json::List(items) if items.len() <= MOST_ASKS => {
                let mut asks = Vec::with_capacity(items.len());
                for (i, item) in items.into_iter().enumerate() {
                    asks.extend(Ask::read(item, &JsonPath::ROOT.item(i), &mut problems));
                }
                Some(Self::Many(asks))
            }
            Json::List(items) => {
                let most = format_args!("{} questions at once; at most {MOST_ASKS}", items.len());
                problems.add(&JsonPath::ROOT, most);
                None
            }
            one => Ask::read(one, &JsonPath::ROOT, &mut problems).map(Self::One),
        };
        match asks {
            Some(asks) if problems.is_empty() => Ok(asks),
            _ => Err(problems),
        }
    }
}

impl<'a> Ask<'a> {
    fn read(json: Json<'a>, place: &JsonPath<'_>, problems: &mut ValidationErrors) -> Option<Self> {
        let Json::Object(members) = json else {
            problems.expected(place, "an object", &json);
            return None;
        };
        if !check_members(&members, place, problems) {
            return None;
        }
        if members.iter().any(|(name, _)| name == "charges") {
            return charges::read(members, place, problems).map(Self::Charges);
        }
        Some(Self::Request(Box::new(RequestAsk::read(members, place, problems))))
    }
}

/// The most members of an object, which no question comes near.
const MOST_MEMBERS: usize = 64;

/// Reports duplicate members, which are ambiguous. False if
/// there are too many to look at.
pub(crate) fn check_members(
    members: &JsonMembers<'_>,
    place: &JsonPath<'_>,
    problems: &mut ValidationErrors,
) -> bool {
    if members.len() > MOST_MEMBERS {
        let count = members.len();
        problems.add(place, format_args!("{count} members; expected at most {MOST_MEMBERS}"));
        return false;
    }
    let mut seen = HashSet::with_capacity(members.len());
    for (name, _) in members {
        if !seen.insert(name) {
            problems.add(&place.member(name), "given twice");
        }
    }
    true
}

/// What is wrong with a text that is not JSON, or too much of it, without any of the text.
pub(crate) fn not_json(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Eof => "incomplete JSON",
        // The only one of ours.
        Category::Data => return error.to_string(),
        _ => "not JSON",
    };
    format!("{what}, at line {} column {}", error.line(), error.column())
}
