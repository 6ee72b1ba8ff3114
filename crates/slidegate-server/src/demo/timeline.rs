//! A stretch of the story's time, cut into slots: one per column of a picture.

use std::time::Duration;

use super::MINUTE;

/// Slots of one length, one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeline {
    pub(super) start: Duration,
    pub(super) slot: Duration,
    pub(super) slots: u32,
}

impl Timeline {
    /// How many of the instants fall into each slot.
    pub(super) fn per_slot(&self, instants: &[Duration]) -> Vec<usize> {
        let before = |at| instants.partition_point(|instant| *instant < at);
        self.starts().map(|start| before(start + self.slot) - before(start)).collect()
    }

    /// The most instants that lay in the past 60 seconds, at any moment of each slot.
    pub(super) fn past_minute(&self, instants: &[Duration]) -> Vec<usize> {
        let up_to = |at| instants.partition_point(|instant| *instant <= at);
        let past_minute = |at: Duration| up_to(at) - at.checked_sub(MINUTE).map_or(0, up_to);
        self.starts()
            .map(|start| {
                // The count only rises at an instant, so the slot's start and they are enough.
                let end = start + self.slot;
                let inside = instants[up_to(start)..].iter().take_while(|instant| **instant < end);
                inside.map(|instant| past_minute(*instant)).fold(past_minute(start), usize::max)
            })
            .collect()
    }

    /// Whether a clock minute begins with this slot.
    pub(super) fn is_minute(&self, slot: usize) -> bool {
        self.starts()
            .nth(slot)
            .is_some_and(|start| start.as_nanos().is_multiple_of(MINUTE.as_nanos()))
    }

    /// The clock above the columns: each minute's label begins at the minute's column.
    pub(super) fn ruler(&self) -> String {
        let mut ruler = String::new();
        for (column, start) in self.starts().enumerate() {
            if self.is_minute(column) {
                ruler += &format!("{:width$}{}", "", clock(start), width = column - ruler.len());
            }
        }
        ruler
    }

    fn starts(&self) -> impl Iterator<Item = Duration> {
        (0..self.slots).map(|slot| self.start + self.slot * slot)
    }
}

/// Minutes and seconds: `1:59`.
pub(super) fn clock(at: Duration) -> String {
    format!("{}:{:02}", at.as_secs() / 60, at.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMELINE: Timeline =
        Timeline { start: Duration::from_secs(50), slot: Duration::from_secs(5), slots: 16 };

    fn secs(seconds: &[u64]) -> Vec<Duration> {
        seconds.iter().copied().map(Duration::from_secs).collect()
    }

    #[test]
    fn counts_per_slot() {
        let counts = TIMELINE.per_slot(&secs(&[0, 50, 54, 55, 129, 130]));
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn an_instant_is_past_after_60_seconds() {
        let counts = TIMELINE.past_minute(&secs(&[0, 56, 70]));
        assert_eq!(counts, [1, 2, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1]);
    }

    #[test]
    fn the_ruler_labels_minutes() {
        assert_eq!(TIMELINE.ruler(), "  1:00        2:00");
    }
}
