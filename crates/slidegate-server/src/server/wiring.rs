//! What is in force, and how it changes while the server runs.

use std::sync::Arc;

use anyhow::Context;
use parking_lot::Mutex;
use slidegate::limit::SystemClock;
use slidegate::{Gate, Policies};
use slidegate_customers::Customers;
use slidegate_proxy::ListenAddress;
use tokio::task::JoinHandle;
use tracing_appender::non_blocking::WorkerGuard;

use crate::admin::now::NowService;
use crate::admin::{Operator, RecentLists};
use crate::api::ReloadChanges;
use crate::certificates::Certificates;
use crate::config::{Config, ConfigErrors, DataFile, LimiterConfig, Secret, ServerConfig, Sources};
use crate::decisions::{Access, DecisionService, Decisions};
use crate::endpoint::router::RouterService;
use crate::endpoint::token::RequiredToken;
use crate::envoy::{self, EnvoyService};
use crate::gateway::Gateway;
use crate::holds::Holds;
use crate::live_config::LiveConfig;
use crate::observe::{ListenerKind, Observer, Tracer, Trail};
use crate::reload::{self, Cause, Loader, Reloader};
use crate::resp::Resp;
use crate::shared::{BanQueue, Exchange, Heartbeats, OverrideService, Persistence};
use crate::store::{self, AnyStore};

/// What all endpoints share, and where it came from.
pub(crate) struct Server {
    pub(crate) live: Arc<LiveConfig>,
    pub(crate) gateway: Option<Gateway>,
    pub(crate) observer: Observer,
    pub(crate) now: Arc<NowService<Arc<SystemClock>>>,
    pub(crate) overrides: Arc<OverrideService>,
    /// With Redis only.
    pub(crate) exchange: Option<Arc<Exchange>>,
    pub(crate) tls: Option<Certificates>,
    pub(crate) rls_tls: Option<Certificates>,
    /// The clock by which all endpoints time requests for the observer.
    pub(crate) clock: Arc<SystemClock>,
    holds: Arc<Holds>,
    /// Begins spans of the gateway's requests, if they are exported.
    pub(crate) tracer: Option<Arc<Tracer>>,
    audit: Option<WorkerGuard>,
    /// What it was started with.
    pub(crate) config: Arc<ServerConfig>,
    /// Whether policies are in force, or the operator has switched all of them off.
    pub(crate) enforced: bool,
    /// The files that the keys and networks in force were read from.
    data_files: Vec<DataFile>,
    pub(crate) reloader: Arc<Reloader>,
    /// Reads accounts for the log of the last reload.
    inspection: Option<JoinHandle<()>>,
}

/// Reloads that may be under way: one, and others before it that wait for a file for ever.
const MAX_RELOADS: usize = 4;
/// The same of plans.
const MAX_PLANS: usize = 2;

impl Server {
    pub(crate) fn new(
        config: Config,
        sources: Sources,
        store: AnyStore,
        customers: Option<Arc<Customers>>,
    ) -> anyhow::Result<Self> {
        let Config { server: config, limiter, data_files, files } = config;
        let enforced = limiter.enforced;
        let shared = store.redis().map(|store| store.inner().redis().shared_state());
        let queue = shared.is_some().then(Arc::<BanQueue>::default);
        let local = store::memory(config.local_capacity);
        let LimiterConfig { policies, responder, client_address, standing, .. } = limiter;
        let gate = Gate::with_local(policies, store, local);
        let gate = match queue.clone() {
            Some(queue) => gate.on_ban(move |ban| queue.push(ban)),
            None => gate,
        };
        let live = LiveConfig::new(gate, responder, client_address, standing, customers.clone());
        let live = Arc::new(live);
        let (trail, audit) = config.audit.as_ref().map(Trail::begin).transpose()?.unzip();
        let clock = Arc::new(SystemClock::new());
        let observer = Observer::new(live.gate().clone(), &config.log, trail, clock.clone());
        if let Some(customers) = customers {
            observer.watch_customers(customers);
        }
        let trace = config.trace.as_ref();
        let tracer = trace.map(|config| Tracer::new(config, clock.clone())).transpose()?;
        let tracer = tracer.map(Arc::new);
        tracer.iter().for_each(|tracer| observer.watch_tracer(tracer.clone()));
        let settling = observer.clone();
        live.on_settled(move |charge, outcome| settling.response_cost(charge, outcome));
        let heartbeats = Arc::new(Heartbeats::new(observer.started_at()));
        let now = NowService::new(observer.clone(), heartbeats.clone(), clock.clone());
        let holds = Arc::new(Holds::new(observer.clone(), clock.clone(), config.settle_within));
        let exchange = shared.zip(queue).map(|(shared, queue)| {
            Arc::new(Exchange::new(shared, queue, observer.clone(), heartbeats, holds.clone()))
        });
        let gateway = config.gateway.as_ref();
        let tls =
            gateway.and_then(|gateway| gateway.tls.as_ref()).map(Certificates::load).transpose()?;
        let rls = config.rls.as_ref();
        let rls_tls = rls.and_then(|rls| rls.tls.as_ref()).map(Certificates::load).transpose()?;
        let gateway = gateway.map(|config| {
            let (live, observer, clock) = (live.clone(), observer.clone(), clock.clone());
            Gateway::new(config, live, observer, tracer.clone(), clock)
        });
        let persistence = match &exchange {
            Some(exchange) => Persistence::Redis(exchange.clone()),
            None => Persistence::beside(config.store.snapshot()),
        };
        let overrides = OverrideService::open(live.gate().clone(), persistence);
        let overrides = Arc::new(overrides.context("store.snapshot.file")?);
        let config = Arc::new(config);
        let reloader = Arc::new(Reloader {
            live: live.clone(),
            observer: observer.clone(),
            config: config.clone(),
            sources,
            files: Mutex::new(files),
            loader: Loader::new(MAX_RELOADS),
            plan_loader: Loader::new(MAX_PLANS),
            planning: tokio::sync::Mutex::default(),
        });
        Ok(Self {
            live,
            gateway,
            observer,
            now: Arc::new(now),
            overrides,
            exchange,
            tls,
            rls_tls,
            clock,
            holds,
            tracer,
            audit,
            config,
            enforced,
            data_files,
            reloader,
            inspection: None,
        })
    }

