//! An issuer, a clock to move, and the tokens that are checked.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use serde_json::{Value, json};
use slidegate::{Clock as _, ManualClock};
use slidegate_customers::{
    InvalidToken, InvalidTokens, IssuerConfig, JwksLocation, SourceStatus, TokenAlgorithm,
    TokenAnswer, TokenClaims, Tokens,
};
use tokio::task::JoinHandle;

use crate::provider::{Answer, Provider};
use crate::signing::{SigningKey, jwks};

pub(crate) const ISSUER: &str = "https://auth.example.com/";
pub(crate) const AUDIENCE: &str = "api";

/// One issuer whose keys are fetched in the background.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) provider: Provider,
    pub(crate) tokens: Tokens,
    run: JoinHandle<()>,
}

impl World {
    /// An issuer with these keys, which are loaded.
    pub(crate) async fn new(keys: &[&SigningKey]) -> Self {
        Self::with(keys, |_| ()).await
    }

    /// The same, configured in another way.
    pub(crate) async fn with(keys: &[&SigningKey], change: impl FnOnce(&mut IssuerConfig)) -> Self {
        let provider = Provider::start(Answer::Keys(jwks(keys.iter().copied()))).await;
        let world = Self::without_keys(provider, change);
        world.until("the keys are loaded", |status| status.keys > 0).await;
        world
    }

    /// An issuer whose provider has not been asked yet.
    pub(crate) fn without_keys(provider: Provider, change: impl FnOnce(&mut IssuerConfig)) -> Self {
        let clock = ManualClock::default();
        let mut config = config(&provider);
        change(&mut config);
        let tokens = Tokens::new(vec![config], Arc::new(clock.clone())).expect("a good issuer");
        let run = spawn_run(&tokens);
        Self { clock, provider, tokens, run }
    }

    pub(crate) async fn check(&self, token: &str) -> TokenAnswer {
        self.tokens.check(token, None).await
    }

    pub(crate) async fn check_from(&self, address: &str, token: &str) -> TokenAnswer {
        let address: IpAddr = address.parse().expect("an address");
        self.tokens.check(token, Some(address)).await
    }

    /// Checks a token that counts.
    pub(crate) async fn valid(&self, token: &str) -> Arc<TokenClaims> {
        match self.check(token).await {
            TokenAnswer::Valid(claims) => claims,
            other => panic!("{other:?}"),
        }
    }

    /// Checks a token that does not count.
    pub(crate) async fn assert_invalid(&self, token: &str, expected: InvalidToken) {
        assert_eq!(self.check(token).await, TokenAnswer::Invalid(expected), "{token}");
        assert_eq!(self.tokens.find(token), None, "{token}");
    }

    pub(crate) fn status(&self) -> SourceStatus {
        let [(_, status)] = self.tokens.statuses().try_into().expect("one issuer");
        status
    }

    /// Waits until the issuer's state is as expected.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&SourceStatus) -> bool) {
        until(what, || is_so(&self.status())).await;
    }

    /// Lets the regular fetch bring these keys.
    pub(crate) async fn refresh(&self, keys: String) {
        self.fetch_regularly(Answer::Keys(keys)).await;
        let is_fresh = |status: &SourceStatus| status.answered_ago == Some(Duration::ZERO);
        self.until("the fetch ended", is_fresh).await;
    }

    /// Lets the regular fetch fail.
    pub(crate) async fn fail_to_refresh(&self, answer: Answer) {
        assert_eq!(self.status().error, None);
        self.fetch_regularly(answer).await;
        self.until("the fetch failed", SourceStatus::is_degraded).await;
    }

    async fn fetch_regularly(&self, answer: Answer) {
        self.provider.answer(answer);
        let before = self.provider.fetches();
        self.clock.advance(Duration::from_secs(10 * 60));
        until("a fetch began", || self.provider.fetches() > before).await;
    }

    /// Claims that count for an hour, and these.
    pub(crate) fn claims(&self, more: &Value) -> Value {
        let seconds = self.clock.now().as_millis() / 1000;
        let mut claims = json!({
            "iss": ISSUER, "aud": AUDIENCE, "exp": seconds + 3600, "nbf": seconds, "sub": "ann",
        });
        let more = more.as_object().expect("claims are an object").clone();
        claims.as_object_mut().expect("claims are an object").extend(more);
        claims
    }

    /// A token that counts for an hour, as far as its key does.
    pub(crate) fn token(&self, key: &SigningKey) -> String {
        self.token_with(key, &json!({}))
    }

    pub(crate) fn token_with(&self, key: &SigningKey, more: &Value) -> String {
        key.sign(&self.claims(more))
    }

    /// Ends the background task, as the end of a runtime would.
    pub(crate) async fn stop_running(&mut self) {
        self.run.abort();
        let _ = (&mut self.run).await;
    }

    pub(crate) fn run_again(&mut self) {
        self.run = spawn_run(&self.tokens);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.run.abort();
    }
}

/// An issuer that takes every algorithm.
pub(crate) fn config(provider: &Provider) -> IssuerConfig {
    let names = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA".split(' ');
    let algorithms: Result<Vec<TokenAlgorithm>, _> = names.map(str::parse).collect();
    IssuerConfig {
        issuer: ISSUER.to_owned(),
        jwks: JwksLocation::Url(provider.url()),
        audience: vec![AUDIENCE.to_owned()],
        algorithms: algorithms.expect("names of algorithms"),
        user: Some("sub".to_owned()),
        customer: Some("org".to_owned()),
        plan: Some("plan".to_owned()),
        invalid: InvalidTokens::Ignore,
        authorities: RootCertStore::empty(),
    }
}

pub(crate) fn spawn_run(tokens: &Tokens) -> JoinHandle<()> {
    let tokens = tokens.clone();
    tokio::spawn(async move { tokens.run().await })
}

/// Waits for a condition, and panics if it does not hold within a minute.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
    waited.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}
