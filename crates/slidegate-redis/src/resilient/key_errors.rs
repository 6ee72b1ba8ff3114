//! Requests that Redis could not count because of one of their keys.

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
    /// How many requests so far.
    pub count: u64,
    /// Whether there was one in the last minute.
    pub recent: bool,
}

/// All such requests, by policy and reason.
pub(crate) struct KeyErrors {
    /// With the time of the last one.
    entries: Mutex<Vec<(KeyError, Timestamp)>>,
    warnings: Limiter,
    clock: Arc<dyn Clock>,
}

/// How long an error is recent.
const RECENT: Duration = Duration::from_secs(60);

/// Some hundred policies. Beyond that, entries that are not recent make way, such as those of policies
/// that are gone.
const MAX_ENTRIES: usize = 1024;

/// Instead of the policy, where all entries are recent.
const OTHERS: &str = "other-policies";

impl KeyErrors {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let warnings = Limiter::new(Quota::per_minute(1)).capacity(2 * MAX_ENTRIES);
        Self { entries: Mutex::default(), warnings: warnings.clock(clock.clone()), clock }
    }

    /// Counts a request under these policies. Returns whether to warn, which is once a minute for a
    /// policy and reason.
    pub(crate) fn count<'a>(
        &self,
        policies: impl Iterator<Item = &'a Name>,
        reason: KeyErrorReason,
    ) -> bool {
        let (now, mut entries) = (self.clock.now(), self.entries.lock());
        let mut due = false;
        for policy in policies {
            let (error, last) = entry_of(&mut entries, policy, reason, now);
            error.count += 1;
            *last = now;
            due |= self.warnings.check(&format!("{} {}", error.policy, reason.as_str())).is_ok();
        }
        due
    }

    pub(crate) fn snapshot(&self) -> Vec<KeyError> {
        let (now, entries) = (self.clock.now(), self.entries.lock());
        let error = |(error, last): &(KeyError, Timestamp)| KeyError {
            recent: now < *last + RECENT,
            ..error.clone()
        };
        entries.iter().map(error).collect()
    }
}

/// The entry to count in, made if there is none.
fn entry_of<'e>(
    entries: &'e mut Vec<(KeyError, Timestamp)>,
    policy: &Name,
    reason: KeyErrorReason,
    now: Timestamp,
) -> &'e mut (KeyError, Timestamp) {
    let find = |entries: &[(KeyError, Timestamp)], policy: &Name| {
        entries.iter().position(|(error, _)| error.reason == reason && error.policy == *policy)
    };
    let mut policy = policy.clone();
    let mut place = find(entries, &policy);
    if place.is_none() && entries.len() >= MAX_ENTRIES {
        if let Some(old) = entries.iter().position(|(_, last)| now >= *last + RECENT) {
            entries.swap_remove(old);
        } else {
            policy = OTHERS.parse().expect("a good name");
            place = find(entries, &policy);
        }
    }
    let place = place.unwrap_or_else(|| {
        entries.push((KeyError { policy, reason, count: 0, recent: true }, now));
        entries.len() - 1
    });
    &mut entries[place]
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
        let told = |second| -> Vec<(String, KeyErrorReason, u64, bool)> {
            clock.set(at(second));
            let all = errors.snapshot().into_iter();
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
        assert_eq!(counted(OTHERS, first, 1), 2);
        assert_eq!(counted(OTHERS, second, 1), 1);
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
