//! Keys and tokens together: from the headers of a request to its bearer.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header};
use slidegate::policy::{KeyHash, KeyStatus, TokenStatus};
use slidegate::{Bearer, Identity};

use crate::http_keys::HttpKeys;
use crate::key::{KeyAnswer, KnownKey};
use crate::postgres::PostgresKeys;
use crate::status::SourceStatus;
use crate::token::{InvalidToken, TokenAnswer, TokenClaims, Tokens};

/// Finds who sends a request, by its API key and its token.
///
/// ```no_run
/// use http::{HeaderMap, Method};
/// use slidegate::Facts;
/// use slidegate_customers::{Customers, HttpKeys, HttpKeysConfig, KeySource, Keys, OnKeyError};
///
/// # async fn request(headers: HeaderMap) -> Result<(), Box<dyn std::error::Error>> {
/// let config = HttpKeysConfig::new("https://keys.internal.example.com/keys/{digest}");
/// let source = KeySource {
///     hash: config.hash,
///     keys: Keys::Http(HttpKeys::new(config)?),
///     on_error: OnKeyError::Deny,
/// };
/// let customers = Customers::new(Some(source), None);
///
/// // For each request; `find_now` never waits, but does not know every key.
/// let bearer = customers.find(&headers, None, |_| false).await;
/// let facts = Facts::new(&Method::GET, "/reports").headers(&headers).bearer(&bearer);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Customers {
    keys: Option<KeySource>,
    tokens: Option<Tokens>,
}

/// A system that knows API keys, and what becomes of a key that nothing is known of while it cannot be
/// asked.
#[derive(Debug, Clone)]
pub struct KeySource {
    /// The system.
    pub keys: Keys,
    /// How it digests keys.
    pub hash: KeyHash,
    /// What becomes of such a key.
    pub on_error: OnKeyError,
}

/// A system that knows API keys.
#[derive(Debug, Clone)]
pub enum Keys {
    /// A table that is kept in memory.
    Postgres(PostgresKeys),
    /// One that is asked about one key at a time.
    Http(HttpKeys),
}

/// What becomes of a key that nothing is known of, while its source cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnKeyError {
    /// The request is refused as unavailable.
    #[default]
    Deny,
    /// The policy's next source counts.
    Ignore,
}

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

impl Customers {
    /// Looks up keys and checks tokens in these.
    pub fn new(keys: Option<KeySource>, tokens: Option<Tokens>) -> Self {
        Self { keys, tokens }
    }

    /// Keeps up with the sources, until it is dropped.
    pub async fn run(&self) {
        let keys = async {
            if let Some(KeySource { keys: Keys::Postgres(keys), .. }) = &self.keys {
                keys.run().await;
            }
        };
        let tokens = async {
            if let Some(tokens) = &self.tokens {
                tokens.run().await;
            }
        };
        tokio::join!(keys, tokens);
    }

    /// Who bears the credentials in these headers, if it is known at once. Else
    /// [`find`](Self::find) asks and checks. A key of which `is_listed` is true is not looked up.
    pub fn find_now(
        &self,
        headers: &HeaderMap,
        is_listed: impl Fn(&[u8]) -> bool,
    ) -> Option<Bearer> {
        let sent = only(headers, &API_KEY).filter(|key| !is_listed(key));
        let key = match (&self.keys, sent) {
            (Some(source), Some(key)) => source.status(key, source.keys.find_now(key)?),
            _ => SoughtKey::default(),
        };
        let token = match (&self.tokens, token(headers)) {
            (Some(tokens), Some(token)) => Some(TokenAnswer::Valid(tokens.find(token)?)),
            _ => None,
        };
        Some(key.bearer(token.as_ref()))
    }

