//! Calls that go out, kept within somebody else's quota.

mod error;
mod layer;
mod lines;
mod queue;
mod service;

pub use self::error::{HeldBack, OutgoingError};
pub use self::layer::OutgoingLayer;
pub use self::queue::Queue;
pub use self::service::Outgoing;
