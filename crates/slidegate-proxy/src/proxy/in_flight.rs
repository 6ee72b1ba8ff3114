//! Limits of requests in flight to upstream, in total and per address.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Bounds;
use crate::per_address::{AddressPermit, PerAddressLimit};

/// Limits the requests in flight, over all workers.
#[derive(Debug)]
pub(crate) struct InFlightLimit {
    total: Arc<AtomicUsize>,
    max_total: usize,
    per_address: PerAddressLimit,
}

/// Counts as one request in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit {
    _total: TotalPermit,
    _address: Option<AddressPermit>,
}

/// A counter is enough: no request waits for a permit, so there is no queue to lock.
#[derive(Debug)]
struct TotalPermit(Arc<AtomicUsize>);

impl Drop for TotalPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl InFlightLimit {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        Self {
            total: Arc::default(),
            max_total: bounds.in_flight,
            per_address: PerAddressLimit::new(bounds.in_flight_per_address),
        }
    }

    /// Returns `None` if a limit is reached. Requests without a client address count towards the
    /// total only.
    pub(crate) fn begin(&self, client: Option<IpAddr>) -> Option<InFlightPermit> {
        // Released by its drop if a limit is reached.
        let total = TotalPermit(Arc::clone(&self.total));
        if self.total.fetch_add(1, Ordering::Relaxed) >= self.max_total {
            return None;
        }
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
        assert_eq!(limit.total.load(Ordering::Relaxed), 0);
    }
}