    /// What answers the operator.
    pub(crate) fn operator(&self) -> Operator {
        let (overrides, observer) = (self.overrides.clone(), self.observer.clone());
        let recent = RecentLists::default();
        Operator { live: self.live.clone(), overrides, observer, recent }
    }

    /// What answers programs that ask at these addresses, on one worker.
    pub(crate) fn decisions(&self, local: &[ListenAddress]) -> DecisionService {
        let (live, observer, clock) =
            (self.live.clone(), self.observer.for_worker(), self.clock.clone());
        let token = self.config.decisions.as_ref().and_then(|decisions| decisions.token.as_ref());
        let ports = || local.iter().filter_map(ListenAddress::reached_at).map(|at| at.port());
        let access = match token {
            Some(token) => Access::Token(self.required(token, ListenerKind::Decisions)),
            None => Access::Program(ports().collect()),
        };
        let holds = self.holds.clone();
        DecisionService { decisions: Decisions { live, observer, clock, holds }, access }
    }

    /// What answers Redis clients, if there is an endpoint for them.
    pub(crate) fn resp(&self) -> Option<Resp> {
        let config = self.config.resp.as_ref()?;
        Some(Resp {
            live: self.live.clone(),
            operator: Operator { observer: self.observer.for_worker(), ..self.operator() },
            clock: self.clock.clone(),
            holds: self.holds.clone(),
            token: config
                .endpoint
                .token
                .as_ref()
                .map(|token| self.required(token, ListenerKind::Resp)),
        })
    }

    fn required(&self, token: &Secret, listener: ListenerKind) -> RequiredToken {
        RequiredToken::new(token, listener, self.observer.token_failures())
    }

    /// What answers Envoy.
    pub(crate) async fn rls(&self) -> RouterService {
        let (live, clock) = (self.live.clone(), self.clock.clone());
        let service = EnvoyService { live, observer: self.observer.for_worker(), clock };
        let token = self.config.rls.as_ref().and_then(|rls| rls.token.as_ref());
        RouterService(envoy::router(service, token).await)
    }

    /// Reads the configuration again, on another thread, and puts it in force, or leaves everything as
    /// it is. Returns what could not be read and stays as it was.
    pub(crate) async fn reload(&mut self, cause: Cause) -> Vec<&'static str> {
        let mut kept = Vec::new();
        match self.reloader.load().await {
            Ok((loaded, changes)) => {
                loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                self.apply(loaded.config, &changes);
            }
            Err(problems) => {
                let texts = problems.downcast_ref().map(ConfigErrors::texts);
                let texts = texts.unwrap_or_else(|| vec![format!("{problems:#}")]);
                self.observer.reload_failed(&texts);
                tracing::error!("reload failed; keeping the previous configuration: {problems:#}");
                kept.push("configuration");
            }
        }
        if cause == Cause::Signal && !self.reload_certificates().await {
            kept.push("certificate");
        }
        kept
    }

    /// Writes down that this is the end, and waits until it is on the disk, a moment.
    pub(crate) fn end(&mut self) {
        self.observer.stopped();
        drop(self.audit.take());
    }

    /// The files that the keys and networks in force were read from.
    pub(crate) fn data_files(&self) -> &[DataFile] {
        &self.data_files
    }

    fn apply(&mut self, config: Config, changes: &ReloadChanges) {
        let Config { server, limiter, data_files, files } = config;
        let before = self.live.gate().policies();
        self.data_files = data_files;
        *self.reloader.files.lock() = files;
        if let (Some(gateway), Some(config)) = (&self.gateway, &server.gateway) {
            gateway.reroute(&config.proxy.routes);
        }
        self.live.replace(limiter);
        self.observer.reloaded(&changes.changes, changes.restart.clone());
        changes.log();
        if !changes.changes.is_empty() {
            self.inspect_accounts(before.clone());
        }
        tokio::spawn(reload::free_unused(before));
    }

    /// Logs which accounts are over the quotas that are new. The reload does not wait for it, and the
    /// next one ends it.
    fn inspect_accounts(&mut self, before: Arc<Policies>) {
        let (reloader, after) = (self.reloader.clone(), self.live.gate().policies());
        let inspection = async move { reloader.accounts_over(&before, &after).await.log() };
        if let Some(last) = self.inspection.replace(tokio::spawn(inspection)) {
            last.abort();
        }
    }

    /// Returns whether all of them could be read.
    async fn reload_certificates(&self) -> bool {
        let mut all = true;
        for tls in self.tls.iter().chain(&self.rls_tls) {
            let loading = tls.clone();
            let loaded = self.reloader.loader.run(move || loading.reload()).await;
            match loaded.flatten() {
                Ok(()) => tracing::info!("reloaded the certificate"),
                Err(error) => {
                    tracing::error!(
                        "certificate reload failed; keeping the previous one: {error:#}"
                    );
                    self.observer.certificate_reload_failed(format!("{error:#}"));
                    all = false;
                }
            }
        }
        all
    }
}
