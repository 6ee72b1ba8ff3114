//! When requests were admitted, as far as a client can tell.

use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// Requests that were admitted: each at some moment between its sending and its answer.
#[derive(Debug, Default)]
pub(crate) struct Admissions(Vec<(Instant, Instant)>);

impl Admissions {
    pub(crate) fn note(&mut self, sent: Instant, answered: Instant) {
        self.0.push((sent, answered));
    }

    pub(crate) fn merge(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// That never more than the units were admitted within a minute, and all of them if the whole
    /// took less than that. There were more requests than units.
    pub(crate) fn assert_quota(&self, units: usize) {
        let worst = self.most_within(MINUTE);
        assert!(worst <= units, "{worst} in a minute, of {units}");
        let first = self.0.iter().map(|(sent, _)| *sent).min().expect("some are admitted");
        let last = self.0.iter().map(|(_, answered)| *answered).max().expect("some are admitted");
        if last - first < MINUTE {
            assert_eq!(self.count(), units);
        } else {
            assert!(self.count() >= units, "{} of {units}", self.count());
        }
    }

    /// The most that were certainly admitted within a window that begins with a request.
    fn most_within(&self, window: Duration) -> usize {
        let begins = self.0.iter().map(|(sent, _)| *sent);
        let inside = |begin: Instant| {
            let after = self.0.iter().filter(|(sent, _)| *sent >= begin);
            after.filter(|(_, answered)| *answered < begin + window).count()
        };
        begins.map(inside).max().unwrap_or(0)
    }
}

#[test]
fn a_minute_with_one_too_many_is_found() {
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    let mut admissions = Admissions::default();
    for second in [0, 30, 59, 60, 61] {
        admissions.note(at(second), at(second));
    }
    assert_eq!(admissions.most_within(MINUTE), 4);
    admissions.note(at(10), at(100));
    assert_eq!(admissions.most_within(MINUTE), 4, "it may have been admitted later");
}
