//! Metrics that a gate and its stores keep themselves.

use std::fmt;

use slidegate::limit::MemoryStats;
use slidegate::policy::{Action, BanStats};
use slidegate_redis::{BreakerState, Latency, ResilienceStats};

use super::page::Page;
use super::report::GateReport;

pub(super) fn encode(gate: &dyn GateReport, page: &mut Page<'_>) -> fmt::Result {
    let store = gate.store();
    page.info("slidegate_store", "The kind of store.", &[("kind", store.kind())])?;
    let shared = store.memory().map(|stats| ("shared", stats));
    let memory: Vec<_> = shared.into_iter().chain([("local", gate.local())]).collect();
    encode_memory(&memory, page)?;
    encode_bans(gate.bans(), page)?;
    encode_overrides(&gate.active_overrides(), page)?;
    store.resilience().map_or(Ok(()), |stats| encode_redis(&stats, page))
}

fn encode_memory(stores: &[(&str, MemoryStats)], page: &mut Page<'_>) -> fmt::Result {
    let each = |value: fn(&MemoryStats) -> u64| {
        stores.iter().map(move |(store, stats)| ([("store", *store)], value(stats)))
    };
    let gauges = |value| each(value).map(|(labels, value)| (labels, value as f64));
    page.gauges(
        "slidegate_memory_accounts",
        "Accounts in memory, live and not yet swept: of the shared store if it is in memory, and \
         of the gate's own, which has local policies and stands in when the store fails.",
        gauges(|stats| stats.accounts as u64),
    )?;
    page.gauges(
        "slidegate_memory_capacity",
        "Capacity of accounts in memory. A full store applies on_store_error to new accounts.",
        gauges(|stats| stats.capacity as u64),
    )?;
    page.counters(
        "slidegate_memory_refused",
        "Charges that were not counted because the memory store was full.",
        each(|stats| stats.refused),
    )?;
    page.counters(
        "slidegate_memory_swept",
        "Accounts removed because nothing was left in their windows.",
        each(|stats| stats.swept),
    )
}

fn encode_bans(bans: BanStats, page: &mut Page<'_>) -> fmt::Result {
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

fn encode_overrides(active: &[Action], page: &mut Page<'_>) -> fmt::Result {
    let count = |is_one: fn(&Action) -> bool| active.iter().filter(|a| is_one(a)).count() as f64;
    page.gauges(
        "slidegate_overrides",
        "Overrides in force at this gateway, by action.",
        [
            ([("action", "grant")], count(|action| matches!(action, Action::Grant(_)))),
            ([("action", "exempt")], count(|action| *action == Action::Exempt)),
            ([("action", "ban")], count(|action| *action == Action::Ban)),
        ],
    )
}

fn encode_redis(stats: &ResilienceStats, page: &mut Page<'_>) -> fmt::Result {
    let states = [BreakerState::Closed, BreakerState::Open, BreakerState::Recovering];
    page.gauges(
        "slidegate_store_breaker",
        "1 for the current state of the circuit breaker: closed (Redis decides), open (not \
         called), recovering (local spending is being replayed).",
        states.map(|state| {
            ([("state", breaker_word(state))], f64::from(u8::from(stats.breaker == state)))
        }),
    )?;
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
    let bound = |i| Latency::bound(i).map_or(f64::INFINITY, |bound| bound.as_secs_f64());
    let counts = stats.latency.counts.iter().enumerate();
    let buckets: Vec<(f64, u64)> = counts.map(|(i, count)| (bound(i), *count)).collect();
    page.histogram(
        "slidegate_store_latency_seconds",
        "Duration of answered Redis calls.",
        &buckets,
        stats.latency.total,
    )?;
    page.gauge(
        "slidegate_store_cached_denials",
        "Denials in the denial cache.",
        stats.cached as f64,
    )?;
    page.gauge(
        "slidegate_store_unmerged_accounts",
        "Accounts whose local spending has yet to be replayed to Redis.",
        stats.unmerged as f64,
    )?;
    let counters = [
        ("breaker_opened", "Times that the circuit breaker opened.", stats.opened),
        (
            "fallbacks",
            "Requests decided without Redis: counted locally or allowed.",
            stats.fallbacks,
        ),
        (
            "refusals",
            "Requests refused as unavailable because Redis could not count them.",
            stats.refusals,
        ),
        (
            "crowded",
            "Requests decided without Redis because too many calls were in flight.",
            stats.queue_full,
        ),
        (
            "cache_hits",
            "Denials answered from the denial cache, without a Redis call.",
            stats.cache_hits,
        ),
        ("merges", "Accounts replayed to Redis after a failure.", stats.merges),
        ("merged_units", "Units replayed to Redis after a failure.", stats.merged_units),
        (
            "unrecorded",
            "Local spends that will not be replayed because the journal was full.",
            stats.unrecorded,
        ),
    ];
    for (name, help, value) in counters {
        page.counter(&format!("slidegate_store_{name}"), help, value)?;
    }
    Ok(())
}

/// The name of a state, here and in `/readyz`.
pub(crate) fn breaker_word(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::Recovering => "recovering",
    }
}
