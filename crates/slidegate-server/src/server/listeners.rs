//! The listeners of all endpoints, their handlers, and the threads that serve them.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use slidegate_proxy::{
    Bounds, Handler, ListenAddress, Listeners, Settings, Sockets, Timeouts, TrustedPeers, serve,
    serve_raw,
};
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::banner::LocalAddresses;
use super::wiring::Server;
use crate::admin::{self, now, plan};
use crate::config::GatewayConfig;
use crate::endpoint::router::RouterService;
use crate::observe::ListenerKind;

/// How many tasks are polled before the kernel is asked for events, if tasks are ready all the time:
/// more than tokio's 61, because a connection is polled several times for a request. Events wait no
/// longer for it, because their tasks go behind those that are ready.
const POLLS_BETWEEN_EVENTS: u32 = 256;

/// A running server: all endpoints are open until the public ones are closed for draining.
pub(crate) struct RunningServer {
    /// Where they are.
    pub(crate) endpoints: LocalAddresses,
    /// The threads that serve the public endpoints.
    pub(crate) workers: Workers,
    /// Makes the server unready, while its endpoints go on.
    pub(crate) draining: CancellationToken,
    /// Closes the public endpoints to new connections, and drains them.
    pub(crate) shutdown: CancellationToken,
    /// The admin endpoint is open as long as this lives, so that the end can be watched.
    _admin: DropGuard,
}

impl RunningServer {
    /// Opens all endpoints, or none. The admin endpoint is served by the current runtime.
    pub(crate) async fn new(server: &Server) -> anyhow::Result<Self> {
        let (draining, shutdown) = (CancellationToken::new(), CancellationToken::new());
        let public = PublicListeners::bind(server)?;
        let (admin, _admin) = open_admin(server, draining.clone())?;
        let local = |bound: &Option<BoundListener>| {
            bound.as_ref().map_or_else(Vec::new, |bound| bound.local.clone())
        };
        let [gateway, decisions, resp, rls] =
            [&public.gateway, &public.decisions, &public.resp, &public.rls].map(local);
        let endpoints = LocalAddresses { gateway, decisions, resp, rls, admin };
        server.observer.started();
        tokio::spawn(server.now.clone().run());
        if let Some(exchange) = &server.exchange {
            // Before the first request, so that overrides and bans apply to it.
            exchange.refresh().await;
            tokio::spawn(exchange.clone().run());
        }
        let workers = public.open(server, &server.rls().await, &shutdown)?;
        Ok(Self { endpoints, workers, draining, shutdown, _admin })
    }
}

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

    /// One worker's part.
    fn share(&mut self) -> Option<(Sockets, Settings)> {
        Some((self.sockets.pop()?, self.settings.clone()))
    }
}

/// The endpoints for clients and for programs that ask.
struct PublicListeners {
    gateway: Option<BoundListener>,
    decisions: Option<BoundListener>,
    resp: Option<BoundListener>,
    rls: Option<BoundListener>,
    workers: usize,
}

impl PublicListeners {
    fn bind(server: &Server) -> anyhow::Result<Self> {
        let gateway = server.config.gateway.as_ref();
        let workers = gateway.map_or_else(available_workers, |config| config.proxy.workers);
        let gateway = gateway.map(|config| {
            BoundListener::new(&config.listen, workers, gateway_settings(config, server))
                .context("gateway")
        });
        let decisions = server.config.decisions.as_ref().map(|config| {
            let settings = internal_settings(ListenerKind::Decisions, server);
            BoundListener::new(&config.listen, workers, settings).context("decisions")
        });
        let resp = server.config.resp.as_ref().map(|config| {
            let settings = internal_settings(ListenerKind::Resp, server);
            BoundListener::new(&config.endpoint.listen, workers, settings).context("resp")
        });
        let rls = server.config.rls.as_ref().map(|config| {
            let mut settings = internal_settings(ListenerKind::Rls, server);
            if let Some(tls) = &server.rls_tls {
                settings = settings.with_tls(tls.tls.clone());
            }
            BoundListener::new(&config.listen, workers, settings).context("rls")
        });
        let [gateway, decisions, resp, rls] =
            [gateway, decisions, resp, rls].map(Option::transpose);
        Ok(Self { gateway: gateway?, decisions: decisions?, resp: resp?, rls: rls?, workers })
    }

