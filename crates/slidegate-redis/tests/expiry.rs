//! Keys live as long as something in them counts, and not much longer.

use std::num::NonZeroU32;
use std::time::Duration;

use slidegate::limit::{Charges, Spent};
use slidegate::{Identity, Quota, Store, Timestamp};
use slidegate_redis::{Layout, RedisStore};
use slidegate_testbed::{ManualTime, RedisServer, Reply};

use crate::support::{Payer, charges};

const LAYOUTS: [Layout; 2] = [Layout::Packed, Layout::SortedSet];
const MICROSECOND: Duration = Duration::from_micros(1);

struct World {
    time: ManualTime,
    server: RedisServer,
    store: RedisStore,
}

impl World {
    fn new(layout: Layout) -> Self {
        let time = ManualTime::new();
        let server = RedisServer::options().time(&time).start();
        let builder = RedisStore::builder(server.url()).layout(layout);
        let store = builder.deadline(Duration::from_secs(60)).build().unwrap();
        Self { time, server, store }
    }

    async fn spend(&self, charges: &Charges<'_>) -> bool {
        self.store.spend(charges).await.unwrap().spent
    }

    async fn remaining(&self, charges: &Charges<'_>) -> u32 {
        self.store.peek(charges).await.unwrap().standings[0].remaining()
    }

    /// The keys, but for the marks of refunds that have been made, which go within a minute.
    fn ledgers(&self) -> Vec<String> {
        let keys = self.server.command(&["KEYS", "*"]).array().into_iter().map(Reply::text);
        let (marks, ledgers): (Vec<_>, Vec<_>) = keys.partition(|key| key.contains(":done:"));
        for mark in marks {
            let left_ms = self.server.command(&["PTTL", &mark]).integer();
            assert!((0..=60_000).contains(&left_ms), "{mark} has {left_ms} ms left");
        }
        ledgers
    }

    fn keys(&self) -> usize {
        self.ledgers().len()
    }

    /// How long the only key has to live, if there is one.
    fn time_to_live(&self) -> Option<Duration> {
        let key = self.ledgers().into_iter().next()?;
        let ms = self.server.command(&["PTTL", &key]).integer();
        Some(Duration::from_millis(u64::try_from(ms).expect("the key has a time to live")))
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.time.now_us() * 1000)
    }
}

fn quota(units: u32, window_ms: u64) -> Quota {
    Quota::new(NonZeroU32::new(units).unwrap(), Duration::from_millis(window_ms)).unwrap()
}

/// The longest that a key may outlive a spend.
fn longest(quota: Quota) -> Duration {
    quota.window() + quota.tick() + quota.window() / 4 + Duration::from_secs(2)
}

fn quotas() -> impl Iterator<Item = Quota> {
    let windows_ms = [1, 10, 1_000, 60_000, 61_234, 86_400_000, 366 * 86_400_000];
    windows_ms
        .into_iter()
        .flat_map(|window_ms| [1, 3, 100, 5_000].map(|units| quota(units, window_ms)))
}

#[tokio::test]
async fn a_key_is_there_while_a_unit_counts_and_then_goes_by_itself() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        for (number, quota) in quotas().enumerate() {
            let payer = Payer::user("last", quota);
            let one = Charges::from(payer.charge());
            // Between two milliseconds, where nothing is whole.
            world.time.advance(Duration::from_micros(7 + 101 * number as u64 % 993));
            assert!(world.spend(&one).await);
            let spent_at = world.now();
            let leaves_in = world.store.peek(&one).await.unwrap().standings[0].reset_after();
            assert!(leaves_in >= quota.window() && leaves_in <= quota.window() + quota.tick());
            world.time.advance(leaves_in - MICROSECOND);
            assert_eq!(world.keys(), 1, "{layout}, {quota}: at the last instant");
            assert_eq!(world.remaining(&one).await, quota.units().get() - 1);
            world.time.advance(MICROSECOND);
            assert_eq!(world.remaining(&one).await, quota.units().get(), "{layout}, {quota}");
            let lived = world.now().saturating_since(spent_at);
            world.time.advance(longest(quota) - lived);
            assert_eq!(world.keys(), 0, "{layout}, {quota}: after a window and a quarter");
        }
    }
}

#[tokio::test]
async fn repeated_spends_never_lose_a_key_early_nor_keep_it_long() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let mut random = fastrand::Rng::with_seed(5);
        for quota in quotas().filter(|quota| quota.units().get() > 1) {
            let payer = Payer::user("often", quota);
            let window_us = u64::try_from(quota.window().as_micros()).unwrap();
            for number in 0..60 {
                let all = number % 5 == 0 && quota.units().get() <= 100;
                let cost = if all { quota.units().get() } else { random.u32(1..=2) };
                let charges = Charges::from(payer.cost(cost));
                if !world.spend(&charges).await {
                    // Even a denied request may find it time to say it again.
                    world.time.advance(Duration::from_micros(random.u64(..window_us)));
                }
                let latest = latest_leaves_in(&world, &payer, quota).await;
                match world.time_to_live() {
                    None => assert_eq!(latest, Duration::ZERO),
                    Some(left) => {
                        assert!(left >= latest, "{layout}, {quota}: {left:?} for {latest:?}");
                        assert!(left <= longest(quota), "{layout}, {quota}: {left:?}");
                    }
                }
                let most_us = [1_000, window_us / 3, window_us / 3, 2 * window_us];
                let by_us = random.u64(..=most_us[number % 4]);
                world.time.advance(Duration::from_micros(by_us));
            }
            world.server.command(&["FLUSHALL"]).expect_ok();
        }
    }
}

