//! Whether Redis can be reached, by what gateways share through it.

use std::error::Error;

/// Whether Redis is unreachable, logged when it changes.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    is_on: bool,
}

impl Outage {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Logs one of the messages if the result of a call differs from that of the call before it.
    pub(crate) fn log_change<E: Error>(&mut self, error: Option<&E>, lost: &str, back: &str) {
        let was_on = std::mem::replace(&mut self.is_on, error.is_some());
        match error {
            Some(error) if !was_on => {
                let cause = error.source().map(tracing::field::display);
                tracing::warn!(%error, cause, "{lost}");
            }
            None if was_on => tracing::info!("{back}"),
            _ => {}
        }
    }
}
