//! Units taken ahead: never more than the quota in any window, whatever becomes of the calls.

use std::cell::Cell;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use proptest::prelude::*;
use slidegate::limit::{
    AccountReading, Charge, Charges, Quotas, Receipt, Settled, Settlement, Spent,
};
use slidegate::{
    Clock, Consistency, Facts, Gate, Identity, MemoryStore, Name, OnStoreError, Policies, Policy,
    Quota, Scope, Source, Store, StoreError, Timestamp,
};
use slidegate_redis::{BreakerState, LeasedStore, RedisStore, ResilientStore};
use slidegate_testbed::{CommandCounts, RedisServer};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

use crate::support::until;

const LEASE_MS: u64 = 200;
const LEASE: Duration = Duration::from_millis(LEASE_MS);

/// A runtime whose time passes only when nothing else is left to do.
fn virtual_time() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// A clock that goes with the runtime's, some way apart from it.
#[derive(Clone)]
struct VirtualClock {
    start: Instant,
    offset_ms: Arc<AtomicI64>,
}

impl VirtualClock {
    fn new(start: Instant, offset_ms: i64) -> Self {
        Self { start, offset_ms: Arc::new(AtomicI64::new(offset_ms)) }
    }

    fn step(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let passed = self.start.elapsed();
        let base_ms = 1_000_000_000 + self.offset_ms.load(Ordering::SeqCst);
        Timestamp::from_millis(base_ms.try_into().unwrap()) + passed
    }
}

tokio::task_local! {
    /// When the store has decided the request of this task, or else when it was sent. The store's own
    /// clock may step back and show a time twice.
    static DECIDED_MS: Cell<u64>;
}

/// What happens to a call on its way.
#[derive(Debug, Clone, Copy)]
struct Way {
    there_ms: u64,
    back_ms: u64,
    /// The call is done, and its reply never comes.
    lost: bool,
}

/// A gateway's way to the store that all gateways share.
#[derive(Clone)]
struct Link {
    ledgers: Arc<MemoryStore>,
    ways: Arc<Mutex<VecDeque<Way>>>,
    start: Instant,
    calls: Arc<AtomicU64>,
}

impl Link {
    async fn call<T>(&self, call: impl FnOnce(&MemoryStore) -> T) -> Result<T, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let way = self.ways.lock().pop_front();
        let way = way.unwrap_or(Way { there_ms: 1, back_ms: 1, lost: false });
        sleep(Duration::from_millis(way.there_ms)).await;
        let done = call(&self.ledgers);
        sleep(Duration::from_millis(way.back_ms)).await;
        if way.lost { Err(StoreError::Deadline(Duration::ZERO)) } else { Ok(done) }
    }
}

impl Store for Link {
    async fn spend(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.call(|ledgers| {
            let receipt = ledgers.spend_now(charges)?;
            let now_ms = self.start.elapsed().as_millis() as u64;
            // Leases are taken outside of a request.
            let _ = DECIDED_MS.try_with(|decided_ms| decided_ms.set(now_ms));
            Ok(receipt)
        })
        .await?
    }

    async fn peek(&self, charges: &Charges<'_>) -> Result<Receipt, StoreError> {
        self.call(|ledgers| ledgers.peek_now(charges)).await?
    }

    async fn read(&self, charge: Charge<'_>) -> Result<AccountReading, StoreError> {
        self.call(|ledgers| ledgers.read_now(charge)).await
    }

    async fn refund(&self, charges: &Charges<'_>, spent: Spent) -> Result<(), StoreError> {
        self.call(|ledgers| ledgers.refund_now(charges, spent)).await
    }

    async fn settle(
        &self,
        charges: &Charges<'_>,
        settlement: Settlement<'_>,
    ) -> Result<Settled, StoreError> {
        self.call(|ledgers| ledgers.settle_now(charges, settlement)).await?
    }

    async fn reset(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.call(|ledgers| ledgers.reset_now(charges)).await
    }
}

