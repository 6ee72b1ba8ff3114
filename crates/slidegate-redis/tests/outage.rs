//! Redis goes and comes back: what is decided meanwhile, and what is replayed.

use std::time::Duration;

use slidegate::limit::{Charge, Charges, Quotas, Receipt, Settled, Settlement, Spent};
use slidegate::{Clock, Identity, ManualClock, Name, OnStoreError, Quota, Store};
use slidegate_redis::{
    BreakerState, KeyErrorReason, Layout, LocalShare, RedisStore, ResilientStore,
};
use slidegate_testbed::{ManualTime, RedisServer};

use crate::support::until;

/// An account under a quota.
struct Payer {
    policy: Name,
    identity: Identity,
    quotas: Quotas,
}

impl Payer {
    fn new(identity: &str, quota: Quota) -> Self {
        let policy = "api".parse().unwrap();
        Self { policy, identity: Identity::user(identity), quotas: quota.into() }
    }

    fn charge(&self) -> Charge<'_> {
        Charge::new(&self.policy, &self.identity, &self.quotas)
    }
}

/// A server and a store on clocks that are moved together.
struct World {
    time: ManualTime,
    clock: ManualClock,
    server: RedisServer,
    layout: Layout,
}

impl World {
    fn new() -> Self {
        Self::of(Layout::default())
    }

    fn of(layout: Layout) -> Self {
        let time = ManualTime::new();
        let server = RedisServer::options().time(&time).appendonly().start();
        Self { time, clock: ManualClock::default(), server, layout }
    }

    fn redis(&self) -> RedisStore {
        // A slow machine is not what these tests are about.
        let builder = RedisStore::builder(self.server.url()).deadline(Duration::from_secs(2));
        builder.layout(self.layout).build().unwrap()
    }

    fn store(&self) -> ResilientStore {
        ResilientStore::builder(self.redis()).clock(self.clock.clone()).opens_after(2).build()
    }

    fn advance(&self, by: Duration) {
        self.time.advance(by);
        self.clock.advance(by);
    }
}

async fn spend(store: &impl Store, charge: Charge<'_>) -> Receipt {
    store.spend(&charge.into()).await.unwrap()
}

async fn admitted(store: &impl Store, charge: Charge<'_>, requests: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += usize::from(spend(store, charge).await.spent);
    }
    admitted
}

