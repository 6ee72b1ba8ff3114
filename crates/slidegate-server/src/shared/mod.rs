//! What gateways on one Redis share besides accounts: overrides, bans and heartbeats.

mod bans;
mod exchange;
mod heartbeats;
mod meaning;
mod overrides;

pub(crate) use self::bans::BanQueue;
pub(crate) use self::exchange::Exchange;
pub(crate) use self::heartbeats::Heartbeats;
pub(crate) use self::overrides::{
    Actor, Expiry, OperatorAction, OverrideError, OverrideRecord, OverrideService, Persistence,
    Target, window_text,
};