    /// The same, after keys were asked for and tokens checked. The address is the client's: one address
    /// causes a bounded number of look-ups and checks.
    pub async fn find(
        &self,
        headers: &HeaderMap,
        address: Option<IpAddr>,
        is_listed: impl Fn(&[u8]) -> bool,
    ) -> Bearer {
        let sent = only(headers, &API_KEY).filter(|key| !is_listed(key));
        let key = async {
            match (&self.keys, sent) {
                (Some(source), Some(key)) => {
                    source.status(key, source.keys.find(key, address).await)
                }
                _ => SoughtKey::default(),
            }
        };
        let token = async {
            match (&self.tokens, token(headers)) {
                (Some(tokens), Some(token)) => match tokens.find(token) {
                    Some(claims) => Some(TokenAnswer::Valid(claims)),
                    None => Some(tokens.check(token, address).await),
                },
                _ => None,
            }
        };
        let (key, token) = tokio::join!(key, token);
        key.bearer(token.as_ref())
    }

    /// The bearer of credentials that are neither looked up nor checked: who bears them is not known.
    pub fn unavailable(&self, headers: &HeaderMap) -> Bearer {
        let mut bearer = Bearer::new();
        if self.keys.is_some() && only(headers, &API_KEY).is_some() {
            bearer = bearer.key(KeyStatus::Unavailable);
        }
        if self.tokens.is_some() && token(headers).is_some() {
            bearer = bearer.token(TokenStatus::Unavailable);
        }
        bearer
    }

    /// What is known of the credentials in these headers, a line for each. Neither is repeated. A key of
    /// which `is_listed` is true is not looked up.
    pub async fn explain(
        &self,
        headers: &HeaderMap,
        is_listed: impl Fn(&[u8]) -> bool,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let sent = only(headers, &API_KEY).filter(|key| !is_listed(key));
        if let (Some(source), Some(key)) = (&self.keys, sent) {
            lines.push(format!("API key: {}", explain_key(source.keys.find(key, None).await)));
        }
        if let (Some(tokens), Some(token)) = (&self.tokens, token(headers)) {
            lines.push(format!("token: {}", explain_token(tokens.check(token, None).await)));
        }
        lines
    }

    /// How the source of keys is doing, if there is one.
    pub fn keys(&self) -> Option<SourceStatus> {
        Some(match &self.keys.as_ref()?.keys {
            Keys::Postgres(keys) => keys.status(),
            Keys::Http(keys) => keys.status(),
        })
    }

    /// How the issuers of tokens are doing, by name.
    pub fn issuers(&self) -> Vec<(String, SourceStatus)> {
        self.tokens.as_ref().map(Tokens::statuses).unwrap_or_default()
    }

    /// The tokens, if there are issuers of any.
    pub fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_ref()
    }
}

impl Keys {
    fn find_now(&self, key: &[u8]) -> Option<KeyAnswer> {
        match self {
            Self::Postgres(keys) => Some(keys.find(key)),
            Self::Http(keys) => keys.find_now(key),
        }
    }

    async fn find(&self, key: &[u8], address: Option<IpAddr>) -> KeyAnswer {
        match self {
            Self::Postgres(keys) => keys.find(key),
            Self::Http(keys) => keys.find(key, address).await,
        }
    }
}

impl KeySource {
    fn status(&self, key: &[u8], answer: KeyAnswer) -> SoughtKey {
        let (status, known) = match answer {
            KeyAnswer::Known(known) => {
                let customer = known.customer.as_deref().map(Identity::customer);
                let own = || self.hash.digest(key).identity();
                (KeyStatus::Issued(customer.unwrap_or_else(own)), Some(known))
            }
            KeyAnswer::Unknown => (KeyStatus::Unknown, None),
            KeyAnswer::Unavailable => match self.on_error {
                OnKeyError::Deny => (KeyStatus::Unavailable, None),
                OnKeyError::Ignore => (KeyStatus::Passed, None),
            },
            // Not an outage: a client that invents keys would get past `UnknownKeys::Refuse`.
            KeyAnswer::TooMany { retry_after } => (KeyStatus::Unchecked { retry_after }, None),
        };
        SoughtKey { status, known }
    }
}

/// What a source says about a request's key.
#[derive(Default)]
struct SoughtKey {
    status: KeyStatus,
    known: Option<KnownKey>,
}