    /// Begins to answer, on as many threads as there are to be.
    fn open(
        mut self,
        server: &Server,
        envoy: &RouterService,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<Workers> {
        let mut workers = Workers::default();
        for index in 0..self.workers {
            let gateway = self.gateway.as_mut().and_then(BoundListener::share);
            let gateway = gateway.zip(server.gateway.as_ref().map(|gateway| gateway.worker(index)));
            let local =
                self.decisions.as_ref().map(|bound| bound.local.clone()).unwrap_or_default();
            let decisions = self.decisions.as_mut().and_then(BoundListener::share);
            let decisions = decisions.map(|share| (share, server.decisions(&local)));
            let resp = self.resp.as_mut().and_then(BoundListener::share);
            let resp = resp.zip(server.resp());
            let rls = self.rls.as_mut().and_then(BoundListener::share);
            let rls = rls.map(|share| (share, envoy.clone()));
            let (shutdown, live) = (shutdown.clone(), server.live.clone());
            workers.begin(move || async move {
                let (gateway, decisions, resp, rls) = tokio::join!(
                    serve_share(gateway, shutdown.clone()),
                    serve_share(decisions, shutdown.clone()),
                    async {
                        let Some(((sockets, settings), handler)) = resp else { return 0 };
                        cut_off(serve_raw(sockets, settings, handler, shutdown.clone()).await)
                    },
                    serve_share(rls, shutdown.clone()),
                );
                // What responses said about costs is still on its way to Redis.
                let _ = timeout(SETTLE_TIMEOUT, live.settings().limiter.settled()).await;
                gateway + decisions + resp + rls
            })?;
        }
        Ok(workers)
    }
}

/// How long the end of a worker waits for settlements: a call to Redis takes milliseconds.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns how many connections were cut at the end of the drain.
async fn serve_share<H: Handler>(
    share: Option<((Sockets, Settings), H)>,
    shutdown: CancellationToken,
) -> usize {
    let Some(((sockets, settings), handler)) = share else { return 0 };
    cut_off(serve(sockets, settings, handler, shutdown).await)
}

fn cut_off(served: io::Result<usize>) -> usize {
    served.unwrap_or_else(|error| {
        tracing::error!(%error, "worker cannot listen");
        0
    })
}

/// The admin endpoint, on the thread that does little else, until the guard is dropped.
fn open_admin(
    server: &Server,
    draining: CancellationToken,
) -> anyhow::Result<(Vec<ListenAddress>, DropGuard)> {
    let settings = internal_settings(ListenerKind::Admin, server).with_reserve();
    let mut bound =
        BoundListener::new(&server.config.admin.listen, 1, settings).context("admin")?;
    let token = server.config.admin.token.as_ref();
    let others = plan::router(server.reloader.clone()).merge(now::router(server.now.clone()));
    let router = RouterService(admin::router(server.operator(), draining, token, others));
    let closing = CancellationToken::new();
    let share = bound.share().map(|share| (share, router));
    tokio::spawn(serve_share(share, closing.clone()));
    Ok((bound.local, closing.drop_guard()))
}

/// For the endpoints whose clients are the operator's own, often all on one address.
fn internal_settings(listener: ListenerKind, server: &Server) -> Settings {
    let bounds = Bounds::default();
    let bounds = Bounds { connections_per_address: bounds.connections, ..bounds };
    let settings = Settings::new(&Timeouts::default(), &bounds);
    server.observer.connections(listener, settings.connections().clone());
    settings
}

fn gateway_settings(config: &GatewayConfig, server: &Server) -> Settings {
    let live = server.live.clone();
    let trusted = move |peer| live.settings().limiter.client_address.trusts(peer);
    let mut settings = Settings::new(&config.proxy.timeouts, &config.proxy.bounds)
        .with_trusted_peers(TrustedPeers::new(trusted));
    if config.proxy_protocol {
        settings = settings.with_proxy_header();
    }
    if let Some(tls) = &server.tls {
        settings = settings.with_tls(tls.tls.clone());
    }
    server.observer.connections(ListenerKind::Gateway, settings.connections().clone());
    settings
}

fn available_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Worker threads, each with its own runtime: no request waits for another thread.
#[derive(Debug, Default)]
pub(crate) struct Workers(Vec<(Handle, JoinHandle<usize>)>);

impl Workers {
    /// Begins one more. It ends when what it serves does.
    fn begin<F>(&mut self, serve: impl FnOnce() -> F + Send + 'static) -> anyhow::Result<()>
    where
        F: Future<Output = usize>,
    {
        let index = self.0.len();
        let runtime = runtime().with_context(|| format!("cannot begin worker {index}"))?;
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new().name(format!("worker-{index}"));
        let thread = thread.spawn(move || runtime.block_on(serve()));
        self.0.push((handle, thread.with_context(|| format!("cannot begin worker {index}"))?));
        Ok(())
    }

    /// The runtime of each.
    pub(super) fn runtimes(&self) -> Vec<Handle> {
        self.0.iter().map(|(runtime, _)| runtime.clone()).collect()
    }

    /// Waits until all have ended. Returns how many connections they cut.
    pub(crate) fn join(self) -> usize {
        let ended = self.0.into_iter().map(|(_, thread)| {
            thread.join().unwrap_or_else(|_| {
                tracing::error!("worker thread panicked");
                0
            })
        });
        ended.sum()
    }
}

/// A runtime for one thread.
pub(crate) fn runtime() -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.event_interval(POLLS_BETWEEN_EVENTS).enable_all().build()
}
