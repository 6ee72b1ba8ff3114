//! One part of a memory store's accounts, behind one lock.

use std::time::Duration;

use super::book::Book;
use super::hasher::AccountHasher;
use super::index::Index;
use crate::limit::charge::Charge;
use crate::limit::clock::Timestamp;
use crate::limit::name::Name;
use crate::limit::store::StoreError;
use crate::policy::OnStoreError;

/// How many books one sweep looks through. A sweep goes on where the last one ended, so every book
/// that is over is found before long.
const SWEEP: usize = 16;
/// Calls between two sweeps. A sweep touches memory that the call does not need, but in a row; done
/// seldom, it hardly costs.
const CALLS_PER_SWEEP: u32 = 256;
/// How many calls a new account counts as: four books are looked through for each, and two would
/// already keep up with any stream of them.
const CALLS_PER_NEW: u32 = 64;

const CLOCK_JITTER: Duration = Duration::from_micros(100);

/// Books by account, and the shared books for those who found no place.
#[derive(Debug)]
pub(super) struct Shard {
    index: Index,
    books: Vec<Book>,
    /// One for each policy that found no place for an account. They do not count as accounts.
    overflow: Vec<Book>,
    capacity: usize,
    most: usize,
    cursor: usize,
    calls: u32,
    last_now: Timestamp,
    pub(super) swept: u64,
}

/// Where a charge is counted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// In a book of its own.
    Own(usize),
    /// In a book that is yet to be made.
    New,
    /// In a book that is yet to be made, by somebody who may have spent from this shared one.
    NewFromOverflow(usize),
    /// In a shared book.
    Overflow(usize),
    /// In a shared book that is yet to be made.
    NewOverflow,
    /// Nowhere: it is allowed.
    Waived,
}

impl Place {
    pub(super) fn is_overflow(self) -> bool {
        matches!(self, Self::Overflow(_) | Self::NewOverflow)
    }

    pub(super) fn is_degraded(self) -> bool {
        matches!(self, Self::Overflow(_) | Self::NewOverflow | Self::Waived)
    }
}

impl Shard {
    /// Room for `capacity` accounts; a restored snapshot may bring up to `most`.
    pub(super) fn new(capacity: usize, most: usize) -> Self {
        Self {
            index: Index::new(most),
            books: Vec::new(),
            overflow: Vec::new(),
            capacity,
            most,
            cursor: 0,
            calls: 0,
            last_now: Timestamp::default(),
            swept: 0,
        }
    }

    /// The instant of a call that holds the lock: its reading of the clock, or the last call's if
    /// that was a hair later. Two processors' counters need not agree to the nanosecond; a larger
    /// step back is the clock's, and for the ledgers to deal with.
    pub(super) fn instant(&mut self, reading: Timestamp) -> Timestamp {
        if reading < self.last_now && self.last_now.saturating_since(reading) < CLOCK_JITTER {
            return self.last_now;
        }
        self.last_now = reading;
        reading
    }

    /// Notes that a call has taken place at `now`.
    pub(super) fn advance_to(&mut self, now: Timestamp) {
        self.last_now = now;
    }

    /// Looks through a few books for ones that are over. It moves books: before any is placed.
    #[inline]
    pub(super) fn sweep_a_little(
        &mut self,
        hasher: &AccountHasher,
        now: Timestamp,
        charges: usize,
    ) {
        self.calls += 1;
        if self.calls >= CALLS_PER_SWEEP || self.books.len() + charges > self.capacity {
            self.sweep(hasher, now, SWEEP);
        }
    }

    /// Finds where a charge is counted; makes nothing. `planned` accounts are to be made besides.
    #[inline]
    pub(super) fn place(
        &mut self,
        hash: u64,
        charge: &Charge<'_>,
        now: Timestamp,
        planned: usize,
    ) -> Result<Place, StoreError> {
        if let Some(i) = self.find(hash, charge) {
            self.books[i].settle(now);
            return Ok(Place::Own(i));
        }
        self.place_newcomer(charge, now, planned)
    }

    #[inline(never)]
    fn place_newcomer(
        &mut self,
        charge: &Charge<'_>,
        now: Timestamp,
        planned: usize,
    ) -> Result<Place, StoreError> {
        let shared = self.overflow.iter().position(|book| book.policy == *charge.policy());
        if let Some(i) = shared {
            self.overflow[i].settle(now);
        }
        if self.books.len() + planned < self.capacity {
            return Ok(match shared {
                Some(i) if !self.overflow[i].is_over(now) => Place::NewFromOverflow(i),
                _ => Place::New,
            });
        }
        match charge.store_error_action() {
            OnStoreError::Local => Ok(shared.map_or(Place::NewOverflow, Place::Overflow)),
            OnStoreError::Deny if !charge.is_shadow() => Err(StoreError::Full),
            OnStoreError::Allow | OnStoreError::Deny => Ok(Place::Waived),
        }
    }

    /// The book of a place, if there is one. Of a newcomer who may have spent from a shared book,
    /// that one: all of it may be theirs.
    pub(super) fn book(&self, place: Place) -> Option<&Book> {
        match place {
            Place::Own(i) => Some(&self.books[i]),
            Place::Overflow(i) | Place::NewFromOverflow(i) => Some(&self.overflow[i]),
            Place::New | Place::NewOverflow | Place::Waived => None,
        }
    }

