//! The endpoints besides the gateway: for programs that ask, and for the operator.

use crate::config::{ListenAddress, Secret};

/// The endpoint for programs that ask.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecisionsConfig {
    pub(crate) listen: Vec<ListenAddress>,
    /// What a program that asks has to present.
    pub(crate) token: Option<Secret>,
}

/// The admin endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdminConfig {
    pub(crate) listen: Vec<ListenAddress>,
    /// What an operator has to show.
    pub(crate) token: Option<Secret>,
}
