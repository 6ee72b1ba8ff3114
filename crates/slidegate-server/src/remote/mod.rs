//! The operator's commands, which call a running server.

mod client;
mod commands;
mod identity;
mod print;
mod text_table;

pub(crate) use self::commands::{
    ACCOUNTS_HELP, AccountsArguments, BAN_HELP, EXEMPT_HELP, GRANT_HELP, GrantArguments,
    INSPECT_HELP, InspectArguments, LIFT_HELP, LiftArguments, OVERRIDES_HELP, OverrideArguments,
    OverridesArguments, RESET_HELP, ResetArguments, Verb, accounts, grant, inspect, lift,
    overrides, reset, set_override,
};