/// Gateways that share a store, each with a clock of its own.
struct World {
    start: Instant,
    store_clock: VirtualClock,
    gateways: Vec<LeasedStore<Link>>,
    calls: Arc<AtomicU64>,
    policy: Name,
    identity: Identity,
    lease: Duration,
    /// As the ledger has them: the window and the lease.
    quotas: Quotas,
}

impl World {
    /// A gateway for each list of ways, which its calls take in turn.
    fn new(quota: Quota, ways: &[Vec<Way>]) -> Self {
        Self::with_lease(LEASE, quota, ways)
    }

    fn with_lease(lease: Duration, quota: Quota, ways: &[Vec<Way>]) -> Self {
        let start = Instant::now();
        let store_clock = VirtualClock::new(start, 0);
        let ledgers = MemoryStore::builder().clock(store_clock.clone()).build();
        let ledgers = Arc::new(ledgers);
        let calls = Arc::default();
        let gateway = |(i, ways): (usize, &Vec<Way>)| {
            let link = Link {
                ledgers: ledgers.clone(),
                ways: Arc::new(Mutex::new(ways.iter().copied().collect())),
                start,
                calls: Arc::clone(&calls),
            };
            LeasedStore::with_clock(link, VirtualClock::new(start, [0, -900_000, 5_000_000][i]))
        };
        let gateways = ways.iter().enumerate().map(gateway).collect();
        let quota = Quota::new(quota.units(), quota.window() + lease).unwrap();
        let (policy, identity) = ("api".parse().unwrap(), Identity::user("ann"));
        let quotas = quota.into();
        Self { start, store_clock, gateways, calls, policy, identity, lease, quotas }
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    fn charge(&self, cost: u32) -> Charge<'_> {
        let charge = Charge::new(&self.policy, &self.identity, &self.quotas);
        charge.with_cost(NonZeroU32::new(cost).unwrap()).unwrap().leased(Some(self.lease))
    }

    /// Sends a request. Returns when it was admitted, if it was: when it was decided here, or when
    /// the store decided it.
    async fn send(&self, gateway: usize, cost: u32) -> Option<u64> {
        let charges = self.charge(cost).into();
        let decided = async {
            let receipt = self.gateways[gateway].spend(&charges).await.ok()?;
            receipt.spent.then(|| DECIDED_MS.with(Cell::get))
        };
        DECIDED_MS.scope(Cell::new(self.now_ms()), decided).await
    }

    async fn admitted(&self, gateway: usize, requests: u32, every_ms: u64) -> u32 {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += u32::from(self.send(gateway, 1).await.is_some());
            sleep(Duration::from_millis(every_ms)).await;
        }
        admitted
    }

    fn decided_from_leases(&self) -> u64 {
        self.gateways.iter().map(|gateway| gateway.stats().decisions).sum()
    }
}

/// The most units that any interval of this length has, of units at times.
fn most_in_window(mut admitted: Vec<(u64, u32)>, window_ms: u64) -> u32 {
    admitted.sort_unstable();
    let from = |(start_ms, _): &(u64, u32)| {
        let inside =
            admitted.iter().filter(|(at, _)| (*start_ms..start_ms + window_ms).contains(at));
        inside.map(|(_, units)| units).sum()
    };
    admitted.iter().map(from).max().unwrap_or_default()
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Requests at once.
    Burst {
        gateway: usize,
        requests: u32,
        cost: u32,
    },
    /// Requests in a row.
    Stream {
        gateway: usize,
        requests: u32,
        every_ms: u64,
    },
    /// The store's clock steps, forwards or back.
    Leap {
        by_ms: i64,
    },
    Wait {
        ms: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize, 1..40_u32, 1..4_u32)
            .prop_map(|(gateway, requests, cost)| Step::Burst { gateway, requests, cost }),
        4 => (0..3_usize, 5..60_u32, 0..9_u64)
            .prop_map(|(gateway, requests, every_ms)| Step::Stream { gateway, requests, every_ms }),
        1 => (-3000..3000_i64).prop_map(|by_ms| Step::Leap { by_ms }),
        3 => prop_oneof![1..250_u64, 1900..2300_u64].prop_map(|ms| Step::Wait { ms }),
    ]
}

