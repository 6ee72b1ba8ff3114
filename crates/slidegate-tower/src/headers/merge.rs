//! Merging with fields that an inner layer or an upstream has sent already.
//!
//! Lists get our items appended. Of fields that have room for one quota only, the one with less
//! remaining stays. What cannot be parsed is left alone: we never make a response more permissive.

use http::{HeaderMap, HeaderName, HeaderValue};
use slidegate::{Decision, Standing};

use crate::headers::dialect::{FieldGroup, Item};
use crate::headers::value::{QuotaName, in_headers};

/// How many layers with policies of one name are kept apart.
const MAX_COPIES: u32 = 100;

/// Whether the response has fields of any dialect.
pub(super) fn is_needed(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        let name = name.as_str();
        name.strip_prefix("x-").unwrap_or(name).starts_with("ratelimit")
    })
}

/// Whether the group may be written beside or over the fields of the response.
pub(super) fn admits(group: &FieldGroup, headers: &HeaderMap, tightest: &Standing) -> bool {
    match group {
        FieldGroup::List(name, item) => {
            headers.get_all(*name).iter().all(|line| is_like(line, *item))
        }
        FieldGroup::Dictionary(name) => {
            let lines: Vec<_> = headers.get_all(*name).iter().collect();
            lines.is_empty() || lines.iter().any(|line| has_more(dictionary(line), tightest))
        }
        FieldGroup::Triple(names, _) => {
            let none = names.iter().all(|name| !headers.contains_key(*name));
            none || has_more(integer(headers, names[1]), tightest)
        }
    }
}

/// The number that makes the names of all quotas ones that the response does not have yet: 1 is
/// none, for the names as they are. If there is none up to a hundred, the names are repeated.
pub(super) fn copy(decision: &Decision, groups: &[FieldGroup], headers: &HeaderMap) -> u32 {
    let lists = groups.iter().filter_map(|group| match group {
        FieldGroup::List(name, _) => Some(*name),
        FieldGroup::Dictionary(_) | FieldGroup::Triple(..) => None,
    });
    let lines: Vec<&[u8]> =
        lists.flat_map(|name| headers.get_all(name)).map(HeaderValue::as_bytes).collect();
    let is_free = |copy: &u32| {
        in_headers(decision).all(|(policy, standing)| {
            let name = format!("\"{}\"", QuotaName::of(policy, standing, *copy).text());
            let name = name.as_bytes();
            !lines.iter().any(|line| line.windows(name.len()).any(|part| part == name))
        })
    };
    (1..=MAX_COPIES).find(is_free).unwrap_or(1)
}

/// Whether a line of a list looks as if our items could follow it.
fn is_like(line: &HeaderValue, item: Item) -> bool {
    let first = line.as_bytes().trim_ascii_start().first();
    match item {
        Item::Standing | Item::Quota => first == Some(&b'"'),
        Item::Unnamed => first.is_some_and(u8::is_ascii_digit),
    }
}

fn has_more(theirs: Option<u64>, tightest: &Standing) -> bool {
    theirs.is_some_and(|remaining| remaining > tightest.remaining().into())
}

fn integer(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => line.to_str().ok()?.trim().parse().ok(),
        _ => None,
    }
}

fn dictionary(line: &HeaderValue) -> Option<u64> {
    // Of a repeated key, the last one counts.
    let mut members = line.to_str().ok()?.rsplit(',');
    members.find_map(|member| member.trim().strip_prefix("remaining="))?.parse().ok()
}
