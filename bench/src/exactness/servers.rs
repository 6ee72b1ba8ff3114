//! Servers inside this process: the upstream, and limiters that are libraries.

use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use governor::clock::{Clock, DefaultClock};
use governor::{Quota, RateLimiter};
use http::StatusCode;
use http::header::RETRY_AFTER;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::sources::{Source, SourceLimiter};
use super::traffic::LIMIT;

/// What a library says of a request.
pub enum Verdict {
    Admitted,
    Refused { retry_after: Duration },
}

impl Verdict {
    pub fn new(is_admitted: bool, retry_after: Duration) -> Self {
        if is_admitted { Self::Admitted } else { Self::Refused { retry_after } }
    }
}

impl IntoResponse for Verdict {
    /// Seconds are rounded up, and at least 1.
    fn into_response(self) -> Response {
        match self {
            Self::Admitted => "Hello, world!\n".into_response(),
            Self::Refused { retry_after } => {
                let seconds = retry_after.as_millis().div_ceil(1000).max(1);
                let headers = [(RETRY_AFTER, seconds.to_string())];
                (StatusCode::TOO_MANY_REQUESTS, headers).into_response()
            }
        }
    }
}

/// A runtime of its own, so that servers and client share no thread.
pub struct Servers {
    runtime: Runtime,
}

impl Servers {
    pub fn new() -> anyhow::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        Ok(Self { runtime: builder.worker_threads(1).enable_all().build()? })
    }

    /// What the gateways stand in front of.
    pub fn upstream(&self) -> anyhow::Result<u16> {
        self.serve(Router::new().route("/", get(async || Verdict::Admitted)))
    }

    /// A cell comes back every window / units, and as many as the units may be spent at once.
    pub fn governor(&self) -> anyhow::Result<u16> {
        let burst = NonZeroU32::try_from(u32::try_from(LIMIT.units)?)?;
        let quota = Quota::with_period(LIMIT.window / burst.get()).expect("it is not zero");
        let limiter = Arc::new(RateLimiter::direct(quota.allow_burst(burst)));
        let clock = DefaultClock::default();
        let decide = async move || match limiter.check() {
            Ok(()) => Verdict::Admitted,
            Err(until) => Verdict::Refused { retry_after: until.wait_time_from(clock.now()) },
        };
        self.serve(Router::new().route("/", get(decide)))
    }

    pub fn source(&self, source: Source, redis_url: &str) -> anyhow::Result<u16> {
        let limiter = self.runtime.block_on(SourceLimiter::connect(source, redis_url))?;
        let decide = async move || {
            let failed = |error: anyhow::Error| {
                (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")).into_response()
            };
            limiter.decide().await.map_or_else(failed, Verdict::into_response)
        };
        self.serve(Router::new().route("/", get(decide)))
    }

    /// Serves until the process ends, and returns the port.
    fn serve(&self, router: Router) -> anyhow::Result<u16> {
        let listener = self.runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let port = listener.local_addr()?.port();
        self.runtime.spawn(async move { axum::serve(listener, router).await });
        Ok(port)
    }
}
