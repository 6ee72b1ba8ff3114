//! Heavy hitters among many, in little room.

use std::time::Duration;

use http::{HeaderName, Method};
use slidegate::{
    Clock, Facts, Gate, ManualClock, MemoryStore, Plan, Policies, Policy, Quota, Source,
};

use super::*;

/// A gate whose decisions are seen.
struct Watched {
    gate: Gate,
    clock: ManualClock,
    accounts: TopAccounts,
}

impl Watched {
    fn new(policies: Policies) -> Self {
        let clock = ManualClock::default();
        let store = || MemoryStore::builder().clock(clock.clone()).build();
        let gate = Gate::with_local(policies, store(), store());
        Self { gate, clock, accounts: TopAccounts::default() }
    }

    fn request(&self, user: &str) {
        self.request_with(user, None);
    }

    fn request_with(&self, user: &str, plan: Option<&str>) {
        let facts = Facts::new(&Method::GET, "/").user(user);
        let facts = plan.map_or(facts, |plan| facts.plan(plan));
        let decision = self.gate.decide_now(&facts).unwrap();
        self.accounts.record(&decision, self.clock.now());
    }

    fn denied(&self, most: usize) -> Vec<(String, u64, u64)> {
        let all = self.accounts.most_denied(most, self.clock.now());
        let entry = |d: &DeniedAccount| {
            (d.seen.account.identity.value().to_owned(), d.denials, d.overcount)
        };
        all.iter().map(entry).collect()
    }

    fn nearest(&self, most: usize) -> Vec<String> {
        let all = self.accounts.nearest(most, self.clock.now());
        all.iter().map(|seen| seen.account.identity.value().to_owned()).collect()
    }
}

fn policies(quota: Quota) -> Policies {
    let policy = Policy::new("api").identity([Source::User]).quota(quota);
    Policies::builder().policy(policy).build().unwrap()
}

#[test]
fn most_denied_accounts_come_first_with_their_numbers() {
    let watched = Watched::new(policies(Quota::per_hour(1)));
    for (user, requests) in [("ann", 3), ("bob", 11), ("eve", 2), ("kim", 1)] {
        (0..requests).for_each(|_| watched.request(user));
    }
    let expected = [("bob", 10, 0), ("ann", 2, 0), ("eve", 1, 0)];
    let expected = expected.map(|(user, denials, most)| (user.to_owned(), denials, most));
    assert_eq!(watched.denied(10), expected);
    assert_eq!(watched.denied(2), expected[..2]);
}

#[test]
fn heavy_hitters_are_found_among_more_than_there_is_room_for() {
    let watched = Watched::new(policies(Quota::per_hour(1)));
    let heavy = ["h0", "h1", "h2", "h3", "h4"];
    for round in 0..1000 {
        // Each of the many is denied once, each of the heavy ones as often as there are rounds.
        for i in 0..10 {
            let user = format!("u{}", round * 10 + i);
            watched.request(&user);
            watched.request(&user);
        }
        heavy.iter().for_each(|user| watched.request(user));
    }
    let all = watched.denied(usize::MAX);
    assert!(all.len() <= SHARDS * MAX_ACCOUNTS, "{}", all.len());
    let mut first: Vec<&str> = all[..heavy.len()].iter().map(|(user, ..)| user.as_str()).collect();
    first.sort_unstable();
    assert_eq!(first, heavy);
    for (user, denials, overcount) in &all[..heavy.len()] {
        assert!(*denials >= 999 && denials - overcount <= 999, "{user} {denials} -{overcount}");
    }
}

