//! Metrics that a gate and its stores keep themselves.

use std::fmt;

use prometheus_client::encoding::NoLabelSet;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use slidegate::limit::MemoryStats;
use slidegate::policy::{Action, BanStats};
use slidegate::{ChosenStats, Gate};
use slidegate_redis::{BreakerState, Latency, LeaseStats, ResilienceStats, ServerWarning};

use super::page::Page;
use crate::store::AnyStore;

pub(super) fn encode(gate: &Gate<AnyStore>, page: &mut Page<'_>) -> fmt::Result {
    let store = gate.store().stats();
    let kind = Info::new([("kind", store.kind)]);
    page.metric("slidegate_store", "The kind of store.", &kind)?;
    let stores = [
        ("shared", store.memory),
        ("fallback", store.fallback),
        ("local", Some(gate.local_store().stats())),
    ];
    let memory: Vec<_> =
        stores.into_iter().filter_map(|(store, stats)| Some((store, stats?))).collect();
    encode_memory(&memory, page)?;
    encode_chosen(gate.chosen_identities(), page)?;
    encode_bans(gate.admin().ban_stats(), page)?;
    encode_overrides(gate, page)?;
    store.redis.map_or(Ok(()), |stats| encode_redis(&stats, page))?;
    store.leases.map_or(Ok(()), |stats| encode_leases(stats, page))
}

fn encode_leases(stats: LeaseStats, page: &mut Page<'_>) -> fmt::Result {
    let counters = [
        ("slidegate_leases", "Leases taken from Redis for policies decided async.", stats.leases),
        ("slidegate_lease_units", "Units taken from Redis with leases.", stats.units),
        (
            "slidegate_lease_refunded_units",
            "Units of leases refunded because no request used them.",
            stats.refunded,
        ),
        (
            "slidegate_lease_decisions",
            "Requests decided from a lease, without a Redis call.",
            stats.decisions,
        ),
    ];
    for (name, help, value) in counters {
        page.metric(name, help, &ConstCounter::new(value))?;
    }
    Ok(())
}

fn encode_memory(stores: &[(&str, MemoryStats)], page: &mut Page<'_>) -> fmt::Result {
    let each = |value: fn(&MemoryStats) -> u64| {
        stores.iter().map(move |(store, stats)| ([("store", *store)], value(stats)))
    };
    let gauges = |value| each(value).map(|(labels, value)| (labels, value as f64));
    page.gauges(
        "slidegate_memory_accounts",
        "Accounts in memory, live and not yet swept: of the shared store if it is in memory, of \
         the fallback for Redis, and of local policies.",
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
        each(|stats| stats.over_capacity),
    )?;
    page.counters(
        "slidegate_memory_swept",
        "Accounts removed because nothing was left in their windows.",
        each(|stats| stats.swept),
    )
}

fn encode_chosen(chosen: ChosenStats, page: &mut Page<'_>) -> fmt::Result {
    let identities = "Live identities that clients chose: API keys that are not listed, Authorization \
                      headers and named headers.";
    let refused = "Requests counted by another identity because their address had too many chosen \
                   ones or the memory store had no room for one.";
    let count = ConstGauge::new(chosen.identities as f64);
    page.metric("slidegate_chosen_identities", identities, &count)?;
    page.metric("slidegate_chosen_refused", refused, &ConstCounter::new(chosen.without_account))
}

fn encode_bans(bans: BanStats, page: &mut Page<'_>) -> fmt::Result {
    let adopted = "Bans adopted from other gateways or from before a restart.";
    let refused = "Denials not counted towards a ban because the table was full.";
    let accounts = "Accounts that are banned or have denials counted towards it.";
    let capacity = "Capacity of the table of bans.";
    page.metric("slidegate_bans", "Bans that began here.", &ConstCounter::new(bans.begun))?;
    page.metric("slidegate_bans_adopted", adopted, &ConstCounter::new(bans.adopted))?;
    page.metric("slidegate_ban_refused", refused, &ConstCounter::new(bans.over_capacity))?;
    page.metric("slidegate_ban_accounts", accounts, &ConstGauge::new(bans.accounts as f64))?;
    page.metric("slidegate_ban_capacity", capacity, &ConstGauge::new(bans.capacity as f64))
}

