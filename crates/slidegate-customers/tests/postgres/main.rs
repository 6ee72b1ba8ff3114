//! Keys from a real PostgreSQL, and through a real PgBouncer.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "it waits for real processes")]

mod columns;
mod faults;
mod link;
mod notifications;
mod reader;
mod table;
