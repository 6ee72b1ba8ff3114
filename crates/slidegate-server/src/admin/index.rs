//! What there is on this endpoint.

/// A plain-text index for browsers and curl.
const INDEX: &str = concat!(
    "slidegate ",
    env!("CARGO_PKG_VERSION"),
    "

/metrics   metrics for Prometheus, in the OpenMetrics text format
/healthz   200 while the process lives
/readyz    200 while requests can be decided, and how the store is

GET    /v1/accounts?sort=nearest&limit=20   accounts nearest to a quota; sort=denied: most denied
GET    /v1/accounts/IDENTITY                where one stands, such as ip:203.0.113.7; ?policy=, ?plan=
POST   /v1/accounts/IDENTITY/reset          forgets what was spent      {\"reason\": \"...\"}
POST   /v1/accounts/IDENTITY/grant          adds units                  and \"units\": 100, \"for\": \"1h\"
POST   /v1/accounts/IDENTITY/exempt         lets all pass               and \"for\", or \"until\": \"2026-01-01T12:00:00Z\"
POST   /v1/accounts/IDENTITY/ban            refuses all                 \"policy\": \"...\" for one policy only
GET    /v1/overrides                        grants, exemptions and bans in force
DELETE /v1/overrides/ID                     lifts one                   {\"reason\": \"...\"}

The same from a terminal: slidegate accounts, inspect, reset, grant, exempt, ban, overrides, lift

If there is a token, /metrics and /v1 need it: Authorization: Bearer TOKEN
"
);

pub(super) async fn answer() -> &'static str {
    INDEX
}
