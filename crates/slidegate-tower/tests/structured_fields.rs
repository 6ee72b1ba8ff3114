//! Whatever the policies and standings: every field parses with an independent parser, and says
//! nothing that is too early or too much.

use std::collections::HashSet;
use std::time::Duration;

use crate::support::{Scripted, decide, field, gate, policies};
use http::HeaderMap;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::subsequence;
use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry, Parser};
use slidegate::{Clock, Decision, Facts, Gate, ManualClock, Policy, Quota, Standing, Timestamp};
use slidegate_tower::{Dialect, Headers, Responder};

const ALL: [Dialect; 5] = [
    Dialect::Draft11,
    Dialect::Draft07,
    Dialect::Draft06,
    Dialect::XRateLimit,
    Dialect::XRateLimitDelta,
];

prop_compose! {
    fn quotas()(
        windows in btree_map(1..=31_622_400_000_u64, 1..=u32::MAX, 1..=3),
    ) -> Vec<Quota> {
        let quota = |(window_ms, units): (u64, u32)| {
            Quota::new(units.try_into().unwrap(), Duration::from_millis(window_ms)).unwrap()
        };
        windows.into_iter().map(quota).collect()
    }
}

prop_compose! {
    fn rules()(
        rules in btree_map(
            "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}",
            (quotas(), any::<bool>(), any::<bool>()),
            1..=4,
        ),
    ) -> Vec<Policy> {
        let policy = |(name, (quotas, shadow, hidden)): (String, (Vec<Quota>, bool, bool))| {
            let policy = quotas.into_iter().fold(Policy::new(name), Policy::quota);
            let policy = if hidden { policy.not_in_headers() } else { policy };
            if shadow { policy.shadow() } else { policy }
        };
        rules.into_iter().map(policy).collect()
    }
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        (0..=120_000_000_000_u64).prop_map(Duration::from_nanos),
        any::<u64>().prop_map(Duration::from_nanos),
        Just(Duration::MAX),
    ]
}

prop_compose! {
    fn decisions()(
        rules in rules(),
        spent in any::<bool>(),
        standings in vec((any::<u32>(), time(), time()), 12),
    ) -> Decision {
        let gate = Gate::new(policies(rules).build().unwrap(), Scripted { spent, standings });
        decide(&gate).unwrap()
    }
}

fn dialects() -> impl Strategy<Value = Vec<Dialect>> {
    subsequence(ALL.to_vec(), 0..=ALL.len()).prop_shuffle()
}

fn shown(decision: &Decision) -> Vec<Standing> {
    let shown = decision.policies().iter().filter(|policy| policy.in_headers);
    shown.flat_map(|policy| &policy.standings).copied().collect()
}

fn parse<T: FieldType>(map: &HeaderMap, name: &str) -> T {
    let value = field(map, name);
    Parser::new(&value).parse().unwrap_or_else(|error| panic!("{name}: {value}: {error}"))
}

fn integer(item: &BareItem) -> i64 {
    item.as_integer().expect("an integer").into()
}

fn parameter(item: &Item, key: &str) -> u64 {
    integer(&item.params[key]).try_into().expect("not negative")
}

fn items(list: List) -> Vec<Item> {
    let item = |entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(_) => panic!("an item"),
    };
    list.into_iter().map(item).collect()
}

/// So many whole seconds are enough, and one less would not be.
fn is_ceil(seconds: u64, time: Duration) -> bool {
    Duration::from_secs(seconds) >= time && Duration::from_secs(seconds.saturating_sub(1)) <= time
}

/// The window, and a tick more where that is longer than a millisecond.
fn longest_reset(quota: Quota) -> Duration {
    let coarse = Some(quota.tick()).filter(|tick| *tick > Duration::from_millis(1));
    quota.window() + coarse.unwrap_or_default()
}

fn effective_window(standing: &Standing) -> Duration {
    let window = standing.quota().window();
    let reset = Some(standing.reset_after()).filter(|reset| !reset.is_zero()).unwrap_or(window);
    reset.min(longest_reset(standing.quota()))
}

/// The quota shown where there is room for one, of a decision that began no ban.
fn reset(decision: &Decision, tightest: &Standing) -> Duration {
    let own = tightest.retry_after().min(longest_reset(tightest.quota()));
    let wait = decision.retry_after().filter(|wait| *wait > tightest.retry_after());
    effective_window(tightest).max(own).max(wait.unwrap_or_default())
}

