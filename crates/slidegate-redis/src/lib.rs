//! Budgets shared by many machines: the store on Redis and Valkey.

mod address;
mod apart;
mod builder;
mod checkup;
mod failure;
mod key;
mod layout;
mod link;
mod owned;
mod resilient;
mod script;
mod slot;
mod store;
mod tls;

pub use address::{Address, AddressError};
pub use builder::{BuildError, RedisStoreBuilder};
pub use checkup::Finding;
pub use failure::Failure;
pub use key::{KeyTemplate, KeyTemplateError};
pub use layout::{Layout, LayoutError};
pub use resilient::{
    BreakerState, Latency, ResilienceStats, ResilientStore, ResilientStoreBuilder, Share,
    ShareError,
};
pub use store::RedisStore;
pub use tls::Tls;
