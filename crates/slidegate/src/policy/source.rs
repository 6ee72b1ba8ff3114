//! Where an identity is read from.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::{HeaderName, header};

use crate::policy::credentials::{self, Credentials};
use crate::policy::{Facts, Identity, KeyHash, ParseError, Prefixes};

/// Where an identity is read from. A policy has a list of them; the first that is present wins.
///
/// ```
/// use slidegate::{Facts, Source};
///
/// let facts = Facts::new(&http::Method::GET, "/v1/reports").client("2001:db8::7".parse()?);
/// let sources: [Source; 2] = ["user".parse()?, "ip".parse()?];
/// assert_eq!(sources, [Source::User, Source::ip()]);
///
/// let identity = sources.iter().find_map(|source| source.read(&facts));
/// assert_eq!(identity.expect("the client's address").as_str(), "ip:2001:db8::/64");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// The user that the application has authenticated, or that a trusted peer names in the
    /// policies' [`user_header`](crate::policy::PoliciesBuilder::user_header).
    User,
    /// The `X-API-Key` header, digested; of a customer's key, the customer.
    ApiKey,
    /// The customer whose API key or token the request has.
    Customer,
    /// The `Authorization` header, digested.
    Authorization,
    /// The client's address, or its network.
    Ip(Prefixes),
    /// An identity of this kind that the application has named, in
    /// [`Facts::identities`](crate::Facts::identities).
    Named(Cow<'static, str>),
    /// A named header, such as a tenant's name, from a trusted peer.
    Header(HeaderName),
    /// The values of these keys of a [descriptor](crate::policy::Descriptors), together.
    Descriptor(Vec<String>),
    /// All requests together: one budget for everybody.
    Everyone,
}

pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

impl Source {
    /// Each IPv4 address and each IPv6 /64.
    pub fn ip() -> Self {
        Self::Ip(Prefixes::default())
    }

    /// Identities of a kind that only the application knows, such as `tenant`.
    pub fn named(kind: impl Into<Cow<'static, str>>) -> Self {
        Self::Named(kind.into())
    }

    /// The request's identity by this source, if it has one.
    pub fn read(&self, facts: &Facts<'_>) -> Option<Identity> {
        match self {
            Self::User => {
                let named = facts.user_id().map(Identity::user_bytes);
                let named = named.or_else(|| facts.identity("user"));
                named.or_else(|| facts.bearer.and_then(|bearer| bearer.user))
            }
            Self::Named(kind) => facts.identity(kind),
            Self::ApiKey => match facts.key {
                Some(found) => found.account,
                None => {
                    let key = facts.header(&API_KEY).map(Identity::api_key);
                    key.or_else(|| facts.identity("api-key"))
                }
            },
            Self::Customer => {
                let by_bearer = || facts.bearer.and_then(|bearer| bearer.customer);
                let known = || facts.key.map_or_else(by_bearer, |found| found.customer);
                facts.identity("customer").or_else(known)
            }
            Self::Authorization => match facts.header(&header::AUTHORIZATION) {
                Some(value) => credential(value).then(|| Identity::authorization(value)),
                None => facts.identity("authorization"),
            },
            Self::Ip(prefixes) => facts.client.map(|address| Identity::ip(address, *prefixes)),
            Self::Header(name) if *name == header::COOKIE => {
                let cookie = facts.headers_trusted.then(|| facts.cookie()).flatten();
                cookie.map(|value| Identity::header(name, &value))
            }
            Self::Header(name) => match facts.trusted_header(name) {
                Some(_) if *name == API_KEY && facts.key.is_some() => {
                    facts.key.and_then(|found| found.account)
                }
                Some(value) if has_credentials(name) && !credential(value) => None,
                Some(value) => Some(Identity::header(name, value)),
                None => facts.identity(name.as_str()),
            },
            // A request has no descriptors.
            Self::Descriptor(_) => None,
            Self::Everyone => Some(Identity::everyone()),
        }
    }

    /// The header that it reads credentials from.
    pub(crate) fn credentials_header(&self) -> Option<&HeaderName> {
        match self {
            Self::Authorization => Some(&header::AUTHORIZATION),
            Self::Header(name) if has_credentials(name) => Some(name),
            _ => None,
        }
    }

    /// Whether the identities that it finds are API keys.
    pub(crate) fn gives_api_keys(&self) -> bool {
        *self == Self::ApiKey || *self == Self::Header(API_KEY)
    }

    /// Where an identity would be read from, if its text alone tells. Of `anonymous` and of a header
    /// whose name is digested it does not.
    pub(crate) fn of(identity: &Identity) -> Option<Self> {
        match identity.kind() {
            kind @ ("user" | "customer" | "api-key" | "authorization" | "everyone") => {
                kind.parse().ok()
            }
            "ip" => Prefixes::of(identity.network()?).ok().map(Self::Ip),
            "anonymous" | "header" => None,
            name => name.parse().ok().map(Self::Header),
        }
    }

