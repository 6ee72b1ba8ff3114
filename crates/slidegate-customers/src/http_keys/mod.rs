//! API keys that an HTTP service knows, looked up one by one and cached.

mod answer;
mod cache;
mod flight;
mod health;
mod template;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use rustls::RootCertStore;
use slidegate::limit::SystemClock;
use slidegate::policy::{KeyDigest, KeyHash, Prefixes};
use slidegate::{Clock, Identity, Limiter, Quota};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use self::answer::AnswerError;
use self::cache::{Cached, CachedKey, KeyCache};
use self::flight::{Boarding, Flight, Flights, Place, Places};
use self::health::ServiceHealth;
use self::template::UrlTemplate;
use crate::fetch::{FetchError, Fetcher};
use crate::key::{KeyAnswer, KnownKey};
use crate::status::SourceStatus;

pub use self::template::UrlTemplateError;

/// How long a decision waits for a look-up: a request should not wait longer for its limits than it
/// commonly does for its response.
const DECISION_DEADLINE: Duration = Duration::from_millis(200);

/// How long a look-up may take. Longer than a decision waits, so that a slow service still fills the
/// cache; short enough that a service that hangs does not hold all places for long.
const LOOK_UP_DEADLINE: Duration = Duration::from_secs(2);

/// First look-ups that one address can cause in a second: one that invents keys leaves places to others,
/// and one that many customers share has them all known in seconds.
const LOOK_UPS_PER_SECOND: u32 = 100;

/// What requests without a client address share, such as those of Unix sockets.
const NO_ADDRESS: &str = "no address";

/// Addresses that are counted; those beyond share one quota.
const MAX_ADDRESSES: usize = 65_536;

/// A key's JSON has a few hundred bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// The cache's clock takes no more than a thousand years.
const MAX_AGE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Where keys are looked up, and for how long an answer counts.
#[derive(Clone)]
pub struct HttpKeysConfig {
    /// An `http` or `https` URL with `{digest}` in its path or query, once or more.
    pub url: String,
    /// How the service digests keys: `{digest}` is [`KeyHash::hex`] of the key.
    pub hash: KeyHash,
    /// An answer younger than this is not asked for again.
    pub fresh: Duration,
    /// An answer younger than this counts while it is refreshed in the background. At least `fresh`.
    pub stale: Duration,
    /// How long an unknown key is remembered as unknown: a key that is created works after this at the
    /// latest.
    pub unknown: Duration,
    /// `Authorization` of each look-up.
    pub authorization: Option<HeaderValue>,
    /// Trusted for `https`, besides the public certificate authorities.
    pub authorities: RootCertStore,
}

/// API keys that an HTTP service knows. Clones share connections and cache.
///
/// `GET` of the URL answers `200` with JSON such as
///
/// ```json
/// {"customer": "acme", "plan": "pro", "expires": "2027-01-01T00:00:00Z", "quotas": ["600/min"]}
/// ```
///
/// of which `customer` or `plan` must be there; `404` and `410` are an unknown key. Anything else is an
/// error, which is not cached and never makes a key unknown.
///
/// Concurrent look-ups of one key share a request, and at most 32 requests are in flight, 8 of them kept
/// for refreshes of known keys. At most 1,000,000 known keys and, apart from these, 100,000 unknown ones
/// are cached.
///
/// ```
/// use slidegate_customers::{HttpKeys, HttpKeysConfig};
///
/// let keys = HttpKeys::new(HttpKeysConfig::new("http://127.0.0.1:9000/keys/{digest}"))?;
/// assert_eq!(keys.find_now(b"k-5f2c9a"), None); // Until `find` has asked for it.
/// # Ok::<(), slidegate_customers::HttpKeysError>(())
/// ```
#[derive(Clone)]
pub struct HttpKeys(Arc<HttpKeysState>);

/// Why keys cannot be looked up with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpKeysError {
    /// The URL cannot be used.
    #[error("url: {0}")]
    Url(#[from] UrlTemplateError),
    /// Answers would be too old to count while they need no refresh.
    #[error("stale: {stale:?} is shorter than fresh, which is {fresh:?}")]
    StaleBeforeFresh {
        /// The time of that name.
        fresh: Duration,
        /// The time of that name.
        stale: Duration,
    },
    /// A time is longer than the cache can keep an entry.
    #[error("{name}: {value:?} is too long: expected at most 366 days")]
    TooLong {
        /// The time's name.
        name: &'static str,
        /// The time.
        value: Duration,
    },
}

struct HttpKeysState {
    url: UrlTemplate,
    hash: KeyHash,
    fresh: Duration,
    headers: HeaderMap,
    fetcher: Fetcher,
    by_address: Limiter,
    clock: Box<dyn Clock>,
    cache: KeyCache,
    flights: Flights,
    places: Places,
    health: ServiceHealth,
}

