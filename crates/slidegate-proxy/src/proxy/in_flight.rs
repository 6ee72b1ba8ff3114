//! Limits of requests in flight to upstream, in total and per address.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Bounds;
use crate::per_address::{AddressPermit, PerAddressLimit};

/// Limits the requests in flight, over all workers.
#[derive(Debug)]
pub(crate) struct InFlightLimit {
    total: Arc<Semaphore>,
    per_address: PerAddressLimit,
}

/// Counts as one request in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit {
    _total: OwnedSemaphorePermit,
    _address: Option<AddressPermit>,
}

impl InFlightLimit {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        Self {
            total: Arc::new(Semaphore::new(bounds.in_flight.min(Semaphore::MAX_PERMITS))),
            per_address: PerAddressLimit::new(bounds.in_flight_per_address),
        }
    }

    /// Returns `None` if a limit is reached. Requests without a client address count towards the
    /// total only.
    pub(crate) fn begin(&self, client: Option<IpAddr>) -> Option<InFlightPermit> {
        let total = Arc::clone(&self.total).try_acquire_owned().ok()?;
        let address = match client {
            Some(client) => Some(self.per_address.acquire(client)?),
            None => None,
        };
        Some(InFlightPermit { _total: total, _address: address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_and_come_back() {
        let bounds = Bounds { in_flight: 3, in_flight_per_address: 2, ..Bounds::default() };
        let limit = InFlightLimit::new(&bounds);
        let from = |text: &str| limit.begin(Some(text.parse().unwrap()));
        let first = from("2001:db8::1");
        let second = from("2001:db8::2");
        assert!(first.is_some() && second.is_some());
        assert!(from("2001:db8::3").is_none(), "one network is one client");
        let third = limit.begin(None);
        assert!(third.is_some() && from("192.0.2.1").is_none(), "three in all");
        drop(first);
        assert!(from("2001:db8::3").is_some());
        drop((second, third));
        assert_eq!(limit.total.available_permits(), 3);
    }
}
