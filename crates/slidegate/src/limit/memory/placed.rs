//! One charge of a call, from where it is counted to where its quotas stand.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::hasher::AccountHasher;
use super::shard::{Place, Shard};
use crate::limit::charge::Charge;
use crate::limit::clock::Timestamp;
use crate::limit::store::{Standing, Standings, StoreError};

/// A charge, and where it is counted.
pub(super) struct Placed<'c, 'a> {
    charge: &'c Charge<'a>,
    pub(super) hash: u64,
    /// Which of the locks taken is its shard's.
    pub(super) lock: usize,
    pub(super) place: Place,
    /// Whether it is spent.
    pub(super) takes: bool,
    /// Of a denied request that is counted: which of its quotas had room for it before.
    had_room: SmallVec<[bool; 2]>,
}

impl<'c, 'a> Placed<'c, 'a> {
    pub(super) fn new(charge: &'c Charge<'a>, hash: u64) -> Self {
        let had_room = SmallVec::new();
        Self { charge, hash, lock: 0, place: Place::New, takes: true, had_room }
    }

    /// Whether the same request will be denied again until a unit of its own account leaves.
    pub(super) fn denies_for_sure(&self) -> bool {
        let own = matches!(self.place, Place::Own(_));
        own && !self.takes && !self.charge.is_shadow() && !self.charge.counts_denied()
    }

    /// Whether it fits all its quotas.
    #[inline]
    pub(super) fn fits(&self, shard: &Shard) -> bool {
        let Some(book) = shard.book(self.place) else { return true };
        let cost = self.charge.cost().get();
        let fits = |quota| book.ledger(quota).is_none_or(|ledger| ledger.admits(quota, cost));
        self.charge.quotas().as_slice().iter().all(|quota| fits(*quota))
    }

    /// Records what is spent, or denied and to be counted all the same.
    #[inline]
    pub(super) fn write(&mut self, shard: &mut Shard, hasher: &AccountHasher, now: Timestamp) {
        if !self.takes && !self.charge.counts_denied() {
            return;
        }
        let book = shard.book_mut(hasher, self.hash, self.charge, self.place);
        let Some((book, place)) = book else { return };
        self.place = place;
        let cost = self.charge.cost().get();
        for quota in self.charge.quotas().as_slice() {
            let ledger = book.ledger_or_new(*quota);
            if self.takes {
                ledger.spend(*quota, cost, now);
            } else {
                self.had_room.push(ledger.admits(*quota, cost));
                ledger.spend_denied(*quota, cost, now);
            }
        }
    }

    /// Adds where each of its quotas stands.
    #[inline]
    pub(super) fn report(&self, shard: &Shard, now: Timestamp, standings: &mut Standings) {
        let book = shard.book(self.place);
        let cost = self.charge.cost().get();
        for (i, &quota) in self.charge.quotas().as_slice().iter().enumerate() {
            let ledger = book.and_then(|book| book.ledger(quota));
            let mut standing = Standing::untouched(quota);
            if let Some(ledger) = ledger {
                standing.remaining = ledger.remaining(quota);
                standing.reset_after_ns = ledger.reset_after_ns(now);
                if !self.takes {
                    standing = standing.with_retry_after(ledger.retry_after(quota, cost, now));
                    if self.had_room.get(i) == Some(&true) {
                        standing = standing.with_room();
                    }
                }
            }
            standings.push(standing);
        }
    }
}

/// Finds where every charge is counted; makes nothing.
pub(super) fn place_all(
    places: &mut [Placed<'_, '_>],
    locks: &mut [MutexGuard<'_, Shard>],
    now: Timestamp,
) -> Result<(), StoreError> {
    for i in 0..places.len() {
        let (before, rest) = places.split_at_mut(i);
        let placed = &mut rest[0];
        let new = |p: &&Placed<'_, '_>| matches!(p.place, Place::New | Place::NewFromOverflow(_));
        let planned = before.iter().filter(new).filter(|p| p.lock == placed.lock).count();
        placed.place = locks[placed.lock].place(placed.hash, placed.charge, now, planned)?;
        // Two charges to one shared book would each be seen to fit alone.
        let same_book = |p: &Placed<'_, '_>| {
            p.lock == placed.lock
                && p.place.is_overflow()
                && p.charge.policy() == placed.charge.policy()
        };
        if placed.place.is_overflow() && before.iter().any(same_book) {
            return Err(StoreError::Full);
        }
    }
    Ok(())
}

/// Finds which charges are spent, and whether the request is allowed.
pub(super) fn fit_all(places: &mut [Placed<'_, '_>], locks: &[MutexGuard<'_, Shard>]) -> bool {
    let mut allowed = true;
    for placed in places.iter_mut() {
        placed.takes = placed.fits(&locks[placed.lock]);
        allowed &= placed.takes || placed.charge.is_shadow();
    }
    for placed in places {
        placed.takes &= allowed;
    }
    allowed
}