fn way() -> impl Strategy<Value = Way> {
    let delay = || prop_oneof![6 => 0..5_u64, 1 => 5..150_u64, 1 => 150..500_u64];
    (delay(), delay(), prop::bool::weighted(0.1)).prop_map(|(there_ms, back_ms, lost)| Way {
        there_ms,
        back_ms,
        lost,
    })
}

/// Admissions by gateways that do all this, in parts between steps of the store's clock to a later
/// time. Such a step ends windows early, leased or not, and leases may last a while longer.
async fn play(world: Arc<World>, steps: Vec<Step>) -> Vec<Vec<(u64, u32)>> {
    let admitted = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    let mut leaps_ms = vec![0];
    let lease_ms = world.lease.as_millis() as u64;
    let slower = lease_ms / LEASE_MS;
    for step in steps {
        match step {
            Step::Wait { ms } => sleep(Duration::from_millis(ms * slower)).await,
            Step::Leap { by_ms } => {
                world.store_clock.step(by_ms);
                if by_ms > 0 {
                    leaps_ms.push(world.now_ms());
                }
            }
            Step::Burst { gateway, requests, cost } => {
                for _ in 0..requests {
                    let (world, admitted) = (world.clone(), admitted.clone());
                    tasks.push(tokio::spawn(async move {
                        let at_ms = world.send(gateway, cost).await;
                        admitted.lock().extend(at_ms.map(|at_ms| (at_ms, cost)));
                    }));
                }
            }
            Step::Stream { gateway, requests, every_ms } => {
                let (world, admitted) = (world.clone(), admitted.clone());
                tasks.push(tokio::spawn(async move {
                    for _ in 0..requests {
                        let at_ms = world.send(gateway, 1).await;
                        admitted.lock().extend(at_ms.map(|at_ms| (at_ms, 1)));
                        sleep(Duration::from_millis(every_ms * slower)).await;
                    }
                }));
                sleep(Duration::from_millis(3)).await;
            }
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let admitted = admitted.lock().clone();
    let ends = leaps_ms.iter().skip(1).copied().chain([u64::MAX]);
    let parts = leaps_ms.iter().zip(ends).map(|(leap_ms, end_ms)| {
        let start_ms = if *leap_ms == 0 { 0 } else { leap_ms + lease_ms };
        admitted.iter().copied().filter(|(at, _)| (start_ms..end_ms).contains(at)).collect()
    });
    parts.collect()
}

static LEASED: AtomicU64 = AtomicU64::new(0);

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// Three gateways with skewed clocks, slow calls, replies that never come or come after the
    /// lease is over, and a store whose clock steps.
    #[test]
    fn no_window_ever_sees_more_than_the_units(
        units in 4..120_u32,
        lease_ms in prop::sample::select(vec![LEASE_MS, 4 * LEASE_MS, 10 * LEASE_MS]),
        steps in prop::collection::vec(step(), 1..25),
        ways in prop::collection::vec(prop::collection::vec(way(), 0..60), 3),
    ) {
        let (lease, window_ms) = (Duration::from_millis(lease_ms), 10 * lease_ms);
        let window = Duration::from_millis(window_ms);
        let quota = Quota::new(NonZeroU32::new(units).unwrap(), window).unwrap();
        virtual_time().block_on(async {
            let world = Arc::new(World::with_lease(lease, quota, &ways));
            for part in play(world.clone(), steps).await {
                let most = most_in_window(part, window_ms);
                prop_assert!(most <= units, "{most} of {units}");
            }
            LEASED.fetch_add(world.decided_from_leases(), Ordering::Relaxed);
            Ok(())
        })?;
    }
}

#[test]
fn a_thousand_decisions_of_the_model_come_from_leases() {
    no_window_ever_sees_more_than_the_units();
    let leased = LEASED.load(Ordering::Relaxed);
    assert!(leased > 1000, "{leased} decisions from leases");
}

#[test]
fn a_busy_account_is_decided_without_calls_and_what_is_not_used_is_refunded() {
    virtual_time().block_on(async {
        let world = World::new(Quota::per_minute(100_000), &[vec![]]);
        assert_eq!(world.admitted(0, 10_000, 0).await, 10_000, "as fast as it goes");
        // At ten in a millisecond.
        let (calls, spent) = (world.calls.load(Ordering::Relaxed), 2000);
        for _ in 0..200 {
            assert_eq!(world.admitted(0, 10, 0).await, 10);
            sleep(Duration::from_millis(1)).await;
        }
        let calls = world.calls.load(Ordering::Relaxed) - calls;
        assert!(calls <= 10, "{calls} calls for {spent} decisions at 10,000 a second");
        sleep(2 * LEASE).await;
        let receipt = world.gateways[0].peek(&world.charge(1).into()).await.unwrap();
        assert_eq!(receipt.standings[0].remaining(), 100_000 - 12_000, "the rest is refunded");
        let stats = world.gateways[0].stats();
        assert_eq!(
            stats.units - stats.refunded,
            stats.decisions,
            "all leased units are one or other"
        );
    });
}

#[test]
fn accounts_that_come_no_more_are_forgotten() {
    virtual_time().block_on(async {
        let clock = VirtualClock::new(Instant::now(), 0);
        let ledgers = MemoryStore::builder().clock(clock.clone()).build();
        let store = LeasedStore::with_clock(ledgers, clock);
        let policy = Policy::new("api").identity([Source::User]).quota(Quota::per_minute(100));
        let policies = Policies::builder().policy(policy.consistency(Consistency::ASYNC)).build();
        let gate = Gate::new(policies.unwrap(), store.clone());
        let come = async |users: std::ops::Range<u32>| {
            for user in users {
                let user = user.to_string();
                let decision = gate.decide(&Facts::new(&Method::GET, "/").user(&user)).await;
                assert!(decision.unwrap().is_allowed());
            }
        };
        come(0..5000).await;
        assert_eq!(store.stats().accounts, 5000);
        sleep(Duration::from_secs(10)).await;
        come(5000..6000).await;
        assert_eq!(
            store.stats().accounts,
            1000,
            "the others have been idle for longer than a lease"
        );
    });
}

#[test]
fn requests_that_cost_more_than_they_come_often_take_no_leases() {
    virtual_time().block_on(async {
        for (cost, every_ms) in [(10, 300), (1000, 500), (30, 150)] {
            let world = World::new(Quota::per_minute(1_000_000), &[vec![]]);
            for _ in 0..100 {
                assert!(world.send(0, cost).await.is_some());
                sleep(Duration::from_millis(every_ms)).await;
            }
            let calls = world.calls.load(Ordering::Relaxed);
            assert!(calls <= 105, "{calls} calls for 100 requests that cost {cost}");
        }
        // Where they come often, a lease is for several of them.
        let world = World::new(Quota::per_minute(1_000_000), &[vec![]]);
        for _ in 0..1000 {
            assert!(world.send(0, 100).await.is_some());
            sleep(Duration::from_millis(2)).await;
        }
        let calls = world.calls.load(Ordering::Relaxed);
        assert!(calls <= 100, "{calls} calls for 1,000 requests");
    });
}

/// A window of 61 s with leases of a second has the ledger of one of 60 s with leases of two.
#[test]
fn leases_that_a_reload_has_made_too_long_are_used_no_more() {
    virtual_time().block_on(async {
        let clock = VirtualClock::new(Instant::now(), 0);
        let ledgers = MemoryStore::builder().clock(clock.clone()).build();
        let store = LeasedStore::with_clock(ledgers, clock);
        let policies = |window_s, lease_s| {
            let second = Duration::from_secs(1);
            let quota = Quota::new(NonZeroU32::new(9000).unwrap(), second * window_s).unwrap();
            let way = Consistency::Async { lease: Some(second * lease_s) };
            let policy = Policy::new("api").identity([Source::User]).quota(quota).consistency(way);
            Policies::builder().policy(policy).build().unwrap()
        };
        let gate = Gate::new(policies(60, 2), store.clone());
        let come = async || {
            for _ in 0..50 {
                let facts = Facts::new(&Method::GET, "/").user("ann");
                assert!(gate.decide(&facts).await.unwrap().is_allowed());
                sleep(Duration::from_millis(10)).await;
            }
            store.stats().decisions
        };
        let before = come().await;
        assert!(before > 0);
        gate.replace_policies(policies(61, 1));
        assert_eq!(come().await, before, "the store decides");
        sleep(Duration::from_secs(2)).await;
        assert!(come().await > before, "the others have ended");
    });
}

#[test]
fn no_gateway_takes_more_than_a_quarter_of_what_is_left() {
    virtual_time().block_on(async {
        let world = World::new(Quota::per_minute(100), &[vec![], vec![]]);
        // It asks for far more than there is, and stops.
        assert_eq!(world.admitted(0, 30, 0).await, 30);
        sleep(Duration::from_millis(5)).await;
        let stats = world.gateways[0].stats();
        let in_hand = stats.units - stats.decisions;
        assert!((1..=25).contains(&in_hand), "{in_hand} units in hand");
        // Another has the rest but for what is leased, and all of it when the leases are over.
        assert!(world.admitted(1, 100, 0).await >= 100 - 30 - 25);
        sleep(2 * LEASE).await;
        world.admitted(1, 100, 0).await;
        let receipt = world.gateways[1].peek(&world.charge(1).into()).await.unwrap();
        assert_eq!((receipt.spent, receipt.standings[0].remaining()), (false, 0));
    });
}

#[test]
fn a_lease_ends_early_enough_for_clocks_that_run_slow() {
    virtual_time().block_on(async {
        let lease = Duration::from_secs(2);
        let world = World::with_lease(lease, Quota::per_minute(1000), &[vec![]]);
        let mut asked = world.start;
        while world.gateways[0].stats().leases == 0 {
            asked = Instant::now();
            world.admitted(0, 1, 100).await;
        }
        // Nothing is requested until a clock that runs slower by a 200th shows the end of the lease.
        sleep(asked + lease.mul_f64(0.995) - Instant::now()).await;
        let before = world.decided_from_leases();
        world.admitted(0, 1, 0).await;
        assert_eq!(world.decided_from_leases(), before);
    });
}

#[test]
fn a_process_that_ends_gives_its_leases_back() {
    virtual_time().block_on(async {
        let world = World::new(Quota::per_minute(1000), &[vec![], vec![]]);
        assert_eq!(world.admitted(0, 100, 0).await, 100);
        // No lease is on its way then.
        sleep(Duration::from_millis(10)).await;
        let stats = world.gateways[0].stats();
        let in_hand = stats.units - stats.decisions - stats.refunded;
        assert!(in_hand > 0, "{stats:?}");
        assert_eq!(world.gateways[0].release().await, in_hand);
        let receipt = world.gateways[1].peek(&world.charge(1).into()).await.unwrap();
        assert_eq!(receipt.standings[0].remaining(), 900, "before a lease is over");
        assert_eq!(world.admitted(0, 50, 0).await, 50, "the store decides");
        sleep(2 * LEASE).await;
        assert_eq!(world.gateways[0].stats().leases, stats.leases, "no more are taken");
        assert_eq!(
            world.gateways[1].peek(&world.charge(1).into()).await.unwrap().standings[0].remaining(),
            850
        );
    });
}

#[test]
fn a_lease_whose_reply_comes_late_is_not_used() {
    virtual_time().block_on(async {
        let slow = Way { there_ms: 1, back_ms: LEASE_MS + 50, lost: false };
        let quick = Way { there_ms: 0, back_ms: 0, lost: false };
        // A few requests decided by the store, and then a lease that takes its time.
        let world = World::new(Quota::per_minute(1000), &[vec![quick, quick, slow]]);
        world.admitted(0, 3, 0).await;
        sleep(2 * LEASE).await;
        assert_eq!(world.decided_from_leases(), 0);
        let receipt = world.gateways[0].peek(&world.charge(1).into()).await.unwrap();
        assert_eq!(receipt.standings[0].remaining(), 997, "and is refunded");
    });
}

fn policies(list: impl IntoIterator<Item = Policy>) -> Policies {
    list.into_iter().fold(Policies::builder(), |all, policy| all.policy(policy)).build().unwrap()
}

fn leased(name: &str, quota: Quota) -> Policy {
    Policy::new(name).identity([Source::User]).quota(quota).consistency(Consistency::ASYNC)
}

fn facts() -> Facts<'static> {
    Facts::new(&Method::GET, "/").user("ann")
}

