//! The builder of a store.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{ClientTlsConfig, TlsCertificates};
use slidegate::Name;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;

use super::RedisStore;
use crate::address::{Address, AddressError};
use crate::key::KeyTemplate;
use crate::layout::{Layout, ScoreUnit};

/// Makes a [`RedisStore`].
#[must_use]
pub struct RedisStoreBuilder {
    url: String,
    pub(crate) layout: Layout,
    pub(crate) score_unit: Option<ScoreUnit>,
    pub(crate) template: Option<KeyTemplate>,
    pub(crate) policy_templates: HashMap<Name, KeyTemplate>,
    pub(crate) namespace: Option<Name>,
    pub(crate) deadline: Duration,
    pub(crate) tls: Option<RedisTls>,
    pub(crate) connector: Option<StreamConnector>,
    pub(crate) runtime: Option<Handle>,
}

/// Many times what a call takes, and little enough to add to a request without harm.
const DEADLINE: Duration = Duration::from_millis(50);

impl RedisStoreBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            layout: Layout::default(),
            score_unit: None,
            template: None,
            policy_templates: HashMap::new(),
            namespace: None,
            deadline: DEADLINE,
            tls: None,
            connector: None,
            runtime: None,
        }
    }

    /// Chooses how ledgers are kept; packed unless said otherwise. All that share a budget must
    /// choose the same.
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// The unit of time of the scores, for the layout `sorted-set` only: milliseconds unless said
    /// otherwise. Choose that of the limiters that count on the same keys.
    pub fn score_unit(self, unit: ScoreUnit) -> Self {
        Self { score_unit: Some(unit), ..self }
    }

    /// Names keys another way.
    pub fn key_template(self, template: KeyTemplate) -> Self {
        Self { template: Some(template), ..self }
    }

    /// Names the keys of one policy another way.
    pub fn key_template_of(mut self, policy: Name, template: KeyTemplate) -> Self {
        self.policy_templates.insert(policy, template);
        self
    }

    /// Puts this name and a colon before every key: those of ledgers, whatever their template, and of
    /// the shared state. Applications that share a server, and not a budget, need different ones,
    /// because policies of the same name would count in the same accounts.
    ///
    /// ```
    /// use slidegate::{Policies, Policy};
    /// use slidegate_redis::RedisStore;
    ///
    /// let url = "redis://127.0.0.1:6379";
    /// let store = RedisStore::builder(url).namespace("shop".parse()?).build()?;
    /// let policies = Policies::builder().policy(Policy::new("api").quota("60/min")).build()?;
    /// let patterns = store.key_patterns(&policies);
    /// assert_eq!(patterns, ["shop:slidegate:shared*", "shop:slidegate:{*:*}:api:*"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn namespace(self, namespace: Name) -> Self {
        Self { namespace: Some(namespace), ..self }
    }

    /// How long a call may take, 50 milliseconds unless said otherwise.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The certificates to use where the URL says TLS.
    pub fn tls(self, tls: RedisTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Connects through this function, and not to the address in the URL, which gives the login and the
    /// database only: through a tunnel or a simulated network. It is for one server, without TLS.
    ///
    /// ```
    /// use slidegate_redis::RedisStore;
    /// use tokio::net::TcpStream;
    ///
    /// let store = RedisStore::builder("redis://redis.internal:6379")
    ///     .connector(|| TcpStream::connect("127.0.0.1:16379"))
    ///     .build()?;
    /// # Ok::<(), slidegate_redis::BuildError>(())
    /// ```
    pub fn connector<F, S>(self, connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connect = move || -> Connecting {
            let connecting = connect();
            Box::pin(async move { Ok(Box::new(connecting.await?) as Box<dyn Stream>) })
        };
        Self { connector: Some(StreamConnector(Arc::new(connect))), ..self }
    }

    /// Runs the connection and every background task of the store on this runtime, whichever runtime
    /// the store is called on. Without it, they run on the runtime of the call that needs them first,
    /// and a task that blocks that runtime makes calls of all others miss their deadlines.
    ///
    /// The runtime needs its I/O and time drivers, and has to outlive the store's last call.
    ///
    /// ```
    /// use slidegate_redis::RedisStore;
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread()
    ///     .worker_threads(1)
    ///     .thread_name("redis")
    ///     .enable_all()
    ///     .build()?;
    /// let store = RedisStore::builder("redis://127.0.0.1:6379")
    ///     .runtime(runtime.handle().clone())
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn runtime(self, runtime: Handle) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// What the keys of the shared state begin with: it begins as the template for all policies does or,
    /// if none is set, as those of policies if they all begin alike. So a user with the keys of the
    /// policies has them too.
    pub(crate) fn shared_prefix(&self) -> String {
        let prefix = |template: &KeyTemplate| self.in_namespace(template).shared_prefix();
        let mut own = self.policy_templates.values().map(prefix);
        match (&self.template, own.next()) {
            (None, Some(first)) if own.all(|other| other == first) => first,
            (template, _) => prefix(&template.clone().unwrap_or_default()),
        }
    }

    /// The template with the namespace before it.
    pub(crate) fn in_namespace(&self, template: &KeyTemplate) -> KeyTemplate {
        match &self.namespace {
            Some(namespace) => template.within(namespace),
            None => template.clone(),
        }
    }

    /// Checks it all and makes the store, which connects when it is first used.
    pub fn build(self) -> Result<RedisStore, BuildError> {
        let address: Address = self.url.parse()?;
        if self.score_unit.is_some() && self.layout != Layout::SortedSet {
            return Err(BuildError::NoScores(self.layout));
        }
        if self.deadline.is_zero() {
            return Err(BuildError::Deadline);
        }
        if self.tls.is_some() && !address.is_tls {
            return Err(BuildError::UnusedCertificates);
        }
        if self.connector.is_some() && (address.is_tls || !address.is_one_server()) {
            return Err(BuildError::Connector);
        }
        if address.is_cluster() {
            let templates = self.template.iter().chain(self.policy_templates.values());
            for template in templates {
                if !template.keeps_windows_together() {
                    return Err(BuildError::ClusterTemplate(template.to_string()));
                }
            }
        }
        if address.is_tls {
            // The program may have installed another one; then that is used.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Ok(RedisStore::new(address, self))
    }
}

/// Makes connections in place of the address in the URL.
#[derive(Clone)]
pub(crate) struct StreamConnector(pub(crate) Arc<dyn Fn() -> Connecting + Send + Sync>);

type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The certificate authority and the client's certificate for a connection by TLS, in PEM. Without a
/// certificate authority, the machine's own are trusted. It shows neither.
#[derive(Debug, Clone)]
pub struct RedisTls(pub(crate) TlsCertificates);

impl RedisTls {
    /// Trusts what the machine trusts, and shows no certificate.
    pub fn new() -> Self {
        Self(TlsCertificates { client_tls: None, root_cert: None })
    }

    /// Trusts servers that this authority vouches for, and no others.
    #[must_use]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.0.root_cert = Some(pem.into());
        self
    }

    /// Shows this certificate to the server.
    #[must_use]
    pub fn client(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let (client_cert, client_key) = (certificate.into(), key.into());
        self.0.client_tls = Some(ClientTlsConfig { client_cert, client_key });
        self
    }
}

impl Default for RedisTls {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a store cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The URL is wrong.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No call could ever be in time.
    #[error("the deadline is 0: expected at least a millisecond")]
    Deadline,
    /// A unit of scores is given, but the layout has no scores.
    #[error(
        "a unit of scores is given, but the layout {0} has no scores: expected it with sorted-set"
    )]
    NoScores(Layout),
    /// Certificates are given, but TLS is not asked for.
    #[error(
        "certificates are given, but the URL does not ask for TLS: write rediss:// in place of redis://"
    )]
    UnusedCertificates,
    /// A connector is given, but the URL has TLS or more than one server.
    #[error("a connector is given: expected the URL of one server without TLS, as in redis://host")]
    Connector,
    /// A cluster would spread an account over several servers.
    #[error(
        "the key template {0:?} would spread the windows of one account over a cluster: put \
         braces around what they share, as in slidegate:{{<kind>:<identity>}}:<policy>:<window>"
    )]
    ClusterTemplate(String),
}
