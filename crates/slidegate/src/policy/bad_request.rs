//! Requests that policies cannot be applied to with certainty, because other programs may read them
//! in another way.

use http::{HeaderMap, HeaderName, Method, header};

use crate::policy::credentials::{self, MalformedCredentials};
use crate::policy::methods;
use crate::policy::source::{API_KEY, Source};
use crate::policy::{Facts, Policies};

/// Why a request is to be refused with `400 Bad Request` before it is counted.
///
/// See [`Gate::check`](crate::Gate::check).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// The method is a known one in another case. Policies for the known one would not count it,
    /// and some servers accept it all the same.
    #[error("the method differs from {known} only in case; methods are case-sensitive")]
    MethodCase {
        /// The method that it looks like.
        known: String,
    },
    /// The path does not begin with a slash. Servers differ in what they make of it, and no pattern
    /// matches it. `OPTIONS *` and `CONNECT` have no path to read.
    #[error("the path does not begin with a slash")]
    NoPath,
    /// The path can be read in more ways than are looked at.
    #[error("the path can be read in too many ways")]
    TooManyReadings,
    /// The path has a control character, encoded or not, at which some servers end it.
    #[error("the path has a control character, such as %00")]
    ControlCharacter,
    /// A header that an identity or a plan is read from is there more than once. Which of its
    /// values counts differs from server to server.
    #[error("the header {name} is there more than once")]
    RepeatedHeader {
        /// The header.
        name: HeaderName,
    },
    /// The credentials of a header that an identity is read from can be read in several ways, or
    /// are one of several spellings that other programs read alike.
    #[error("the header {name} has malformed credentials: {problem}")]
    Credentials {
        /// The header.
        name: HeaderName,
        /// What was expected.
        problem: String,
    },
}

impl Policies {
    /// See [`Gate::check`](crate::Gate::check).
    pub fn check(&self, facts: &Facts<'_>) -> Result<(), BadRequest> {
        self.check_method(facts.method)?;
        self.check_path(facts)?;
        self.check_headers(facts.headers)?;
        check_credentials(&self.credentials_headers, facts)?;
        match facts.header(&header::AUTHORIZATION).filter(|_| self.reads_tokens) {
            Some(value) if credentials::has_stray_jwt(value) => {
                let problem = MalformedCredentials::StrayJwt.to_string();
                Err(BadRequest::Credentials { name: header::AUTHORIZATION, problem })
            }
            _ => Ok(()),
        }
    }

    /// The headers besides `X-API-Key` and `Authorization` that identities and plans are read from,
    /// the user header among them.
    pub fn identity_headers(&self) -> impl Iterator<Item = &HeaderName> {
        let of_policies = self.policies.iter().flat_map(|policy| {
            let sources = policy.identity.iter().chain(&policy.exempt.sources);
            sources.filter_map(named_header).chain(policy.plan_header())
        });
        let lists = self.exempt.sources.iter().chain(&self.blocked.sources);
        of_policies.chain(lists.filter_map(named_header)).chain(&self.user_header)
    }

    fn check_headers(&self, headers: &HeaderMap) -> Result<(), BadRequest> {
        // Nearly no request repeats any header.
        if headers.len() == headers.keys_len() {
            return Ok(());
        }
        let is_repeated = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
        let always = [&API_KEY, &header::AUTHORIZATION];
        // HTTP/2 may send a cookie in several lines, which are read as one value.
        let named = self.identity_headers().filter(|name| **name != header::COOKIE);
        match always.into_iter().chain(named).find(is_repeated) {
            Some(name) => Err(BadRequest::RepeatedHeader { name: name.clone() }),
            None => Ok(()),
        }
    }

    fn check_path(&self, facts: &Facts<'_>) -> Result<(), BadRequest> {
        if *facts.method == Method::CONNECT || facts.path == "*" {
            return Ok(());
        }
        if !facts.path.starts_with('/') {
            return Err(BadRequest::NoPath);
        }
        let readings = self.readings(facts);
        if !readings.is_plain() && has_control_character(readings.sent) {
            return Err(BadRequest::ControlCharacter);
        }
        if readings.is_complete { Ok(()) } else { Err(BadRequest::TooManyReadings) }
    }

    /// Known are the methods of [`methods::KNOWN`], and those that policies name.
    fn check_method(&self, method: &Method) -> Result<(), BadRequest> {
        let text = method.as_str();
        let named = || self.policies.iter().flat_map(|policy| &policy.methods).map(Method::as_str);
        if methods::is_known(text) || named().any(|named| named == text) {
            return Ok(());
        }
        let mut known = methods::known().chain(named());
        match known.find(|known| known.eq_ignore_ascii_case(text)) {
            Some(known) => Err(BadRequest::MethodCase { known: known.to_owned() }),
            None => Ok(()),
        }
    }
}

/// The headers with credentials that any of these sources reads, each once.
pub(crate) fn credentials_headers<'s>(
    sources: impl Iterator<Item = &'s Source>,
) -> Vec<HeaderName> {
    let mut headers = Vec::new();
    for name in sources.filter_map(Source::credentials_header) {
        if !headers.contains(name) {
            headers.push(name.clone());
        }
    }
    headers
}

/// Checks the credentials in these headers.
pub(crate) fn check_credentials(
    headers: &[HeaderName],
    facts: &Facts<'_>,
) -> Result<(), BadRequest> {
    for name in headers {
        if let Some(value) = facts.header(name)
            && let Err(error) = credentials::read(value)
        {
            let (name, problem) = (name.clone(), error.to_string());
            return Err(BadRequest::Credentials { name, problem });
        }
    }
    Ok(())
}

pub(super) fn has_control_character(path: &str) -> bool {
    let bytes = path.as_bytes();
    let is_control = |(i, byte): (usize, &u8)| match byte {
        b'%' => match bytes.get(i + 1..i + 3) {
            Some([b'0' | b'1', low]) => low.is_ascii_hexdigit(),
            Some([b'7', low]) => low.eq_ignore_ascii_case(&b'f'),
            _ => false,
        },
        byte => byte.is_ascii_control(),
    };
    bytes.iter().enumerate().any(is_control)
}

fn named_header(source: &Source) -> Option<&HeaderName> {
    match source {
        Source::Header(name) => Some(name),
        _ => None,
    }
}
