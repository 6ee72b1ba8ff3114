//! Requests that Redis could not count because of one of their keys.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slidegate::{Name, Timestamp};

use crate::failure::KeyErrorReason;

/// Requests under a policy that Redis could not count because of one of their keys. A request that
/// several policies count has failed under each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyError {
    /// The policy.
    pub policy: Name,
    /// What was wrong with a key.
    pub reason: KeyErrorReason,
    /// How many requests so far.
    pub count: u64,
    /// Whether there was one in the last minute.
    pub recent: bool,
}

/// All such requests, by policy and reason.
#[derive(Default)]
pub(crate) struct KeyErrors(Mutex<Vec<Entry>>);

struct Entry {
    policy: Name,
    reason: KeyErrorReason,
    count: u64,
    last: Timestamp,
    warned: Option<Timestamp>,
}

/// For how long an error is recent, and how often there is a warning of one policy and reason.
const RECENT: Duration = Duration::from_secs(60);

/// Some hundred policies; errors of more are not told apart.
const MOST: usize = 1024;

impl KeyErrors {
    /// Counts a request under these policies; tells whether a warning is due.
    pub(crate) fn count<'a>(
        &self,
        policies: impl Iterator<Item = &'a Name>,
        reason: KeyErrorReason,
        now: Timestamp,
    ) -> bool {
        let mut entries = self.entries();
        let mut due = false;
        for policy in policies {
            let known = |entry: &Entry| entry.reason == reason && entry.policy == *policy;
            let place = entries.iter().position(known).unwrap_or(entries.len());
            if place == MOST {
                continue;
            }
            if place == entries.len() {
                let policy = policy.clone();
                entries.push(Entry { policy, reason, count: 0, last: now, warned: None });
            }
            let entry = &mut entries[place];
            entry.count += 1;
            entry.last = now;
            if entry.warned.is_none_or(|warned| now >= warned + RECENT) {
                entry.warned = Some(now);
                due = true;
            }
        }
        due
    }

    pub(crate) fn snapshot(&self, now: Timestamp) -> Vec<KeyError> {
        let told = |entry: &Entry| KeyError {
            policy: entry.policy.clone(),
            reason: entry.reason,
            count: entry.count,
            recent: now < entry.last + RECENT,
        };
        self.entries().iter().map(told).collect()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos((1000 + seconds) * 1_000_000_000)
    }

    #[test]
    fn a_policy_and_reason_is_warned_of_once_a_minute_and_recent_for_one() {
        let errors = KeyErrors::default();
        let [api, login]: [Name; 2] = ["api", "login"].map(|name| name.parse().unwrap());
        let count = |policies: &[&Name], reason, second| {
            errors.count(policies.iter().copied(), reason, at(second))
        };
        assert!(count(&[&api], KeyErrorReason::WrongType, 0));
        assert!(!count(&[&api], KeyErrorReason::WrongType, 59));
        assert!(count(&[&api, &login], KeyErrorReason::WrongType, 59), "the other is new");
        assert!(count(&[&api], KeyErrorReason::NoPermission, 59), "and so is another reason");
        assert!(count(&[&api], KeyErrorReason::WrongType, 60));
        let told = |second| -> Vec<(String, KeyErrorReason, u64, bool)> {
            let all = errors.snapshot(at(second)).into_iter();
            all.map(|e| (e.policy.to_string(), e.reason, e.count, e.recent)).collect()
        };
        let expected = |api_recent, others_recent| {
            vec![
                ("api".to_owned(), KeyErrorReason::WrongType, 4, api_recent),
                ("login".to_owned(), KeyErrorReason::WrongType, 1, others_recent),
                ("api".to_owned(), KeyErrorReason::NoPermission, 1, others_recent),
            ]
        };
        assert_eq!(told(118), expected(true, true));
        assert_eq!(told(119), expected(true, false), "a minute without one");
        assert_eq!(told(120), expected(false, false));
    }

    #[test]
    fn there_is_a_bound() {
        let errors = KeyErrors::default();
        for number in 0..2 * MOST {
            let policy: Name = format!("p{number}").parse().unwrap();
            errors.count([&policy].into_iter(), KeyErrorReason::WrongType, at(0));
        }
        assert_eq!(errors.snapshot(at(0)).len(), MOST);
    }
}
