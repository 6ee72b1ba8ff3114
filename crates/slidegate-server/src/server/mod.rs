//! Everything wired together: endpoints, store, signals, and the end.

mod banner;
mod listeners;
mod open_files;
mod snapshot;
mod systemd;
mod wiring;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use slidegate::limit::SystemClock;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::banner::{banner, limits};
use self::listeners::Workers;
pub(crate) use self::listeners::{RunningServer, runtime};
use self::snapshot::Snapshot;
use self::systemd::ServiceState;
pub(crate) use self::wiring::Server;
use crate::config::{self, Loaded, Sources};
use crate::customers::OpenCustomers;
use crate::preflight;
use crate::reload::{self, Changes};
use crate::store::OpenStore;
use crate::{logs, terminal};

/// Serves until a stop signal.
pub(crate) fn run(sources: Sources) -> anyhow::Result<()> {
    let control = runtime().context("cannot begin")?;
    let ended = control.block_on(async {
        // From before the file is read, so that no change is missed.
        let mut changes =
            reload::watch(sources.path()).await.context("cannot listen for signals")?;
        // Nothing is served yet, and SIGTERM ends the process, so it may take as long as it takes.
        let Loaded { config, warnings } = config::load_to_start(&sources, preflight::check)?;
        changes.follow(&config.data_files);
        let _log = logs::init(&config.server.log)?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        open_files::raise_limit();
        config.server.gateway.iter().for_each(open_files::check_limit);
        let opened = OpenStore::new(&config.server.store)?;
        let snapshot = config.server.store.snapshot().cloned();
        let clock = Arc::new(SystemClock::new());
        let customers = OpenCustomers::new(&config.server.customers, clock)?;
        let server = Server::new(config, sources, opened.store, customers.customers.clone())?;
        let restore = |config| {
            Snapshot::restore(&config, server.live.gate().clone(), server.observer.clone())
        };
        let snapshot = snapshot.map(restore).transpose()?;
        serve(server, changes, snapshot).await
    });
    // After a second signal, requests in flight are not waited for.
    control.shutdown_background();
    ended
}

/// How long the end waits until unused units of leases are refunded: thousands of accounts take less.
const LAST_REFUNDS_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the end waits for the collector of spans to take the last ones.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Opens all endpoints, and closes them when it is time.
async fn serve(
    mut server: Server,
    mut changes: Changes,
    snapshot: Option<Snapshot>,
) -> anyhow::Result<()> {
    let mut stop = StopSignals::new()?;
    let running = RunningServer::new(&server).await?;
    let limits = limits(&server.live.gate().policies(), server.enforced);
    // Off a terminal the banner would be in the log, which has to stay JSON if it is.
    if terminal::is_stdout() || !logs::is_json(&server.config.log) {
        terminal::announce(&banner(&server.config, &limits, &running.endpoints))?;
    }
    running.endpoints.log(&server.config, &limits);
    let state = ServiceState::ready(&running.endpoints);
    let watchdog = tokio::spawn(systemd::feed_watchdog(running.workers.runtimes()));
    if let Some(snapshot) = &snapshot {
        tokio::spawn(snapshot.clone().save_repeatedly());
    }

    // However long a reload takes, signals end the server at once.
    tokio::select! {
        () = stop.next() => {}
        () = reload_repeatedly(&mut server, &mut changes, &state) => {}
    }
    // Its time ends with this message, and workers end soon.
    systemd::stopping();
    watchdog.abort();
    wait_to_drain(&running, server.config.drain_delay, &mut stop).await;
    let finish = finish(running.workers, snapshot, &mut stop);
    let leave = async {
        if let Some(exchange) = &server.exchange {
            exchange.leave().await;
        }
    };
    let (cut_off, ()) = tokio::join!(finish, leave);
    if let Some(store) = server.live.gate().store().redis() {
        tokio::select! {
            units = store.release() => tracing::debug!(units, "refunded the unused units of leases"),
            () = tokio::time::sleep(LAST_REFUNDS_TIMEOUT) => {}
            () = stop.next() => {}
        }
    }
    if let Some(tracer) = &server.tracer {
        tokio::select! {
            () = tracer.shut_down(LAST_EXPORT_TIMEOUT) => {}
            () = stop.next() => {}
        }
    }
    server.end();
    tracing::info!(requests_cut_off = cut_off != Some(0), connections_cut_off = cut_off, "stopped");
    anyhow::ensure!(cut_off.is_some(), "stopped before all requests in flight had finished");
    Ok(())
}

/// Reports the server unready, and closes its listeners after the delay, which another signal ends: load
/// balancers need some time to stop sending connections here.
async fn wait_to_drain(running: &RunningServer, delay: Duration, stop: &mut StopSignals) {
    running.draining.cancel();
    if !delay.is_zero() {
        let seconds = delay.as_secs_f64();
        tracing::info!("draining: not ready, and accepting connections for {seconds} s more");
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = stop.next() => {}
        }
    }
    tracing::info!("draining: finishing requests in flight");
    running.shutdown.cancel();
}

/// Reloads the configuration whenever it is to be. Never ends.
async fn reload_repeatedly(server: &mut Server, changes: &mut Changes, state: &ServiceState) {
    loop {
        let cause = changes.next().await;
        state.reloading();
        let kept = server.reload(cause).await;
        state.reloaded(&kept);
        changes.follow(server.data_files());
    }
}

/// Waits for requests in flight, then saves the accounts; another signal ends either wait. Returns
/// how many connections were cut after the drain timeout, or none if a signal ended the wait.
async fn finish(
    workers: Workers,
    snapshot: Option<Snapshot>,
    stop: &mut StopSignals,
) -> Option<usize> {
    let ended = tokio::task::spawn_blocking(move || workers.join());
    let cut_off = tokio::select! {
        ended = ended => Some(ended.unwrap_or_default()),
        () = stop.next() => None,
    };
    if let Some(snapshot) = snapshot {
        tokio::select! {
            () = snapshot.save() => {}
            () = stop.next() => {}
        }
    }
    cut_off
}

/// SIGTERM, and Ctrl-C.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: listen(terminate)?, interrupt: listen(interrupt)? })
    }

    /// Ends when one comes.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
