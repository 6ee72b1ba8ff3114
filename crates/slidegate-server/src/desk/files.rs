//! What is known of the orders, and how that becomes what is in force.

use std::collections::HashSet;
use std::error::Error as _;
use std::time::Duration;

use slidegate::policy::{Order, Orders};
use slidegate::{Gate, Store, Timestamp};
use slidegate_redis::{MapVersion, SharedEntry, SharedMapError, SharedSnapshot};

use super::almanac::Almanac;
use super::filed::{Action, Filed};

/// What is known of the orders.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) orders: Vec<Filed>,
    pub(super) almanac: Almanac,
    /// The state of the board that this is; none if all of it is to be read again.
    pub(super) seen: Option<MapVersion>,
    /// When it was last read.
    pub(super) read_at: Option<Timestamp>,
    /// The resets on it, which have been done here.
    pub(super) resets: HashSet<String>,
    /// Whether the board could not be read when it was last tried.
    pub(super) is_cut_off: bool,
}

/// For how long it is on the board that an order was lifted. So whoever has read the board in this
/// time knows that an order which is not there was not lifted, but lost.
pub(super) const LIFT_LASTS: Duration = Duration::from_secs(3600);
/// An order with no more left than this may have ended a moment early by Redis's clock.
const SHORT: Duration = Duration::from_secs(1);

impl Files {
    /// Puts what is on the board in the place of what was known, and returns the resets that are
    /// new.
    pub(super) fn take<S: Store>(
        &mut self,
        reading: &SharedSnapshot,
        gate: &Gate<S>,
    ) -> Vec<Filed> {
        self.almanac = Almanac::new(gate.now(), reading.now_ms);
        self.seen = Some(reading.version);
        let read = |notice: &SharedEntry| Filed::read(&notice.id, &notice.text, notice.until_ms);
        let filed: Vec<Filed> = reading.entries.iter().filter_map(read).collect();
        let foreign = reading.entries.len() - filed.len();
        if foreign > 0 {
            tracing::warn!(
                foreign,
                "there are notices in Redis that are no orders of this version"
            );
        }
        let is_order = |filed: &Filed| filed.measure().is_some();
        let (orders, others): (Vec<_>, Vec<_>) = filed.into_iter().partition(is_order);
        self.replace(orders, gate);
        let resets: Vec<Filed> = others.into_iter().filter(|f| f.action == Action::Reset).collect();
        let known = std::mem::take(&mut self.resets);
        self.resets = resets.iter().map(|reset| reset.id.clone()).collect();
        resets.into_iter().filter(|reset| !known.contains(&reset.id)).collect()
    }

    /// Tells when the board cannot be read any more, and when it can again.
    pub(super) fn note_trouble(&mut self, error: Option<&SharedMapError>) {
        let was_cut_off = std::mem::replace(&mut self.is_cut_off, error.is_some());
        match error {
            Some(error) if !was_cut_off => tracing::warn!(
                %error,
                cause = error.source().map(tracing::field::display),
                "the operator's orders cannot be read from Redis: those that were last read stay \
                 in force"
            ),
            None if was_cut_off => {
                tracing::info!("the operator's orders are read from Redis again");
            }
            _ => {}
        }
    }

    /// The orders that are not on the board any more although nobody has lifted them, and how long
    /// they would still hold.
    pub(super) fn lost(&self, reading: &SharedSnapshot, now: Timestamp) -> Vec<(Filed, Duration)> {
        let knows_lifts =
            self.read_at.is_some_and(|read_at| now.saturating_since(read_at) < LIFT_LASTS);
        if !knows_lifts {
            return Vec::new();
        }
        let there: HashSet<&str> = reading.entries.iter().map(|notice| &*notice.id).collect();
        let rest = |order: &Filed| self.almanac.gate_at(order.until_ms).saturating_since(now);
        let lost = self.orders.iter().filter(|order| !there.contains(&*order.id));
        lost.map(|order| (order.clone(), rest(order))).filter(|(_, rest)| *rest > SHORT).collect()
    }

    pub(super) fn replace<S: Store>(&mut self, orders: Vec<Filed>, gate: &Gate<S>) {
        self.orders = orders;
        self.put_in_force(gate);
    }

    pub(super) fn put_in_force<S: Store>(&self, gate: &Gate<S>) {
        let order = |filed: &Filed| {
            let (identity, policy) = (filed.target.identity, filed.target.policy.clone());
            let until = self.almanac.gate_at(filed.until_ms);
            Some(Order { identity, policy, measure: filed.measure()?, until })
        };
        match Orders::new(self.orders.iter().filter_map(order)) {
            Ok(orders) => gate.replace_orders(orders),
            Err(error) => tracing::error!(%error, "the orders stay as they were"),
        }
    }

    /// Forgets orders whose time is over, and tells the time.
    pub(super) fn forget_ended<S: Store>(&mut self, gate: &Gate<S>) -> u64 {
        let now_ms = self.almanac.ms_at(gate.now());
        self.orders.retain(|order| order.until_ms > now_ms);
        now_ms
    }
}

/// Takes an order out.
pub(super) fn take(orders: &mut Vec<Filed>, id: &str) -> Option<Filed> {
    let index = orders.iter().position(|order| order.id == id)?;
    Some(orders.swap_remove(index))
}

pub(super) fn of_the_same(orders: &[Filed], order: &Filed) -> Vec<Filed> {
    let same = |other: &&Filed| other.target.identity == order.target.identity;
    orders.iter().filter(same).cloned().collect()
}