#[test]
fn a_denial_of_any_other_charge_gives_leased_units_back() {
    virtual_time().block_on(async {
        let world = World::new(Quota::per_minute(1000), &[vec![]]);
        let guard = Policy::new("guard").quota(Quota::per_minute(1000)).scope(Scope::Local);
        let sync = Policy::new("sync").identity([Source::User]).quota(Quota::per_minute(100));
        let both = [leased("api", Quota::per_minute(1000)), leased("b", Quota::per_minute(2000))];
        let all = both.into_iter().chain([guard, sync]);
        let gate = Gate::new(policies(all), world.gateways[0].clone());
        let mut admitted = 0;
        for _ in 0..300 {
            admitted += u32::from(gate.decide(&facts()).await.unwrap().is_allowed());
        }
        assert_eq!(admitted, 100, "as many as the policy allows that is not leased");
        assert!(world.decided_from_leases() > 100, "the others are leased");
        sleep(2 * LEASE).await;
        let decision = gate.peek(&facts()).await.unwrap();
        let remaining = |policy: &str| {
            let mut policies = decision.policies().iter();
            let found = policies.find(|own| &*own.policy == policy).unwrap();
            found.standings[0].remaining()
        };
        let left = ["guard", "api", "b", "sync"].map(remaining);
        assert_eq!(left, [900, 900, 1900, 0], "a denied request consumes nothing");
        assert_eq!(decision.policies()[1].standings[0].quota(), Quota::per_minute(1000));
    });
}

