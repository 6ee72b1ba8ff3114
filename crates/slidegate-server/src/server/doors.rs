//! The doors: which listen where, and who answers at each.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use slidegate::Store;
use tokio::time::{Instant, sleep};

use super::site::Site;
use super::workers::Workers;
use crate::admin::{self, Operator};
use crate::config::{Bounds, GatewayConfig, ListenAddress, Timeouts};
use crate::gateway::{GatewayWorker, Tunnels};
use crate::listener::{
    ConnectionCounts, Handler, Listeners, Settings, Sockets, TrustedPeers, serve,
};
use crate::observe::{ConnectionStats, Door, Observer, StoreReport};
use crate::routed::Routed;
use crate::shutdown::{Closing, Shutdown};

/// A door that listens, and whose requests are answered once its workers begin.
struct Bound {
    local: Vec<ListenAddress>,
    settings: Settings,
    sockets: Vec<Sockets>,
}

impl Bound {
    fn new(listen: &[ListenAddress], workers: usize, settings: Settings) -> anyhow::Result<Self> {
        let listeners = Listeners::bind(listen, workers)?;
        let local = listeners.local().to_vec();
        Ok(Self { local, settings, sockets: listeners.into_workers() })
    }
}

/// The doors for clients and for programs that ask, on as many threads as there are to be.
pub(crate) struct FrontDoors {
    gateway: Option<Bound>,
    decisions: Option<Bound>,
    drain: Duration,
    workers: usize,
}

impl FrontDoors {
    pub(crate) fn bind<S: Store + StoreReport>(site: &Site<S>) -> anyhow::Result<Self> {
        let gateway = site.config.gateway.as_ref();
        let workers = gateway.map_or_else(available_workers, |config| config.workers);
        let drain = gateway.map_or(Timeouts::default().drain, |config| config.timeouts.drain);
        let gateway = gateway.map(|config| {
            Bound::new(&config.listen, workers, gateway_settings(config, site)).context("gateway")
        });
        let decisions = site.config.decisions.as_ref().map(|config| {
            let counts = counts(&site.observer, Door::Decisions);
            let settings = Settings::new(&Timeouts::default(), &Bounds::default(), counts);
            Bound::new(&config.listen, workers, settings).context("decisions")
        });
        let (gateway, decisions) = (gateway.transpose()?, decisions.transpose()?);
        Ok(Self { gateway, decisions, drain, workers })
    }

    pub(crate) fn gateway(&self) -> &[ListenAddress] {
        self.gateway.as_ref().map_or(&[], |door| &door.local)
    }

    pub(crate) fn decisions(&self) -> &[ListenAddress] {
        self.decisions.as_ref().map_or(&[], |door| &door.local)
    }

    /// Begins to answer.
    pub(crate) fn open<S: Store + StoreReport>(
        mut self,
        site: &Site<S>,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Workers> {
        let mut workers = Workers::default();
        for index in 0..self.workers {
            let gateway = share(&mut self.gateway)
                .zip(site.gateway.as_ref())
                .map(|(share, gateway)| (share, gateway.worker(index), gateway.tunnels().clone()));
            let decisions = share(&mut self.decisions).map(|share| (share, site.decisions()));
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

/// One worker's part of a door.
type Share = (Sockets, Settings);

fn share(door: &mut Option<Bound>) -> Option<Share> {
    let door = door.as_mut()?;
    Some((door.sockets.pop()?, door.settings.clone()))
}

async fn serve_share<A: Handler>(share: Option<(Share, A)>, shutdown: Shutdown) {
    let Some(((sockets, settings), answer)) = share else { return };
    if let Err(error) = serve(sockets, settings, answer, shutdown).await {
        tracing::error!(%error, "a worker cannot listen");
    }
}

/// Tunnels outlive the connections that they were; they are waited for as long as those.
async fn serve_gateway<S: Store>(
    share: Option<(Share, GatewayWorker<S>, Tunnels)>,
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

/// The operator's door, on the thread that does little else. It is open until the very end, so that
/// the end can be watched: until what is returned with its addresses is dropped.
pub(crate) fn open_admin<S: Store + StoreReport>(
    site: &Site<S>,
    shutdown: Shutdown,
) -> anyhow::Result<(Vec<ListenAddress>, Closing)> {
    // Nobody counts the operator's own connections.
    let counts = Arc::new(ConnectionCounts::default());
    let settings = Settings::new(&Timeouts::default(), &Bounds::default(), counts);
    let bound = Bound::new(&site.config.admin.listen, 1, settings).context("admin")?;
    let token = site.config.admin.token.as_ref();
    let operator = Operator { overrides: site.overrides.clone(), observer: site.observer.clone() };
    let router = Routed(admin::router(operator, shutdown, token));
    let (closing, open) = crate::shutdown::shutdown();
    let Bound { local, settings, sockets } = bound;
    for sockets in sockets {
        let share = ((sockets, settings.clone()), router.clone());
        tokio::spawn(serve_share(Some(share), open.clone()));
    }
    Ok((local, closing))
}

fn gateway_settings<S: Store>(config: &GatewayConfig, site: &Site<S>) -> Settings {
    let counts = counts(&site.observer, Door::Gateway);
    let mut settings = Settings::new(&config.timeouts, &config.bounds, counts);
    if config.proxy_protocol {
        let live = site.live.clone();
        let trusted = move |peer| live.manners().client_address.trusts(peer);
        settings = settings.with_proxy_header(TrustedPeers::new(trusted));
    }
    if let Some(tls) = &site.tls {
        settings = settings.with_tls(tls.clone());
    }
    settings
}

/// Counts that the observer knows of.
fn counts(observer: &Observer, door: Door) -> Arc<ConnectionCounts> {
    let counts = Arc::new(ConnectionCounts::default());
    let seen = counts.clone();
    observer.connections(door, move || ConnectionStats {
        open: seen.open(),
        accepted: seen.accepted(),
        refused: seen.refused(),
        tls_failures: seen.tls_failures(),
        proxy_header_failures: seen.proxy_header_failures(),
        timeouts: seen.timeouts(),
        waited: seen.waited(),
    });
    counts
}

fn available_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
