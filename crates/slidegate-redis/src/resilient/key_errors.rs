//! Requests that Redis could not count because of one of their keys.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slidegate::{Name, Timestamp};

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
#[derive(Default)]
pub(crate) struct KeyErrors(Mutex<Vec<KeyErrorEntry>>);

struct KeyErrorEntry {
    policy: Name,
    reason: KeyErrorReason,
    count: u64,
    last: Timestamp,
    warned: Option<Timestamp>,
}

/// For how long an error is recent, and how often there is a warning of one policy and reason.
const RECENT: Duration = Duration::from_secs(60);

/// Some hundred policies. Beyond that, entries that are not recent make way, such as those of policies
/// that there are no more.
const MOST: usize = 1024;

/// Instead of the policy, where all entries are recent.
const OTHERS: &str = "other-policies";

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
            let entry = entry_of(&mut entries, policy, reason, now);
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
        let told = |entry: &KeyErrorEntry| KeyError {
            policy: entry.policy.clone(),
            reason: entry.reason,
            count: entry.count,
            recent: entry.is_recent(now),
        };
        self.entries().iter().map(told).collect()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<KeyErrorEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyErrorEntry {
    fn new(policy: Name, reason: KeyErrorReason, now: Timestamp) -> Self {
        Self { policy, reason, count: 0, last: now, warned: None }
    }

    fn is_recent(&self, now: Timestamp) -> bool {
        now < self.last + RECENT
    }
}

/// The entry to count in, made if there is none.
fn entry_of<'e>(
    entries: &'e mut Vec<KeyErrorEntry>,
    policy: &Name,
    reason: KeyErrorReason,
    now: Timestamp,
) -> &'e mut KeyErrorEntry {
    let find = |entries: &[KeyErrorEntry], policy: &str| {
        entries.iter().position(|entry| entry.reason == reason && *entry.policy == *policy)
    };
    if let Some(known) = find(entries, policy) {
        return &mut entries[known];
    }
    let mut place = entries.len();
    let mut policy = policy.clone();
    if place >= MOST {
        match entries.iter().position(|entry| !entry.is_recent(now)) {
            Some(old) => {
                entries.swap_remove(old);
                place -= 1;
            }
            None => match find(entries, OTHERS) {
                Some(others) => return &mut entries[others],
                None => policy = OTHERS.parse().expect("a good name"),
            },
        }
    }
    entries.push(KeyErrorEntry::new(policy, reason, now));
    &mut entries[place]
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
    fn a_full_table_still_counts_and_warns() {
        let errors = KeyErrors::default();
        let name = |number: usize| -> Name { format!("p{number}").parse().unwrap() };
        let count =
            |policy: &Name, reason, second| errors.count([policy].into_iter(), reason, at(second));
        let counted = |policy: &str, reason, second| {
            let all = errors.snapshot(at(second)).into_iter();
            let of = |e: &KeyError| *e.policy == *policy && e.reason == reason;
            all.filter(of).map(|e| e.count).sum::<u64>()
        };
        let (first, second) = (KeyErrorReason::WrongType, KeyErrorReason::NoPermission);
        for number in 0..MOST {
            assert!(count(&name(number), first, 0));
        }
        assert!(count(&name(MOST), first, 1), "a warning names it");
        assert!(!count(&name(MOST + 1), first, 1), "once a minute");
        assert!(count(&name(0), second, 1), "another reason");
        assert!(!count(&name(0), first, 1), "those that are known have their own");
        assert_eq!(counted(OTHERS, first, 1), 2);
        assert_eq!(counted(OTHERS, second, 1), 1);
        assert_eq!(counted("p0", first, 1), 2);
        for number in 0..2 * MOST {
            count(&name(number), first, 2);
        }
        assert!(errors.snapshot(at(2)).len() <= MOST + 2, "there is a bound");

        let new: Name = "new".parse().unwrap();
        assert!(count(&new, first, 100), "what is not recent makes way");
        assert_eq!(counted("new", first, 100), 1);
        assert!(errors.snapshot(at(100)).len() <= MOST + 2);
    }
}
