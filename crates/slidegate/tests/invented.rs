//! Identities that clients choose themselves: how many an address has, and who counts beyond them.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use slidegate::policy::{ApiKey, UnknownKeys};
use slidegate::{
    Block, Facts, Gate, Identity, ManualClock, MemoryStore, Plan, Policies, Policy, Scope, Source,
    Verdict,
};

const CLIENT: &str = "203.0.113.7";

fn gate(policy: Policy, per_address: u32, capacity: usize) -> (Gate, ManualClock) {
    let clock = ManualClock::default();
    let policies = Policies::builder()
        .policy(policy)
        .identities_per_address(NonZeroU32::new(per_address).unwrap())
        .build()
        .unwrap();
    let store = || MemoryStore::builder().capacity(capacity).clock(clock.clone()).build();
    (Gate::with_local(policies, store(), store()), clock)
}

fn api() -> Policy {
    Policy::new("api").identity([Source::ApiKey, Source::ip()]).quota("2/min")
}

fn headers(name: &'static str, value: &str) -> HeaderMap {
    HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_str(value).unwrap())])
}

/// Decides a request, and tells in whose account it was counted if it was allowed.
fn send(gate: &Gate, headers: &HeaderMap, client: &str) -> Option<String> {
    let client: IpAddr = client.parse().unwrap();
    let facts = Facts::new(&Method::GET, "/").headers(headers).headers_trusted().client(client);
    let decision = gate.decide_now(&facts).unwrap();
    decision.is_allowed().then(|| decision.policies()[0].identity.to_string())
}

fn send_key(gate: &Gate, key: &str, client: &str) -> Option<String> {
    send(gate, &headers("x-api-key", key), client)
}

fn key(key: &str) -> Option<String> {
    Some(Identity::api_key(key.as_bytes()).to_string())
}

fn address(client: &str) -> Option<String> {
    Some(format!("ip:{client}"))
}

#[test]
fn beyond_its_bound_an_address_counts_itself_and_the_known_keep_their_accounts() {
    let (gate, clock) = gate(api(), 3, 1000);
    for known in ["a", "b", "c"] {
        assert_eq!(send_key(&gate, known, CLIENT), key(known));
    }
    let invented = (0..100).filter_map(|n| send_key(&gate, &format!("n{n}"), CLIENT));
    assert_eq!(invented.collect::<Vec<_>>(), vec![format!("ip:{CLIENT}"); 2], "2/min in all");
    assert_eq!(send_key(&gate, "a", CLIENT), key("a"));
    assert_eq!(send_key(&gate, "a", CLIENT), None, "no fresh account");
    assert_eq!(send_key(&gate, "n0", "203.0.113.8"), key("n0"), "another address");
    assert_eq!(gate.chosen_identities().without_account, 100);
    clock.advance(Duration::from_secs(61));
    assert_eq!(send_key(&gate, "d", CLIENT), key("d"), "the accounts of before are over");
}

#[test]
fn every_kind_of_identity_that_a_client_chooses_is_bounded_and_no_other() {
    let tenant = Source::Header("x-tenant".parse().unwrap());
    for (name, source) in [
        ("x-api-key", Source::ApiKey),
        ("authorization", Source::Authorization),
        ("x-tenant", tenant),
    ] {
        let (gate, _) = gate(Policy::new("api").identity(source).quota("5/min"), 2, 1000);
        let values: Vec<String> = (0..4).map(|n| format!("t{n}")).collect();
        let counted = values.iter().map(|value| send(&gate, &headers(name, value), CLIENT));
        let counted: Vec<String> = counted.flatten().collect();
        assert!(counted[..2].iter().all(|identity| !identity.starts_with("ip:")), "{counted:?}");
        // In the end the address counts, although the policy does not name it.
        assert!(counted[2..].iter().all(|identity| *identity == format!("ip:{CLIENT}")));
    }
    let (gate, _) = gate(Policy::new("api").identity(Source::named("tenant")).quota("5/min"), 1, 9);
    let base = Facts::new(&Method::GET, "/").client(CLIENT.parse().unwrap());
    for name in ["x", "y", "z"] {
        let known = [Identity::new("tenant", name)];
        let decision = gate.decide_now(&base.identities(&known)).unwrap();
        assert_eq!(decision.policies()[0].identity, known[0], "the application knows it");
    }
}

