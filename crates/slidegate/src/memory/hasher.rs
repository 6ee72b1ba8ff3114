//! How accounts are spread: clients choose identities, so the seed is random.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;

use super::book::Book;
use crate::name::Name;

#[derive(Debug, Default)]
pub(super) struct AccountHasher(RandomState);

impl AccountHasher {
    #[inline]
    pub(super) fn hash(&self, policy: &Name, identity: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write_u128(policy.digest().bits());
        hasher.write(identity);
        hasher.finish()
    }

    pub(super) fn hash_book(&self, book: &Book) -> u64 {
        self.hash(&book.policy, book.identity.as_bytes())
    }
}
