//! Who sends a request: the sources of a configuration, and the thread that keeps up with them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::{HeaderMap, HeaderValue, header};
use slidegate::limit::SystemClock;
use slidegate::{Bearer, Clock};
use slidegate_customers::{
    Customers, HttpKeys, HttpKeysConfig, InvalidTokens, IssuerConfig, JwksLocation, KeySource,
    Keys, OnKeyError, PostgresConfig, PostgresKeys, SourceStatus, Tokens, authorities,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use crate::config::{CustomersConfig, JwtConfig, KeySetPlace, KeySourceConfig, KeySourceKind};

/// The sources of a configuration, if it has any.
#[derive(Debug, Default)]
pub(crate) struct OpenCustomers {
    pub(crate) customers: Option<Arc<Customers>>,
    /// Lives as long as they are used.
    _thread: Option<CustomersThread>,
}

impl OpenCustomers {
    /// Begins to keep up with the sources; it does not wait for them.
    pub(crate) fn new(config: &CustomersConfig, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        if config.is_empty() {
            return Ok(Self::default());
        }
        let customers = Arc::new(open(config, clock)?);
        let thread = CustomersThread::start(customers.clone()).context("cannot begin")?;
        Ok(Self { customers: Some(customers), _thread: Some(thread) })
    }
}

/// Finds out whether the sources could be used; connects to nothing.
pub(crate) fn check(config: &CustomersConfig) -> anyhow::Result<()> {
    open(config, Arc::new(SystemClock::new())).map(drop)
}

/// The sources of a configuration. Nothing is connected to before they run.
pub(crate) fn open(config: &CustomersConfig, clock: Arc<dyn Clock>) -> anyhow::Result<Customers> {
    let keys = config.key_source.as_ref().map(key_source).transpose().context("key_source")?;
    let issuers = config.issuers.iter().map(issuer).collect::<anyhow::Result<Vec<_>>>();
    let issuers = issuers.context("jwt")?;
    let tokens = match issuers.is_empty() {
        true => None,
        false => Some(Tokens::new(issuers, clock).context("jwt")?),
    };
    Ok(Customers::new(keys, tokens))
}

fn key_source(config: &KeySourceConfig) -> anyhow::Result<KeySource> {
    let KeySourceConfig { url, hash, .. } = config.clone();
    let authorities = certificates(config.authorities.as_deref())?;
    let keys = match config.kind.clone() {
        KeySourceKind::Postgres { query, poll, full, notify } => {
            let config = PostgresConfig { url, query, poll, full, notify, hash, authorities };
            Keys::Postgres(PostgresKeys::new(config)?)
        }
        KeySourceKind::Http { fresh, stale, unknown, token } => {
            let bearer = |token: &str| -> anyhow::Result<HeaderValue> {
                let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                    .ok()
                    .context("token_file: the token cannot be sent: expected visible text")?;
                value.set_sensitive(true);
                Ok(value)
            };
            let authorization = token.map(|token| bearer(token.reveal())).transpose()?;
            let config =
                HttpKeysConfig { url, hash, fresh, stale, unknown, authorization, authorities };
            Keys::Http(HttpKeys::new(config)?)
        }
    };
    let on_error = match config.refuses_on_error {
        true => OnKeyError::Deny,
        false => OnKeyError::Ignore,
    };
    Ok(KeySource { keys, hash, on_error })
}

fn issuer(config: &JwtConfig) -> anyhow::Result<IssuerConfig> {
    let JwtConfig { issuer, audience, algorithms, user, customer, plan, .. } = config.clone();
    Ok(IssuerConfig {
        issuer,
        jwks: match &config.jwks {
            KeySetPlace::Url(url) => JwksLocation::Url(url.clone()),
            KeySetPlace::File(path) => JwksLocation::File(path.clone()),
        },
        audience,
        algorithms,
        user,
        customer,
        plan,
        invalid: match config.refuses_invalid {
            true => InvalidTokens::Refuse,
            false => InvalidTokens::Ignore,
        },
        authorities: certificates(config.authorities.as_deref())?,
    })
}

/// What can be known of the credentials in these headers without a connection: tokens of issuers whose
/// keys are in files. The lines say what is found, and what is not looked up.
pub(crate) fn explain_offline(
    config: &CustomersConfig,
    headers: &HeaderMap,
) -> anyhow::Result<(Option<Bearer>, Vec<String>)> {
    let mut lines = Vec::new();
    if config.key_source.is_some() && headers.contains_key("x-api-key") {
        lines.push("API key: not looked up here; --customer NAME says whose it is".to_owned());
    }
    let in_file = |issuer: &&JwtConfig| matches!(issuer.jwks, KeySetPlace::File(_));
    let issuers: Vec<JwtConfig> = config.issuers.iter().filter(in_file).cloned().collect();
    if issuers.len() < config.issuers.len() && headers.contains_key(header::AUTHORIZATION) {
        let line =
            "token: keys behind a URL are not fetched here; --user and --customer say whose it is";
        lines.push(line.to_owned());
    }
    if issuers.is_empty() {
        return Ok((None, lines));
    }
    let config = CustomersConfig { key_source: None, issuers };
    let customers = open(&config, Arc::new(SystemClock::new()))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let explained = async {
        let is_read = |(_, status): &(String, SourceStatus)| {
            status.answered_ago.is_some() || status.error.is_some()
        };
        while !customers.issuers().iter().all(is_read) {
            sleep(Duration::from_millis(1)).await;
        }
        (
            customers.find(headers, None, |_| false).await,
            customers.explain(headers, |_| false).await,
        )
    };
    let (bearer, explained) = runtime.block_on(async {
        tokio::select! {
            explained = explained => explained,
            () = customers.run() => unreachable!("it runs until it is dropped"),
        }
    });
    lines.extend(explained);
    Ok((Some(bearer), lines))
}

fn certificates(pem: Option<&[u8]>) -> anyhow::Result<slidegate_customers::Authorities> {
    authorities(pem.unwrap_or_default()).context("ca")
}

/// The thread that talks to the sources, and on which nothing else runs: a table of a million keys that is
/// read keeps no request waiting. Ends without waiting for answers.
#[derive(Debug)]
struct CustomersThread(Option<Runtime>);

impl CustomersThread {
    fn start(customers: Arc<Customers>) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(1).thread_name("slidegate-customers").enable_all();
        let runtime = builder.build()?;
        runtime.spawn(async move { customers.run().await });
        Ok(Self(Some(runtime)))
    }
}

impl Drop for CustomersThread {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}
