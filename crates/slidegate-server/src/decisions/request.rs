//! A request described by a caller of the decision API.

use std::borrow::Cow;
use std::net::IpAddr;
use std::num::NonZeroU32;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use slidegate::Facts;

use super::json::{Json, JsonMembers};
use super::validation::{JsonPath, ValidationErrors};

/// A request as its caller describes it.
#[derive(Debug)]
pub(super) struct RequestAsk<'a> {
    pub(super) method: Method,
    pub(super) path: Cow<'a, str>,
    pub(super) headers: HeaderMap,
    pub(super) client: Option<IpAddr>,
    user: Option<Cow<'a, str>>,
    plan: Option<Cow<'a, str>>,
    cost: Option<NonZeroU32>,
    trusted: bool,
}

const MEMBERS: &str =
    "unknown member; expected method, path, headers, client, user, plan, cost, trusted, or charges";

/// The most header lines that are read, as servers commonly limit them.
const MOST_HEADERS: usize = 256;

/// The longest path, as the gateway has it.
const MOST_PATH_BYTES: usize = 65_534;

impl Default for RequestAsk<'_> {
    fn default() -> Self {
        Self {
            method: Method::GET,
            path: Cow::Borrowed("/"),
            headers: HeaderMap::new(),
            client: None,
            user: None,
            plan: None,
            cost: None,
            trusted: false,
        }
    }
}

impl<'a> RequestAsk<'a> {
    pub(super) fn read(
        members: JsonMembers<'a>,
        place: &JsonPath<'_>,
        problems: &mut ValidationErrors,
    ) -> Self {
        let mut ask = Self::default();
        for (name, value) in members {
            ask.set(&name, value, &place.member(&name), problems);
        }
        ask
    }

    fn set(
        &mut self,
        name: &str,
        value: Json<'a>,
        at: &JsonPath<'_>,
        problems: &mut ValidationErrors,
    ) {
        match (name, value) {
            ("method", Json::Text(text)) => match Method::from_bytes(text.as_bytes()) {
                Ok(method) => self.method = method,
                Err(_) => problems.expected(at, "a method such as GET", &Json::Text(text)),
            },
            ("path", Json::Text(text)) if text.len() > MOST_PATH_BYTES => {
                problems.add(at, format_args!("longer than {MOST_PATH_BYTES} bytes"));
            }
            ("path", Json::Text(text)) if text.starts_with('/') || text == "*" => self.path = text,
            ("headers", Json::Object(lines)) => self.headers = headers(&lines, at, problems),
            ("client", Json::Text(text)) => match text.parse() {
                Ok(address) => self.client = Some(address),
                Err(_) => problems.expected(at, "an IP address", &Json::Text(text)),
            },
            ("user", Json::Text(text)) => self.user = Some(text),
            ("plan", Json::Text(text)) => self.plan = Some(text),
            ("trusted", Json::Bool(trusted)) => self.trusted = trusted,
            ("cost", value) => self.cost = cost(&value, at, problems),
            // Null is no value, as many programs write it.
            (
                "method" | "path" | "headers" | "client" | "user" | "plan" | "trusted",
                Json::Null,
            ) => {}
            ("path", value) => problems.expected(at, "a path that begins with /", &value),
            ("headers", value) => problems.expected(at, "an object of headers", &value),
            ("trusted", value) => problems.expected(at, "true or false", &value),
            ("method" | "client" | "user" | "plan", value) => {
                problems.expected(at, "a string", &value);
            }
            _ => problems.add(at, MEMBERS),
        }
    }

    /// The facts about the request, with the other ways to read its path.
    pub(super) fn facts<'f>(&'f self, other_paths: &'f [String]) -> Facts<'f> {
        let mut facts = Facts::new(&self.method, &self.path).headers(&self.headers);
        facts = facts.other_paths(other_paths);
        if let Some(client) = self.client {
            facts = facts.client(client);
        }
        if let Some(user) = &self.user {
            facts = facts.user(user);
        }
        if let Some(plan) = &self.plan {
            facts = facts.plan(plan);
        }
        if let Some(cost) = self.cost {
            facts = facts.cost(cost);
        }
        if self.trusted { facts.headers_trusted() } else { facts }
    }
}

/// Reads a cost; null is none.
pub(super) fn cost(
    value: &Json<'_>,
    place: &JsonPath<'_>,
    problems: &mut ValidationErrors,
) -> Option<NonZeroU32> {
    let units = match value {
        Json::Null => return None,
        Json::Whole(units) => u32::try_from(*units).ok().and_then(NonZeroU32::new),
        _ => None,
    };
    if units.is_none() {
        problems.expected(place, format_args!("a whole number from 1 to {}", u32::MAX), value);
    }
    units
}

fn headers(
    lines: &JsonMembers<'_>,
    place: &JsonPath<'_>,
    problems: &mut ValidationErrors,
) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(lines.len().min(MOST_HEADERS));
    for (name, value) in lines {
        let at = place.member(name);
        let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
            problems.add(&at, "not a header's name");
            continue;
        };
        let values = match value {
            Json::List(values) => values.as_slice(),
            Json::Null => &[],
            one => std::slice::from_ref(one),
        };
        for value in values {
            if headers.len() >= MOST_HEADERS {
                problems.add(place, format_args!("more than {MOST_HEADERS} header lines"));
                return headers;
            }
            match line(value) {
                Some(value) => drop(headers.append(&header, value)),
                // The value may be a secret.
                None => problems.add(
                    &at,
                    "expected a header's value: a string without control \
                                           characters, or a list of such",
                ),
            }
        }
    }
    headers
}

fn line(value: &Json<'_>) -> Option<HeaderValue> {
    let Json::Text(text) = value else { return None };
    HeaderValue::from_bytes(text.as_bytes()).ok()
}
