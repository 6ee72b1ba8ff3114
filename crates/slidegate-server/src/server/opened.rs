//! A server whose doors are open.

use slidegate::Store;

use super::announcement::Doors;
use super::doors::{self, FrontDoors};
use super::site::Site;
use super::workers::Workers;
use crate::observe::StoreReport;
use crate::shutdown::{Closing, shutdown};

/// A server whose doors are open: all of them, until the front doors are told to close.
pub(crate) struct Opened {
    /// Where they are.
    pub(crate) doors: Doors,
    /// Who answers at the front doors.
    pub(crate) workers: Workers,
    /// Gives the front doors the word.
    pub(crate) closing: Closing,
    /// The operator's door is open as long as this lives.
    _admin: Closing,
}

impl Opened {
    /// Opens all doors of a site, or none. The operator's is served by the current runtime.
    pub(crate) async fn new<S: Store + StoreReport>(site: &Site<S>) -> anyhow::Result<Self> {
        let (closing, closed) = shutdown();
        let front = FrontDoors::bind(site)?;
        let (admin, _admin) = doors::open_admin(site, closed.clone())?;
        let (gateway, decisions) = (front.gateway().to_vec(), front.decisions().to_vec());
        site.observer.started();
        // Before the first request, so that nobody who is banned slips through.
        site.overrides.refresh().await;
        tokio::spawn(site.overrides.clone().poll());
        if let Some(bans) = &site.bans {
            bans.exchange().await;
            tokio::spawn(bans.clone().run());
        }
        let workers = front.open(site, &closed)?;
        Ok(Self { doors: Doors { gateway, decisions, admin }, workers, closing, _admin })
    }
}