#[test]
fn a_refund_and_a_reset_reach_leases_too() {
    virtual_time().block_on(async {
        let world = World::new(Quota::per_minute(1000), &[vec![]]);
        let policies = policies([leased("api", Quota::per_minute(1000))]);
        let gate = Gate::new(policies, world.gateways[0].clone());
        for _ in 0..50 {
            let decision = gate.decide(&facts()).await.unwrap();
            gate.refund(&decision).await.unwrap();
        }
        assert!(world.decided_from_leases() > 0);
        sleep(2 * LEASE).await;
        let remaining = async || {
            let decision = gate.peek(&facts()).await.unwrap();
            decision.policies()[0].standings[0].remaining()
        };
        assert_eq!(remaining().await, 1000, "all were refunded");
        for _ in 0..50 {
            assert!(gate.decide(&facts()).await.unwrap().is_allowed());
        }
        let account = "api"
            .parse()
            .map(|policy| slidegate::Account { policy, identity: Identity::user("ann") });
        let account = account.unwrap();
        assert!(!gate.admin().is_untouched(&account).await.unwrap());
        gate.admin().reset(&account).await.unwrap();
        sleep(2 * LEASE).await;
        assert!(gate.admin().is_untouched(&account).await.unwrap(), "no lease is left of before");
    });
}

