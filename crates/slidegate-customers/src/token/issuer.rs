//! One issuer: what its tokens have to say, and its keys, which are kept fresh.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ACCEPT, HeaderMap, HeaderValue};
use http::{StatusCode, Uri};
use parking_lot::Mutex;
use slidegate::{Clock, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::algorithm::TokenAlgorithm;
use super::claims::{ClaimNames, TokenClaims};
use super::config::{InvalidTokens, IssuerConfig, JwksLocation, TokenConfigError};
use super::invalid::InvalidToken;
use super::jwks::{JwksError, KeySet, VerifyingKey};
use super::unverified::UnverifiedToken;
use crate::fetch::{FetchError, Fetcher};
use crate::status::SourceStatus;

/// For clocks that differ. Those of servers do by milliseconds; more would only let tokens live longer.
const LEEWAY: Duration = Duration::from_secs(5);

/// Providers publish a key hours before they use it. A key that was withdrawn counts this long.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// A provider that is away for a night should not lock out its users.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// An unknown key id is either a new key, for which half a minute is early enough, or invented.
const REFETCH_COOL_DOWN: Duration = Duration::from_secs(30);

/// After this, a slow provider is taken for one that is away.
const FETCH_DEADLINE: Duration = Duration::from_secs(10);

/// The most a request waits for a fetch, counted from the fetch's start: clients have timeouts.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Large providers have ten keys of 2 KiB with their certificates.
const MAX_DOCUMENT_BYTES: usize = 256 * 1024;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// How often to look whether something is due, and whether a file has changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// An issuer of tokens.
pub(super) struct Issuer {
    name: Arc<str>,
    audience: Vec<String>,
    algorithms: Vec<TokenAlgorithm>,
    claims: ClaimNames,
    invalid: InvalidTokens,
    clock: Arc<dyn Clock>,
    source: KeySetSource,
    state: Mutex<IssuerState>,
    /// Wakes the task that fetches.
    wanted: Notify,
    /// Counts the fetches that have ended.
    fetches: watch::Sender<u64>,
}

struct IssuerState {
    keys: Arc<KeySet>,
    answered: Option<Timestamp>,
    /// Why the last fetch failed.
    error: Option<String>,
    failures: u32,
    /// When to fetch next.
    due: Timestamp,
    /// When an unknown key id last caused a fetch.
    refetched: Option<Timestamp>,
    /// When the fetch in progress began, or was asked for.
    fetch_began: Option<Instant>,
}

impl Issuer {
    pub(super) fn new(
        config: &IssuerConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TokenConfigError> {
        config.check()?;
        let source = match &config.jwks {
            JwksLocation::Url(url) => KeySetSource::Url {
                uri: config.jwks_uri(url)?,
                fetcher: Fetcher::new(&config.authorities, FETCH_DEADLINE, MAX_DOCUMENT_BYTES)
                    .into(),
            },
            JwksLocation::File(path) => {
                KeySetSource::File { path: path.clone(), version: Mutex::new(None) }
            }
        };
        Ok(Self {
            name: config.issuer.as_str().into(),
            audience: config.audience.clone(),
            algorithms: config.algorithms.clone(),
            claims: ClaimNames::new(config),
            invalid: config.invalid,
            clock,
            source,
            state: Mutex::new(IssuerState {
                keys: Arc::default(),
                answered: None,
                error: None,
                failures: 0,
                due: Timestamp::default(),
                refetched: None,
                fetch_began: None,
            }),
            wanted: Notify::new(),
            fetches: watch::Sender::new(0),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn invalid(&self) -> InvalidTokens {
        self.invalid
    }

    pub(super) fn status(&self) -> SourceStatus {
        let now = self.clock.now();
        let state = self.state.lock();
        SourceStatus {
            answered_ago: state.answered.map(|answered| now.saturating_since(answered)),
            error: state.error.clone(),
            keys: if state.has_keys(now) { state.keys.len() } else { 0 },
        }
    }

    /// Checks all of a token but its signature. Returns the algorithm of that.
    pub(super) fn admits(
        &self,
        token: &UnverifiedToken<'_>,
    ) -> Result<TokenAlgorithm, InvalidToken> {
        let listed = token.algorithm.filter(|algorithm| self.algorithms.contains(algorithm));
        let algorithm = listed.ok_or(InvalidToken::Algorithm)?;
        // By the calendar, which the issuer goes by too.
        let now = self.clock.wall();
        if now >= token.expires().ok_or(InvalidToken::MissingClaim)? + LEEWAY {
            return Err(InvalidToken::Expired);
        }
        if token.begins().is_some_and(|begins| now + LEEWAY < begins) {
            return Err(InvalidToken::NotYetValid);
        }
        if !token.is_for(&self.audience) {
            return Err(InvalidToken::OtherAudience);
        }
        Ok(algorithm)
    }

    /// The claims of a token, which count once its signature was checked.
    pub(super) fn claims(&self, token: &UnverifiedToken<'_>) -> Result<TokenClaims, InvalidToken> {
        let expires = token.expires().ok_or(InvalidToken::MissingClaim)? + LEEWAY;
        let claims = self.claims.read(&token.claims()?, &self.name, expires);
        claims.ok_or(InvalidToken::MissingClaim)
    }

    /// The key that can have signed the token. If there is none, waits for a fetch that may bring it.
    pub(super) async fn key(
        &self,
        token: &UnverifiedToken<'_>,
        algorithm: TokenAlgorithm,
    ) -> Result<Arc<VerifyingKey>, InvalidToken> {
        let known = self.known_key(token, algorithm);
        let is_unknown = matches!(known, Err(InvalidToken::UnknownKey | InvalidToken::NoKeys));
        let Some((mut fetches, deadline)) = is_unknown.then(|| self.refetch()).flatten() else {
            return known;
        };
        let _ = timeout_at(deadline, fetches.changed()).await;
        self.known_key(token, algorithm)
    }

    fn known_key(
        &self,
        token: &UnverifiedToken<'_>,
        algorithm: TokenAlgorithm,
    ) -> Result<Arc<VerifyingKey>, InvalidToken> {
        let state = self.state.lock();
        if !state.has_keys(self.clock.now()) {
            return Err(InvalidToken::NoKeys);
        }
        // The issuer does not answer, or has not answered yet.
        let is_waiting = state.error.is_some() || state.fetch_began.is_some();
        match state.keys.choose(token, algorithm) {
            // It may be new.
            Err(InvalidToken::UnknownKey) if is_waiting => Err(InvalidToken::NoKeys),
            chosen => chosen.cloned(),
        }
    }

    /// Joins a fetch or asks for one. None if there is none to wait for: it takes too long already, or
    /// the last one that was asked for is not long enough ago.
    fn refetch(&self) -> Option<(watch::Receiver<u64>, Instant)> {
        let (now, began_now) = (self.clock.now(), Instant::now());
        let mut state = self.state.lock();
        let in_progress = state.fetch_began.filter(|began| began_now < *began + FETCH_DEADLINE);
        let began = match in_progress {
            Some(began) => began,
            None if state.is_cooling_down(now) => return None,
            None => {
                state.refetched = Some(now);
                state.due = now;
                state.fetch_began = Some(began_now);
                self.wanted.notify_one();
                began_now
            }
        };
        let deadline = began + MAX_WAIT;
        (began_now < deadline).then(|| (self.fetches.subscribe(), deadline))
    }

    /// Fetches the keys whenever they are due. Never ends.
    pub(super) async fn keep_fresh(&self) {
        loop {
            let is_due = self.clock.now() >= self.state.lock().due;
            if is_due || self.source.has_changed().await {
                self.fetch().await;
            }
            let _ = timeout(LOOK_INTERVAL, self.wanted.notified()).await;
        }
    }

    async fn fetch(&self) {
        let previous = {
            let mut state = self.state.lock();
            state.fetch_began = Some(Instant::now());
            Arc::clone(&state.keys)
        };
        let document = self.source.read().await;
        let keys = document
            .and_then(|document| Ok(KeySet::parse(&document, &self.algorithms, &previous)?));
        let now = self.clock.now();
        let mut state = self.state.lock();
        match keys {
            Ok(keys) => self.succeed(&mut state, now, keys),
            Err(error) => self.fail(&mut state, now, &error),
        }
        state.fetch_began = None;
        self.fetches.send_modify(|fetches| *fetches += 1);
    }

    fn succeed(&self, state: &mut IssuerState, now: Timestamp, keys: KeySet) {
        keys.replace(&state.keys, now + MAX_AGE);
        state.keys = Arc::new(keys);
        state.answered = Some(now);
        state.failures = 0;
        // Several servers that started at once should not fetch at once for ever.
        state.due = now + REFRESH_INTERVAL.mul_f64(0.9 + fastrand::f64() / 10.0);
        if state.error.take().is_some() {
            info!(issuer = %self.name, keys = state.keys.len(), "key set fetched again");
        }
    }

    fn fail(&self, state: &mut IssuerState, now: Timestamp, error: &ReadError) {
        state.due = now + retry_pause(state.failures);
        state.failures = state.failures.saturating_add(1);
        let is_first = state.error.replace(error.to_string()).is_none();
        let is_too_old = state.keys.len() > 0 && !state.has_keys(now);
        if is_too_old {
            state.keys = Arc::default();
        }
        if is_first && state.has_keys(now) {
            let keys = state.keys.len();
            warn!(issuer = %self.name, %error, keys, "key set cannot be fetched; using the last one");
        } else if is_first || is_too_old {
            warn!(issuer = %self.name, %error, "no key set: all tokens of this issuer are invalid");
        }
    }
}

impl IssuerState {
    fn has_keys(&self, now: Timestamp) -> bool {
        self.keys.len() > 0 && self.answered.is_some_and(|answered| now < answered + MAX_AGE)
    }

    fn is_cooling_down(&self, now: Timestamp) -> bool {
        self.refetched.is_some_and(|refetched| now < refetched + REFETCH_COOL_DOWN)
    }
}

/// The pause after so many failures and another one. Half of it is random, so that several servers
/// do not come back to a provider at once.
fn retry_pause(failures: u32) -> Duration {
    let longest = FIRST_RETRY.saturating_mul(2u32.saturating_pow(failures)).min(LAST_RETRY);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

enum KeySetSource {
    Url { uri: Uri, fetcher: Box<Fetcher> },
    File { path: PathBuf, version: Mutex<Option<KeyFileVersion>> },
}

/// What differs after a file was written. The length, because some clocks of file systems are coarse.
type KeyFileVersion = (SystemTime, u64);

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("status {0}")]
    Status(StatusCode),
    #[error("{path}: {reason}", path = path.display())]
    File { path: PathBuf, reason: String },
    #[error(transparent)]
    Jwks(#[from] JwksError),
}

impl KeySetSource {
    /// Whether a file was written since it was read.
    async fn has_changed(&self) -> bool {
        let Self::File { path, version } = self else { return false };
        let path = path.clone();
        let now = spawn_blocking(move || file_version(&path)).await.ok().flatten();
        now != *version.lock()
    }

    async fn read(&self) -> Result<Bytes, ReadError> {
        match self {
            Self::Url { uri, fetcher } => {
                let accept = (ACCEPT, HeaderValue::from_static("application/json"));
                let fetched = fetcher.get(uri.clone(), &HeaderMap::from_iter([accept])).await?;
                match fetched.status {
                    StatusCode::OK => Ok(fetched.body),
                    status => Err(ReadError::Status(status)),
                }
            }
            Self::File { path, version } => {
                let fail = |reason: String| ReadError::File { path: path.clone(), reason };
                let to_read = path.clone();
                // Its version first: a write in between then counts as a change.
                let read = move || (file_version(&to_read), read_file(&to_read));
                let (now, document) =
                    spawn_blocking(read).await.map_err(|error| fail(error.to_string()))?;
                *version.lock() = now;
                document.map_err(fail)
            }
        }
    }
}

fn file_version(path: &Path) -> Option<KeyFileVersion> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read_file(path: &Path) -> Result<Bytes, String> {
    // A pipe would never end.
    if !fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("not a file".to_owned());
    }
    let mut document = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file.take(MAX_DOCUMENT_BYTES as u64 + 1).read_to_end(&mut document);
    match read.map_err(|error| error.to_string())? {
        ..=MAX_DOCUMENT_BYTES => Ok(document.into()),
        _ => Err(format!("larger than {MAX_DOCUMENT_BYTES} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let longest = [(0, 1), (1, 2), (2, 4), (5, 32), (6, 60), (7, 60), (u32::MAX, 60)];
        for (failures, seconds) in longest {
            let longest = Duration::from_secs(seconds);
            for _ in 0..100 {
                let pause = retry_pause(failures);
                assert!((longest / 2..=longest).contains(&pause), "{failures}: {pause:?}");
            }
        }
    }
}
