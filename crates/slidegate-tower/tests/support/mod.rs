//! What several tests need.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test uses a part")]

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use slidegate::limit::{AccountReading, Charge, Charges, Receipt, Settled, Settlement, Spent};
use slidegate::policy::PoliciesBuilder;
use slidegate::{
    Decision, Facts, Gate, ManualClock, MemoryStore, Policies, Policy, Standing, Store, StoreError,
};
use slidegate_tower::Peer;

pub(crate) const CLIENT: &str = "203.0.113.7";

pub(crate) fn policies(list: impl IntoIterator<Item = Policy>) -> PoliciesBuilder {
    list.into_iter().fold(Policies::builder(), PoliciesBuilder::policy)
}

pub(crate) fn gate(clock: &ManualClock, policies: PoliciesBuilder) -> Gate {
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    Gate::with_local(policies.build().unwrap(), store(), store())
}

/// A request from a client, who is the peer.
pub(crate) fn get(path: &str) -> Request<Body> {
    get_from(CLIENT, path)
}

pub(crate) fn get_from(peer: &str, path: &str) -> Request<Body> {
    let peer = Peer(peer.parse().unwrap());
    Request::builder().uri(path).extension(peer).body(Body::empty()).unwrap()
}

/// The lines of a header, joined as a list is.
pub(crate) fn field(headers: &HeaderMap, name: &str) -> String {
    let lines: Vec<&str> = headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect();
    lines.join(", ")
}

pub(crate) async fn text<B>(response: Response<B>) -> String
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.into()).unwrap()
}

/// A store that is down.
pub(crate) struct Down;

impl Down {
    fn fail<T>(&self) -> Result<T, StoreError> {
        Err(StoreError::Unavailable("connection refused".into()))
    }
}

impl Store for Down {
    async fn spend(&self, _: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.fail()
    }

    async fn peek(&self, _: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.fail()
    }

    async fn read(&self, _: Charge<'_>) -> Result<AccountReading, StoreError> {
        self.fail()
    }

    async fn refund(&self, _: &Charges<'_>, _: Spent) -> Result<(), StoreError> {
        self.fail()
    }

    async fn settle(&self, _: &Charges<'_>, _: Settlement<'_>) -> Result<Settled, StoreError> {
        self.fail()
    }

    async fn reset(&self, _: &Charges<'_>) -> Result<(), StoreError> {
        self.fail()
    }
}

/// A memory store whose answers take a while, as those of a store in another process do.
pub(crate) struct Slow(pub(crate) MemoryStore);

impl Store for Slow {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        tokio::task::yield_now().await;
        self.0.spend(charges).await
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        tokio::task::yield_now().await;
        self.0.peek(charges).await
    }

    async fn read(&self, charge: Charge<'_>) -> Result<AccountReading, StoreError> {
        self.0.read(charge).await
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        self.0.refund(charges, spent).await
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        self.0.settle(charges, settlement).await
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.0.reset(charges).await
    }
}

/// A store with scripted answers: whether everything was spent, and for each quota in
/// turn what remains, when the first unit is free again, and when the request would fit.
#[derive(Debug, Clone)]
pub(crate) struct Scripted {
    pub(crate) spent: bool,
    pub(crate) standings: Vec<(u32, Duration, Duration)>,
}

impl Scripted {
    fn receipt(&self, charges: &Charges<'_>) -> Receipt {
        let quotas = charges.as_slice().iter().flat_map(|charge| charge.quotas().as_slice());
        let standings = quotas.zip(&self.standings).map(|(quota, (remaining, reset, retry))| {
            Standing::untouched(*quota)
                .with_remaining(*remaining)
                .with_reset_after(*reset)
                .with_retry_after(*retry)
        });
        Receipt { spent: self.spent, standings: standings.collect(), ..Receipt::default() }
    }
}

impl Store for Scripted {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        Ok(self.receipt(charges))
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        Ok(self.receipt(charges))
    }

    async fn read(&self, _: Charge<'_>) -> Result<AccountReading, StoreError> {
        Ok(AccountReading::default())
    }

    async fn refund(&self, _: &Charges<'_>, _: Spent) -> Result<(), StoreError> {
        Ok(())
    }

    async fn settle(&self, _: &Charges<'_>, _: Settlement<'_>) -> Result<Settled, StoreError> {
        Ok(Settled::Now)
    }

    async fn reset(&self, _: &Charges<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A gate's answer to some request.
pub(crate) fn decide<S: Store>(gate: &Gate<S>) -> Result<Decision, StoreError> {
    now(gate.decide(&Facts::new(&Method::GET, "/").client(CLIENT.parse().unwrap())))
}

/// The output of a future that is ready at once, as those on a memory store are.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}