impl HttpKeysConfig {
    /// Our own digest, 10 seconds fresh, an hour stale, unknown for 5 seconds.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            hash: KeyHash::default(),
            fresh: Duration::from_secs(10),
            stale: Duration::from_secs(60 * 60),
            unknown: Duration::from_secs(5),
            authorization: None,
            authorities: RootCertStore::empty(),
        }
    }

    fn check_times(&self) -> Result<(), HttpKeysError> {
        let (fresh, stale) = (self.fresh, self.stale);
        if stale < fresh {
            return Err(HttpKeysError::StaleBeforeFresh { fresh, stale });
        }
        let times = [("stale", stale), ("unknown", self.unknown)];
        match times.into_iter().find(|(_, value)| *value > MAX_AGE) {
            Some((name, value)) => Err(HttpKeysError::TooLong { name, value }),
            None => Ok(()),
        }
    }
}

/// Leaves out the URL's query and the header, which may have secrets.
impl fmt::Debug for HttpKeysConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpKeysConfig")
            .field("hash", &self.hash)
            .field("fresh", &self.fresh)
            .field("stale", &self.stale)
            .field("unknown", &self.unknown)
            .finish_non_exhaustive()
    }
}

impl HttpKeys {
    /// Connects only when the first key is looked up, so it starts without the service.
    pub fn new(config: HttpKeysConfig) -> Result<Self, HttpKeysError> {
        Self::with_clock(config, SystemClock::new())
    }

    /// The same with another calendar, by which keys expire.
    pub fn with_clock(config: HttpKeysConfig, clock: impl Clock) -> Result<Self, HttpKeysError> {
        config.check_times()?;
        let url = UrlTemplate::new(config.url)?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(mut authorization) = config.authorization {
            authorization.set_sensitive(true);
            headers.insert(AUTHORIZATION, authorization);
        }
        Ok(Self(Arc::new(HttpKeysState {
            hash: config.hash,
            fresh: config.fresh,
            headers,
            fetcher: Fetcher::new(&config.authorities, LOOK_UP_DEADLINE, MAX_BODY_BYTES),
            by_address: Limiter::new(Quota::per_second(LOOK_UPS_PER_SECOND))
                .capacity(MAX_ADDRESSES),
            clock: Box::new(clock),
            cache: KeyCache::new(config.stale, config.unknown),
            flights: Flights::default(),
            places: Places::default(),
            health: ServiceHealth::new(url.service()),
            url,
        })))
    }

    /// What is known of the key without waiting; none if [`find`](Self::find) has to ask.
    ///
    /// Within a tokio runtime, starts a background refresh of an answer older than `fresh`.
    pub fn find_now(&self, key: &[u8]) -> Option<KeyAnswer> {
        let digest = self.0.hash.digest(key);
        let cached = self.0.cache.get(digest)?;
        if let Cached::Known(known) = &cached
            && known.age() >= self.0.fresh
        {
            self.0.refresh(key, digest, known);
        }
        Some(self.0.answer(&cached))
    }

    /// What is known of the key, after a look-up if nothing is. [`KeyAnswer::Unavailable`] if that
    /// fails or takes more than 200 ms. Needs a tokio runtime.
    ///
    /// `address` is the client's address, which can cause 100 look-ups a second; for a key above that,
    /// the answer is [`KeyAnswer::TooMany`]. Requests without one share the same number.
    ///
    /// The look-up runs in its own task; dropping this future does not cancel it.
    pub async fn find(&self, key: &[u8], address: Option<IpAddr>) -> KeyAnswer {
        if let Some(answer) = self.find_now(key) {
            return answer;
        }
        let answer = self.0.look_up(key, address);
        timeout(DECISION_DEADLINE, answer).await.unwrap_or(KeyAnswer::Unavailable)
    }

    /// Whether the service answers, and how many keys are known from it.
    pub fn status(&self) -> SourceStatus {
        self.0.health.status(self.0.cache.known_keys())
    }
}