    /// The book of a place, made if need be, and where it is now.
    pub(super) fn book_mut(
        &mut self,
        hasher: &AccountHasher,
        hash: u64,
        charge: &Charge<'_>,
        place: Place,
    ) -> Option<(&mut Book, Place)> {
        match place {
            Place::Own(i) => Some((&mut self.books[i], place)),
            Place::Overflow(i) => Some((&mut self.overflow[i], place)),
            Place::NewOverflow => {
                self.overflow.push(Book::new(charge.policy(), "overflow"));
                let i = self.overflow.len() - 1;
                Some((&mut self.overflow[i], Place::Overflow(i)))
            }
            Place::New | Place::NewFromOverflow(_) => {
                let mut book = Book::new(charge.policy(), charge.identity().as_str());
                if let Place::NewFromOverflow(i) = place {
                    book.ledgers = self.overflow[i].condensed();
                }
                let i = self.insert(hasher, hash, book);
                Some((&mut self.books[i], Place::Own(i)))
            }
            Place::Waived => None,
        }
    }

    /// The account's own book, or else the shared one that it spends from.
    pub(super) fn book_or_shared(&mut self, hash: u64, charge: &Charge<'_>) -> Option<&mut Book> {
        match self.find(hash, charge) {
            Some(i) => Some(&mut self.books[i]),
            None => self.overflow.iter_mut().find(|book| book.policy == *charge.policy()),
        }
    }

    pub(super) fn own_book(&mut self, hash: u64, charge: &Charge<'_>) -> Option<&mut Book> {
        self.find(hash, charge).map(|i| &mut self.books[i])
    }

    pub(super) fn forget(&mut self, hasher: &AccountHasher, hash: u64, charge: &Charge<'_>) {
        if let Some(i) = self.find(hash, charge) {
            self.remove(hasher, i);
        }
    }

    pub(super) fn has(&self, hash: u64, book: &Book) -> bool {
        self.find_by(hash, &book.policy, book.identity.as_bytes()).is_some()
    }

    /// Adds a saved history to an account, which is made if need be.
    pub(super) fn restore(
        &mut self,
        hasher: &AccountHasher,
        hash: u64,
        saved: Book,
        now: Timestamp,
    ) {
        match self.find_by(hash, &saved.policy, saved.identity.as_bytes()) {
            Some(i) => {
                // What has left would count towards the entries that a ledger may have.
                self.books[i].settle(now);
                self.books[i].absorb(saved.ledgers.into_vec());
            }
            None => {
                self.insert(hasher, hash, saved);
            }
        }
    }

    /// Adds a saved history to a policy's shared book, which is made if need be.
    pub(super) fn restore_overflow(&mut self, saved: &Book, now: Timestamp) {
        let ledgers = saved.ledgers.as_slice().iter().cloned();
        match self.overflow.iter_mut().find(|book| book.policy == saved.policy) {
            Some(book) => {
                book.settle(now);
                book.absorb(ledgers);
            }
            None => {
                let mut book = Book::new(&saved.policy, &saved.identity);
                book.absorb(ledgers);
                self.overflow.push(book);
            }
        }
    }

    pub(super) fn books(&self) -> &[Book] {
        &self.books
    }

    pub(super) fn overflow(&self) -> &[Book] {
        &self.overflow
    }

    fn find(&self, hash: u64, charge: &Charge<'_>) -> Option<usize> {
        self.find_by(hash, charge.policy(), charge.identity().as_bytes())
    }

    fn find_by(&self, hash: u64, policy: &Name, identity: &[u8]) -> Option<usize> {
        self.index.find(hash, |i| self.books[i].is_for(policy, identity))
    }

    fn insert(&mut self, hasher: &AccountHasher, hash: u64, book: Book) -> usize {
        let i = self.books.len();
        assert!(i < self.most, "no shard has more accounts than its store");
        if i == self.books.capacity() {
            // By a quarter and not by twice: most of a store's memory is here.
            self.books.reserve_exact((i / 4).max(4));
        }
        self.books.push(book);
        let books = &self.books;
        self.index.insert(hash, i, |i| hasher.hash_book(&books[i]));
        // The sweep itself waits for the next call: it would move books that are placed already.
        self.calls = self.calls.saturating_add(CALLS_PER_NEW);
        i
    }

    /// Looks through all books.
    pub(super) fn sweep_all(&mut self, hasher: &AccountHasher, now: Timestamp) {
        self.sweep(hasher, now, self.books.len());
    }

    #[inline(never)]
    fn sweep(&mut self, hasher: &AccountHasher, now: Timestamp, most: usize) {
        self.calls = 0;
        let before = self.books.len();
        for _ in 0..most.min(before) {
            if self.cursor >= self.books.len() {
                self.cursor = 0;
            }
            if self.books.get(self.cursor).is_some_and(|book| book.is_over(now)) {
                self.remove(hasher, self.cursor);
            } else {
                self.cursor += 1;
            }
        }
        self.overflow.retain(|book| !book.is_over(now));
        if self.books.len() < before {
            self.swept += (before - self.books.len()) as u64;
            self.give_back_memory(hasher);
        }
    }

    fn remove(&mut self, hasher: &AccountHasher, i: usize) {
        let hash = hasher.hash_book(&self.books[i]);
        let books = &self.books;
        self.index.remove(hash, i, |i| hasher.hash_book(&books[i]));
        self.books.swap_remove(i);
        if let Some(moved) = self.books.get(i) {
            self.index.relocate(hasher.hash_book(moved), self.books.len(), i);
        }
    }

    /// Shrinks what a flood has left behind, once half of it is empty.
    fn give_back_memory(&mut self, hasher: &AccountHasher) {
        const SMALL: usize = 64;
        if self.books.capacity() > SMALL && self.books.len() < self.books.capacity() / 2 {
            let wanted = self.books.len() * 5 / 4;
            self.books.shrink_to(wanted);
            let books = &self.books;
            self.index.shrink(|i| hasher.hash_book(&books[i]));
        }
    }
}
