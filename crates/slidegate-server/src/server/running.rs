//! A server whose endpoints are open.

use slidegate::Store;

use super::banner::LocalAddresses;
use super::listeners::{self, PublicListeners};
use super::wiring::Server;
use super::workers::Workers;
use crate::observe::StoreReport;
use crate::shutdown::{Closing, shutdown};

/// A running server: all endpoints are open until the public ones are closed for draining.
pub(crate) struct RunningServer {
    /// Where they are.
    pub(crate) endpoints: LocalAddresses,
    /// The threads that serve the public endpoints.
    pub(crate) workers: Workers,
    /// Starts draining the public endpoints.
    pub(crate) closing: Closing,
    /// The admin endpoint is open as long as this lives.
    _admin: Closing,
}

impl RunningServer {
    /// Opens all endpoints of a site, or none. The operator's is served by the current runtime.
    pub(crate) async fn new<S: Store + StoreReport>(server: &Server<S>) -> anyhow::Result<Self> {
        let (closing, closed) = shutdown();
        let front = PublicListeners::bind(server)?;
        let (admin, _admin) = listeners::open_admin(server, closed.clone())?;
        let (gateway, decisions) = (front.gateway().to_vec(), front.decisions().to_vec());
        server.observer.started();
        // Before the first request, so that bans apply to it.
        server.overrides.refresh().await;
        tokio::spawn(server.overrides.clone().poll());
        if let Some(bans) = &server.bans {
            bans.exchange().await;
            tokio::spawn(bans.clone().run());
        }
        let workers = front.open(server, &closed)?;
        Ok(Self {
            endpoints: LocalAddresses { gateway, decisions, admin },
            workers,
            closing,
            _admin,
        })
    }
}