fn check_lists(map: &HeaderMap, standings: &[Standing]) {
    let policy = items(parse(map, "ratelimit-policy"));
    let limit = items(parse(map, "ratelimit"));
    assert_eq!((policy.len(), limit.len()), (standings.len(), standings.len()));
    let mut names = HashSet::new();
    for ((policy, limit), standing) in policy.iter().zip(&limit).zip(standings) {
        let name = policy.bare_item.as_string().expect("a string");
        assert!(names.insert(name.as_str().to_owned()), "{} twice", name.as_str());
        assert_eq!(limit.bare_item, policy.bare_item);
        assert_eq!(parameter(policy, "q"), u64::from(standing.quota().units().get()));
        assert!(parameter(policy, "w") >= 1);
        assert!(is_ceil(parameter(policy, "w"), standing.quota().window()));
        assert_eq!(parameter(limit, "r"), u64::from(standing.remaining()));
        assert!(is_ceil(parameter(limit, "t"), effective_window(standing)));
    }
}

fn check_dictionary(map: &HeaderMap, decision: &Decision, tightest: &Standing) {
    let dictionary: Dictionary = parse(map, "ratelimit");
    let member = |key: &str| match &dictionary[key] {
        ListEntry::Item(item) => u64::try_from(integer(&item.bare_item)).unwrap(),
        ListEntry::InnerList(_) => panic!("an item"),
    };
    check_tightest([member("limit"), member("remaining"), member("reset")], decision, tightest);
}

fn check_tightest([limit, remaining, reset_s]: [u64; 3], decision: &Decision, tightest: &Standing) {
    assert_eq!(limit, u64::from(tightest.quota().units().get()));
    assert_eq!(remaining, u64::from(tightest.remaining()));
    assert!(is_ceil(reset_s, reset(decision, tightest)));
}

fn check_unnamed(map: &HeaderMap, standings: &[Standing]) {
    let items = items(parse(map, "ratelimit-policy"));
    let mut units = HashSet::new();
    for item in &items {
        assert!(units.insert(integer(&item.bare_item)), "no two of the same units");
        assert!(parameter(item, "w") >= 1);
    }
    let all: HashSet<i64> = standings.iter().map(|s| s.quota().units().get().into()).collect();
    assert_eq!(units, all);
}

fn triple(map: &HeaderMap, prefix: &str) -> [u64; 3] {
    ["limit", "remaining", "reset"].map(|name| {
        let item: Item = parse(map, &format!("{prefix}-{name}"));
        integer(&item.bare_item).try_into().expect("not negative")
    })
}

