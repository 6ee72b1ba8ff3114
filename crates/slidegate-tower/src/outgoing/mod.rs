//! Calls that go out, kept within somebody else's quota.

mod account_queues;
mod error;
mod layer;
mod queue;
mod service;

pub use self::error::{OutgoingError, RateLimited};
pub use self::layer::OutgoingLayer;
pub use self::queue::OutgoingQueue;
pub use self::service::OutgoingService;
