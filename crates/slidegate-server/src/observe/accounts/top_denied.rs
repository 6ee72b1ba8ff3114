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
pub(super) struct TopDenied {
    sets: Box<[DeniedBucket]>,
    halved: Timestamp,
}

/// What is looked through lies together, and the accounts apart from it.
#[derive(Debug, Default)]
struct DeniedBucket {
    hashes: [u64; WAYS],
    /// Zero where there is no account.
    denials: [u64; WAYS],
    accounts: [Option<DeniedEntry>; WAYS],
}

#[derive(Debug)]
struct DeniedEntry {
    seen: SeenAccount,
    overcount: u64,
}

impl Default for TopDenied {
    fn default() -> Self {
        let sets = (0..SETS).map(|_| DeniedBucket::default()).collect();
        Self { sets, halved: Timestamp::default() }
    }
}

impl TopDenied {
    pub(super) fn record(&mut self, hash: u64, policy: &PolicyStanding, now: Timestamp) {
        self.age(now);
        let set = &mut self.sets[hash as usize % SETS];
        if let Some(own) = (0..WAYS).find(|way| set.is_of(*way, hash, policy)) {
            set.denials[own] += 1;
            return;
        }
        let Some(least) = (0..WAYS).min_by_key(|way| set.denials[*way]) else { return };
        let overcount = set.denials[least];
        set.hashes[least] = hash;
        set.denials[least] = overcount + 1;
        match &mut set.accounts[least] {
            Some(entry) => {
                entry.seen.become_of(policy);
                entry.overcount = overcount;
            }
            none => *none = Some(DeniedEntry { seen: SeenAccount::of(policy), overcount }),
        }
    }

    pub(super) fn all(&mut self, now: Timestamp) -> impl Iterator<Item = DeniedAccount> {
        self.age(now);
        self.sets.iter().flat_map(DeniedBucket::all)
    }

    fn age(&mut self, now: Timestamp) {
        let halvings = now.saturating_since(self.halved).as_secs() / HALF_LIFE.as_secs();
        if halvings == 0 {
            return;
        }
        // To the instant when it was due, so that frequent reads do not defer it.
        self.halved = match self.halved {
            never if never == Timestamp::default() => now,
            last => last + HALF_LIFE * u32::try_from(halvings).unwrap_or(u32::MAX),
        };
        self.sets.iter_mut().for_each(|set| set.halve(halvings));
    }
}

impl DeniedBucket {
    fn is_of(&self, way: usize, hash: u64, policy: &PolicyStanding) -> bool {
        self.hashes[way] == hash
            && self.accounts[way].as_ref().is_some_and(|entry| entry.seen.is(policy))
    }

    fn all(&self) -> impl Iterator<Item = DeniedAccount> {
        self.accounts.iter().zip(self.denials).filter_map(|(entry, denials)| {
            let DeniedEntry { seen, overcount } = entry.as_ref()?;
            Some(DeniedAccount { seen: seen.clone(), denials, overcount: *overcount })
        })
    }

    fn halve(&mut self, halvings: u64) {
        let halve = |count: u64| count.checked_shr(halvings.min(64) as u32).unwrap_or(0);
        for (entry, denials) in self.accounts.iter_mut().zip(&mut self.denials) {
            *denials = halve(*denials);
            match entry {
                Some(entry) if *denials > 0 => entry.overcount = halve(entry.overcount),
                _ => *entry = None,
            }
        }
    }
}
