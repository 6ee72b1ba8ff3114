//! Errors of the override service.

use slidegate::policy::Overrides;
use slidegate::{AccountError, Timestamp};
use slidegate_redis::{EventLogError, SharedMapError};

use crate::calendar::Rfc3339;

/// Why an override could not be created or lifted, or an account not be reset.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OverrideError {
    #[error("there is no policy {policy:?}{}", listed(.known))]
    UnknownPolicy { policy: String, known: Vec<String> },
    #[error(
        "identity: expected one address: only a ban or an exemption under all policies can be of a \
         network"
    )]
    Network,
    #[error("there is no override {0:?} in force")]
    UnknownOverride(String),
    #[error("until: that time is over; it is {}", Rfc3339(Timestamp::from_millis(*.now_ms)))]
    Past { now_ms: u64 },
    #[error("until: expected a time within 366 days")]
    TooLong,
    #[error("there are {} overrides in force already: lift some of them first", Overrides::MAX)]
    Full,
    #[error("cannot write to Redis; the change may not be in effect and can be repeated")]
    SharedMap(#[source] SharedMapError),
    #[error("cannot write to Redis; the change may not be in effect and can be repeated")]
    Bans(#[from] EventLogError),
    #[error("cannot write the file of overrides; nothing was changed")]
    Disk(#[source] anyhow::Error),
    #[error("the store failed; the request can be repeated")]
    Account(#[from] AccountError),
}

impl From<SharedMapError> for OverrideError {
    fn from(error: SharedMapError) -> Self {
        match error {
            SharedMapError::Full => Self::Full,
            error => Self::SharedMap(error),
        }
    }
}

fn listed(policies: &[String]) -> String {
    match policies {
        [] => "; there are none".to_owned(),
        policies => format!("; there is {}", policies.join(", ")),
    }
}