#[test]
fn denials_are_forgotten_by_halves() {
    let watched = Watched::new(policies(Quota::per_day(1)));
    (0..9).for_each(|_| watched.request("ann"));
    assert_eq!(watched.denied(1)[0].1, 8);
    for (minutes, left) in [(9, 8), (1, 4), (10, 2), (5, 2), (5, 1)] {
        watched.clock.advance(Duration::from_secs(minutes * 60));
        assert_eq!(watched.denied(1)[0].1, left, "after {minutes} minutes more");
    }
    watched.clock.advance(Duration::from_secs(600));
    assert_eq!(watched.denied(1), []);
    (0..3).for_each(|_| watched.request("ann"));
    watched.clock.advance(Duration::from_secs(3_000_000_000));
    assert_eq!(watched.denied(1), []);
}

#[test]
fn a_shadow_policy_denies_no_account() {
    let policy = Policy::new("trial").identity([Source::User]).quota(Quota::per_hour(1)).shadow();
    let watched = Watched::new(Policies::builder().policy(policy).build().unwrap());
    (0..5).for_each(|_| watched.request("ann"));
    assert_eq!(watched.denied(10), []);
    assert_eq!(watched.nearest(10), ["ann"], "but those near a quota are listed");
}

#[test]
fn accounts_nearest_their_quota_come_first_and_those_with_plenty_left_are_absent() {
    let watched = Watched::new(policies(Quota::per_hour(10)));
    for (user, requests) in [("ann", 5), ("bob", 9), ("eve", 4), ("kim", 12)] {
        (0..requests).for_each(|_| watched.request(user));
    }
    assert_eq!(watched.nearest(10), ["kim", "bob", "ann"]);
    assert_eq!(watched.nearest(1), ["kim"]);
    watched.clock.advance(Duration::from_secs(3599));
    watched.request("zoe");
    assert_eq!(watched.nearest(10), ["kim", "bob", "ann"]);
    watched.clock.advance(Duration::from_secs(1));
    assert_eq!(watched.nearest(10), [""; 0], "a window later nothing of it is left");
}

#[test]
fn a_full_set_keeps_those_that_are_nearer() {
    let watched = Watched::new(policies(Quota::per_hour(4)));
    for i in 0..20_000 {
        (0..2).for_each(|_| watched.request(&format!("half{i}")));
    }
    for i in 0..20 {
        (0..4).for_each(|_| watched.request(&format!("all{i}")));
    }
    for i in 0..20_000 {
        (0..3).for_each(|_| watched.request(&format!("more{i}")));
    }
    let nearest = watched.nearest(usize::MAX);
    assert!(nearest.len() <= SHARDS * MAX_ACCOUNTS);
    assert!(nearest[..20].iter().all(|user| user.starts_with("all")), "{nearest:?}");
    assert!(nearest[20..].iter().any(|user| user.starts_with("more")));
}

#[test]
fn a_full_set_lets_go_those_that_are_as_near_and_gone() {
    let watched = Watched::new(policies(Quota::per_day(1)));
    (0..20_000).for_each(|i| watched.request(&format!("old{i}")));
    let old = watched.nearest(usize::MAX);
    watched.request("new");
    assert_eq!(watched.nearest(usize::MAX), old, "all of them are about");
    watched.clock.advance(Duration::from_secs(1));
    watched.request("new");
    assert!(watched.nearest(usize::MAX).contains(&"new".to_owned()));
}

#[test]
fn an_accounts_plan_is_the_one_last_seen() {
    let plan = |name, units| Plan::new(name, [Quota::per_hour(units)]);
    let policy = Policy::new("api")
        .identity([Source::User])
        .plan_header(HeaderName::from_static("x-plan"), "free");
    let policies = Policies::builder().plan(plan("free", 1)).plan(plan("pro", 2)).policy(policy);
    let watched = Watched::new(policies.build().unwrap());
    let account = Account { policy: "api".parse().unwrap(), identity: "user:ann".parse().unwrap() };
    let last = || watched.accounts.find(&account, watched.clock.now()).and_then(|seen| seen.plan);
    assert_eq!(last(), None);
    for plan in ["free", "pro"] {
        watched.request_with("ann", Some(plan));
        watched.clock.advance(Duration::from_secs(1));
        assert_eq!(last().as_deref(), Some(plan));
    }
}
