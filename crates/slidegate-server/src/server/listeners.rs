//! The listeners of all endpoints and their handlers.

use std::time::Duration;

use anyhow::Context;
use slidegate::Store;
use tokio::time::{Instant, sleep};

use super::wiring::Server;
use super::workers::Workers;
use crate::admin::{self, Operator};
use crate::config::{Bounds, GatewayConfig, ListenAddress, Timeouts};
use crate::gateway::{GatewayWorker, Tunnels};
use crate::net::{Handler, Listeners, Settings, Sockets, TrustedPeers, serve};
use crate::observe::{ListenerKind, StoreReport};
use crate::router::RouterService;
use crate::shutdown::{Closing, Shutdown};

/// An endpoint that listens, and whose requests are answered once its workers begin.
struct BoundListener {
    local: Vec<ListenAddress>,
    settings: Settings,
    sockets: Vec<Sockets>,
}

impl BoundListener {
    fn new(listen: &[ListenAddress], workers: usize, settings: Settings) -> anyhow::Result<Self> {
        let listeners = Listeners::bind(listen, workers)?;
        let local = listeners.local().to_vec();
        Ok(Self { local, settings, sockets: listeners.into_workers() })
    }
}

/// The endpoints for clients and for programs that ask, on as many threads as there are to be.
pub(crate) struct PublicListeners {
    gateway: Option<BoundListener>,
    decisions: Option<BoundListener>,
    drain: Duration,
    workers: usize,
}

impl PublicListeners {
    pub(crate) fn bind<S: Store + StoreReport>(server: &Server<S>) -> anyhow::Result<Self> {
        let gateway = server.config.gateway.as_ref();
        let workers = gateway.map_or_else(available_workers, |config| config.workers);
        let drain = gateway.map_or(Timeouts::default().drain, |config| config.timeouts.drain);
        let gateway = gateway.map(|config| {
            BoundListener::new(&config.listen, workers, gateway_settings(config, server))
                .context("gateway")
        });
        let decisions = server.config.decisions.as_ref().map(|config| {
            let settings = Settings::new(&Timeouts::default(), &Bounds::default());
            server.observer.connections(ListenerKind::Decisions, settings.connections().clone());
            BoundListener::new(&config.listen, workers, settings).context("decisions")
        });
        let (gateway, decisions) = (gateway.transpose()?, decisions.transpose()?);
        Ok(Self { gateway, decisions, drain, workers })
    }

    pub(crate) fn gateway(&self) -> &[ListenAddress] {
        self.gateway.as_ref().map_or(&[], |endpoint| &endpoint.local)
    }

    pub(crate) fn decisions(&self) -> &[ListenAddress] {
        self.decisions.as_ref().map_or(&[], |endpoint| &endpoint.local)
    }

    /// Begins to answer.
    pub(crate) fn open<S: Store + StoreReport>(
        mut self,
        server: &Server<S>,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Workers> {
        let mut workers = Workers::default();
        for index in 0..self.workers {
            let gateway = share(&mut self.gateway)
                .zip(server.gateway.as_ref())
                .map(|(share, gateway)| (share, gateway.worker(index), gateway.tunnels().clone()));
            let decisions = share(&mut self.decisions).map(|share| (share, server.decisions()));
            let (drain, shutdown) = (self.drain, shutdown.clone());
            workers.begin(move || async move {
                tokio::join!(
                    serve_gateway(gateway, shutdown.clone(), drain),
                    serve_share(decisions, shutdown),
                );
            })?;
        }
        Ok(workers)
    }
}

/// One worker's part of an endpoint.
type WorkerSockets = (Sockets, Settings);

fn share(endpoint: &mut Option<BoundListener>) -> Option<WorkerSockets> {
    let endpoint = endpoint.as_mut()?;
    Some((endpoint.sockets.pop()?, endpoint.settings.clone()))
}

async fn serve_share<A: Handler>(share: Option<(WorkerSockets, A)>, shutdown: Shutdown) {
    let Some(((sockets, settings), answer)) = share else { return };
    if let Err(error) = serve(sockets, settings, answer, shutdown).await {
        tracing::error!(%error, "worker cannot listen");
    }
}

/// Tunnels outlive the connections that they were; they are waited for as long as those.
async fn serve_gateway<S: Store>(
    share: Option<(WorkerSockets, GatewayWorker<S>, Tunnels)>,
    mut shutdown: Shutdown,
    drain: Duration,
) {
    let Some((share, worker, tunnels)) = share else { return };
    let connections = serve_share(Some((share, worker)), shutdown.clone());
    let all_out = async {
        shutdown.begun().await;
        let deadline = Instant::now() + drain;
        while tunnels.open() > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::join!(connections, all_out);
}

/// The admin endpoint, on the thread that does little else. It is open until the very end, so that
/// the end can be watched: until what is returned with its addresses is dropped.
pub(crate) fn open_admin<S: Store + StoreReport>(
    server: &Server<S>,
    shutdown: Shutdown,
) -> anyhow::Result<(Vec<ListenAddress>, Closing)> {
    let settings = Settings::new(&Timeouts::default(), &Bounds::default());
    server.observer.connections(ListenerKind::Admin, settings.connections().clone());
    let bound = BoundListener::new(&server.config.admin.listen, 1, settings).context("admin")?;
    let token = server.config.admin.token.as_ref();
    let operator =
        Operator { overrides: server.overrides.clone(), observer: server.observer.clone() };
    let router = RouterService(admin::router(operator, shutdown, token));
    let (closing, open) = crate::shutdown::shutdown();
    let BoundListener { local, settings, sockets } = bound;
    for sockets in sockets {
        let share = ((sockets, settings.clone()), router.clone());
        tokio::spawn(serve_share(Some(share), open.clone()));
    }
    Ok((local, closing))
}

fn gateway_settings<S: Store>(config: &GatewayConfig, server: &Server<S>) -> Settings {
    let live = server.live.clone();
    let trusted = move |peer| live.settings().client_address.trusts(peer);
    let mut settings = Settings::new(&config.timeouts, &config.bounds)
        .with_trusted_peers(TrustedPeers::new(trusted));
    if config.proxy_protocol {
        settings = settings.with_proxy_header();
    }
    if let Some(tls) = &server.tls {
        settings = settings.with_tls(tls.clone());
    }
    server.observer.connections(ListenerKind::Gateway, settings.connections().clone());
    settings
}

fn available_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
