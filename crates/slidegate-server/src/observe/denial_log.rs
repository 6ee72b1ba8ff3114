//! The log of denials, rate-limited so that denied clients cannot flood it.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::RandomState;
use slidegate::{Decision, Policies, PolicyStanding, Standing, Verdict};
use tracing::Level;

use super::exposition::Page;
use super::per_thread::{PerThread, count_own};
use super::report::GateReport;
use super::{RequestOutcome, rounded};

const TARGET: &str = "slidegate::denied";

/// An identity has at most one line for a policy in this time.
const PAUSE_S: u32 = 60;
/// All together have at most this many lines in a second.
const LINES_PER_SECOND: u32 = 10;
/// Those with a line in the last minute fill an eighth of it, so a set is hardly ever full.
const SETS: usize = 1024;
const SLOTS: usize = 4;
/// Of a path.
const MOST_CHARS: usize = 200;

/// Writes a line for a denial, unless its identity had one just now or there are too many. What is
/// left out is counted, and the next line has the count.
#[derive(Debug)]
pub(super) struct DenialLog {
    recent: Recent,
    budget: Budget,
    left_out: PerThread<AtomicU64>,
    /// How many of those were already logged.
    reported: AtomicU64,
}

impl Default for DenialLog {
    fn default() -> Self {
        let (recent, budget) = (Recent::new(), Budget::default());
        Self { recent, budget, left_out: PerThread::default(), reported: AtomicU64::new(0) }
    }
}

impl DenialLog {
    #[inline]
    pub(super) fn record(
        &self,
        answered: &RequestOutcome<'_>,
        decision: &Decision,
        gate: &dyn GateReport,
    ) {
        if let Some(denial) = Denial::of(decision) {
            self.consider(answered, &denial, gate);
        }
    }

    #[cold]
    fn consider(&self, answered: &RequestOutcome<'_>, denial: &Denial<'_>, gate: &dyn GateReport) {
        let second = (answered.ended.as_millis() / 1000) as u32;
        // In a flood this is the end of it. If no lines are wanted, none is ever taken.
        if self.budget.is_spent(second) {
            count_own(self.left_out.own());
        } else if tracing::enabled!(target: TARGET, Level::INFO) {
            self.write_if_due(answered, denial, second, gate);
        }
    }

    fn write_if_due(
        &self,
        answered: &RequestOutcome<'_>,
        denial: &Denial<'_>,
        second: u32,
        gate: &dyn GateReport,
    ) {
        let hash = self.recent.hash(denial.policy);
        let due = !self.recent.has(hash, second)
            && self.budget.take(second)
            && self.recent.insert(hash, second);
        if due {
            let left_out = self.left_out.sum(|own| own);
            let reported = self.reported.swap(left_out, Ordering::Relaxed);
            denial.write(answered, left_out.saturating_sub(reported), &gate.policies());
        } else {
            count_own(self.left_out.own());
        }
    }

    pub(super) fn expose(&self, page: &mut Page<'_>) -> fmt::Result {
        page.counter(
            "slidegate_denial_log_left_out",
            "Denials not logged individually because of the log's rate limit.",
            self.left_out.sum(|own| own),
        )
    }
}

/// The part of a decision that is worth a line.
struct Denial<'a> {
    policy: &'a PolicyStanding,
    standing: &'a Standing,
}

impl<'a> Denial<'a> {
    #[inline]
    fn of(decision: &'a Decision) -> Option<Self> {
        if matches!(decision.verdict(), Verdict::Deny { .. }) {
            return decision.tightest().map(|(policy, standing)| Self { policy, standing });
        }
        let mut shadows = decision.policies().iter().filter(|policy| policy.is_shadow());
        let policy = shadows.find(|policy| policy.is_violated())?;
        let longest = |standing: &&Standing| (standing.is_violated(), standing.retry_after());
        let standing = policy.standings().iter().max_by_key(longest)?;
        Some(Self { policy, standing })
    }

    fn write(&self, answered: &RequestOutcome<'_>, left_out: u64, policies: &Policies) {
        let quota = self.standing.quota();
        let (units, remaining) = (quota.units().get(), self.standing.remaining());
        tracing::info!(
            target: TARGET,
            policy = &**self.policy.policy(),
            identity = &*policies.shown(self.policy.identity()),
            plan = self.policy.plan().map(|plan| &**plan.name()),
            units,
            window_s = rounded(quota.window().as_secs_f64()),
            spent = units.saturating_sub(remaining),
            remaining,
            retry_after_s = rounded(self.standing.retry_after().as_secs_f64()),
            shadow = self.policy.is_shadow(),
            listener = answered.listener.as_str(),
            method = answered.method.as_str(),
            path = shortened(answered.path),
            client = answered.client.map(tracing::field::display),
            left_out,
            "limit exceeded"
        );
    }
}