async fn remaining(store: &impl Store, charge: Charge<'_>) -> u32 {
    store.peek(&charge.into()).await.unwrap().standings[0].remaining()
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_fallback_knows_what_was_admitted_before_and_redis_learns_what_was_admitted_since() {
    for layout in [Layout::Packed, Layout::SortedSet] {
        a_warm_fallback_in(World::of(layout)).await;
    }
}

async fn a_warm_fallback_in(world: World) {
    let store = world.store();
    let payer = Payer::new("42", Quota::per_minute(10));
    assert_eq!(admitted(&store, payer.charge(), 4).await, 4);
    world.advance(10 * SECOND);

    world.server.kill();
    let first = spend(&store, payer.charge()).await;
    assert!(first.spent && first.degraded);
    assert_eq!(first.standings[0].remaining(), 5, "it knows of the four");
    world.advance(10 * SECOND);
    assert_eq!(admitted(&store, payer.charge(), 20).await, 5, "ten in the window, no more");
    assert_eq!(store.stats().breaker, BreakerState::Open);
    let known = store.read(payer.charge()).await.unwrap();
    let spends: Vec<u32> = known.ledgers[0].entries.iter().map(|entry| entry.units).collect();
    assert!(known.degraded && spends == [4, 1, 5], "what this process knows of: {known:?}");

    world.server.restart();
    until("it closes", || store.stats().breaker == BreakerState::Closed).await;
    let other = world.redis();
    let standing = other.peek(&payer.charge().into()).await.unwrap().standings[0];
    assert_eq!(standing.remaining(), 0, "others know of the six, too");
    assert_eq!(standing.reset_after(), 40 * SECOND, "and the first four are as they were");
    let reading = store.read(payer.charge()).await.unwrap();
    assert!(!reading.degraded && reading.ledgers[0].spent() == 10, "{reading:?}");
    world.advance(40 * SECOND);
    assert_eq!(remaining(&other, payer.charge()).await, 4);
    world.advance(9 * SECOND);
    assert_eq!(remaining(&other, payer.charge()).await, 4);
    world.advance(SECOND);
    assert_eq!(remaining(&other, payer.charge()).await, 5, "with the moment it really was at");
    world.advance(10 * SECOND);
    assert_eq!(remaining(&other, payer.charge()).await, 10);
    let stats = store.stats();
    assert_eq!((stats.opened, stats.merged_units, stats.unmerged), (1, 6, 0));
}

#[tokio::test]
async fn each_policy_says_what_happens_without_redis() {
    let world = World::new();
    let store = world.store();
    world.server.kill();
    let payer = Payer::new("42", Quota::per_minute(2));
    let allow = payer.charge().on_store_error(OnStoreError::Allow);
    assert_eq!(admitted(&store, allow, 10).await, 10, "let through");
    let deny = payer.charge().on_store_error(OnStoreError::Deny);
    assert!(store.spend(&deny.into()).await.is_err(), "an error, which is no denial");
    let local = payer.charge().on_store_error(OnStoreError::Local);
    assert_eq!(admitted(&store, local, 10).await, 2, "counted here");
    let watched = payer.charge().on_store_error(OnStoreError::Deny).shadow(true);
    assert!(spend(&store, watched).await.spent, "a shadow never refuses");
    let stats = store.stats();
    assert!(stats.fallbacks >= 20 && stats.refusals == 1, "{stats:?}");
}

#[tokio::test]
async fn a_store_starts_without_redis_and_finds_it_later() {
    let world = World::new();
    world.server.kill();
    let store = world.store();
    let payer = Payer::new("42", Quota::per_minute(5));
    assert_eq!(admitted(&store, payer.charge(), 9).await, 5);
    world.server.restart();
    until("it closes", || store.stats().breaker == BreakerState::Closed).await;
    let receipt = store.peek(&payer.charge().into()).await.unwrap();
    assert!(!receipt.degraded && !receipt.spent, "Redis decides, and knows");
}

#[tokio::test]
async fn a_share_is_all_that_a_process_admits_by_itself() {
    let world = World::new();
    let share = LocalShare::one_of(4.try_into().unwrap());
    let store =
        ResilientStore::builder(world.redis()).clock(world.clock.clone()).share(share).build();
    let payer = Payer::new("42", Quota::per_minute(100));
    assert_eq!(admitted(&store, payer.charge(), 10).await, 10);
    world.server.kill();
    assert_eq!(admitted(&store, payer.charge(), 100).await, 15, "25, those before included");
    let standing = spend(&store, payer.charge()).await.standings[0];
    assert_eq!((standing.quota(), standing.remaining()), (Quota::per_minute(100), 0));
}

#[tokio::test]
async fn a_refund_finds_what_was_spent_without_redis() {
    let world = World::new();
    let store = world.store();
    world.server.kill();
    let payer = Payer::new("42", Quota::per_minute(5));
    let receipts = [spend(&store, payer.charge()).await, spend(&store, payer.charge()).await];
    store.refund(&payer.charge().into(), Spent::At(receipts[0].at)).await.unwrap();
    assert_eq!(remaining(&store, payer.charge()).await, 4);
    world.server.restart();
    until("it closes", || store.stats().breaker == BreakerState::Closed).await;
    assert_eq!(remaining(&store, payer.charge()).await, 4, "and it is not replayed to Redis");
}

#[tokio::test]
async fn a_reset_in_an_outage_says_that_redis_was_not_reached_and_forgets_here() {
    let world = World::new();
    let store = world.store();
    let payer = Payer::new("42", Quota::per_minute(5));
    world.server.kill();
    assert_eq!(admitted(&store, payer.charge(), 9).await, 5);
    assert!(store.reset(&payer.charge().into()).await.is_err());
    assert_eq!(admitted(&store, payer.charge(), 9).await, 5);
    assert_eq!(store.stats().unmerged, 1);
}

#[tokio::test]
async fn after_a_reset_elsewhere_a_kept_denial_is_forgotten_and_what_was_spent_since_counts() {
    let world = World::new();
    let (here, there) = (world.store(), world.store());
    let payer = Payer::new("42", Quota::per_minute(5));
    assert_eq!(admitted(&there, payer.charge(), 9).await, 5);
    world.advance(SECOND / 10);
    here.reset(&payer.charge().into()).await.unwrap();
    world.advance(SECOND / 10);
    assert_eq!(admitted(&here, payer.charge(), 2).await, 2);
    assert_eq!(admitted(&there, payer.charge(), 1).await, 0, "it has not heard of it");
    assert_eq!(there.stats().cached, 1);

    there.forget(&payer.charge().into(), SECOND / 10);
    assert_eq!(there.stats().cached, 0);
    assert_eq!(remaining(here.redis(), payer.charge()).await, 3, "Redis is not reset again");
    assert_eq!(admitted(&there, payer.charge(), 9).await, 3);
    assert_eq!(admitted(&here, payer.charge(), 9).await, 0);
}

#[tokio::test]
async fn after_a_reset_elsewhere_the_fallback_knows_what_was_admitted_since_and_nothing_before() {
    let world = World::new();
    let (here, there) = (world.store(), world.store());
    let payer = Payer::new("42", Quota::per_minute(5));
    assert_eq!(admitted(&there, payer.charge(), 9).await, 5);
    world.advance(SECOND);
    here.reset(&payer.charge().into()).await.unwrap();
    world.advance(SECOND);
    assert_eq!(admitted(&there, payer.charge(), 2).await, 2);
    there.forget(&payer.charge().into(), SECOND);
    world.server.kill();
    assert_eq!(admitted(&there, payer.charge(), 9).await, 3);
}

#[tokio::test]
async fn after_a_reset_elsewhere_redis_learns_what_was_admitted_without_it_since() {
    let world = World::new();
    let store = world.store();
    let [payer, other] = ["42", "43"].map(|name| Payer::new(name, Quota::per_minute(5)));
    world.server.kill();
    assert_eq!(admitted(&store, payer.charge(), 3).await, 3);
    assert_eq!(admitted(&store, other.charge(), 3).await, 3);
    // Others reach Redis again, and reset the account.
    world.advance(2 * SECOND);
    assert_eq!(admitted(&store, payer.charge(), 1).await, 1);
    store.forget(&payer.charge().into(), SECOND);
    store.forget(&other.charge().into(), SECOND);
    assert_eq!(store.stats().unmerged, 1, "the other has spent nothing since");
    world.server.restart();
    until("the replay", || store.stats().unmerged == 0).await;
    until("it decides", || store.stats().breaker == BreakerState::Closed).await;
    assert_eq!(remaining(&world.redis(), payer.charge()).await, 4);
    assert_eq!(remaining(&world.redis(), other.charge()).await, 5);
}

#[tokio::test]
async fn costs_and_several_charges_come_through_an_outage() {
    for layout in [Layout::Packed, Layout::SortedSet] {
        costs_and_several_charges_in(World::of(layout)).await;
    }
}

async fn costs_and_several_charges_in(world: World) {
    let store = world.store();
    let minute = Payer::new("42", Quota::per_minute(10));
    let mut tenant = Payer::new("tenant", Quota::per_minute(12));
    tenant.policy = "tenant".parse().unwrap();
    let mut both = Charges::new();
    both.push(minute.charge().with_cost(3.try_into().unwrap()).unwrap()).unwrap();
    both.push(tenant.charge().with_cost(5.try_into().unwrap()).unwrap()).unwrap();
    assert!(store.spend(&both).await.unwrap().spent);
    world.server.kill();
    world.advance(SECOND);
    assert!(store.spend(&both).await.unwrap().spent);
    let denied = store.spend(&both).await.unwrap();
    assert!(!denied.spent);
    let left: Vec<u32> = denied.standings.iter().map(|standing| standing.remaining()).collect();
    assert_eq!(left, [4, 2], "all or nothing here, too");
    world.server.restart();
    until("it closes", || store.stats().breaker == BreakerState::Closed).await;
    let receipt = world.redis().peek(&both).await.unwrap();
    let left: Vec<u32> = receipt.standings.iter().map(|standing| standing.remaining()).collect();
    assert_eq!(left, [4, 2]);
}

#[tokio::test]
async fn what_has_left_its_window_is_not_replayed() {
    for layout in [Layout::Packed, Layout::SortedSet] {
        what_has_left_in(World::of(layout)).await;
    }
}

async fn what_has_left_in(world: World) {
    let store = world.store();
    let payer = Payer::new("42", Quota::per_minute(5));
    world.server.kill();
    assert_eq!(admitted(&store, payer.charge(), 9).await, 5);
    world.advance(61 * SECOND);
    assert_eq!(admitted(&store, payer.charge(), 2).await, 2);
    assert!(world.clock.now() > ManualClock::default().now());
    world.server.restart();
    until("it closes", || store.stats().breaker == BreakerState::Closed).await;
    assert_eq!(remaining(&world.redis(), payer.charge()).await, 3);
}

#[test]
fn a_store_outlives_the_runtime_that_it_was_first_used_on() {
    let world = World::new();
    let store = world.store();
    let payer = Payer::new("42", Quota::per_minute(5));
    let on_a_runtime = |requests| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { admitted(&store, payer.charge(), requests).await })
    };
    world.server.kill();
    assert_eq!(on_a_runtime(3), 3, "the recovery task ends with the runtime");
    world.server.restart();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert_eq!(remaining(&store, payer.charge()).await, 2, "any call sends for another");
        until("it closes", || store.stats().breaker == BreakerState::Closed).await;
        assert_eq!(remaining(&world.redis(), payer.charge()).await, 2);
    });
}

