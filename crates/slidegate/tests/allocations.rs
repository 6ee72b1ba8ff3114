//! A decision under up to two policies allocates nothing, once the accounts are there.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::alloc::System;
use std::num::NonZeroU32;
use std::time::Duration;

use cap::Cap;
use http::{HeaderMap, Method};
use slidegate::{
    Ban, Block, Clock, Facts, Gate, Identity, ManualClock, Measure, MemoryStore, Order, Orders,
    Plan, Policies, Policy, Quota, Scope, Source, Verdict,
};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

#[test]
fn decisions_allocate_nothing() {
    let clock = ManualClock::default();
    let policies = Policies::builder()
        .plan(Plan::new("free", [Quota::per_minute(3), Quota::per_day(1000)]))
        .policy(Policy::new("flood").scope(Scope::Local).quota(Quota::per_second(50)))
        .policy(Policy::new("api").identity([Source::ApiKey, Source::ip()]).plans("free"));
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    let gate = Gate::with_local(policies.build().unwrap(), store(), store());
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", "a-key-of-a-usual-length-0123456789".parse().unwrap());
    let facts =
        Facts::new(&Method::GET, "/").client("2001:db8::1".parse().unwrap()).headers(&headers);

    assert!(gate.decide_now(&facts).unwrap().is_allowed());
    let before = ALLOCATOR.total_allocated();
    assert!(gate.decide_now(&facts).unwrap().is_allowed());
    assert!(gate.decide_now(&facts).unwrap().is_allowed());
    for _ in 0..1000 {
        assert!(!gate.decide_now(&facts).unwrap().is_allowed());
        assert!(!gate.peek_now(&facts).unwrap().is_allowed());
        clock.advance(Duration::from_millis(1));
    }
    assert_eq!(ALLOCATOR.total_allocated() - before, 0, "at {:?}", clock.now());

    let ban = Ban::after(Quota::per_second(1)).lasting(Duration::from_secs(600));
    let login = Policy::new("login").quota(Quota::per_hour(1)).ban(ban);
    gate.replace_policies(Policies::builder().policy(login).build().unwrap());
    let neighbour = Facts::new(&Method::GET, "/").client("2001:db8:1::1".parse().unwrap());
    let _ = [gate.decide_now(&facts).unwrap(), gate.decide_now(&facts).unwrap()];
    let _ = gate.decide_now(&neighbour).unwrap();
    let before = ALLOCATOR.total_allocated();
    for _ in 0..1000 {
        let banned = gate.decide_now(&facts).unwrap().verdict();
        assert!(matches!(banned, Verdict::Block(Block::Banned { .. })));
        assert!(!gate.peek_now(&neighbour).unwrap().is_allowed());
    }
    assert_eq!(ALLOCATOR.total_allocated() - before, 0, "with a ban");

    let order = |identity: &str, policy: Option<&str>, measure| Order {
        identity: identity.parse().unwrap(),
        policy: policy.map(|name| name.parse().unwrap()),
        measure,
        until: gate.now() + Duration::from_secs(600),
    };
    let key = Identity::api_key(b"a-key-of-a-usual-length-0123456789");
    let orders = [
        order("ip:2001:db8:2::/64", None, Measure::Ban),
        order("ip:2001:db8:3::/64", Some("login"), Measure::Exempt),
        order("ip:2001:db8:4::/48", None, Measure::Exempt),
        order("user:42", None, Measure::Ban),
        order(key.as_str(), Some("login"), Measure::Ban),
        order("ip:203.0.113.7", Some("login"), Measure::Grant(NonZeroU32::MIN)),
    ];
    gate.replace_orders(Orders::new(orders).unwrap());
    let from = |client: &str| facts.client(client.parse().unwrap());
    let cases = [
        (from("2001:db8:2::1"), false),
        (from("2001:db8:3::1"), true),
        (from("2001:db8:4::1"), true),
        (neighbour, false),
    ];
    // The neighbour's first denial begins a ban.
    let _ = gate.decide_now(&neighbour).unwrap();
    let before = ALLOCATOR.total_allocated();
    for _ in 0..1000 {
        for (facts, allowed) in &cases {
            assert_eq!(gate.decide_now(facts).unwrap().is_allowed(), *allowed);
            assert_eq!(gate.peek_now(facts).unwrap().is_allowed(), *allowed);
        }
    }
    assert_eq!(ALLOCATOR.total_allocated() - before, 0, "with orders, but for grants");
}
