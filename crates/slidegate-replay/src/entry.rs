//! What a line of a log says of a request, and which of its fields say it.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use slidegate::policy::units_of;
use slidegate::{Identity, Timestamp};

use crate::described_request::DescribedRequest;
use crate::described_response::{DescribedResponse, ResponseEnd};
use crate::time::{ParseTimeError, TimeReader};

/// A request of a log. It is filled again and again, so that its buffers are kept.
#[derive(Debug, Default)]
pub(crate) struct LogEntry {
    pub(crate) at: Timestamp,
    pub(crate) request: DescribedRequest,
    pub(crate) response: DescribedResponse,
    /// Those that the log names as such, as the audit trail does.
    pub(crate) identities: Vec<Identity>,
}

/// What a field of a line is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldUse {
    Time,
    /// The address at the other end of the connection, with or without a port.
    Client,
    /// `GET /path HTTP/1.1`.
    Request,
    Method,
    Path,
    User,
    Plan,
    Cost,
    /// Of the response.
    Status,
    /// The units that the response says.
    ResponseCost,
    Header(HeaderName),
    /// `X-Forwarded-For` to which the server that wrote the log has added the address of its peer.
    ForwardedFor,
}

/// Why a line is not a request. Repeats nothing of the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadLine(pub(crate) Cow<'static, str>);

impl From<&'static str> for BadLine {
    fn from(problem: &'static str) -> Self {
        Self(problem.into())
    }
}

impl From<ParseTimeError> for BadLine {
    fn from(error: ParseTimeError) -> Self {
        Self(error.to_string().into())
    }
}

pub(crate) const NO_TIME: &str = "there is no time";
pub(crate) const NO_REQUEST: &str = "there is no method and path";

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl LogEntry {
    /// Makes room for the next line.
    pub(crate) fn clear(&mut self) {
        let request = &mut self.request;
        request.method = Method::GET;
        request.path.clear();
        if !request.headers.is_empty() {
            request.headers.clear();
        }
        (request.peer, request.user, request.plan, request.cost) = (None, None, None, None);
        self.response = DescribedResponse::default();
        self.identities.clear();
    }

    /// Takes what a field says. A field that is empty or `-` says nothing.
    pub(crate) fn set(
        &mut self,
        field: &FieldUse,
        text: &str,
        times: &mut TimeReader,
    ) -> Result<(), BadLine> {
        if text.is_empty() || text == "-" {
            return Ok(());
        }
        let request = &mut self.request;
        match field {
            FieldUse::Time => self.at = times.read(text)?,
            FieldUse::Client => request.peer = address(text)?,
            FieldUse::Request => self.set_request(text)?,
            FieldUse::Method => request.method = method(text)?,
            FieldUse::Path => self.set_path(text),
            FieldUse::User => request.user = Some(text.to_owned()),
            FieldUse::Plan => request.plan = Some(text.to_owned()),
            FieldUse::Cost => {
                let cost = text.parse().map_err(|_| "expected a cost of 1 or more")?;
                request.cost = Some(cost);
            }
            // What is unreadable is as good as missing, as in a response.
            FieldUse::Status => {
                self.response.end = text.parse().ok().and_then(ResponseEnd::from_logged);
            }
            FieldUse::ResponseCost => self.response.cost = units_of(text),
            FieldUse::Header(name) => set_header(&mut request.headers, name, text),
            FieldUse::ForwardedFor => self.set_forwarded_for(text)?,
        }
        Ok(())
    }

    /// Whether the line has said enough.
    pub(crate) fn check(&self) -> Result<(), BadLine> {
        if self.request.path.is_empty() {
            return Err(NO_REQUEST.into());
        }
        Ok(())
    }

    fn set_request(&mut self, text: &str) -> Result<(), BadLine> {
        let expected = "expected a request such as GET / HTTP/1.1";
        let (name, path) = text.split_once(' ').ok_or(expected)?;
        // HTTP/0.9 has no version.
        let path = match path.rsplit_once(' ') {
            Some((path, version)) if version.starts_with("HTTP/") => path,
            _ => path,
        };
        self.request.method = method(name).map_err(|_| expected)?;
        self.set_path(path);
        Ok(())
    }

    /// Takes a path, or the path of a whole URL.
    fn set_path(&mut self, text: &str) {
        let path = &mut self.request.path;
        path.clear();
        path.push_str(text);
        if !path.starts_with('/')
            && let Some((_, rest)) = path.split_once("://")
        {
            *path = rest.find(['/', '?']).map_or("/", |start| &rest[start..]).to_owned();
            if path.starts_with('?') {
                path.insert(0, '/');
            }
        }
    }

    fn set_forwarded_for(&mut self, text: &str) -> Result<(), BadLine> {
        let (before, last) = text.rsplit_once(',').unwrap_or(("", text));
        self.request.peer = address(last.trim())?;
        set_header(&mut self.request.headers, &X_FORWARDED_FOR, before);
        Ok(())
    }
}

fn method(text: &str) -> Result<Method, BadLine> {
    text.parse().map_err(|_| "expected a method such as GET".into())
}