/// How long until all is free.
async fn latest_leaves_in(world: &World, payer: &Payer, quota: Quota) -> Duration {
    let all = Charges::from(payer.cost(quota.units().get()));
    world.store.peek(&all).await.unwrap().standings[0].retry_after()
}

#[tokio::test]
async fn a_clock_that_steps_loses_no_key() {
    for layout in LAYOUTS {
        for quota in [quota(5, 60_000), quota(5_000, 60_000)] {
            let world = World::new(layout);
            let payer = Payer::user("stepping", quota);
            let (one, units) = (Charges::from(payer.charge()), quota.units().get());
            let mut held = 0;
            for step in [10, 3_600, 20, 7_200, 5] {
                assert!(world.spend(&one).await);
                held += 1;
                world.time.step_back(Duration::from_secs(step));
                assert_eq!(world.remaining(&one).await, units - held, "{layout}: {step} s back");
            }
            let present = Charges::from(payer.cost(units));
            let latest = world.store.peek(&present).await.unwrap().standings[0].retry_after();
            assert!(latest <= quota.window() + quota.tick(), "nothing is held for longer");
            assert!(world.time_to_live().unwrap() >= latest);
            world.time.advance(latest - MICROSECOND);
            assert!(world.remaining(&one).await < units, "{layout}: the last still counts");
            world.time.advance(MICROSECOND);
            assert_eq!(world.remaining(&one).await, units);
            assert!(world.spend(&one).await);
            let left = world.time_to_live().unwrap();
            assert!(left >= quota.window() && left <= longest(quota), "{layout}: {left:?}");
            // Far ahead, all has left; what is spent there counts there.
            world.time.advance(Duration::from_secs(86_400));
            assert!(world.spend(&one).await);
            assert_eq!(world.remaining(&one).await, units - 1);
            world.time.advance(longest(quota));
            assert_eq!(world.keys(), 0);
        }
    }
}

#[tokio::test]
async fn denied_requests_and_peeks_leave_no_key_behind() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let full = Payer::user("full", quota(1, 60_000));
        let fresh = ["a", "b"].map(|policy| {
            Payer::new(policy, Identity::user("fresh"), &[quota(9, 1_000), quota(5_000, 60_000)])
        });
        let both = charges([full.charge(), fresh[0].charge(), fresh[1].charge().shadow(true)]);
        world.store.peek(&both).await.unwrap();
        assert_eq!(world.keys(), 0);
        assert!(world.spend(&full.charge().into()).await);
        for _ in 0..3 {
            assert!(!world.spend(&both).await);
            world.store.peek(&both).await.unwrap();
            world.store.refund(&charges([fresh[0].charge()]), Spent::Newest).await.unwrap();
            assert_eq!(world.keys(), 1, "{layout}: the one that was full before");
        }
        let before = world.time_to_live().unwrap();
        world.time.advance(Duration::from_secs(20));
        assert!(!world.spend(&both).await);
        assert!(world.time_to_live().unwrap() <= before - Duration::from_secs(20), "{layout}");
        // Counted, it is there, and goes as any other.
        let counting = charges([full.charge(), fresh[0].charge().count_denied(true)]);
        assert!(!world.spend(&counting).await);
        assert_eq!(world.keys(), 3);
        world.time.advance(longest(quota(1, 60_000)));
        assert_eq!(world.keys(), 0, "{layout}");
    }
}

#[tokio::test]
async fn a_reset_and_a_refund_of_everything_leave_no_key_behind() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let payer =
            Payer::new("api", Identity::user("r"), &[quota(9, 1_000), quota(5_000, 60_000)]);
        let other = Payer::user("other", quota(9, 60_000));
        let five = Charges::from(payer.cost(5));
        assert!(world.spend(&charges([payer.cost(5), other.charge()])).await);
        assert_eq!(world.keys(), 3);
        world.store.reset(&five).await.unwrap();
        assert_eq!(world.keys(), 1, "{layout}: of the other");
        assert_eq!(world.remaining(&five).await, 9);
        assert!(world.spend(&five).await);
        world.store.refund(&five, Spent::At(world.now())).await.unwrap();
        assert_eq!(world.keys(), 1, "{layout}: of the other");
        assert!(world.spend(&five).await);
        world.store.refund(&five, Spent::Newest).await.unwrap();
        assert_eq!(world.keys(), 1, "{layout}: of the other");
    }
}
