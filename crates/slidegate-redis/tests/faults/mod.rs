//! Redis falls ill in every way we know of, under load, with real processes: four stores go on
//! sharing their budgets through all of it.

mod bounds;
mod denials;
mod groups;
mod network;
mod queue_full;
mod scenario;
mod server;
mod start;