/// Identities logged recently: sets of a few slots, each with a part of a hash and a second. It has
/// room for a fixed number; a newcomer whose set is full of others has no line.
struct Recent {
    sets: Box<[[AtomicU64; SLOTS]]>,
    hasher: RandomState,
}

/// An empty slot.
const EMPTY: u64 = 0;

impl Recent {
    fn new() -> Self {
        Self {
            sets: (0..SETS).map(|_| Default::default()).collect(),
            hasher: RandomState::default(),
        }
    }

    fn hash(&self, policy: &PolicyStanding) -> u64 {
        self.hasher.hash_one((policy.policy(), policy.identity()))
    }

    fn has(&self, hash: u64, second: u32) -> bool {
        let same = |slot: u64| is_live(slot, second) && slot >> 32 == hash >> 32;
        self.set(hash).iter().any(|slot| same(slot.load(Ordering::Relaxed)))
    }

    /// Returns whether there was room.
    fn insert(&self, hash: u64, second: u32) -> bool {
        let entry = hash >> 32 << 32 | u64::from(second);
        self.set(hash).iter().any(|slot| {
            let old = slot.load(Ordering::Relaxed);
            let order = Ordering::Relaxed;
            !is_live(old, second) && slot.compare_exchange(old, entry, order, order).is_ok()
        })
    }

    fn set(&self, hash: u64) -> &[AtomicU64; SLOTS] {
        &self.sets[hash as usize % SETS]
    }
}

fn is_live(slot: u64, second: u32) -> bool {
    slot != EMPTY && second.saturating_sub(slot as u32) < PAUSE_S
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").finish_non_exhaustive()
    }
}

/// The current second, and how many lines it has had.
#[derive(Debug, Default)]
struct Budget(AtomicU64);

impl Budget {
    fn is_spent(&self, second: u32) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        now >> 32 >= u64::from(second) && now as u32 >= LINES_PER_SECOND
    }

    fn take(&self, second: u32) -> bool {
        let order = Ordering::Relaxed;
        let next = |now: u64| match now as u32 {
            _ if now >> 32 < u64::from(second) => Some(u64::from(second) << 32 | 1),
            // Another thread may have begun the next second already.
            used => (used < LINES_PER_SECOND).then_some(now + 1),
        };
        self.0.fetch_update(order, order, next).is_ok()
    }
}

/// As much of a path as a line has room for.
pub(super) fn shortened(path: &str) -> &str {
    path.char_indices().nth(MOST_CHARS).map_or(path, |(end, _)| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_recent_for_a_minute() {
        let recent = Recent::new();
        assert!(!recent.has(7 << 32, 100));
        assert!(recent.insert(7 << 32, 100));
        assert!(recent.has(7 << 32, 100) && recent.has(7 << 32, 159));
        assert!(!recent.has(7 << 32, 160) && !recent.has(8 << 32, 100));
    }

    #[test]
    fn a_set_that_is_full_of_others_takes_nobody_until_one_is_old() {
        let recent = Recent::new();
        for i in 0..SLOTS as u64 {
            assert!(recent.insert((i + 1) << 32, 100 + i as u32));
        }
        assert!(!recent.insert(99 << 32, 159));
        assert!(recent.insert(99 << 32, 160));
        assert!(recent.has(99 << 32, 160) && recent.has(2 << 32, 160));
    }

    #[test]
    fn a_second_has_so_many_lines() {
        let budget = Budget::default();
        let lines = |second| (0..100).filter(|_| budget.take(second)).count() as u32;
        assert_eq!((lines(100), lines(100)), (LINES_PER_SECOND, 0));
        assert_eq!(lines(101), LINES_PER_SECOND);
        assert_eq!(lines(100), 0, "one that is late finds no other");
        assert!(budget.is_spent(101) && budget.is_spent(100) && !budget.is_spent(102));
    }

    #[test]
    fn paths_are_cut_between_characters() {
        assert_eq!(shortened("/short"), "/short");
        assert_eq!(shortened(&"\u{fc}".repeat(500)), "\u{fc}".repeat(MOST_CHARS));
    }
}
