//! Requests that Redis could not count because of one of their keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use slidegate::{Clock, Limiter, Name, Quota, Timestamp};

use crate::error::KeyErrorReason;

/// Requests under a policy that Redis could not count because of one of their keys. A request that
/// several policies count has failed under each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyError {
    /// The policy.
    pub policy: Name,
    /// What was wrong with a key.
    pub reason: KeyErrorReason,
    /// Number of requests since the start.
    pub count: u64,
    /// Whether one failed in the last minute.
    pub recent: bool,
}

/// All such requests, by policy and reason.
pub(crate) struct KeyErrors {
    entries: Mutex<BTreeMap<(Name, KeyErrorReason), KeyErrorCount>>,
    warnings: Limiter,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct KeyErrorCount {
    count: u64,
    last: Timestamp,
}

/// How long an error counts as recent.
const RECENT_TIME: Duration = Duration::from_secs(60);

/// Enough for several hundred policies. Beyond that, entries that are not recent are evicted, such as
/// those of removed policies.
const MAX_ENTRIES: usize = 1024;

/// Replaces the policy name when the table is full of recent entries.
const OTHER_POLICIES: &str = "other-policies";

impl KeyErrors {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let warnings = Limiter::new(Quota::per_minute(1)).capacity(2 * MAX_ENTRIES);
        Self { entries: Mutex::default(), warnings: warnings.clock(clock.clone()), clock }
    }

    /// Counts a request under these policies. Returns whether to log a warning, at most once a minute
    /// per policy and reason.
    pub(crate) fn count<'a>(
        &self,
        policies: impl Iterator<Item = &'a Name>,
        reason: KeyErrorReason,
    ) -> bool {
        let (now, mut entries) = (self.clock.now(), self.entries.lock());
        let mut due = false;
        for policy in policies {
            let mut key = (policy.clone(), reason);
            if entries.len() >= MAX_ENTRIES && !entries.contains_key(&key) {
                entries.retain(|_, entry| now < entry.last + RECENT_TIME);
                if entries.len() >= MAX_ENTRIES {
                    key.0 = OTHER_POLICIES.parse().expect("a good name");
                }
            }
            due |= self.warnings.check(&format!("{} {}", key.0, reason.as_str())).is_ok();
            let entry = entries.entry(key).or_default();
            entry.count += 1;
            entry.last = now;
        }
        due
    }

    pub(crate) fn snapshot(&self) -> Vec<KeyError> {
        let (now, entries) = (self.clock.now(), self.entries.lock());
        let errors = entries.iter().map(|((policy, reason), entry)| KeyError {
            policy: policy.clone(),
            reason: *reason,
            count: entry.count,
            recent: now < entry.last + RECENT_TIME,
        });
        errors.collect()
    }
}

#[cfg(test)]
mod tests {
    use slidegate::ManualClock;

    use super::*;

    fn errors() -> (ManualClock, KeyErrors) {
        let clock = ManualClock::new(at(0));
        (clock.clone(), KeyErrors::new(Arc::new(clock)))
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos((1000 + seconds) * 1_000_000_000)
    }

    #[test]
    fn a_policy_and_reason_is_warned_of_once_a_minute_and_recent_for_one() {
        let (clock, errors) = errors();
        let [api, login]: [Name; 2] = ["api", "login"].map(|name| name.parse().unwrap());
        let count = |policies: &[&Name], reason, second| {
            clock.set(at(second));
            errors.count(policies.iter().copied(), reason)
        };
        assert!(count(&[&api], KeyErrorReason::WrongType, 0));
        assert!(!count(&[&api], KeyErrorReason::WrongType, 59));
        assert!(count(&[&api, &login], KeyErrorReason::WrongType, 59), "the other is new");
        assert!(count(&[&api], KeyErrorReason::NoPermission, 59), "and so is another reason");
        assert!(count(&[&api], KeyErrorReason::WrongType, 60));
        let snapshot_at = |second| -> Vec<(String, KeyErrorReason, u64, bool)> {
            clock.set(at(second));
            let all = errors.snapshot().into_iter();
            all.map(|e| (e.policy.to_string(), e.reason, e.count, e.recent)).collect()
        };
        let expected = |api_recent, others_recent| {
            vec![
                ("api".to_owned(), KeyErrorReason::WrongType, 4, api_recent),
                ("api".to_owned(), KeyErrorReason::NoPermission, 1, others_recent),
                ("login".to_owned(), KeyErrorReason::WrongType, 1, others_recent),
            ]
        };
        assert_eq!(snapshot_at(118), expected(true, true));
        assert_eq!(snapshot_at(119), expected(true, false), "a minute without one");
        assert_eq!(snapshot_at(120), expected(false, false));
    }

    #[test]
    fn a_full_table_still_counts_and_warns() {
        let (clock, errors) = errors();
        let name = |number: usize| -> Name { format!("p{number}").parse().unwrap() };
        let count = |policy: &Name, reason, second| {
            clock.set(at(second));
            errors.count([policy].into_iter(), reason)
        };
        let counted = |policy: &str, reason, second| {
            clock.set(at(second));
            let all = errors.snapshot().into_iter();
            let of = |e: &KeyError| *e.policy == *policy && e.reason == reason;
            all.filter(of).map(|e| e.count).sum::<u64>()
        };
        let (first, second) = (KeyErrorReason::WrongType, KeyErrorReason::NoPermission);
        for number in 0..MAX_ENTRIES {
            assert!(count(&name(number), first, 0));
        }
        assert!(count(&name(MAX_ENTRIES), first, 1), "a warning names it");
        assert!(!count(&name(MAX_ENTRIES + 1), first, 1), "once a minute");
        assert!(count(&name(0), second, 1), "another reason");
        assert!(!count(&name(0), first, 1), "those that are known have their own");
        assert_eq!(counted(OTHER_POLICIES, first, 1), 2);
        assert_eq!(counted(OTHER_POLICIES, second, 1), 1);
        assert_eq!(counted("p0", first, 1), 2);
        for number in 0..2 * MAX_ENTRIES {
            count(&name(number), first, 2);
        }
        assert!(errors.snapshot().len() <= MAX_ENTRIES + 2, "there is a bound");

        let new: Name = "new".parse().unwrap();
        assert!(count(&new, first, 100), "what is not recent makes way");
        assert_eq!(counted("new", first, 100), 1);
        assert!(errors.snapshot().len() <= MAX_ENTRIES + 2);
    }
}