#[tokio::test]
async fn one_bad_key_does_not_affect_other_keys() {
    let world = World::new();
    let store = world.store();
    let (bad, good) =
        (Payer::new("bad", Quota::per_minute(5)), Payer::new("good", Quota::per_minute(5)));
    world.server.command(&["RPUSH", "slidegate:{user:bad}:api:min", "not a ledger"]).integer();
    assert_eq!(admitted(&store, bad.charge(), 9).await, 5, "counted here");
    assert_eq!(store.stats().breaker, BreakerState::Closed);
    assert!(!spend(&store, good.charge()).await.degraded);
    assert_eq!((store.stats().unmerged, store.stats().merged_units), (1, 0), "it is kept");
    world.advance(SECOND);
    world.server.kill();
    assert_eq!(admitted(&store, good.charge(), 9).await, 4);
    world.server.restart();
    until("it closes", || store.stats().breaker == BreakerState::Closed).await;
    assert_eq!(remaining(&world.redis(), good.charge()).await, 0);
}

#[tokio::test]
async fn a_key_that_is_not_a_ledger_is_reported_until_none_was_seen_for_a_minute() {
    let world = World::new();
    let store = world.store();
    let payer = Payer::new("42", Quota::per_minute(10));
    let key = "slidegate:{user:42}:api:min";
    world.server.command(&["LPUSH", key, "a"]).integer();
    for _ in 0..5 {
        assert!(spend(&store, payer.charge()).await.degraded);
    }
    let totals = || {
        let stats = store.stats();
        assert_eq!((stats.breaker, stats.opened), (BreakerState::Closed, 0), "Redis is well");
        let [error] = &stats.key_errors[..] else { panic!("{:?}", stats.key_errors) };
        assert_eq!((&*error.policy, error.reason), ("api", KeyErrorReason::WrongType));
        (error.count, error.recent)
    };
    assert_eq!(totals(), (5, true), "one for each request, whatever becomes of replays");
    world.advance(59 * SECOND);
    assert_eq!(totals(), (5, true));
    world.advance(SECOND);
    assert_eq!(totals(), (5, false));
    until("what has left its window is dropped", || store.stats().unmerged == 0).await;
    assert_eq!((store.stats().merged_units, store.stats().unrecorded), (0, 0));
    world.server.command(&["DEL", key]).integer();
    assert!(!spend(&store, payer.charge()).await.degraded);
    assert_eq!(totals(), (5, false));
}