impl fmt::Debug for HttpKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpKeys").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl HttpKeysState {
    fn answer(&self, cached: &Cached) -> KeyAnswer {
        match cached {
            Cached::Known(known) => self.unless_expired(&known.key),
            Cached::Unknown => KeyAnswer::Unknown,
        }
    }

    fn unless_expired(&self, key: &KnownKey) -> KeyAnswer {
        match key.expires {
            Some(expires) if self.clock.wall() >= expires => KeyAnswer::Unknown,
            _ => KeyAnswer::Known(key.clone()),
        }
    }

    /// Waits for the look-up in flight for this key, or for one that it starts.
    async fn look_up(self: &Arc<Self>, key: &[u8], address: Option<IpAddr>) -> KeyAnswer {
        let digest = self.hash.digest(key);
        let landing = match self.flights.board(digest) {
            Boarding::Joined(landing) => landing,
            Boarding::Full => return KeyAnswer::Unavailable,
            Boarding::First(flight, landing) => {
                // The one before may have landed since the cache was read.
                if let Some(cached) = self.cache.get(digest) {
                    flight.land(self.answer(&cached));
                } else if let Some(retry_after) = self.spend_look_up(address) {
                    flight.land(KeyAnswer::TooMany { retry_after });
                } else {
                    let (shared, url) = (Arc::clone(self), self.url_of(key));
                    tokio::spawn(async move {
                        if let Some(place) = shared.places.wait(DECISION_DEADLINE).await {
                            shared.fly(flight, place, url).await;
                        }
                    });
                }
                landing
            }
        };
        landing.answer().await
    }

    /// Returns how long to wait if too many look-ups were caused by the address.
    fn spend_look_up(&self, address: Option<IpAddr>) -> Option<Duration> {
        let identity = address.map(|address| Identity::ip(address, Prefixes::default()));
        let spender = identity.as_ref().map_or(NO_ADDRESS, Identity::as_str);
        let denied = self.by_address.check(spender).err()?;
        Some(denied.retry_after().expect("one unit is within the quota"))
    }

    /// Looks the key up in the background, unless this has just been tried, is under way, or all places
    /// are taken: then the next request for the key tries again.
    fn refresh(self: &Arc<Self>, key: &[u8], digest: KeyDigest, known: &CachedKey) {
        let Ok(runtime) = Handle::try_current() else { return };
        known.try_refresh(|| {
            let place = self.places.for_refresh()?;
            let Boarding::First(flight, _) = self.flights.board(digest) else { return None };
            let (shared, url) = (Arc::clone(self), self.url_of(key));
            runtime.spawn(async move { shared.fly(flight, place, url).await });
            Some(())
        });
    }

    fn url_of(&self, key: &[u8]) -> Uri {
        self.url.fill(&self.hash.hex(key))
    }

    async fn fly(&self, flight: Flight, _place: Place, url: Uri) {
        // The answer is as old as the question: a key may be revoked before it arrives.
        let asked = Instant::now();
        let answer = match self.ask(url).await {
            Ok(Some(key)) => {
                self.health.answered();
                let answer = self.unless_expired(&key);
                self.cache.insert_known(flight.digest(), key, asked);
                answer
            }
            Ok(None) => {
                self.health.answered();
                self.cache.insert_unknown(flight.digest(), asked);
                KeyAnswer::Unknown
            }
            Err(error) => {
                self.health.failed(&error);
                KeyAnswer::Unavailable
            }
        };
        // After the cache has it, so that no request finds neither and asks again.
        flight.land(answer);
    }

    async fn ask(&self, url: Uri) -> Result<Option<KnownKey>, LookUpError> {
        let fetched = self.fetcher.get(url, &self.headers).await?;
        match fetched.status {
            StatusCode::OK => Ok(Some(answer::parse(&fetched.body)?)),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
            status => Err(LookUpError::Status(status)),
        }
    }
}

/// Why the service could not be asked. It has nothing of the key.
#[derive(Debug, thiserror::Error)]
enum LookUpError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the service answered {0}: expected 200 for a known key, 404 for an unknown one")]
    Status(StatusCode),
    #[error("the service answered 200, but {0}")]
    Answer(#[from] AnswerError),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing listens there: a look-up would fail.
    fn config() -> HttpKeysConfig {
        HttpKeysConfig::new("http://127.0.0.1:9/{digest}")
    }

    #[tokio::test]
    async fn an_answer_that_arrives_between_cache_and_flight_is_not_asked_for_again() {
        let keys = HttpKeys::new(config()).unwrap();
        let digest = KeyHash::default().digest(b"k-1");
        keys.0.cache.insert_unknown(digest, Instant::now());
        assert_eq!(keys.0.look_up(b"k-1", None).await, KeyAnswer::Unknown);
        assert!(!keys.status().is_degraded());
        assert!(matches!(keys.0.flights.board(digest), Boarding::First(..)));
    }

    #[test]
    fn the_header_is_sensitive() {
        let authorization = Some(HeaderValue::from_static("Bearer t-1"));
        let keys = HttpKeys::new(HttpKeysConfig { authorization, ..config() }).unwrap();
        assert!(keys.0.headers[AUTHORIZATION].is_sensitive());
    }
}