/// A store on a real server, with leases.
fn on(server: &RedisServer) -> LeasedStore {
    let redis = RedisStore::builder(server.url()).deadline(Duration::from_secs(1)).build().unwrap();
    LeasedStore::new(ResilientStore::builder(redis).opens_after(1).build())
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_worth_of_stores_share_one_quota_under_a_burst() {
    const UNITS: u32 = 3000;
    let server = RedisServer::start();
    let policies = || policies([leased("api", Quota::per_minute(UNITS))]);
    let gates: Vec<_> = (0..3).map(|_| Arc::new(Gate::new(policies(), on(&server)))).collect();
    let burst = |gate: &Arc<Gate<LeasedStore>>| {
        let gate = gate.clone();
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..2 * UNITS {
                admitted += u32::from(gate.decide(&facts()).await.unwrap().is_allowed());
            }
            admitted
        })
    };
    let tasks: Vec<_> = gates.iter().chain(&gates).map(burst).collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert!(admitted <= UNITS, "{admitted}");
    assert!(admitted >= UNITS * 95 / 100, "{admitted} of {UNITS}");
    let leased: u64 = gates.iter().map(|gate| gate.store().stats().decisions).sum();
    assert!(leased > u64::from(UNITS) / 2, "{leased} decided from leases");
}