#[test]
fn issued_keys_are_not_chosen() {
    let keys = ["k1", "k2", "k3"];
    let policies = Policies::builder()
        .plan(Plan::new("pro", ["5/min".parse::<slidegate::Quota>().unwrap()]))
        .api_keys(keys.map(|key| ApiKey::new(key, "pro")))
        .unknown_keys(UnknownKeys::Own)
        .policy(Policy::new("api").identity([Source::ApiKey, Source::ip()]).plans("pro"))
        .identities_per_address(NonZeroU32::MIN);
    let gate = Gate::new(policies.build().unwrap(), MemoryStore::new());
    for issued in keys {
        assert_eq!(send_key(&gate, issued, CLIENT), key(issued));
    }
    assert_eq!(send_key(&gate, "own", CLIENT), key("own"));
    assert_eq!(send_key(&gate, "other", CLIENT), address(CLIENT));
}

#[test]
fn a_store_filled_with_invented_identities_has_room_for_newcomers_by_address() {
    for scope in [Scope::Shared, Scope::Local] {
        let (gate, clock) = gate(api().scope(scope), 1_000_000, 400);
        for n in 0..2000 {
            let _ = send_key(&gate, &format!("n{n}"), CLIENT);
        }
        let store = if scope == Scope::Local { gate.local_store() } else { gate.store() };
        assert!(store.stats().is_crowded());
        assert_eq!(store.stats().over_capacity, 0, "nothing shares an account");
        for n in 0..90 {
            let client = format!("198.51.100.{n}");
            assert_eq!(send(&gate, &HeaderMap::new(), &client), address(&client));
            assert_eq!(send_key(&gate, &format!("new{n}"), &client), address(&client));
            assert_eq!(send_key(&gate, &format!("more{n}"), &client), None, "nothing is free");
        }
        assert_eq!(send_key(&gate, "n0", CLIENT), key("n0"), "a live account stays");
        assert_eq!(send_key(&gate, "n0", CLIENT), None);
        clock.advance(Duration::from_secs(61));
        let again =
            (0..200).filter(|n| send_key(&gate, &format!("z{n}"), CLIENT) == key(&format!("z{n}")));
        assert!(again.count() > 100, "there is room again");
    }
}

#[test]
fn accounts_of_a_snapshot_are_kept_in_a_crowded_store() {
    let (first, clock) = gate(api(), 1_000_000, 8);
    for n in 0..6 {
        assert_eq!(send_key(&first, &format!("n{n}"), CLIENT), key(&format!("n{n}")));
    }
    assert_eq!(send_key(&first, "new", CLIENT), address(CLIENT));
    let mut saved = Vec::new();
    first.store().save(&mut saved).unwrap();
    let store = MemoryStore::builder().capacity(8).clock(clock.clone()).build();
    store.restore(&mut saved.as_slice()).unwrap();
    let policies = Policies::builder().policy(api()).build().unwrap();
    let second = Gate::with_local(policies, store, MemoryStore::builder().clock(clock).build());
    assert_eq!(send_key(&second, "n1", CLIENT), key("n1"));
    assert_eq!(send_key(&second, "n1", CLIENT), None, "its history is there");
    assert_eq!(send_key(&second, "newer", CLIENT), address(CLIENT));
}

#[test]
fn a_look_does_not_make_an_identity_known() {
    let (gate, _) = gate(api(), 1, 1000);
    let headers = headers("x-api-key", "looked-at");
    let facts = Facts::new(&Method::GET, "/").headers(&headers).client(CLIENT.parse().unwrap());
    assert!(gate.peek_now(&facts).unwrap().is_allowed());
    assert_eq!(send_key(&gate, "first", CLIENT), key("first"));
}