impl SoughtKey {
    /// The bearer of the key and of the token. Customer, plan and quotas are those of one of them, of the
    /// key if it is known: one's account with the other's plan would be had for the asking.
    fn bearer(self, token: Option<&TokenAnswer>) -> Bearer {
        let mut bearer = Bearer::new().key(self.status);
        let status = match token {
            None | Some(TokenAnswer::Invalid(_)) => TokenStatus::None,
            Some(TokenAnswer::Valid(_)) => TokenStatus::Valid,
            // An outage of the issuer is not the client's mistake.
            Some(TokenAnswer::Refused(InvalidToken::NoKeys)) => TokenStatus::Unavailable,
            Some(TokenAnswer::Refused(_)) => TokenStatus::Invalid,
            Some(TokenAnswer::Unchecked { retry_after }) => {
                TokenStatus::Unchecked { retry_after: *retry_after }
            }
        };
        bearer = bearer.token(status);
        let Some(KnownKey { customer, plan, quotas, .. }) = self.known else {
            return match token {
                Some(TokenAnswer::Valid(claims)) => claimed(bearer, claims),
                _ => bearer,
            };
        };
        if let Some(TokenAnswer::Valid(claims)) = token {
            bearer = claims.user.iter().fold(bearer, |bearer, user| bearer.user(user));
            // Which of two customers upstream serves is unknown.
            if let (Some(of_key), Some(of_token)) = (&customer, &claims.customer)
                && **of_key != **of_token
            {
                bearer = bearer.token(TokenStatus::Invalid);
            }
            // For lists: a key without a customer counts itself.
            if let Some(customer) = &claims.customer {
                bearer = bearer.customer(customer);
            }
        }
        if let Some(customer) = customer {
            bearer = bearer.customer(&customer);
        }
        if let Some(plan) = plan {
            bearer = bearer.plan(plan);
        }
        quotas.into_iter().fold(bearer, Bearer::quotas)
    }
}

fn explain_key(answer: KeyAnswer) -> String {
    match answer {
        KeyAnswer::Known(KnownKey { customer, plan, quotas, .. }) => {
            let quotas = quotas.map(|quotas| {
                let texts: Vec<String> =
                    quotas.as_slice().iter().map(ToString::to_string).collect();
                format!("quotas {}", texts.join(", "))
            });
            let customer = customer.map(|name| format!("customer {name}"));
            let plan = plan.map(|name| format!("plan {name}"));
            let parts: Vec<String> = [customer, plan, quotas].into_iter().flatten().collect();
            format!("known, {}", parts.join(", "))
        }
        KeyAnswer::Unknown => "unknown".to_owned(),
        KeyAnswer::Unavailable => "the key source cannot be reached".to_owned(),
        KeyAnswer::TooMany { .. } => "not looked up".to_owned(),
    }
}

fn explain_token(answer: TokenAnswer) -> String {
    match answer {
        TokenAnswer::Valid(claims) => {
            let TokenClaims { user, customer, plan, issuer, .. } = &*claims;
            let parts = [
                user.as_ref().map(|user| format!(", user {user}")),
                customer.as_ref().map(|customer| format!(", customer {customer}")),
                plan.as_ref().map(|plan| format!(", plan {plan}")),
            ];
            format!("valid, of {issuer}{}", parts.into_iter().flatten().collect::<String>())
        }
        TokenAnswer::Invalid(reason) => format!("not valid, and ignored: {reason}"),
        TokenAnswer::Refused(reason) => format!("not valid, and refused: {reason}"),
        TokenAnswer::Unchecked { .. } => "not checked".to_owned(),
    }
}

fn claimed(mut bearer: Bearer, claims: &TokenClaims) -> Bearer {
    if let Some(user) = &claims.user {
        bearer = bearer.user(user);
    }
    if let Some(customer) = &claims.customer {
        bearer = bearer.customer(customer);
    }
    match &claims.plan {
        Some(plan) => bearer.plan(plan.clone()),
        None => bearer,
    }
}

/// The value of a header, if there is one only and it is not empty: as the policies read it.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    Some(value.as_bytes().trim_ascii()).filter(|value| !value.is_empty())
}

/// The token of `Authorization: Bearer TOKEN`.
fn token(headers: &HeaderMap) -> Option<&str> {
    let value = std::str::from_utf8(only(headers, &header::AUTHORIZATION)?).ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}