/// Redis makes a settlement that has missed its deadline, and it is neither made again nor recorded
/// elsewhere.
#[tokio::test]
async fn a_settlement_that_misses_its_deadline_is_made_once() {
    for units in [400, 0] {
        let server = RedisServer::start();
        let redis = RedisStore::builder(server.url()).deadline(Duration::from_millis(100));
        let store = ResilientStore::new(redis.build().unwrap());
        let payer = Payer::new("42", Quota::per_hour(1000));
        let held = payer.charge().with_cost(100.try_into().unwrap()).unwrap();
        let at = spend(&store, held).await.at;
        server.pause();
        let settlement = Settlement { at, units, once: None };
        assert_eq!(store.settle(&held.into(), settlement).await.unwrap(), Settled::Now);
        server.resume();
        let redis = RedisStore::builder(server.url()).build().unwrap();
        let mut left = 0;
        for _ in 0..200 {
            left = redis.peek(&payer.charge().into()).await.unwrap().standings[0].remaining();
            if left != 900 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(left, 1000 - units);
        tokio::time::sleep(Duration::from_millis(800)).await;
        assert_eq!(
            redis.peek(&payer.charge().into()).await.unwrap().standings[0].remaining(),
            left
        );
        assert_eq!(store.stats().unmerged, 0, "nothing is to be replayed");
    }
}

#[tokio::test]
async fn what_is_recorded_without_redis_is_replayed_whatever_the_policy_says() {
    for action in [OnStoreError::Local, OnStoreError::Allow, OnStoreError::Deny] {
        let world = World::new();
        let store = world.store();
        let payer = Payer::new("42", Quota::per_minute(1000));
        let record =
            |units: u32| payer.charge().on_store_error(action).record(units.try_into().unwrap());
        assert!(spend(&store, record(100)).await.spent);
        world.server.kill();
        assert!(spend(&store, record(300)).await.spent, "{action}");
        assert!(!spend(&store, record(5000)).await.spent, "{action}: it does not fit");
        world.server.restart();
        until("it closes", || store.stats().breaker == BreakerState::Closed).await;
        until("all is replayed", || store.stats().unmerged == 0).await;
        assert_eq!(remaining(&store, payer.charge()).await, 0, "{action}");
        world.time.advance(Duration::from_secs(60));
        world.clock.advance(Duration::from_secs(60));
        assert_eq!(remaining(&store, payer.charge()).await, 1000, "{action}: at most a window");
    }
}
