//! Verified tokens: who sends a request, by the signature of an identity provider.

mod algorithm;
mod claims;
mod config;
mod invalid;
mod issuer;
mod jwks;
#[cfg(test)]
mod tests;
mod unverified;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::quality::RandomState;
use futures_util::future::join_all;
use moka::Expiry;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use slidegate::policy::Prefixes;
use slidegate::{Clock, Identity, Limiter, Quota};
use tokio::sync::Mutex;

pub use self::algorithm::{AlgorithmError, TokenAlgorithm};
pub use self::claims::{TokenClaims, claim};
pub use self::config::{InvalidTokens, IssuerConfig, JwksLocation, TokenConfigError};
pub use self::invalid::InvalidToken;

use self::issuer::Issuer;
use self::jwks::VerifyingKey;
use self::unverified::{MAX_TOKEN_LEN, UnverifiedToken};
use crate::status::SourceStatus;

/// Signature checks that one address can cause in a second. A signature takes up to 100 µs, so this
/// is at most a hundredth of a processor; a token that counts is checked once in its life, so it is
/// far more than an office behind one address needs.
const CHECKS_PER_SECOND: u32 = 100;

/// What requests without a client address share, such as those of Unix sockets.
const NO_ADDRESS: &str = "no address";

/// Addresses that are counted; those beyond share one quota.
const MAX_ADDRESSES: usize = 65_536;

/// Tokens that are remembered, of about 300 bytes each.
const MAX_REMEMBERED: u64 = 100_000;

/// Bounds the memory of tokens that never expire.
const MAX_REMEMBERED_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Checks tokens of some issuers. Clones share what they know.
///
/// A token counts only after its signature, `iss`, `aud`, `exp` and `nbf` were checked. What was
/// checked is remembered by the token's digest until it expires or its key leaves the issuer's set.
///
/// ```no_run
/// use std::sync::Arc;
/// use slidegate::limit::SystemClock;
/// use slidegate_customers::{
///     InvalidTokens, IssuerConfig, JwksLocation, TokenAlgorithm, TokenAnswer, Tokens,
/// };
///
/// # async fn example(token: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let issuer = IssuerConfig {
///     issuer: "https://auth.example.com/".to_owned(),
///     jwks: JwksLocation::Url("https://auth.example.com/.well-known/jwks.json".to_owned()),
///     audience: vec!["api".to_owned()],
///     algorithms: vec![TokenAlgorithm::Rs256],
///     user: Some("sub".to_owned()),
///     customer: Some("org_id".to_owned()),
///     plan: Some("plan".to_owned()),
///     invalid: InvalidTokens::Ignore,
///     authorities: rustls::RootCertStore::empty(),
/// };
/// let tokens = Tokens::new(vec![issuer], Arc::new(SystemClock::new()))?;
/// tokio::spawn({
///     let tokens = tokens.clone();
///     async move { tokens.run().await }
/// });
/// let client = "203.0.113.7".parse()?;
/// if let TokenAnswer::Valid(claims) = tokens.check(token, Some(client)).await {
///     println!("{:?} of {:?}", claims.user, claims.customer);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tokens(Arc<TokensState>);

/// What a token is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenAnswer {
    /// It counts.
    Valid(Arc<TokenClaims>),
    /// It does not count, and the request is treated as if it had none.
    Invalid(InvalidToken),
    /// It does not count, and the request is refused for it.
    Refused(InvalidToken),
    /// Too many tokens of this address were checked.
    Unchecked {
        /// How long until another one can be.
        retry_after: Duration,
    },
}

struct TokensState {
    issuers: Vec<Issuer>,
    clock: Arc<dyn Clock>,
    remembered: RememberedTokens,
    by_address: Limiter,
    checks: AtomicU64,
    /// Held by the one call of [`Tokens::run`] that fetches.
    running: Mutex<()>,
}

type TokenDigest = [u8; 32];

type RememberedTokens = Cache<TokenDigest, Remembered, RandomState>;

#[derive(Clone)]
struct Remembered {
    claims: Arc<TokenClaims>,
    key: Arc<VerifyingKey>,
}

/// Why a token is not valid.
enum Failure {
    Invalid(InvalidToken),
    Unchecked { retry_after: Duration },
}

