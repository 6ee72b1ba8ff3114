//! What a caller asks: may this request pass, or can these charges be spent?

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::num::NonZeroU32;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use slidegate::{Facts, Identity, NamedCharge, Policies};

use super::identity;
use crate::endpoint::json_body;
use crate::endpoint::problem::{Problem, shortened};

/// One question: about a request as its caller describes it, or about charges.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object")]
pub(super) struct Question {
    #[serde(deserialize_with = "method")]
    pub(super) method: Method,
    #[serde(deserialize_with = "path")]
    path: Option<String>,
    #[serde(deserialize_with = "headers")]
    pub(super) headers: HeaderMap,
    pub(super) client: Option<IpAddr>,
    user: Option<String>,
    plan: Option<String>,
    cost: Option<NonZeroU32>,
    trusted: Option<bool>,
    refundable: Option<bool>,
    charges: Option<AtMost<MAX_CHARGES, ChargeBody>>,
}

/// Units to spend from one account.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct ChargeBody {
    policy: String,
    #[serde(deserialize_with = "identity::deserialize")]
    identity: Identity,
    plan: Option<String>,
    cost: Option<NonZeroU32>,
}

/// The most bytes of a body: a hundred questions with long headers.
pub(super) const MAX_BYTES: usize = 256 * 1024;

/// The most questions at once: each is a call to the store.
pub(super) const MAX_QUESTIONS: usize = 100;

/// The most accounts that one question can charge.
const MAX_CHARGES: usize = 16;

/// The most header lines that are read, as servers commonly limit them.
const MAX_HEADERS: usize = 256;

/// The longest path, as the gateway has it.
const MAX_PATH_BYTES: usize = 65_534;

impl Question {
    /// Reads one question, or a list of them. The policies are those that charges can be under.
    pub(super) fn read(body: &[u8], policies: &Policies) -> Result<Vec<Self>, Problem> {
        let is_list = json_body::is_list(body);
        let questions = if is_list {
            json_body::parse::<AtMost<MAX_QUESTIONS, Self>>(body)?.0
        } else {
            vec![json_body::parse(body)?]
        };
        for (index, question) in questions.iter().enumerate() {
            question.check(policies).map_err(|(member, problem)| {
                let member = if is_list { format!("[{index}].{member}") } else { member };
                Problem::invalid_member(&member, problem)
            })?;
        }
        Ok(questions)
    }

    /// The member that is wrong, and why.
    fn check(&self, policies: &Policies) -> Result<(), (String, String)> {
        let Some(AtMost(charges)) = &self.charges else { return Ok(()) };
        let wrong = |member: &str, problem: &str| Err((member.to_owned(), problem.to_owned()));
        if self.describes_request() {
            return wrong("charges", "not together with members that describe a request");
        }
        if charges.is_empty() {
            return wrong("charges", "expected at least one charge");
        }
        for (index, ChargeBody { policy, .. }) in charges.iter().enumerate() {
            let member = format!("charges[{index}].policy");
            if !policies.names().any(|name| **name == **policy) {
                let problem = format!("there is no policy {:?}", shortened(policy));
                return wrong(&member, &problem);
            }
            if charges[..index].iter().any(|other| other.policy == *policy) {
                let problem = "charged twice; a question has one account under each policy";
                return wrong(&member, problem);
            }
        }
        Ok(())
    }

    fn describes_request(&self) -> bool {
        let Self { method, path, headers, client, user, plan, cost, trusted, .. } = self;
        let is_someone = client.is_some() || user.is_some() || plan.is_some();
        let has_head = *method != Method::GET || path.is_some() || !headers.is_empty();
        has_head || is_someone || cost.is_some() || trusted.is_some()
    }

    /// Whether the answer is to have an id, so that what is spent can be refunded.
    pub(super) fn is_refundable(&self) -> bool {
        self.refundable == Some(true)
    }

    pub(super) fn path(&self) -> &str {
        self.path.as_deref().unwrap_or("/")
    }

    /// The facts about the request.
    pub(super) fn facts(&self) -> Facts<'_> {
        let mut facts = Facts::new(&self.method, self.path()).headers(&self.headers);
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
        if self.trusted == Some(true) { facts.headers_trusted() } else { facts }
    }

    /// The charges, if the question is about some.
    pub(super) fn charges(&self) -> Option<Vec<NamedCharge<'_>>> {
        let AtMost(charges) = self.charges.as_ref()?;
        let named = charges.iter().map(|charge| NamedCharge {
            policy: &charge.policy,
            identity: charge.identity,
            plan: charge.plan.as_deref(),
            cost: charge.cost,
            quotas: None,
        });
        Some(named.collect())
    }
}

pub(crate) fn method<'de, D: Deserializer<'de>>(json: D) -> Result<Method, D::Error> {
    let Some(text) = Option::<String>::deserialize(json)? else { return Ok(Method::GET) };
    let shown = shortened(&text);
    let error = || Error::custom(format_args!("expected a method such as GET, not {shown:?}"));
    text.parse().map_err(|_| error())
}

pub(crate) fn path<'de, D: Deserializer<'de>>(json: D) -> Result<Option<String>, D::Error> {
    let path = Option::<String>::deserialize(json)?;
    match path.as_deref() {
        Some(path) if path.len() > MAX_PATH_BYTES => {
            Err(Error::custom(format_args!("longer than {MAX_PATH_BYTES} bytes")))
        }
        _ => Ok(path),
    }
}

pub(crate) fn headers<'de, D: Deserializer<'de>>(json: D) -> Result<HeaderMap, D::Error> {
    json.deserialize_any(HeadersVisitor)
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = HeaderMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of headers")
    }

    fn visit_unit<E: Error>(self) -> Result<HeaderMap, E> {
        Ok(HeaderMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut lines: A) -> Result<HeaderMap, A::Error> {
        let mut headers = HeaderMap::new();
        while let Some(name) = lines.next_key::<String>()? {
            let values = match lines.next_value()? {
                Value::Array(values) => values,
                Value::Null => Vec::new(),
                one => vec![one],
            };
            let Ok(header) = HeaderName::try_from(&name) else {
                let name = shortened(&name);
                return Err(Error::custom(format_args!("{name:?} is not a header's name")));
            };
            for value in values {
                if headers.len() >= MAX_HEADERS {
                    let problem = format_args!("more than {MAX_HEADERS} header lines");
                    return Err(Error::custom(problem));
                }
                // The value may be a secret, and is not repeated.
                let Some(value) = header_value(value) else {
                    return Err(Error::custom(format_args!(
                        "expected a value of {header}: a string without control characters, or a \
                         list of such"
                    )));
                };
                headers.append(&header, value);
            }
        }
        Ok(headers)
    }
}

fn header_value(json: Value) -> Option<HeaderValue> {
    let Value::String(text) = json else { return None };
    HeaderValue::from_maybe_shared(Bytes::from(text)).ok()
}

/// A list that is not read any further than it may be long.
#[derive(Debug)]
struct AtMost<const MOST: usize, T>(Vec<T>);

impl<'de, const MOST: usize, T: Deserialize<'de>> Deserialize<'de> for AtMost<MOST, T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<const MOST: usize, T>(PhantomData<T>);

impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for ListVisitor<MOST, T> {
    type Value = AtMost<MOST, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<AtMost<MOST, T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MOST {
                return Err(Error::custom(format_args!("more than {MOST}")));
            }
            list.push(item);
        }
        Ok(AtMost(list))
    }
}
