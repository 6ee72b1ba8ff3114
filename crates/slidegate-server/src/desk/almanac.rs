//! One instant on two clocks: the gate's, and the one that orders are dated by.

use std::time::Duration;

use slidegate::Timestamp;

/// One instant on both clocks. With Redis, orders are dated by its clock, which all gateways share;
/// theirs may be hours off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Almanac {
    gate: Timestamp,
    orders_ms: u64,
}

impl Almanac {
    pub(super) fn new(gate: Timestamp, orders_ms: u64) -> Self {
        Self { gate, orders_ms }
    }

    /// Both clocks are the gate's.
    pub(super) fn of_gate(gate: Timestamp) -> Self {
        Self { gate, orders_ms: gate.as_millis() }
    }

    /// What the clock of the orders shows when the gate's shows this.
    pub(super) fn ms_at(&self, gate: Timestamp) -> u64 {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let later = self.orders_ms.saturating_add(ms(gate.saturating_since(self.gate)));
        later.saturating_sub(ms(self.gate.saturating_since(gate)))
    }

    /// What the gate's clock shows when that of the orders shows this. What is long past is now.
    pub(super) fn gate_at(&self, orders_ms: u64) -> Timestamp {
        self.gate + Duration::from_millis(orders_ms.saturating_sub(self.orders_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_are_hours_apart_agree_on_how_long_it_is() {
        let ms = Timestamp::from_millis;
        for (gate, orders) in
            [(1_000_000, 1_000_000), (1_000_000, 9_000_000), (9_000_000, 1_000_000)]
        {
            let almanac = Almanac::new(ms(gate), orders);
            assert_eq!(almanac.ms_at(ms(gate)), orders);
            assert_eq!(almanac.ms_at(ms(gate + 500)), orders + 500);
            assert_eq!(almanac.ms_at(ms(gate - 500)), orders - 500);
            assert_eq!(almanac.gate_at(orders + 500), ms(gate + 500));
            assert_eq!(almanac.gate_at(orders - 500), ms(gate));
        }
    }
}
