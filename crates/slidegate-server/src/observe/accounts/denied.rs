//! Those denied most often, counted in little room.
//!
//! Each set is a Space-Saving sketch: a newcomer to a full set takes the place of the one that was
//! denied least, with its count, and remembers that it may be too high by that much. So whoever has
//! more than an eighth of a set's denials is in it, and no count is too low.

use std::time::Duration;

use slidegate::{PolicyStanding, Timestamp};

use super::{DeniedAccount, SETS, SeenAccount, WAYS};

/// Old denials count less and less: all counts are halved when so much time has passed.
const HALF_LIFE: Duration = Duration::from_secs(600);

/// One thread's sketch.
#[derive(Debug)]
pub(super) struct Denied {
    sets: Box<[Set]>,
    halved: Timestamp,
}

type Set = [Option<Entry>; WAYS];

#[derive(Debug, Clone)]
struct Entry {
    hash: u64,
    denied: DeniedAccount,
}

impl Default for Denied {
    fn default() -> Self {
        let sets = (0..SETS).map(|_| Set::default()).collect();
        Self { sets, halved: Timestamp::default() }
    }
}

impl Denied {
    pub(super) fn see(&mut self, hash: u64, policy: &PolicyStanding, now: Timestamp) {
        self.age(now);
        let set = &mut self.sets[hash as usize % SETS];
        let own = set.iter_mut().flatten().find(|e| e.hash == hash && e.denied.seen.is(policy));
        if let Some(entry) = own {
            entry.denied.denials += 1;
            return;
        }
        let denials = |slot: &Option<Entry>| slot.as_ref().map_or(0, |entry| entry.denied.denials);
        let Some(least) = set.iter_mut().min_by_key(|slot| denials(slot)) else { return };
        let too_many = denials(least);
        let seen = SeenAccount::of(policy);
        let denied = DeniedAccount { seen, denials: too_many + 1, too_many };
        *least = Some(Entry { hash, denied });
    }

    pub(super) fn all(&mut self, now: Timestamp) -> impl Iterator<Item = DeniedAccount> {
        self.age(now);
        self.sets.iter().flatten().flatten().map(|entry| entry.denied.clone())
    }

    fn age(&mut self, now: Timestamp) {
        let halvings = now.saturating_since(self.halved).as_secs() / HALF_LIFE.as_secs();
        if halvings == 0 {
            return;
        }
        // To the instant when it was due, so that nobody who looks often puts it off.
        self.halved = match self.halved {
            never if never == Timestamp::default() => now,
            last => last + HALF_LIFE * u32::try_from(halvings).unwrap_or(u32::MAX),
        };
        let halve = |count: u64| count.checked_shr(halvings.min(64) as u32).unwrap_or(0);
        for slot in self.sets.iter_mut().flatten() {
            if let Some(entry) = slot {
                entry.denied.denials = halve(entry.denied.denials);
                entry.denied.too_many = halve(entry.denied.too_many);
            }
            slot.take_if(|entry| entry.denied.denials == 0);
        }
    }
}
