//! What `slidegate-bench` has measured, and docs/benchmarks.md shows: `gateway` and `cost`.

use std::time::Duration;

/// The processor time of a gateway for a request that is forwarded, without its decision in Redis.
pub(super) const FORWARDED: Duration = Duration::from_nanos(17_300);
/// The same for a refusal.
pub(super) const REFUSED: Duration = Duration::from_nanos(7_500);
/// The processor time of a gateway for a call to Redis, and for each decision in it.
pub(super) const GATEWAY_CALL: Duration = Duration::from_nanos(9_400);
pub(super) const GATEWAY_DECISION: Duration = Duration::from_nanos(4_000);
/// The processor time of Redis for a call, and for each ledger in it.
pub(super) const REDIS_CALL: Duration = Duration::from_nanos(13_000);
pub(super) const PACKED_LEDGER: Duration = Duration::from_nanos(4_200);
pub(super) const SORTED_SET_LEDGER: Duration = Duration::from_nanos(6_300);
/// Bytes both ways for a call, and for each ledger in it.
pub(super) const CALL_BYTES: f64 = 140.0;
pub(super) const LEDGER_BYTES: f64 = 65.0;
/// What a gateway shares with the others besides accounts: calls and bytes a second.
pub(super) const SHARED_STATE_CALLS: f64 = 4.0;
pub(super) const SHARED_STATE_BYTES: f64 = 1500.0;
/// Decisions that share a call at most.
pub(super) const MAX_SHARED: f64 = 32.0;
/// A server with more takes long to copy to a replica.
pub(super) const MAX_SERVER_BYTES: f64 = 25e9;
/// No Cluster has fewer.
pub(super) const MIN_PRIMARIES: u64 = 3;
/// Above this, waiting for a core takes longer than its work.
pub(super) const MAX_BUSY: f64 = 0.6;
