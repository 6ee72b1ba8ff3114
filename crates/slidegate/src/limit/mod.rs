//! Counting: quotas, the ledgers that keep to them, and the stores that keep the ledgers.

pub(crate) mod charge;
pub(crate) mod clock;
pub(crate) mod entries;
pub(crate) mod ledger;
pub(crate) mod memory;
pub(crate) mod name;
pub(crate) mod period;
pub(crate) mod quota;
pub(crate) mod reading;
pub(crate) mod settlement;
pub(crate) mod store;

pub use self::charge::{
    Account, Charge, Charges, CostError, DuplicateAccount, OnDenial, OnStoreError,
};
pub use self::clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use self::ledger::Ledger;
pub use self::memory::{MemoryStats, MemoryStore, MemoryStoreBuilder, SnapshotError};
pub use self::name::{Name, NameError};
pub use self::period::{Period, PeriodError};
pub use self::quota::{Quota, QuotaError, Quotas, QuotasError};
pub use self::reading::{AccountReading, LedgerEntry, LedgerReading};
pub use self::settlement::{Difference, Once, Settled, Settlement};
pub use self::store::{Receipt, Spent, Standing, Standings, Store, StoreError};
