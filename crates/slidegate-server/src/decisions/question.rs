//! What a caller asks: may this request pass, or can these charges be spent?

use std::net::IpAddr;
use std::num::NonZeroU32;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json_borrow::{ObjectAsVec, Value};
use slidegate::{Facts, NamedCharge, Policies};

use super::identity;
use super::validation::ValidationErrors;
use crate::json_body::{self, shortened};
use crate::problem::Problem;

/// One question.
#[derive(Debug)]
pub(super) enum Question<'v> {
    /// May this request pass?
    Request(Box<DescribedRequest<'v>>),
    /// Can all of these be spent?
    Charges(Vec<NamedCharge<'v>>),
}

/// A request as its caller describes it.
#[derive(Debug)]
pub(super) struct DescribedRequest<'v> {
    pub(super) method: Method,
    pub(super) path: &'v str,
    pub(super) headers: HeaderMap,
    pub(super) client: Option<IpAddr>,
    user: Option<&'v str>,
    plan: Option<&'v str>,
    cost: Option<NonZeroU32>,
    trusted: bool,
}

/// The most bytes of a body: a hundred questions with long headers.
pub(super) const MAX_BYTES: usize = 256 * 1024;

/// The most values in a body, of any kind and at any depth: a hundred for each of a hundred
/// questions.
const MAX_VALUES: usize = 10_000;

/// The most questions at once: each is a call to the store.
pub(super) const MAX_QUESTIONS: usize = 100;

/// The most accounts that one question can charge.
const MAX_CHARGES: usize = 16;

/// The most header lines that are read, as servers commonly limit them.
const MAX_HEADERS: usize = 256;

/// The longest path, as the gateway has it.
const MAX_PATH_BYTES: usize = 65_534;

/// Parses a body. Strings are borrowed from it.
pub(super) fn parse(body: &[u8]) -> Result<Value<'_>, Problem> {
    let json = serde_json::from_slice(body).map_err(|error| json_body::syntax_error(&error))?;
    if count(&json) > MAX_VALUES {
        return Err(Problem::invalid_body(format_args!("more than {MAX_VALUES} values")));
    }
    Ok(json)
}

/// How many values there are, with this one.
fn count(value: &Value<'_>) -> usize {
    let inner: usize = match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.iter().map(|(_, value)| count(value)).sum(),
        _ => 0,
    };
    1 + inner
}

impl<'v> Question<'v> {
    /// Reads one question, or a list of them. The error lists everything that is wrong. The
    /// policies are those that charges can be under.
    pub(super) fn read(json: &'v Value<'v>, policies: &Policies) -> Result<Vec<Self>, Problem> {
        let mut problems = ValidationErrors::default();
        let questions = match json {
            Value::Array(items) if items.len() > MAX_QUESTIONS => {
                let count = items.len();
                problems
                    .add("", format_args!("{count} questions at once; at most {MAX_QUESTIONS}"));
                Vec::new()
            }
            Value::Array(items) => {
                let read = |(index, item)| {
                    let step = format_args!("[{index}]");
                    problems.within(step, |problems| Self::read_one(item, policies, problems))
                };
                items.iter().enumerate().filter_map(read).collect()
            }
            one => Self::read_one(one, policies, &mut problems).into_iter().collect(),
        };
        problems.finish(questions)
    }

    fn read_one(
        json: &'v Value<'v>,
        policies: &Policies,
        problems: &mut ValidationErrors,
    ) -> Option<Self> {
        let members = problems.object(json)?;
        if members.get("charges").is_some() {
            return Some(Self::Charges(charges(members, policies, problems)));
        }
        Some(Self::Request(Box::new(DescribedRequest::read(members, problems))))
    }
}

