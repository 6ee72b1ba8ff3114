//! What several tests need.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test uses a part")]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use slidegate::limit::{Charge, Charges, Quotas};
use slidegate::{Identity, Name, Quota};

/// The output of a future that is ready at once, as those on a memory store are.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}

/// An account, and the quotas that it is charged by.
pub(crate) struct Payer {
    pub(crate) policy: Name,
    pub(crate) identity: Identity,
    pub(crate) quotas: Quotas,
}

impl Payer {
    pub(crate) fn new(user: &str, quota: Quota) -> Self {
        Self {
            policy: "api".parse().unwrap(),
            identity: Identity::user(user),
            quotas: quota.into(),
        }
    }

    pub(crate) fn charge(&self) -> Charge<'_> {
        Charge::new(&self.policy, &self.identity, &self.quotas)
    }

    pub(crate) fn charges(&self) -> Charges<'_> {
        self.charge().into()
    }
}
