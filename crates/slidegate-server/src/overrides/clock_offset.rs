//! The offset between the gate's clock and the clock of the overrides.

use std::time::Duration;

use slidegate::Timestamp;

/// One instant on both clocks. With Redis, overrides are dated by its clock, which all gateways
/// share; their own may be hours off.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockOffset {
    gate: Timestamp,
    overrides_ms: u64,
}

impl ClockOffset {
    pub(super) fn new(gate: Timestamp, overrides_ms: u64) -> Self {
        Self { gate, overrides_ms }
    }

    /// Both clocks are the gate's.
    pub(super) fn of_gate(gate: Timestamp) -> Self {
        Self { gate, overrides_ms: gate.as_millis() }
    }

    /// The time on the overrides' clock at this time of the gate's.
    pub(super) fn ms_at(&self, gate: Timestamp) -> u64 {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let later = self.overrides_ms.saturating_add(ms(gate.saturating_since(self.gate)));
        later.saturating_sub(ms(self.gate.saturating_since(gate)))
    }

    /// The time on the gate's clock at this time of the overrides'; the past is clamped to now.
    pub(super) fn gate_at(&self, overrides_ms: u64) -> Timestamp {
        self.gate + Duration::from_millis(overrides_ms.saturating_sub(self.overrides_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_are_hours_apart_agree_on_how_long_it_is() {
        let ms = Timestamp::from_millis;
        for (gate, overrides) in
            [(1_000_000, 1_000_000), (1_000_000, 9_000_000), (9_000_000, 1_000_000)]
        {
            let offset = ClockOffset::new(ms(gate), overrides);
            assert_eq!(offset.ms_at(ms(gate)), overrides);
            assert_eq!(offset.ms_at(ms(gate + 500)), overrides + 500);
            assert_eq!(offset.ms_at(ms(gate - 500)), overrides - 500);
            assert_eq!(offset.gate_at(overrides + 500), ms(gate + 500));
            assert_eq!(offset.gate_at(overrides - 500), ms(gate));
        }
    }
}
