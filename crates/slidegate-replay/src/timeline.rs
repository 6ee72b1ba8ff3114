//! Requests and refusals over time, in a bounded number of steps.

use serde::Serialize;
use slidegate::Timestamp;

use crate::calendar::Rfc3339;

/// The most steps.
const MAX_STEPS: usize = 240;
const SECOND_MS: u64 = 1000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// How long a step may be; each length is a multiple of the one before. After the last, it doubles.
const STEPS_MS: [u64; 10] = [
    SECOND_MS,
    5 * SECOND_MS,
    15 * SECOND_MS,
    MINUTE_MS,
    5 * MINUTE_MS,
    15 * MINUTE_MS,
    HOUR_MS,
    6 * HOUR_MS,
    DAY_MS,
    7 * DAY_MS,
];

/// Requests and refusals in steps of equal length, which grow with the log.
#[derive(Debug, Serialize)]
pub(crate) struct Timeline {
    /// The beginning of the first step.
    pub(crate) from: Rfc3339,
    pub(crate) step_ms: u64,
    pub(crate) requests: Vec<u64>,
    pub(crate) refused: Vec<u64>,
}

impl Default for Timeline {
    fn default() -> Self {
        let from = Rfc3339::from_millis(0);
        Self { from, step_ms: SECOND_MS, requests: Vec::new(), refused: Vec::new() }
    }
}

impl Timeline {
    /// Adds a request, which is no earlier than the last.
    pub(crate) fn add(&mut self, at: Timestamp, is_refused: IsRefused) {
        let ms = at.as_millis();
        if self.requests.is_empty() {
            self.from = Rfc3339::from_millis(ms / self.step_ms * self.step_ms);
        }
        let from_ms = self.from.0.as_millis();
        let mut step = ((ms - from_ms) / self.step_ms) as usize;
        while step >= MAX_STEPS {
            self.widen();
            step = ((ms - self.from.0.as_millis()) / self.step_ms) as usize;
        }
        if step >= self.requests.len() {
            self.requests.resize(step + 1, 0);
            self.refused.resize(step + 1, 0);
        }
        self.requests[step] += 1;
        self.refused[step] += u64::from(is_refused == IsRefused::Yes);
    }

    fn widen(&mut self) {
        let longer = STEPS_MS.iter().find(|length| **length > self.step_ms);
        let step_ms = longer.copied().unwrap_or(self.step_ms * 2);
        let old_from = self.from.0.as_millis();
        let from = old_from / step_ms * step_ms;
        for counts in [&mut self.requests, &mut self.refused] {
            let mut wider = Vec::new();
            for (index, count) in counts.iter().enumerate() {
                let step = ((old_from + index as u64 * self.step_ms - from) / step_ms) as usize;
                wider.resize(wider.len().max(step + 1), 0);
                wider[step] += count;
            }
            *counts = wider;
        }
        (self.from, self.step_ms) = (Rfc3339::from_millis(from), step_ms);
    }
}

/// Whether a request would be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IsRefused {
    Yes,
    No,
}

impl From<bool> for IsRefused {
    fn from(is_refused: bool) -> Self {
        if is_refused { Self::Yes } else { Self::No }
    }
}

/// The minute with the most refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Minute {
    /// Its beginning.
    pub(crate) at: Rfc3339,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
}

/// Finds the worst minute of requests that come in the order of time.
#[derive(Debug, Default)]
pub(crate) struct WorstMinute {
    current: Option<Minute>,
    worst: Option<Minute>,
}

impl WorstMinute {
    pub(crate) fn add(&mut self, at: Timestamp, is_refused: IsRefused) {
        let at = Rfc3339::from_millis(at.as_millis() / MINUTE_MS * MINUTE_MS);
        if self.current.is_none_or(|minute| minute.at != at) {
            self.worst = self.get();
            self.current = Some(Minute { at, requests: 0, refused: 0 });
        }
        if let Some(minute) = &mut self.current {
            minute.requests += 1;
            minute.refused += u64::from(is_refused == IsRefused::Yes);
        }
    }

    /// The first of the minutes with the most refusals; none if nothing was refused.
    pub(crate) fn get(&self) -> Option<Minute> {
        let refused = |minute: &Minute| minute.refused;
        let current = self.current.filter(|minute| refused(minute) > 0);
        match (self.worst, current) {
            (Some(worst), Some(current)) if refused(&current) > refused(&worst) => Some(current),
            (worst, current) => worst.or(current),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_steps_grow() {
        let mut timeline = Timeline::default();
        let begin = 1_767_225_617_123;
        for minute in 0..60 * 24 * 3 {
            let at = Timestamp::from_millis(begin + minute * MINUTE_MS);
            timeline.add(at, (minute % 3 == 0).into());
        }
        assert_eq!(timeline.step_ms, HOUR_MS);
        assert_eq!(timeline.from.to_string(), "2026-01-01T00:00:00.000Z");
        assert_eq!(timeline.requests.len(), 72);
        assert_eq!(timeline.requests.iter().sum::<u64>(), 60 * 24 * 3);
        assert_eq!(timeline.refused.iter().sum::<u64>(), 20 * 24 * 3);
        timeline.add(Timestamp::from_millis(begin * 2), IsRefused::No);
        assert!(timeline.requests.len() <= MAX_STEPS);
    }

    #[test]
    fn worst_minute_is_the_first_with_most_refusals() {
        let mut worst = WorstMinute::default();
        for (second, is_refused) in
            [(0, false), (30, true), (61, true), (62, true), (63, false), (121, true), (122, true)]
        {
            worst.add(Timestamp::from_millis(second * 1000), is_refused.into());
        }
        let minute = worst.get().unwrap();
        assert_eq!((minute.requests, minute.refused), (3, 2));
        assert_eq!(minute.at.to_string(), "1970-01-01T00:01:00.000Z");
    }
}
