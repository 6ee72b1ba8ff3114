//! The limiter's configuration: the part that a reload can change.

use slidegate::Policies;
use slidegate_tower::{ClientAddress, PathReading, Responder};

use crate::config::ConfigSummary;

/// Policies, responses and client addresses.
#[derive(Debug)]
pub(crate) struct LimiterConfig {
    pub(crate) policies: Policies,
    pub(crate) answers: Responder,
    pub(crate) client_address: ClientAddress,
    /// What an encoded slash in a path is, `%2F`.
    pub(crate) encoded_slashes: EncodedSlashRule,
    /// Whether `/login;x=1` is `/login`.
    pub(crate) path_parameters: PathParameterRule,
    /// Whether `/Login` is `/login`.
    pub(crate) ignore_case: bool,
    /// False if the operator has switched all policies off. Then `policies` has none.
    pub(crate) enforced: bool,
    /// A summary of policies and plans.
    pub(crate) outline: ConfigSummary,
}

impl LimiterConfig {
    /// How paths are read, beside how they were sent.
    pub(crate) fn paths(&self) -> PathReading {
        let mut paths = PathReading::normal();
        if self.ignore_case {
            paths = paths.ignoring_case();
        }
        if self.path_parameters == PathParameterRule::Keep {
            paths = paths.keeping_parameters();
        }
        match self.encoded_slashes {
            EncodedSlashRule::Keep => paths,
            EncodedSlashRule::Decode => paths.decoding_slashes(),
        }
    }

    /// Rules that are otherwise as by default.
    #[cfg(test)]
    pub(crate) fn new(
        policies: Policies,
        answers: Responder,
        client_address: ClientAddress,
    ) -> Self {
        Self {
            policies,
            answers,
            client_address,
            encoded_slashes: EncodedSlashRule::default(),
            path_parameters: PathParameterRule::default(),
            ignore_case: false,
            enforced: true,
            outline: ConfigSummary::default(),
        }
    }
}

/// What an encoded slash in a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum EncodedSlashRule {
    /// A letter like others.
    #[default]
    Keep,
    /// A slash.
    Decode,
}

/// What parameters of a path's segments are, `;x=1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PathParameterRule {
    /// Nothing that policies look at.
    #[default]
    Cut,
    /// Letters like others.
    Keep,
}
