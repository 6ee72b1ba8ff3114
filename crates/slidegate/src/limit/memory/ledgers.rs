//! The ledgers of one account, nearly always a single one.

use crate::limit::ledger::Ledger;

/// A list of ledgers. One needs no allocation.
#[derive(Debug)]
pub(super) enum Ledgers {
    One(Ledger),
    /// None, or several.
    List(Box<[Ledger]>),
}

/// Windows that policies have had within the longest of them. A policy has a few; only changes of
/// policy, over and over, add up to more, and then the one that was begun first is forgotten.
pub(super) const MOST: usize = 64;

impl Ledgers {
    #[inline]
    pub(super) fn as_slice(&self) -> &[Ledger] {
        match self {
            Self::One(ledger) => std::slice::from_ref(ledger),
            Self::List(ledgers) => ledgers,
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [Ledger] {
        match self {
            Self::One(ledger) => std::slice::from_mut(ledger),
            Self::List(ledgers) => ledgers,
        }
    }

    /// Adds a ledger in place of those that are empty; tells where it is.
    pub(super) fn push(&mut self, ledger: Ledger) -> usize {
        let mut kept = std::mem::take(self).into_vec();
        kept.retain(|ledger| !ledger.is_empty());
        if kept.len() == MOST {
            kept.remove(0);
        }
        if kept.is_empty() {
            *self = Self::One(ledger);
            return 0;
        }
        kept.push(ledger);
        let last = kept.len() - 1;
        *self = Self::List(kept.into_boxed_slice());
        last
    }

    pub(super) fn into_vec(self) -> Vec<Ledger> {
        match self {
            Self::One(ledger) => vec![ledger],
            Self::List(ledgers) => ledgers.into_vec(),
        }
    }
}

impl Default for Ledgers {
    fn default() -> Self {
        Self::List(Box::default())
    }
}

impl FromIterator<Ledger> for Ledgers {
    fn from_iter<I: IntoIterator<Item = Ledger>>(ledgers: I) -> Self {
        let mut all = Self::default();
        ledgers.into_iter().for_each(|ledger| {
            all.push(ledger);
        });
        all
    }
}
