//! Requests that are described instead of sent.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use slidegate::Facts;
use slidegate_tower::{AddressSource, ClientAddress, RequestHead, ResolvedClient};

/// A request described by its parts, as a log, a test case, a command line or JSON has them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object")]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct DescribedRequest {
    /// The request's method
    #[serde(deserialize_with = "method")]
    #[cfg_attr(feature = "clap", arg(long, default_value = "GET"))]
    pub method: Method,

    /// The request's path, with or without a query
    #[serde(deserialize_with = "path_or_root")]
    #[cfg_attr(feature = "clap", arg(long))]
    pub path: String,

    /// The request's headers. A command line has them one by one.
    #[serde(deserialize_with = "headers")]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub headers: HeaderMap,

    /// The client's address; without it, the one that is found by the peer and the headers
    #[cfg_attr(feature = "clap", arg(long, value_name = "ADDR"))]
    pub client: Option<IpAddr>,

    /// Address of the connection's peer: the client, or one of your proxies
    #[cfg_attr(feature = "clap", arg(long, value_name = "ADDR"))]
    pub peer: Option<IpAddr>,

    /// The user, as if an application had authenticated one
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub user: Option<String>,

    /// The customer, as if an API key, a token or an application had named one
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub customer: Option<String>,

    /// The plan, as if an application had named it
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub plan: Option<String>,

    /// What the request costs, for policies that do not fix it
    #[cfg_attr(feature = "clap", arg(long, value_name = "UNITS"))]
    pub cost: Option<NonZeroU32>,
}

impl DescribedRequest {
    /// The most header lines that are read, as servers commonly limit them.
    pub const MAX_HEADERS: usize = 256;
    /// The longest path, as the gateway has it.
    pub const MAX_PATH_BYTES: usize = 65_534;

    /// The head of the request, without the peer.
    pub fn head(&self) -> RequestHead<'_> {
        let mut head = RequestHead::new(&self.method, &self.path, &self.headers);
        if let Some(user) = &self.user {
            head = head.user(user);
        }
        if let Some(customer) = &self.customer {
            head = head.customer(customer);
        }
        if let Some(plan) = &self.plan {
            head = head.plan(plan);
        }
        self.cost.map_or(head, |cost| head.cost(cost))
    }

    /// Where the request comes from. A given client counts as the peer too, unless there is one.
    pub fn resolve(&self, client_address: &ClientAddress) -> ResolvedClient {
        let peer = self.peer.or(self.client);
        let resolved = client_address.resolve_client(peer, &self.headers);
        ResolvedClient { client: self.client.or(resolved.client), ..resolved }
    }

    /// What policies are matched with.
    pub fn facts(&self, client_address: &ClientAddress) -> Facts<'_> {
        self.head().facts(self.resolve(client_address))
    }

    /// The client's address and how it is known, if it can be.
    pub fn explain_client(&self, client_address: &ClientAddress) -> Option<String> {
        let ResolvedClient { client, is_trusted, .. } = self.resolve(client_address);
        let (client, source) = (client?, client_address.source());
        Some(match self.peer {
            _ if self.client.is_some() => format!("{client}, as given"),
            Some(_) if !is_trusted && source != AddressSource::Peer => {
                format!("{client}, the peer; its {source} is ignored: it is not a trusted proxy")
            }
            Some(peer) if peer.to_canonical() != client => {
                format!("{client}, by {source} of the trusted proxy {peer}")
            }
            _ => format!("{client}, the peer"),
        })
    }
}

const ROOT: &str = "/";

impl Default for DescribedRequest {
    /// `GET /`
    fn default() -> Self {
        Self {
            method: Method::GET,
            path: ROOT.to_owned(),
            headers: HeaderMap::new(),
            client: None,
            peer: None,
            user: None,
            customer: None,
            plan: None,
            cost: None,
        }
    }
}

/// Reads a method; `null` is `GET`.
pub fn method<'de, D: Deserializer<'de>>(json: D) -> Result<Method, D::Error> {
    let Some(text) = Option::<String>::deserialize(json)? else { return Ok(Method::GET) };
    text.parse().map_err(|_| {
        Error::custom(format_args!("expected a method such as GET, not {:?}", shortened(&text)))
    })
}

/// Reads a path, or `null`.
pub fn path<'de, D: Deserializer<'de>>(json: D) -> Result<Option<String>, D::Error> {
    const MAX: usize = DescribedRequest::MAX_PATH_BYTES;
    let path = Option::<String>::deserialize(json)?;
    match &path {
        Some(path) if path.len() > MAX => {
            Err(Error::custom(format_args!("longer than {MAX} bytes")))
        }
        _ => Ok(path),
    }
}

fn path_or_root<'de, D: Deserializer<'de>>(json: D) -> Result<String, D::Error> {
    path(json).map(|path| path.unwrap_or_else(|| ROOT.to_owned()))
}

/// Reads an object of headers; a list repeats one. No error shows a value, which may be a secret.
pub fn headers<'de, D: Deserializer<'de>>(json: D) -> Result<HeaderMap, D::Error> {
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
        const MAX: usize = DescribedRequest::MAX_HEADERS;
        let mut headers = HeaderMap::new();
        while let Some(name) = lines.next_key::<String>()? {
            let values = match lines.next_value()? {
                Value::Array(values) => values,
                Value::Null => Vec::new(),
                one => vec![one],
            };
            let header = HeaderName::try_from(&name).map_err(|_| {
                Error::custom(format_args!("{:?} is not a header's name", shortened(&name)))
            })?;
            for value in values {
                if headers.len() >= MAX {
                    return Err(Error::custom(format_args!("more than {MAX} header lines")));
                }
                let value = header_value(value).ok_or_else(|| {
                    Error::custom(format_args!(
                        "expected a value of {header}: a string without control characters, or a \
                         list of such"
                    ))
                })?;
                headers.append(&header, value);
            }
        }
        Ok(headers)
    }
}

fn header_value(json: Value) -> Option<HeaderValue> {
    let Value::String(text) = json else { return None };
    HeaderValue::try_from(text).ok()
}

/// The most characters of a caller's text that a message repeats.
const MAX_SHOWN_CHARS: usize = 64;

/// A caller's text, short enough for a message: at most 64 characters of it.
pub fn shortened(text: &str) -> Cow<'_, str> {
    truncated(text, MAX_SHOWN_CHARS)
}

/// The first characters of a text, and an ellipsis if it has more.
pub fn truncated(text: &str, max_chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}