impl<'v> DescribedRequest<'v> {
    const MEMBERS: [&'static str; 8] =
        ["method", "path", "headers", "client", "user", "plan", "cost", "trusted"];

    fn read(members: &'v ObjectAsVec<'v>, problems: &mut ValidationErrors) -> Self {
        let mut request = Self {
            method: Method::GET,
            path: "/",
            headers: HeaderMap::new(),
            client: None,
            user: None,
            plan: None,
            cost: None,
            trusted: false,
        };
        for (name, value) in members.iter() {
            match name {
                // Null is no value, as many programs write it.
                _ if value.is_null() && Self::MEMBERS.contains(&name) => {}
                "method" => {
                    let parse = |text: &str| Method::from_bytes(text.as_bytes()).ok();
                    let method = problems.parsed(name, value, "a method such as GET", parse);
                    request.method = method.unwrap_or_default();
                }
                "path" => request.path = path(value, problems),
                "headers" => request.headers = headers(value, problems),
                "client" => {
                    let parse = |text: &str| text.parse().ok();
                    request.client = problems.parsed(name, value, "an IP address", parse);
                }
                "user" => request.user = problems.string(name, value),
                "plan" => request.plan = problems.string(name, value),
                "cost" => request.cost = problems.units(name, value),
                "trusted" => match value.as_bool() {
                    Some(trusted) => request.trusted = trusted,
                    None => problems.expected(name, "true or false", value),
                },
                _ => {
                    let known = Self::MEMBERS.join(", ");
                    let problem = format_args!("unknown member; expected {known}, or charges");
                    problems.add(name, problem);
                }
            }
        }
        request
    }

    /// The facts about the request, with the other ways to read its path.
    pub(super) fn facts<'f>(&'f self, other_paths: &'f [String]) -> Facts<'f> {
        let mut facts = Facts::new(&self.method, self.path).headers(&self.headers);
        facts = facts.other_paths(other_paths);
        if let Some(client) = self.client {
            facts = facts.client(client);
        }
        if let Some(user) = self.user {
            facts = facts.user(user);
        }
        if let Some(plan) = self.plan {
            facts = facts.plan(plan);
        }
        if let Some(cost) = self.cost {
            facts = facts.cost(cost);
        }
        if self.trusted { facts.headers_trusted() } else { facts }
    }
}

fn path<'v>(value: &'v Value<'_>, problems: &mut ValidationErrors) -> &'v str {
    match value.as_str() {
        Some(path) if path.len() > MAX_PATH_BYTES => {
            problems.add("path", format_args!("longer than {MAX_PATH_BYTES} bytes"));
        }
        Some(path) if path.starts_with('/') || path == "*" => return path,
        _ => problems.expected("path", "a path that begins with /", value),
    }
    "/"
}

fn headers(value: &Value<'_>, problems: &mut ValidationErrors) -> HeaderMap {
    let Value::Object(lines) = value else {
        problems.expected("headers", "an object of headers", value);
        return HeaderMap::new();
    };
    let mut headers = HeaderMap::with_capacity(lines.len().min(MAX_HEADERS));
    for (name, value) in lines.iter() {
        let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
            problems.within("headers", |problems| problems.add(name, "not a header's name"));
            continue;
        };
        let values = match value {
            Value::Array(values) => values.as_slice(),
            Value::Null => &[],
            one => std::slice::from_ref(one),
        };
        for value in values {
            if headers.len() >= MAX_HEADERS {
                let problem = format_args!("more than {MAX_HEADERS} header lines");
                problems.add("headers", problem);
                return headers;
            }
            match value.as_str().map(|text| HeaderValue::from_bytes(text.as_bytes())) {
                Some(Ok(value)) => drop(headers.append(&header, value)),
                // The value may be a secret.
                _ => problems.within("headers", |problems| {
                    problems.add(
                        name,
                        "expected a header's value: a string without control characters, or a \
                         list of such",
                    );
                }),
            }
        }
    }
    headers
}

/// Reads a question that has charges, and nothing else.
fn charges<'v>(
    members: &'v ObjectAsVec<'v>,
    policies: &Policies,
    problems: &mut ValidationErrors,
) -> Vec<NamedCharge<'v>> {
    let mut charges: Vec<NamedCharge<'_>> = Vec::new();
    for (name, value) in members.iter() {
        match value {
            _ if name != "charges" => problems.add(name, "not together with charges"),
            Value::Array(items) if (1..=MAX_CHARGES).contains(&items.len()) => {
                for (index, item) in items.iter().enumerate() {
                    problems.within(format_args!("charges[{index}]"), |problems| {
                        let charge = charge(item, policies, problems);
                        let other = charge.as_ref().map(|charge| charge.policy);
                        if charges.iter().any(|charge| Some(charge.policy) == other) {
                            let problem = "charged twice; a question has one account under each \
                                           policy";
                            problems.add("policy", problem);
                        }
                        charges.extend(charge);
                    });
                }
            }
            Value::Array(items) => {
                let count = items.len();
                problems.add(name, format_args!("{count} charges; expected 1 to {MAX_CHARGES}"));
            }
            other => problems.expected(name, "a list of charges", other),
        }
    }
    charges
}

fn charge<'v>(
    value: &'v Value<'v>,
    policies: &Policies,
    problems: &mut ValidationErrors,
) -> Option<NamedCharge<'v>> {
    let members = problems.object(value)?;
    for required in ["policy", "identity"] {
        if members.get(required).is_none() {
            problems.add(required, "missing");
        }
    }
    let (mut policy, mut payer, mut plan, mut cost) = (None, None, None, None);
    for (name, value) in members.iter() {
        match name {
            "plan" | "cost" if value.is_null() => {}
            "policy" => {
                policy = problems.string(name, value);
                if let Some(policy) = policy
                    && !policies.names().any(|name| **name == *policy)
                {
                    let problem = format_args!("there is no policy {:?}", shortened(policy));
                    problems.add(name, problem);
                }
            }
            "plan" => plan = problems.string(name, value),
            "cost" => cost = problems.units(name, value),
            "identity" => payer = identity::read(value, problems),
            _ => problems.add(name, "unknown member; expected policy, identity, plan and cost"),
        }
    }
    Some(NamedCharge { policy: policy?, identity: payer?, plan, cost })
}