    /// The identity of the request by this source if it is listed: of an API key, that of the key itself
    /// and not of its customer.
    pub(crate) fn read_listed(
        &self,
        facts: &Facts<'_>,
        listed: impl FnMut(&Identity) -> bool,
    ) -> Option<Identity> {
        let key = match self {
            Self::ApiKey => facts.header(&API_KEY),
            Self::Header(name) if *name == API_KEY => facts.trusted_header(name),
            _ => return self.read(facts).filter(listed),
        };
        match key {
            Some(_) if facts.key.is_some_and(|found| found.has_expired) => None,
            Some(key) => key_identities(key).into_iter().find(listed),
            None => facts.identity("api-key").filter(listed),
        }
    }

    /// An identity of the request that is listed, looked for in every line of a repeated header, so
    /// that a second header does not evade a list.
    pub(crate) fn find_listed(
        &self,
        facts: &Facts<'_>,
        mut listed: impl FnMut(&Identity) -> bool,
    ) -> Option<Identity> {
        match self {
            Self::ApiKey => facts.header_values(&API_KEY).flat_map(key_identities).find(listed),
            Self::Header(name) if *name == API_KEY && facts.headers_trusted => {
                facts.header_values(name).flat_map(key_identities).find(listed)
            }
            Self::Authorization => {
                let values = facts.header_values(&header::AUTHORIZATION);
                values.map(Identity::authorization).find(listed)
            }
            Self::Header(name) if facts.headers_trusted => {
                let values = facts.header_values(name);
                let found = values.map(|value| Identity::header(name, value)).find(&mut listed);
                // The lines of a cookie may be listed as the one value that they are together.
                found.or_else(|| self.read(facts).filter(listed))
            }
            Self::User if facts.headers_trusted && facts.user_id().is_none() => {
                let ids = facts.user_header.into_iter().flat_map(|name| facts.header_values(name));
                ids.map(|id| Identity::user_bytes(id.trim_ascii())).find(listed)
            }
            // A key that counts in place of the token does not hide whose token it is.
            Self::Customer => {
                let of_token = facts.bearer.and_then(|bearer| bearer.customer);
                self.read(facts).into_iter().chain(of_token).find(listed)
            }
            _ => self.read(facts).filter(listed),
        }
    }
}

/// The identities that lists may have a key by, one for each hash.
fn key_identities(key: &[u8]) -> [Identity; 2] {
    [KeyHash::Slidegate, KeyHash::Sha256].map(|hash| hash.digest(key).identity())
}

/// Whether the header carries a scheme and credentials.
pub(crate) fn has_credentials(name: &HeaderName) -> bool {
    [header::AUTHORIZATION, header::PROXY_AUTHORIZATION].contains(name)
}

/// Whether a header's value is one credential. It is an identity then; parameters are none, and
/// malformed credentials are not either, for callers that do not refuse them.
fn credential(value: &[u8]) -> bool {
    credentials::read(value) == Ok(Credentials::One)
}

/// Lets a single source stand where a list of them is expected.
impl IntoIterator for Source {
    type Item = Self;
    type IntoIter = std::iter::Once<Self>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("user"),
            Self::ApiKey => f.write_str("api-key"),
            Self::Customer => f.write_str("customer"),
            Self::Authorization => f.write_str("authorization"),
            Self::Ip(_) => f.write_str("ip"),
            Self::Named(kind) => f.write_str(kind),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Descriptor(keys) => write!(f, "descriptor:{}", keys.join("+")),
            Self::Everyone => f.write_str("everyone"),
        }
    }
}

impl FromStr for Source {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let expected = "an identity source: expected user, customer, api-key, authorization, \
                        ip, header:NAME, descriptor:KEY or everyone";
        let error = || {
            let meant = match text.to_ascii_lowercase().replace(['-', '_', ' '], "").as_str() {
                "apikey" | "apikeys" | "key" | "xapikey" => Some("api-key"),
                "authorisation" | "authorization" | "auth" | "bearer" | "token" => {
                    Some("authorization")
                }
                "ip" | "ipaddress" | "address" | "addr" | "client" | "clientip" | "peer"
                | "remoteaddr" => Some("ip"),
                "customer" | "customers" | "customerid" | "consumer" | "tenant" | "account" => {
                    Some("customer")
                }
                "user" | "users" | "userid" | "username" => Some("user"),
                "everyone" | "all" | "global" | "everybody" | "any" => Some("everyone"),
                _ => None,
            };
            ParseError::new(text, expected).meant(meant)
        };
        match text {
            "user" => Ok(Self::User),
            "customer" => Ok(Self::Customer),
            "api-key" => Ok(Self::ApiKey),
            "authorization" => Ok(Self::Authorization),
            "ip" => Ok(Self::ip()),
            "everyone" => Ok(Self::Everyone),
            _ if text.starts_with("descriptor:") => {
                let keys = text["descriptor:".len()..].split('+').map(str::to_owned);
                Ok(Self::Descriptor(keys.collect()))
            }
            _ => {
                let name = text.strip_prefix("header:").ok_or_else(error)?;
                name.parse().map(Self::Header).map_err(|_| error())
            }
        }
    }
}
