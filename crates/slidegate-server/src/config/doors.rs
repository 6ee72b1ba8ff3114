//! The doors besides the gateway: for programs that ask, and for the operator.

use anyhow::bail;

use crate::config::{ListenAddress, Secret};

/// The door for programs that ask.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecisionsConfig {
    pub(crate) listen: Vec<ListenAddress>,
}

/// The operator's door.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdminConfig {
    pub(crate) listen: Vec<ListenAddress>,
    /// What an operator has to show.
    pub(crate) token: Option<Secret>,
}

impl AdminConfig {
    /// Refuses a door that strangers could walk through: whoever is let in can ban and exempt.
    pub(crate) fn demand_token(&self) -> anyhow::Result<()> {
        let reachable = self.listen.iter().find(|address| !address.is_of_this_machine());
        if let (Some(address), None) = (reachable, &self.token) {
            bail!(
                "admin.listen = \"{address}\": others than this machine can reach it, and there is \
                 no token: set SLIDEGATE_ADMIN_TOKEN or admin.token_file, or listen on 127.0.0.1"
            );
        }
        Ok(())
    }
}
