//! Ready-made quotas.

use slidegate::Quota;

/// A ready policy for each client address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// 1000/min for each address
    Development,
    /// 200/min for each address
    Staging,
    /// 100/min for each address
    Production,
    /// 20/min for each address
    Strict,
}

impl Profile {
    pub(super) const WORDS: [(&'static str, Self); 4] = [
        ("development", Self::Development),
        ("staging", Self::Staging),
        ("production", Self::Production),
        ("strict", Self::Strict),
    ];

    pub(crate) const fn quota(self) -> Quota {
        match self {
            Self::Development => Quota::per_minute(1000),
            Self::Staging => Quota::per_minute(200),
            Self::Production => Quota::per_minute(100),
            Self::Strict => Quota::per_minute(20),
        }
    }
}
