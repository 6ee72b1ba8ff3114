//! Metrics of the stores.

use std::fmt;

use slidegate::limit::MemoryStats;
use slidegate::policy::BanStats;
use slidegate_redis::{BreakerState, Latency, ResilienceStats};

use super::exposition::{Histogram, Page};
use super::report::GateReport;

pub(super) fn expose(gate: &dyn GateReport, page: &mut Page<'_>) -> fmt::Result {
    let store = gate.store();
    page.info("slidegate_store", "The kind of store.", &[("kind", store.kind())])?;
    expose_memory(store.memory(), gate.local(), page)?;
    expose_bans(gate.bans(), page)?;
    store.resilience().map_or(Ok(()), |stats| expose_resilience(&stats, page))
}

fn expose_memory(
    shared: Option<MemoryStats>,
    local: MemoryStats,
    page: &mut Page<'_>,
) -> fmt::Result {
    let shared = shared.map(|stats| ([("store", "shared")], stats));
    let stores: Vec<_> = shared.into_iter().chain([([("store", "local")], local)]).collect();
    let counters = |value: fn(&MemoryStats) -> u64| stores.iter().map(move |(l, s)| (*l, value(s)));
    let gauges = |value: fn(&MemoryStats) -> usize| {
        stores.iter().map(move |(labels, stats)| (*labels, value(stats) as f64))
    };
    page.gauges(
        "slidegate_memory_accounts",
        "Accounts in memory, live and not yet swept: of the shared store if it is in memory, and \
         of the gate's own, which has local policies and stands in when the store fails.",
        gauges(|stats| stats.accounts),
    )?;
    page.gauges(
        "slidegate_memory_capacity",
        "Capacity of accounts in memory. A full store applies on_store_error to new accounts.",
        gauges(|stats| stats.capacity),
    )?;
    page.counters(
        "slidegate_memory_refused",
        "Charges that were not counted because the memory store was full.",
        counters(|stats| stats.refused),
    )?;
    page.counters(
        "slidegate_memory_swept",
        "Accounts removed because nothing was left in their windows.",
        counters(|stats| stats.swept),
    )
}

fn expose_bans(bans: BanStats, page: &mut Page<'_>) -> fmt::Result {
    page.counter("slidegate_bans", "Bans that began here.", bans.begun)?;
    page.counter(
        "slidegate_bans_adopted",
        "Bans adopted from other gateways or from before a restart.",
        bans.adopted,
    )?;
    page.gauge(
        "slidegate_ban_accounts",
        "Accounts that are banned or have denials counted towards it.",
        bans.accounts as f64,
    )?;
    page.gauge("slidegate_ban_capacity", "Capacity of the table of bans.", bans.capacity as f64)?;
    page.counter(
        "slidegate_ban_refused",
        "Denials not counted towards a ban because the table was full.",
        bans.refused,
    )
}

fn expose_resilience(stats: &ResilienceStats, page: &mut Page<'_>) -> fmt::Result {
    expose_breaker(stats, page)?;
    expose_calls(stats, page)?;
    expose_cache(stats, page)?;
    expose_merging(stats, page)
}

fn expose_breaker(stats: &ResilienceStats, page: &mut Page<'_>) -> fmt::Result {
    let states = [BreakerState::Closed, BreakerState::Open, BreakerState::Recovering];
    let in_force =
        |state| ([("state", breaker_word(state))], f64::from(u8::from(stats.breaker == state)));
    page.gauges(
        "slidegate_store_breaker",
        "1 for the current state of the circuit breaker: closed (Redis decides), open (not \
         called), recovering (local spending is being replayed).",
        states.map(in_force),
    )?;
    page.counter(
        "slidegate_store_breaker_opened",
        "Times that the circuit breaker opened.",
        stats.opened,
    )
}

fn expose_calls(stats: &ResilienceStats, page: &mut Page<'_>) -> fmt::Result {
    page.counters(
        "slidegate_store_calls",
        "Redis calls, by outcome: answered, deadline (exceeded), error.",
        [
            ([("outcome", "answered")], stats.answered),
            ([("outcome", "deadline")], stats.deadlines),
            ([("outcome", "error")], stats.errors),
        ],
    )?;
    page.counters(
        "slidegate_store_key_errors",
        "Requests that Redis could not count because of one of their keys, by policy and reason: \
         wrong-type, no-permission, score-unit, unreadable, shared-key, other-slot, reply.",
        stats.key_errors.iter().map(|error| {
            ([("policy", &*error.policy), ("reason", error.reason.as_str())], error.count)
        }),
    )?;
    page.histogram(
        "slidegate_store_latency_seconds",
        "Duration of answered Redis calls.",
        &latency(&stats.latency),
    )?;
    page.counter(
        "slidegate_store_fallbacks",
        "Requests decided without Redis: counted locally or allowed.",
        stats.fallbacks,
    )?;
    page.counter(
        "slidegate_store_refusals",
        "Requests refused as unavailable because Redis could not count them.",
        stats.refusals,
    )?;
    page.counter(
        "slidegate_store_crowded",
        "Requests decided without Redis because too many calls were in flight.",
        stats.queue_full,
    )
}

fn expose_cache(stats: &ResilienceStats, page: &mut Page<'_>) -> fmt::Result {
    page.counter(
        "slidegate_store_cache_hits",
        "Denials answered from the denial cache, without a Redis call.",
        stats.cache_hits,
    )?;
    page.gauge("slidegate_store_cached_denials", "Denials that are kept.", stats.cached as f64)
}

fn expose_merging(stats: &ResilienceStats, page: &mut Page<'_>) -> fmt::Result {
    page.gauge(
        "slidegate_store_unmerged_accounts",
        "Accounts whose local spending has yet to be replayed to Redis.",
        stats.unmerged as f64,
    )?;
    page.counter(
        "slidegate_store_merges",
        "Accounts replayed to Redis after a failure.",
        stats.merges,
    )?;
    page.counter(
        "slidegate_store_merged_units",
        "Units replayed to Redis after a failure.",
        stats.merged_units,
    )?;
    page.counter(
        "slidegate_store_unrecorded",
        "Local spends that will not be replayed because the journal was full.",
        stats.unrecorded,
    )
}

/// The name of a state, here and in `/readyz`.
pub(crate) fn breaker_word(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::Recovering => "recovering",
    }
}

fn latency(latency: &Latency) -> Histogram {
    let bound = |i| Latency::bound(i).map_or(f64::INFINITY, |bound| bound.as_secs_f64());
    let buckets = latency.counts.iter().enumerate().map(|(i, count)| (bound(i), *count)).collect();
    Histogram { buckets, total: latency.total }
}