#[test]
fn unknown_keys_can_be_refused() {
    let policies = Policies::builder()
        .plan(Plan::new("pro", ["5/min".parse::<slidegate::Quota>().unwrap()]))
        .api_key("issued", "pro")
        .unknown_keys(UnknownKeys::Refuse)
        .policy(
            Policy::new("api").path("/api").identity([Source::ApiKey, Source::ip()]).plans("pro"),
        )
        .policy(Policy::new("pages").path("/").quota("5/min"));
    let gate = Gate::new(policies.build().unwrap(), MemoryStore::new());
    let verdict = |path, headers: &HeaderMap| {
        let facts = Facts::new(&Method::GET, path).headers(headers).client(CLIENT.parse().unwrap());
        gate.decide_now(&facts).unwrap().verdict()
    };
    let refused = Verdict::Block(Block::UnknownKey);
    assert_eq!(verdict("/api", &headers("x-api-key", "issued")), Verdict::Allow);
    assert_eq!(verdict("/api", &headers("x-api-key", "stolen")), refused);
    assert_eq!(verdict("/api", &HeaderMap::new()), Verdict::Allow);
    assert_eq!(verdict("/", &headers("x-api-key", "stolen")), Verdict::Allow, "not by key");
}

#[test]
fn a_policy_is_evaded_unless_real_credentials_are_known_or_an_address_counts() {
    let evaded = |policies: slidegate::policy::PoliciesBuilder| {
        let policies = policies.build().unwrap();
        policies.evaded().map(|(policy, source)| format!("{} {source}", policy.name)).collect()
    };
    let none: Vec<String> = Vec::new();
    let by = |source: Source| Policy::new("api").identity([source, Source::ip()]).quota("5/min");
    let builder = Policies::builder;
    assert_eq!(evaded(builder().policy(by(Source::ApiKey))), ["api api-key"]);
    assert_eq!(evaded(builder().policy(by(Source::Authorization))), ["api authorization"]);
    assert_eq!(evaded(builder().policy(by(Source::User))), none);
    assert_eq!(evaded(builder().policy(by(Source::ApiKey).shadow())), none);
    for known in [UnknownKeys::Ignore, UnknownKeys::Refuse] {
        assert_eq!(evaded(builder().unknown_keys(known).policy(by(Source::ApiKey))), none);
    }
    let login = || by(Source::ApiKey).method("POST").path("/login").path("/users/{id}");
    let guard = || Policy::new("guard").quota("50/min");
    for (policy, guard, is_evaded) in [
        (by(Source::ApiKey), guard(), false),
        (by(Source::ApiKey), guard().scope(Scope::Local), false),
        (by(Source::ApiKey), guard().shadow(), true),
        (by(Source::ApiKey), guard().identity(Source::Everyone), true),
        (by(Source::ApiKey), guard().path("/login"), true),
        (by(Source::ApiKey), guard().method("POST"), true),
        (login(), guard(), false),
        (login(), guard().method("POST").path("/{*rest}"), false),
        (login(), guard().method("POST").path("/users/{id}").path("/login"), false),
        (login(), guard().path("/login"), true),
        (login(), guard().method("GET"), true),
    ] {
        let found: Vec<String> = evaded(builder().policy(policy.clone()).policy(guard.clone()));
        assert_eq!(!found.is_empty(), is_evaded, "{policy:?} {guard:?}");
    }
}

#[test]
fn a_decision_touches_what_may_be_charged_in_place_of_an_invented_identity() {
    let device = Source::Header("x-device".parse().unwrap());
    let policy = Policy::new("api").identity([device, Source::User]).quota("1/min");
    let (gate, _) = gate(policy, 1, 100);
    let touched = |device: &str, user: &str, client: &str| {
        let headers = headers("x-device", device);
        let facts = Facts::new(&Method::GET, "/").headers(&headers).headers_trusted().user(user);
        gate.touches(&facts.client(client.parse().unwrap()))
    };
    let share = |a: &[_], b: &[_]| a.iter().any(|one| b.contains(one));
    let first = touched("a", "42", CLIENT);
    for (other, expected) in [
        (touched("b", "43", "203.0.113.8"), false),
        (touched("a", "43", "203.0.113.8"), true),
        (touched("b", "42", "203.0.113.8"), true),
        (touched("b", "43", CLIENT), true),
    ] {
        assert_eq!(share(&first, &other), expected, "{first:?} {other:?}");
    }
    assert_eq!(gate.chosen_identities().identities, 0, "nothing is remembered");
    let user = gate.touches(&Facts::new(&Method::GET, "/").user("42"));
    assert_eq!(user, [(Some("api".parse().unwrap()), Identity::user("42"))]);
}
