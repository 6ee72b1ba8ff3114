//! A decision allocates the list of its policies' standings and nothing else, once the accounts are
//! there; and accounts take no more memory than was promised.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::alloc::System;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cap::Cap;
use http::{HeaderMap, Method};
use slidegate::limit::{Charge, Quotas};
use slidegate::policy::{Action, Override, Overrides, Prefixes};
use slidegate::{
    Ban, Block, Facts, Gate, Identity, ManualClock, MemoryStore, Name, Plan, Policies, Policy,
    PolicyStanding, Quota, Scope, Source, Verdict,
};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// What one policy takes in a decision's list.
const STANDING: usize = size_of::<PolicyStanding>();

const KEY: &str = "a-key-of-a-usual-length-0123456789";

#[test]
fn decisions_allocate_the_list_of_standings_alone() {
    let _alone = alone();
    let clock = ManualClock::default();
    let policies = Policies::builder()
        .plan(Plan::new("free", [Quota::per_minute(3), Quota::per_day(1000)]))
        .policy(Policy::new("flood").scope(Scope::Local).quota(Quota::per_second(50)))
        .policy(Policy::new("api").identity([Source::ApiKey, Source::ip()]).plans("free"));
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    let gate = Gate::with_local(policies.build().unwrap(), store(), store());
    plain_decisions(&gate, &clock);
    allowed_decisions(store());

    let ban = Ban::after(Quota::per_second(1)).lasting(Duration::from_secs(600));
    let login = Policy::new("login").quota(Quota::per_hour(1)).ban(ban);
    gate.replace_policies(Policies::builder().policy(login).build().unwrap());
    decisions_on_who_is_banned(&gate);
    decisions_under_overrides(&gate);
}

/// With 100 requests in a minute for each: the write-ups of `docs/migrate.md` estimate 800 bytes for an
/// address that has made all of them, 80 MB for 100,000 such addresses, and 1 KB for an identity
/// that stays at its limit.
#[test]
fn accounts_take_no_more_memory_than_the_sources_estimate() {
    let _alone = alone();
    assert!(bytes_of_accounts(100_000, 100) <= 100_000 * 800);
    assert!(bytes_of_accounts(10_000, 200) <= 10_000 * 1024);
}

/// What a store takes for so many addresses after so many requests of each, spread evenly over
/// minutes.
fn bytes_of_accounts(addresses: u32, requests: u32) -> usize {
    let address = |number: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into();
    let identity = |number| Identity::ip(address(number), Prefixes::default());
    let identities: Vec<Identity> = (0..addresses).map(identity).collect();
    let (policy, quotas): (Name, Quotas) = ("api".parse().unwrap(), Quota::per_minute(100).into());
    let clock = ManualClock::default();
    let before = ALLOCATOR.allocated();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    for _ in 0..requests {
        for identity in &identities {
            let charge = Charge::new(&policy, identity, &quotas);
            assert!(store.spend_now(&charge.into()).unwrap().spent);
        }
        clock.advance(Duration::from_millis(600));
    }
    ALLOCATOR.allocated() - before
}

/// Nothing else allocates in this process meanwhile.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn plain_decisions(gate: &Gate, clock: &ManualClock) {
    let round = |round: u32| {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-key", format!("{KEY}{round}").parse().unwrap());
        let facts = from("2001:db8::1").headers(&headers);
        for _ in 0..3 {
            assert!(gate.decide_now(&facts).unwrap().is_allowed());
        }
        // What the flood guard counts before the plan denies is its fourth entry, and takes a list.
        assert!(!gate.decide_now(&facts).unwrap().is_allowed());
        let before = ALLOCATOR.total_allocated();
        for _ in 0..1000 {
            assert!(!gate.decide_now(&facts).unwrap().is_allowed());
            assert!(!gate.peek_now(&facts).unwrap().is_allowed());
            clock.advance(Duration::from_millis(1));
        }
        ALLOCATOR.total_allocated() - before
    };
    assert_eq!(least(round), 2000 * 2 * STANDING);
}

/// An allowed decision allocates no more, but for when the account's list of spends grows, which it
/// does to twice its length, and to no more than the quota has.
fn allowed_decisions(store: MemoryStore) {
    let policy = Policy::new("api").quota(Quota::per_minute(8));
    let gate = Gate::new(Policies::builder().policy(policy).build().unwrap(), store);
    let round = |round: u32| {
        let client = from(&format!("203.0.113.{round}"));
        for _ in 0..5 {
            assert!(gate.decide_now(&client).unwrap().is_allowed());
        }
        let before = ALLOCATOR.total_allocated();
        for _ in 0..3 {
            assert!(gate.decide_now(&client).unwrap().is_allowed());
        }
        ALLOCATOR.total_allocated() - before
    };
    assert_eq!(least(round), 3 * STANDING);
}

fn decisions_on_who_is_banned(gate: &Gate) {
    let (client, neighbour) = (from("2001:db8::1"), from("2001:db8:1::1"));
    let _ = [gate.decide_now(&client).unwrap(), gate.decide_now(&client).unwrap()];
    let _ = gate.decide_now(&neighbour).unwrap();
    let round = |_| {
        let before = ALLOCATOR.total_allocated();
        for _ in 0..1000 {
            let banned = gate.decide_now(&client).unwrap().verdict();
            assert!(matches!(banned, Verdict::Block(Block::Banned { .. })));
            assert!(!gate.peek_now(&neighbour).unwrap().is_allowed());
        }
        ALLOCATOR.total_allocated() - before
    };
    assert_eq!(least(round), 1000 * STANDING);
}

/// But for grants, whose quotas have to be made.
fn decisions_under_overrides(gate: &Gate) {
    let entry = |identity: &str, policy: Option<&str>, action| Override {
        identity: identity.parse().unwrap(),
        policy: policy.map(|name| name.parse().unwrap()),
        action,
        until: gate.now() + Duration::from_secs(600),
    };
    let overrides = [
        entry("ip:2001:db8:2::/64", None, Action::Ban),
        entry("ip:2001:db8:3::/64", Some("login"), Action::Exempt),
        entry("ip:2001:db8:4::/48", None, Action::Exempt),
        entry("user:42", None, Action::Ban),
        entry(Identity::api_key(KEY.as_bytes()).as_str(), None, Action::Exempt),
        entry(
            "ip:203.0.113.7",
            Some("login"),
            Action::Grant { units: NonZeroU32::MIN, window: None },
        ),
    ];
    gate.admin().replace_overrides(Overrides::new(overrides).unwrap());
    let cases = [
        (from("2001:db8:2::1"), false),
        (from("2001:db8:3::1"), true),
        (from("2001:db8:4::1"), true),
        (from("2001:db8:1::1"), false),
    ];
    let round = |_| {
        let before = ALLOCATOR.total_allocated();
        for _ in 0..1000 {
            for (facts, allowed) in &cases {
                assert_eq!(gate.decide_now(facts).unwrap().is_allowed(), *allowed);
                assert_eq!(gate.peek_now(facts).unwrap().is_allowed(), *allowed);
            }
        }
        ALLOCATOR.total_allocated() - before
    };
    // None of the four is charged.
    assert_eq!(least(round), 0);
}

fn from(client: &str) -> Facts<'static> {
    static GET: Method = Method::GET;
    Facts::new(&GET, "/").client(client.parse().unwrap())
}

/// What is allocated in the best of a few rounds: the thread that runs the test allocates too, some
/// time after it has started it.
fn least(round: impl FnMut(u32) -> usize) -> usize {
    (0..5).map(round).min().unwrap()
}