#[tokio::test]
async fn requests_that_find_no_lease_share_calls() {
    const REQUESTS: u64 = 64;
    let server = RedisServer::start();
    let gate = Arc::new(Gate::new(policies([leased("api", Quota::per_hour(10_000))]), on(&server)));
    assert!(gate.decide(&facts()).await.unwrap().is_allowed());
    let before = CommandCounts::of([&server]);
    let ask = |_| {
        let gate = gate.clone();
        tokio::spawn(async move { gate.decide(&facts()).await.unwrap().is_allowed() })
    };
    let tasks: Vec<_> = (0..REQUESTS).map(ask).collect();
    for task in tasks {
        assert!(task.await.unwrap());
    }
    let calls = CommandCounts::of([&server]).since(&before).calls("evalsha");
    assert!((1..=REQUESTS / 4).contains(&calls), "{calls} calls for {REQUESTS} requests at once");
}

#[tokio::test]
async fn without_redis_leases_are_used_up_and_then_each_policy_decides() {
    let server = RedisServer::start();
    let deny = leased("api", Quota::per_hour(10_000)).on_store_error(OnStoreError::Deny);
    let gate = Gate::new(policies([deny]), on(&server));
    while gate.store().stats().leases == 0 {
        assert!(gate.decide(&facts()).await.unwrap().is_allowed());
        tokio::task::yield_now().await;
    }
    server.kill();
    let mut from_lease = 0;
    let error = loop {
        match gate.decide(&facts()).await {
            Ok(decision) if decision.is_allowed() => from_lease += 1,
            Ok(decision) => panic!("{decision:?}"),
            Err(error) => break error,
        }
    };
    assert!(from_lease > 0, "what was leased is used");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    server.restart();
    until("Redis decides again", || gate.store().inner().stats().breaker == BreakerState::Closed)
        .await;
}

#[test]
fn holds_from_leases_are_settled_and_records_close_leased_accounts() {
    virtual_time().block_on(async {
        let world = World::new(Quota::per_minute(1000), &[vec![], vec![]]);
        let [one, two] = [&world.gateways[0], &world.gateways[1]];
        let left = async || {
            // What is left of leases is refunded by then.
            sleep(2 * LEASE).await;
            one.peek(&world.charge(1).into()).await.unwrap().standings[0].remaining()
        };
        assert_eq!(world.admitted(0, 100, 0).await, 100);
        assert!(world.decided_from_leases() > 0);
        let held = Charges::from(world.charge(10));
        // At once, while the lease lasts, and when it is over.
        for (units, wait, remaining) in [
            (3, Duration::ZERO, 897),
            (25, Duration::ZERO, 872),
            (3, 2 * LEASE, 869),
            (25, 2 * LEASE, 844),
            (10, Duration::ZERO, 834),
        ] {
            let at = one.spend(&held).await.unwrap().at;
            sleep(wait).await;
            let settlement = Settlement { at, units, once: None };
            assert_eq!(one.settle(&held, settlement).await.unwrap(), Settled::Now);
            assert_eq!(left().await, remaining, "{units} of ten after {wait:?}");
        }
        let record = world.charge(1).record(NonZeroU32::new(5000).unwrap());
        assert!(!two.spend(&record.into()).await.unwrap().spent);
        assert_eq!(left().await, 0);
        for gateway in [0, 1] {
            assert_eq!(world.admitted(gateway, 5, 0).await, 0, "closed at every gateway");
        }
        sleep(Duration::from_secs(60)).await;
        assert_eq!(left().await, 1000, "for a window at most");
    });
}
