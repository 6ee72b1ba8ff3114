//! What there is on this door.

/// For people who come with a browser or curl.
const INDEX: &str = concat!(
    "slidegate ",
    env!("CARGO_PKG_VERSION"),
    "

/metrics   metrics for Prometheus, in the OpenMetrics text format
/healthz   200 while the process lives
/readyz    200 while requests can be decided, and how the store is

If there is a token, /metrics needs it: Authorization: Bearer TOKEN
"
);

pub(super) async fn answer() -> &'static str {
    INDEX
}