proptest! {
    #[test]
    fn every_field_parses_and_is_true(
        decision in decisions(),
        dialects in dialects(),
        now_ms in 0..=4_000_000_000_000_u64,
    ) {
        let now = Timestamp::from_millis(now_ms);
        let headers = Headers::new(dialects.clone()).clock(ManualClock::new(now));
        let mut map = HeaderMap::new();
        headers.write(&decision, &mut map);
        let standings = shown(&decision);
        let Some((_, tightest)) = decision.tightest_in_headers() else {
            prop_assert!(map.is_empty(), "nothing to tell");
            return Ok(());
        };
        let first = |these: &[Dialect]| dialects.iter().find(|d| these.contains(d)).copied();
        use Dialect::{Draft06, Draft07, Draft11, XRateLimit, XRateLimitDelta};
        match (first(&[Draft11, Draft07]), first(&[Draft11, Draft07, Draft06])) {
            (Some(Draft11), Some(Draft11)) => check_lists(&map, &standings),
            (Some(Draft07), Some(_)) => check_dictionary(&map, &decision, tightest),
            (Some(Draft11), Some(Draft06)) => check_unnamed(&map, &standings),
            _ => {}
        }
        if first(&[Draft11, Draft07, Draft06]).is_some_and(|first| first != Draft11) {
            check_unnamed(&map, &standings);
        }
        if dialects.contains(&Draft06) {
            check_tightest(triple(&map, "ratelimit"), &decision, tightest);
        }
        match first(&[XRateLimit, XRateLimitDelta]) {
            Some(XRateLimitDelta) => {
                check_tightest(triple(&map, "x-ratelimit"), &decision, tightest);
            }
            Some(_) => {
                let [limit, remaining, at_s] = triple(&map, "x-ratelimit");
                prop_assert_eq!(limit, u64::from(tightest.quota().units().get()));
                prop_assert_eq!(remaining, u64::from(tightest.remaining()));
                let at = now + reset(&decision, tightest);
                prop_assert!(is_ceil(at_s, at.saturating_since(Timestamp::default())));
            }
            None => {}
        }
    }

    /// At whatever instant requests come: no reset is later than the window (and the tick, where that
    /// is coarse), and `Retry-After` is neither before the truth nor before `t`.
    #[test]
    fn no_reset_is_later_than_the_window_and_no_retry_too_early(
        units in prop_oneof![1..=6_u32, 4000..=5000_u32],
        window_ms in prop_oneof![1..=5000_u64, Just(60_000), Just(86_400_000)],
        began_ns in 0..=3_000_000_000_u64,
        steps in vec((0..=1_500_000_000_u64, 1..=6_u32), 1..12),
    ) {
        let quota = Quota::new(units.try_into().unwrap(), Duration::from_millis(window_ms)).unwrap();
        let clock = ManualClock::new(Timestamp::from_nanos(began_ns));
        let gate = gate(&clock, policies([Policy::new("api").quota(quota)]));
        let headers = Headers::new([Dialect::Draft11, Dialect::Draft06, Dialect::XRateLimit]);
        let responder = Responder::new().headers(headers.clock(clock.clone()));
        let most_s = longest_reset(quota).as_millis().div_ceil(1000) as u64;
        for (step_ns, cost) in steps {
            clock.advance(Duration::from_nanos(step_ns));
            let cost = cost.min(units).try_into().unwrap();
            let facts = Facts::new(&http::Method::GET, "/").cost(cost);
            let outcome = gate.decide_now(&facts);
            let refusal = responder.refuse(&outcome, &HeaderMap::new());
            let mut passed = http::Response::new(());
            responder.annotate(outcome.as_ref().unwrap(), &mut passed);
            let map = refusal.as_ref().map_or(passed.headers(), |refusal| refusal.headers());
            let [item] = &items(parse(map, "ratelimit"))[..] else { panic!("one quota") };
            let t = parameter(item, "t");
            prop_assert!((1..=most_s).contains(&t), "t={t} of {quota}");
            let [_, _, reset_s] = triple(map, "ratelimit");
            prop_assert!((1..=most_s).contains(&reset_s), "reset={reset_s} of {quota}");
            let [_, _, at_s] = triple(map, "x-ratelimit");
            let now_s = clock.now().as_nanos().div_ceil(1_000_000_000);
            prop_assert!(at_s <= now_s + most_s, "reset at {at_s} of {quota}, at {now_s}");
            if refusal.is_some() {
                let retry_after: u64 = field(map, "retry-after").parse().unwrap();
                prop_assert!(retry_after >= t);
                let wait = outcome.unwrap().retry_after().unwrap();
                prop_assert!(Duration::from_secs(retry_after) >= wait, "{retry_after} of {wait:?}");
            }
        }
    }

    /// A layer outside and one inside, of any policies: what comes out still parses, and no name
    /// stands for two quotas.
    #[test]
    fn headers_of_two_layers_parse_together(inner in decisions(), outer in decisions()) {
        let headers = Headers::default();
        let mut map = HeaderMap::new();
        headers.write(&inner, &mut map);
        headers.write(&outer, &mut map);
        let both = shown(&inner).len() + shown(&outer).len();
        for name in ["ratelimit", "ratelimit-policy"] {
            let items = items(parse(&map, name));
            prop_assert_eq!(items.len(), both);
            let name = |item: &Item| item.bare_item.as_string().unwrap().as_str().to_owned();
            let names: HashSet<String> = items.iter().map(name).collect();
            prop_assert_eq!(names.len(), both);
        }
        let tightest = [&inner, &outer].into_iter().filter_map(Decision::tightest_in_headers);
        if let Some(least) = tightest.map(|(_, standing)| standing.remaining()).min() {
            let [_, remaining, _] = triple(&map, "x-ratelimit");
            prop_assert_eq!(remaining, u64::from(least));
        }
    }

    /// Whatever an upstream sends, nothing panics and nothing of it is lost or made more permissive.
    #[test]
    fn what_an_upstream_sends_is_never_loosened(
        decision in decisions(),
        sent in vec((0..8_usize, "[ -~]{0,40}"), 0..6),
        remaining in any::<u32>(),
    ) {
        const NAMES: [&str; 8] = [
            "ratelimit", "ratelimit-policy", "ratelimit-limit", "ratelimit-remaining",
            "ratelimit-reset", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
        ];
        let mut map = HeaderMap::new();
        for (name, value) in &sent {
            map.append(NAMES[*name], value.parse().unwrap());
        }
        map.insert("x-ratelimit-remaining", remaining.into());
        let before = map.clone();
        Headers::new(ALL).write(&decision, &mut map);
        for list in ["ratelimit", "ratelimit-policy"] {
            let old: Vec<_> = before.get_all(list).iter().collect();
            let new: Vec<_> = map.get_all(list).iter().take(old.len()).collect();
            prop_assert_eq!(old, new);
        }
        let after: u32 = field(&map, "x-ratelimit-remaining").parse().unwrap();
        prop_assert!(after <= remaining);
    }
}
