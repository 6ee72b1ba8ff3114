//! How accounts are spread: clients choose identities, so the seed is random.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

use super::book::Book;
use crate::limit::name::Name;

#[derive(Debug, Default)]
pub(super) struct AccountHasher(RandomState);

impl AccountHasher {
    #[inline]
    pub(super) fn hash(&self, policy: &Name, identity: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(identity);
        // A digest is as good as random, and the operator's choice: it need not be mixed in.
        hasher.finish() ^ (policy.digest().bits() >> 64) as u64
    }

    pub(super) fn hash_book(&self, book: &Book) -> u64 {
        self.hash(&book.policy, book.identity.as_bytes())
    }
}
