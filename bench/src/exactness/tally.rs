//! What a limiter admitted, counted from the client's own list of requests.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// One request. The limiter counted it at some instant between the two.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub sent: Instant,
    pub answered: Instant,
    pub is_admitted: bool,
}

/// A limit: so many in any interval of this length.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub units: usize,
    pub window: Duration,
}

impl Limit {
    /// The most admitted requests that were certainly counted in one half-open interval of a
    /// window: sent no sooner than it begins and answered before it ends. A limiter may have
    /// admitted more in some window, never less.
    ///
    /// Some fullest interval begins when a request was sent, so only those are tried.
    pub fn most_in_any_window(&self, calls: &[Call]) -> usize {
        let mut admitted: Vec<&Call> = calls.iter().filter(|call| call.is_admitted).collect();
        admitted.sort_unstable_by_key(|call| call.sent);
        let from = |first: usize| {
            let end = admitted[first].sent + self.window;
            let begun = admitted[first..].iter().take_while(|call| call.sent < end);
            begun.filter(|call| call.answered < end).count()
        };
        (0..admitted.len()).map(from).max().unwrap_or_default()
    }

    /// How many of the requests an exact limiter admits that decides each at the instant it was
    /// sent: every one that has room in the window before it.
    pub fn admitted_by_exact(&self, calls: &[Call]) -> usize {
        let mut sent: Vec<Instant> = calls.iter().map(|call| call.sent).collect();
        sent.sort_unstable();
        let mut within: VecDeque<Instant> = VecDeque::new();
        let mut admitted = 0;
        for now in sent {
            while within.front().is_some_and(|first| *first + self.window <= now) {
                within.pop_front();
            }
            if within.len() < self.units {
                within.push_back(now);
                admitted += 1;
            }
        }
        admitted
    }

    /// What was admitted, divided by what an exact limiter would have admitted of these requests.
    pub fn used(&self, calls: &[Call]) -> f64 {
        let admitted = calls.iter().filter(|call| call.is_admitted).count();
        admitted as f64 / self.admitted_by_exact(calls).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { units: 2, window: Duration::from_millis(100) };

    /// Each is when it was sent and when it was answered, in milliseconds, and whether admitted.
    fn calls(list: &[(u64, u64, bool)]) -> Vec<Call> {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let call = |&(sent, answered, is_admitted)| Call {
            sent: at(sent),
            answered: at(answered),
            is_admitted,
        };
        list.iter().map(call).collect()
    }

    #[test]
    fn only_what_is_certainly_in_one_window_counts() {
        for (list, expected) in [
            (&[][..], 0),
            (&[(0, 1, false), (2, 3, false)], 0),
            (&[(0, 1, true), (2, 3, true), (4, 5, false)], 2),
            // Answered a window after the first was sent: they may be a window apart.
            (&[(0, 1, true), (99, 100, true)], 1),
            (&[(0, 1, true), (98, 99, true)], 2),
            // A slow one may have been counted at its end, and then is in no window with the first.
            (&[(0, 1, true), (1, 150, true), (60, 61, true), (140, 141, true)], 2),
            // The fullest window is in the middle, and the order of the list does not matter.
            (&[(260, 261, true), (150, 151, true), (0, 1, true), (200, 201, true)], 2),
            (&[(190, 191, true), (150, 151, true), (0, 1, true), (200, 201, true)], 3),
            // Longer than a window by itself.
            (&[(0, 200, true)], 0),
        ] {
            assert_eq!(LIMIT.most_in_any_window(&calls(list)), expected, "{list:?}");
        }
    }

    #[test]
    fn an_exact_limiter_admits_what_has_room_in_the_window_before_it() {
        for (sent, expected) in [
            (&[][..], 0),
            (&[0, 1, 2], 2),
            (&[0, 50, 99], 2),
            // A unit is free again when its window is over.
            (&[0, 50, 100, 149, 150], 4),
            // What is refused takes nothing.
            (&[0, 0, 0, 0, 99, 100, 100, 100], 4),
            (&[100, 0, 50], 3),
        ] {
            let list: Vec<_> = sent.iter().map(|&ms| (ms, ms + 1, false)).collect();
            assert_eq!(LIMIT.admitted_by_exact(&calls(&list)), expected, "{sent:?}");
        }
    }

    /// A limiter that decides by the model is found exact; one that restarts a counter is not.
    #[test]
    fn both_agree_on_an_exact_limiter_and_convict_a_fixed_window() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut sent: Vec<u64> = (0..60).map(|_| random.u64(..600)).collect();
            sent.sort_unstable();
            let mut within: Vec<u64> = Vec::new();
            let exact = sent.iter().map(|&now| {
                let has_room = within.iter().filter(|&&at| at + 100 > now).count() < 2;
                within.extend(has_room.then_some(now));
                (now, now, has_room)
            });
            let exact = calls(&exact.collect::<Vec<_>>());
            assert!(LIMIT.most_in_any_window(&exact) <= 2, "{sent:?}");
            assert!((LIMIT.used(&exact) - 1.0).abs() < f64::EPSILON, "{sent:?}");
        }
        let fixed = [(97, 98, true), (98, 99, true), (100, 101, true), (101, 102, true)];
        assert_eq!(LIMIT.most_in_any_window(&calls(&fixed)), 4);
        assert!((LIMIT.used(&calls(&fixed)) - 2.0).abs() < f64::EPSILON);
    }
}