/// An address, with or without a port. A Unix socket has none.
fn address(text: &str) -> Result<Option<IpAddr>, BadLine> {
    if text.starts_with("unix:") {
        return Ok(None);
    }
    let address = text.parse().ok().or_else(|| {
        let with_port = text.parse::<SocketAddr>().ok().map(|address| address.ip());
        with_port.or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok())
    });
    address.map(Some).ok_or_else(|| "expected a client's address such as 203.0.113.7".into())
}

fn set_header(headers: &mut HeaderMap, name: &HeaderName, text: &str) {
    // What is no value of a header, no policy would have seen.
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name.clone(), value);
    }
}

/// What a field of a log is for, parsed from `USE=FIELD` such as `user=user_id`.
///
/// `USE` is `time`, `client`, `request`, `method`, `path`, `user`, `plan`, `cost`, `status`,
/// `response-cost`, `api-key`, `authorization`, `forwarded-for` or `header:NAME`. `FIELD` is a variable of a template, a column of
/// CSV or a path in JSON such as `request.user.id`.
#[derive(Debug, Clone)]
pub struct FieldMapping {
    pub(crate) to: FieldUse,
    pub(crate) field: String,
}

/// A text that is not `USE=FIELD`.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "expected USE=FIELD, where USE is time, client, request, method, path, user, plan, cost, \
     status, response-cost, api-key, authorization, forwarded-for or header:NAME"
)]
pub struct ParseMappingError;

impl FromStr for FieldMapping {
    type Err = ParseMappingError;

    fn from_str(text: &str) -> Result<Self, ParseMappingError> {
        let (to, field) = text.split_once('=').ok_or(ParseMappingError)?;
        let field = field.strip_prefix('$').unwrap_or(field);
        if field.is_empty() {
            return Err(ParseMappingError);
        }
        Ok(Self { to: to.parse()?, field: field.to_owned() })
    }
}

impl FromStr for FieldUse {
    type Err = ParseMappingError;

    fn from_str(text: &str) -> Result<Self, ParseMappingError> {
        Ok(match text {
            "time" => Self::Time,
            "client" => Self::Client,
            "request" => Self::Request,
            "method" => Self::Method,
            "path" => Self::Path,
            "user" => Self::User,
            "plan" => Self::Plan,
            "cost" => Self::Cost,
            "status" => Self::Status,
            "response-cost" => Self::ResponseCost,
            "api-key" => Self::Header(HeaderName::from_static("x-api-key")),
            "authorization" => Self::Header(http::header::AUTHORIZATION),
            "forwarded-for" => Self::Header(X_FORWARDED_FOR),
            _ => {
                let name = text.strip_prefix("header:").ok_or(ParseMappingError)?;
                Self::Header(name.parse().map_err(|_| ParseMappingError)?)
            }
        })
    }
}

impl FieldUse {
    /// Whether a field of this use may have a secret.
    pub(crate) fn may_be_secret(&self) -> bool {
        matches!(self, Self::Header(name) if *name != X_FORWARDED_FOR)
    }
}

impl fmt::Display for FieldUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "time",
            Self::Client => "client",
            Self::Request => "request",
            Self::Method => "method",
            Self::Path => "path",
            Self::User => "user",
            Self::Plan => "plan",
            Self::Cost => "cost",
            Self::Status => "status",
            Self::ResponseCost => "response-cost",
            Self::ForwardedFor => "forwarded-for",
            Self::Header(name) => return write!(f, "header:{name}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(request: &str) -> (Method, String) {
        let mut entry = LogEntry::default();
        entry.set(&FieldUse::Request, request, &mut TimeReader::default()).unwrap();
        (entry.request.method, entry.request.path)
    }

    #[test]
    fn a_request_is_a_method_and_a_path() {
        for (request, method, expected) in [
            ("GET / HTTP/1.1", "GET", "/"),
            ("GET /old", "GET", "/old"),
            ("PURGE /a b HTTP/1.1", "PURGE", "/a b"),
            ("GET https://a.example:443/x?y=1 HTTP/1.1", "GET", "/x?y=1"),
            ("GET http://a.example HTTP/1.1", "GET", "/"),
            ("GET http://a.example?q=1 HTTP/1.1", "GET", "/?q=1"),
            ("OPTIONS * HTTP/1.1", "OPTIONS", "*"),
        ] {
            assert_eq!(path(request), (method.parse().unwrap(), expected.to_owned()), "{request}");
        }
    }

    #[test]
    fn addresses_may_have_a_port() {
        for (text, expected) in [
            ("203.0.113.7", Some("203.0.113.7")),
            ("203.0.113.7:443", Some("203.0.113.7")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("unix:", None),
        ] {
            assert_eq!(address(text), Ok(expected.map(|ip| ip.parse().unwrap())));
        }
        assert!(address("client.example").is_err());
    }

    #[test]
    fn last_address_of_forwarded_for_is_the_peer() {
        let mut entry = LogEntry::default();
        let text = "198.51.100.1, 203.0.113.7,10.0.0.1";
        entry.set(&FieldUse::ForwardedFor, text, &mut TimeReader::default()).unwrap();
        assert_eq!(entry.request.peer, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(entry.request.headers["x-forwarded-for"], "198.51.100.1, 203.0.113.7");
    }
}