impl Tokens {
    /// Checks tokens of these issuers. Their keys come with [`run`](Self::run).
    pub fn new(
        issuers: Vec<IssuerConfig>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TokenConfigError> {
        let mut checked: Vec<Issuer> = Vec::with_capacity(issuers.len());
        for config in issuers {
            if checked.iter().any(|other| other.name() == config.issuer) {
                return Err(TokenConfigError::Twice(config.issuer));
            }
            checked.push(Issuer::new(&config, Arc::clone(&clock))?);
        }
        let quota = Quota::per_second(CHECKS_PER_SECOND);
        Ok(Self(Arc::new(TokensState {
            issuers: checked,
            remembered: remember(&clock),
            by_address: Limiter::new(quota).capacity(MAX_ADDRESSES).clock(Arc::clone(&clock)),
            checks: AtomicU64::new(0),
            running: Mutex::new(()),
            clock,
        })))
    }

    /// Fetches the key sets and keeps them fresh. Ends only when dropped. Of several calls, one
    /// fetches, and another takes over when that is dropped.
    pub async fn run(&self) {
        let _only_one = self.0.running.lock().await;
        join_all(self.0.issuers.iter().map(Issuer::keep_fresh)).await;
    }

    /// What is remembered of a token that still counts. Never waits, and checks no signature.
    pub fn find(&self, token: &str) -> Option<Arc<TokenClaims>> {
        self.recall(&digest(token)?)
    }

    /// What a token is worth. Waits at most 2 s, and only for keys that a fetch may bring.
    ///
    /// `address` is the client's address, which can cause 100 signature checks a second. Requests
    /// without one share the same number.
    ///
    /// A token that names none of the issuers is refused if each of them refuses invalid tokens.
    pub async fn check(&self, token: &str, address: Option<IpAddr>) -> TokenAnswer {
        let Some(digest) = digest(token) else { return self.stray(InvalidToken::NotJwt) };
        if let Some(claims) = self.recall(&digest) {
            return TokenAnswer::Valid(claims);
        }
        let token = match UnverifiedToken::parse(token) {
            Ok(token) => token,
            Err(invalid) => return self.stray(invalid),
        };
        let issuer = self.0.issuers.iter().find(|issuer| token.issuer() == Some(issuer.name()));
        let Some(issuer) = issuer else { return self.stray(InvalidToken::OtherIssuer) };
        match self.verify(issuer, &token, &digest, address).await {
            Ok(claims) => TokenAnswer::Valid(claims),
            Err(Failure::Invalid(invalid)) => not_valid(invalid, issuer.invalid()),
            Err(Failure::Unchecked { retry_after }) => TokenAnswer::Unchecked { retry_after },
        }
    }

    /// How the issuers are doing, by name.
    pub fn statuses(&self) -> Vec<(String, SourceStatus)> {
        let issuers = self.0.issuers.iter();
        issuers.map(|issuer| (issuer.name().to_owned(), issuer.status())).collect()
    }

    /// How many signatures were checked.
    pub fn checks(&self) -> u64 {
        self.0.checks.load(Ordering::Relaxed)
    }

    fn recall(&self, digest: &TokenDigest) -> Option<Arc<TokenClaims>> {
        let Remembered { claims, key } = self.0.remembered.get(digest)?;
        // A token ends by the calendar, and the time of a key set is counted from when it was fetched.
        let clock = &self.0.clock;
        if clock.wall() < claims.expires && clock.now() < key.good_until() {
            return Some(claims);
        }
        self.0.remembered.invalidate(digest);
        None
    }

    /// Cheap things first: only a token that is good otherwise costs a signature check, and one without
    /// the claims that count would cost one for each request.
    async fn verify(
        &self,
        issuer: &Issuer,
        token: &UnverifiedToken<'_>,
        digest: &TokenDigest,
        address: Option<IpAddr>,
    ) -> Result<Arc<TokenClaims>, Failure> {
        let algorithm = issuer.admits(token)?;
        let claims = issuer.claims(token)?;
        let key = issuer.key(token, algorithm).await?;
        // Of many requests that waited for the key with one token, the first has checked it.
        if let Some(claims) = self.recall(digest) {
            return Ok(claims);
        }
        self.spend_check(address)?;
        if !key.has_signed(token, algorithm) {
            return Err(InvalidToken::Signature.into());
        }
        let claims = Arc::new(claims);
        let remembered = Remembered { claims: Arc::clone(&claims), key };
        self.0.remembered.insert(*digest, remembered);
        Ok(claims)
    }

    fn spend_check(&self, address: Option<IpAddr>) -> Result<(), Failure> {
        let identity = address.map(|address| Identity::ip(address, Prefixes::default()));
        let spender = identity.as_ref().map_or(NO_ADDRESS, Identity::as_str);
        self.0.by_address.check(spender).map_err(|denied| Failure::Unchecked {
            retry_after: denied.retry_after().expect("one unit is within the quota"),
        })?;
        self.0.checks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The answer for a token that cannot be attributed to an issuer.
    fn stray(&self, invalid: InvalidToken) -> TokenAnswer {
        let refuses = |issuer: &Issuer| issuer.invalid() == InvalidTokens::Refuse;
        let all_refuse = !self.0.issuers.is_empty() && self.0.issuers.iter().all(refuses);
        not_valid(invalid, if all_refuse { InvalidTokens::Refuse } else { InvalidTokens::Ignore })
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tokens").field(&self.statuses()).finish()
    }
}

impl From<InvalidToken> for Failure {
    fn from(invalid: InvalidToken) -> Self {
        Self::Invalid(invalid)
    }
}

fn not_valid(invalid: InvalidToken, treatment: InvalidTokens) -> TokenAnswer {
    match treatment {
        InvalidTokens::Ignore => TokenAnswer::Invalid(invalid),
        InvalidTokens::Refuse => TokenAnswer::Refused(invalid),
    }
}

/// None for a token that is too long to be worth a digest.
fn digest(token: &str) -> Option<TokenDigest> {
    let digest = || ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    let is_short = token.len() <= MAX_TOKEN_LEN;
    is_short.then(|| *digest().as_ref().first_chunk().expect("a digest has 32 bytes"))
}

/// The token that was used least recently goes first: one that a client uses is not checked again because
/// others have had many tokens for a long time.
fn remember(clock: &Arc<dyn Clock>) -> RememberedTokens {
    Cache::builder()
        .max_capacity(MAX_REMEMBERED)
        .expire_after(UntilExpired(Arc::clone(clock)))
        .eviction_policy(EvictionPolicy::lru())
        .build_with_hasher(RandomState::default())
}

/// Frees the memory of tokens that have expired. Whether one counts, the clock alone decides.
struct UntilExpired(Arc<dyn Clock>);

impl Expiry<TokenDigest, Remembered> for UntilExpired {
    fn expire_after_create(
        &self,
        _: &TokenDigest,
        remembered: &Remembered,
        _: std::time::Instant,
    ) -> Option<Duration> {
        let left = remembered.claims.expires.saturating_since(self.0.wall());
        Some(left.min(MAX_REMEMBERED_TIME))
    }
}
