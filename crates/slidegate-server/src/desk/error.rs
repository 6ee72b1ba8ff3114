//! Why an order was not taken.

use slidegate::policy::Orders;
use slidegate::{AccountError, Timestamp};
use slidegate_redis::{EventLogError, SharedMapError};

use crate::calendar::Rfc3339;

/// Why an order was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeskError {
    #[error("there is no policy {policy:?}{}", listed(.known))]
    UnknownPolicy { policy: String, known: Vec<String> },
    #[error(
        "identity: expected one address: only a ban or an exemption under all policies can be of a \
         network"
    )]
    Network,
    #[error("there is no order {0:?} in force")]
    UnknownOrder(String),
    #[error("until: that time is over; it is {}", Rfc3339(Timestamp::from_millis(*.now_ms)))]
    Past { now_ms: u64 },
    #[error("until: expected a time within 366 days")]
    TooLong,
    #[error("there are {} orders in force already: lift some of them first", Orders::MAX)]
    Full,
    #[error("Redis cannot be told, so nothing is certain to be done; it may be repeated")]
    SharedMap(#[source] SharedMapError),
    #[error("Redis cannot be told, so nothing is certain to be done; it may be repeated")]
    Bans(#[from] EventLogError),
    #[error("it cannot be written down, so it is not done")]
    Disk(#[source] anyhow::Error),
    #[error("the store could not do it; it may be repeated")]
    Account(#[from] AccountError),
}

impl From<SharedMapError> for DeskError {
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