fn encode_overrides(gate: &Gate<AnyStore>, page: &mut Page<'_>) -> fmt::Result {
    let (overrides, now) = (gate.admin().overrides(), gate.now());
    let in_force = || overrides.as_slice().iter().filter(|record| record.until > now);
    let count =
        |is_one: fn(&Action) -> bool| in_force().filter(|one| is_one(&one.action)).count() as f64;
    page.gauges(
        "slidegate_overrides",
        "Overrides in force at this gateway, by action.",
        [
            ([("action", "grant")], count(|action| matches!(action, Action::Grant { .. }))),
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
    encode_latency(&stats.latency, page)?;
    let is_evicting = |warning: &ServerWarning| matches!(warning, ServerWarning::Evicts(_));
    let evicts = stats.server.warnings.iter().any(is_evicting);
    let gauges = [
        (
            "slidegate_redis_evicts",
            "1 if Redis drops keys when its memory is full (maxmemory-policy), and with them what \
             was spent.",
            usize::from(evicts),
        ),
        ("slidegate_store_cached_denials", "Denials in the denial cache.", stats.cached),
        (
            "slidegate_store_unmerged_accounts",
            "Accounts whose local spending has yet to be replayed to Redis.",
            stats.unmerged,
        ),
    ];
    for (name, help, value) in gauges {
        page.metric(name, help, &ConstGauge::new(value as f64))?;
    }
    let counters = [
        (
            "slidegate_redis_evicted_keys",
            "Keys that Redis has dropped because its memory was full.",
            stats.server.evicted_keys,
        ),
        ("slidegate_store_breaker_opened", "Times that the circuit breaker opened.", stats.opened),
        (
            "slidegate_store_fallbacks",
            "Requests decided without Redis: counted locally or allowed.",
            stats.fallbacks,
        ),
        (
            "slidegate_store_refusals",
            "Requests refused as unavailable because Redis could not count them.",
            stats.refusals,
        ),
        (
            "slidegate_store_crowded",
            "Requests decided without Redis because too many calls were in flight.",
            stats.queue_full,
        ),
        (
            "slidegate_store_cache_hits",
            "Denials answered from the denial cache, without a Redis call.",
            stats.cache_hits,
        ),
        ("slidegate_store_merges", "Accounts replayed to Redis after a failure.", stats.merges),
        (
            "slidegate_store_merged_units",
            "Units replayed to Redis after a failure.",
            stats.merged_units,
        ),
        (
            "slidegate_store_unrecorded",
            "Local spends that will not be replayed because the journal was full.",
            stats.unrecorded,
        ),
    ];
    for (name, help, value) in counters {
        page.metric(name, help, &ConstCounter::new(value))?;
    }
    Ok(())
}

fn encode_latency(latency: &Latency, page: &mut Page<'_>) -> fmt::Result {
    let bound = |i| Latency::bound(i).map_or(f64::INFINITY, |bound| bound.as_secs_f64());
    let counts = latency.counts.iter().enumerate();
    let buckets: Vec<(f64, u64)> = counts.map(|(i, count)| (bound(i), *count)).collect();
    // Of the buckets, so that the two agree whatever is being counted meanwhile.
    let count = latency.counts.iter().sum();
    let (name, help) = ("slidegate_store_latency_seconds", "Duration of answered Redis calls.");
    let mut histogram = page.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
    let total_seconds = latency.total.as_secs_f64();
    histogram.encode_histogram::<NoLabelSet>(total_seconds, count, &buckets, None)
}

/// The name of a state, here and in `/readyz`.
pub(crate) const fn breaker_word(state: BreakerState) -> &'static str {
    match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::Recovering => "recovering",
    }
}
