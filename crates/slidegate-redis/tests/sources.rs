//! Limiters that keep a sliding log the usual way, and this store in the sorted-set layout, count
//! on the same keys: each sees what the other has spent.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use slidegate::{Charges, Identity, Prefixes, Quota, Receipt, Store};
use slidegate_redis::{Layout, RedisStore};
use slidegate_testbed::{ManualTime, RedisServer};
use support::Payer;

/// One of the five, by the commands that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Records first, in a transaction, and counts what it denies.
    S0,
    S1,
    S2,
    /// All in a script.
    S3,
    S4,
}

const SOURCES: [Source; 5] = [Source::S0, Source::S1, Source::S2, Source::S3, Source::S4];

impl Source {
    /// How it names its keys, and an account and a key of that name.
    fn naming(self) -> (&'static str, Identity, &'static str) {
        let address: IpAddr = "203.0.113.7".parse().unwrap();
        let ip = Identity::ip(address, Prefixes::default());
        let user = Identity::user("42");
        match self {
            Self::S0 => {
                let template = "rate_limit:<identity>:post_shorten";
                (template, ip, "rate_limit:203.0.113.7:post_shorten")
            }
            Self::S1 => ("ratelimit:<window>:<identity>", user, "ratelimit:min:42"),
            Self::S2 => ("ratelimit:<kind>:<identity>", user, "ratelimit:user:42"),
            Self::S3 => ("throttle:<kind>:<identity>:<policy>", user, "throttle:user:42:api"),
            Self::S4 => ("ratelimit:<identity>", ip, "ratelimit:203.0.113.7"),
        }
    }
}

const S3_SCRIPT: &str = "
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, ARGV[1] - ARGV[2])
local count = redis.call('ZCARD', KEYS[1])
if count >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1";

/// One of the five at work on a key, at most so many in a minute, by a clock of its own.
struct Theirs {
    source: Source,
    connection: MultiplexedConnection,
    key: &'static str,
    units: u32,
    asked: u64,
}

const MINUTE_MS: u64 = 60_000;

impl Theirs {
    async fn allow(&mut self, now_ms: u64) -> bool {
        self.asked += 1;
        let member = match self.source {
            Source::S2 => format!("{now_ms}:{:x}", self.asked),
            Source::S4 => format!("{now_ms}000000{}", self.asked),
            _ => format!("{now_ms}-0.{}", self.asked),
        };
        match self.source {
            Source::S0 => self.record_and_count(now_ms, &member).await,
            Source::S3 => self.run_script(now_ms, &member).await,
            Source::S1 => self.count_and_record(now_ms, &member, ("PEXPIRE", MINUTE_MS)).await,
            Source::S2 | Source::S4 => {
                self.count_and_record(now_ms, &member, ("EXPIRE", MINUTE_MS / 1000)).await
            }
        }
    }

    #[rustfmt::skip]
    async fn record_and_count(&mut self, now_ms: u64, member: &str) -> bool {
        let (count, _oldest): (u32, Vec<String>) = redis::pipe()
            .atomic()
            .cmd("ZADD")
            .arg(self.key)
            .arg(now_ms)
            .arg(member)
            .ignore()
            .cmd("ZREMRANGEBYSCORE")
            .arg(self.key)
            .arg(0)
            .arg(now_ms - MINUTE_MS)
            .ignore()
            .cmd("ZCARD")
            .arg(self.key)
            .cmd("ZRANGE")
            .arg(self.key)
            .arg(0)
            .arg(0)
            .arg("WITHSCORES")
            .cmd("EXPIRE")
            .arg(self.key)
            .arg(MINUTE_MS / 1000)
            .ignore()
            .query_async(&mut self.connection)
            .await
            .unwrap();
        count <= self.units
    }

    #[rustfmt::skip]
    async fn count_and_record(
        &mut self,
        now_ms: u64,
        member: &str,
        (expire, after): (&str, u64),
    ) -> bool {
        let (count,): (u32,) = redis::pipe()
            .cmd("ZREMRANGEBYSCORE")
            .arg(self.key)
            .arg(0)
            .arg(now_ms - MINUTE_MS)
            .ignore()
            .cmd("ZCARD")
            .arg(self.key)
            .query_async(&mut self.connection)
            .await
            .unwrap();
        if count >= self.units {
            return false;
        }
        let () = redis::pipe()
            .cmd("ZADD")
            .arg(self.key)
            .arg(now_ms)
            .arg(member)
            .ignore()
            .cmd(expire)
            .arg(self.key)
            .arg(after)
            .ignore()
            .query_async(&mut self.connection)
            .await
            .unwrap();
        true
    }

    async fn run_script(&mut self, now_ms: u64, member: &str) -> bool {
        let mut call = redis::cmd("EVAL");
        call.arg(S3_SCRIPT).arg(1).arg(self.key).arg(now_ms).arg(MINUTE_MS);
        call.arg(self.units).arg(member).query_async(&mut self.connection).await.unwrap()
    }
}

/// A server on a clock of its own, one of the five, and ours beside it.
struct World {
    time: ManualTime,
    server: RedisServer,
    theirs: Theirs,
    ours: RedisStore,
    payer: Payer,
}

impl World {
    async fn new(source: Source, units: u32) -> Self {
        let time = ManualTime::new();
        let server = RedisServer::options().time(&time).start();
        let (template, identity, key) = source.naming();
        let builder = RedisStore::builder(server.url()).layout(Layout::SortedSet);
        let ours = builder
            .key_template_of("api".parse().unwrap(), template.parse().unwrap())
            .deadline(Duration::from_secs(60))
            .build()
            .unwrap();
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let payer = Payer::new("api", identity, &[Quota::per_minute(units)]);
        let theirs = Theirs { source, connection, key, units, asked: 0 };
        Self { time, server, theirs, ours, payer }
    }

    fn now_ms(&self) -> u64 {
        self.time.now_us() / 1000
    }

    async fn theirs(&mut self) -> bool {
        let now_ms = self.now_ms();
        self.theirs.allow(now_ms).await
    }

    async fn ours(&self, cost: u32) -> Receipt {
        self.ours.spend(&self.payer.cost(cost).into()).await.unwrap()
    }

    async fn look(&self) -> Receipt {
        self.ours.peek(&Charges::from(self.payer.charge())).await.unwrap()
    }

    async fn remaining(&self) -> u32 {
        self.look().await.standings[0].remaining()
    }

    fn keys(&self) -> BTreeSet<String> {
        self.server.command(&["KEYS", "*"]).array().into_iter().map(|key| key.text()).collect()
    }

    fn add(&self, score: &str, member: &str) {
        let added = self.server.command(&["ZADD", self.theirs.key, score, member]).integer();
        assert_eq!(added, 1, "{member:?}");
    }
}

#[tokio::test]
async fn each_sees_what_the_other_has_spent() {
    for source in SOURCES {
        let mut world = World::new(source, 10).await;
        assert!(world.theirs().await);
        assert_eq!(world.remaining().await, 9, "{source:?}: we see theirs");
        assert!(world.ours(1).await.spent);
        assert_eq!(world.keys(), BTreeSet::from([world.theirs.key.to_owned()]), "{source:?}");
        world.time.advance(Duration::from_secs(20));
        assert!(world.theirs().await && world.theirs().await);
        assert!(world.ours(4).await.spent);
        assert_eq!(world.remaining().await, 2);
        assert!(!world.ours(3).await.spent);
        assert!(world.theirs().await && world.theirs().await);
        let denied = world.ours(1).await;
        assert!(!denied.spent, "{source:?}: theirs fill ours");
        assert_eq!(denied.standings[0].retry_after(), Duration::from_secs(40));
        world.time.advance(Duration::from_secs(40) - Duration::from_millis(1));
        assert!(!world.look().await.spent, "{source:?}");
        world.time.advance(Duration::from_millis(1));
        assert_eq!(world.remaining().await, 2, "{source:?}: the first two have left");
        assert!(world.ours(2).await.spent);
        assert!(!world.theirs().await, "{source:?}: ours fill theirs");
        world.time.advance(Duration::from_secs(20));
        // The first of the five has recorded what it denied.
        let held = if source == Source::S0 { 3 } else { 2 };
        assert_eq!(world.remaining().await, 10 - held, "{source:?}");
        assert!(world.theirs().await && world.ours(1).await.spent);
        world.time.advance(Duration::from_secs(62));
        assert_eq!(world.keys(), BTreeSet::new(), "{source:?}: idle, it goes by itself");
    }
}

/// Whoever asks, and whenever, the two admit no more in any minute than one budget has.
#[tokio::test]
async fn together_they_admit_one_budget() {
    for source in SOURCES {
        let mut world = World::new(source, 12).await;
        let mut random = fastrand::Rng::with_seed(3);
        let mut admitted: Vec<(u64, u32, bool)> = Vec::new();
        for _ in 0..600 {
            let by_ms = match random.u8(..8) {
                0..=3 => 0,
                4..=5 => random.u64(1..4_000),
                6 => random.u64(1..20_000),
                _ => random.u64(50_000..70_000) * u64::from(random.u8(..6) == 0),
            };
            world.time.advance(Duration::from_millis(by_ms));
            let now_ms = world.now_ms();
            let (cost, ours) = (random.u32(1..=3), random.bool());
            let cost = if ours { cost } else { 1 };
            let passed = if ours { world.ours(cost).await.spent } else { world.theirs().await };
            if passed {
                admitted.push((now_ms, cost, ours));
            }
            let within = admitted.iter().filter(|(at_ms, ..)| now_ms - at_ms < MINUTE_MS);
            let within: u32 = within.map(|(_, cost, _)| cost).sum();
            assert!(within <= 12, "{source:?}: {within} in the minute that ends at {now_ms}");
            // Unless denied requests are recorded, all that is not admitted is free.
            let remaining = world.remaining().await;
            assert!(remaining <= 12 - within, "{source:?}: {remaining} beside {within}");
            assert!(source == Source::S0 || remaining == 12 - within, "{source:?}");
        }
        let of = |whose: bool| admitted.iter().filter(|(_, _, ours)| *ours == whose).count();
        assert!(of(true) > 20 && of(false) > 20, "{source:?}: {} and {}", of(true), of(false));
    }
}

#[tokio::test]
async fn theirs_with_a_clock_ahead_count_from_when_they_are_seen() {
    for source in SOURCES {
        let mut world = World::new(source, 10).await;
        let ahead_ms = world.now_ms() + 3_600_000;
        for _ in 0..4 {
            assert!(world.theirs.allow(ahead_ms).await);
        }
        let receipt = world.ours(6).await;
        assert!(receipt.spent && receipt.standings[0].remaining() == 0, "{source:?}");
        let denied = world.ours(1).await;
        assert!(!denied.spent, "{source:?}");
        assert_eq!(denied.standings[0].retry_after(), Duration::from_secs(60), "{source:?}");
        world.time.advance(Duration::from_secs(60));
        assert_eq!(world.remaining().await, 10, "{source:?}: nobody is stuck for an hour");
        assert!(world.theirs.allow(ahead_ms + 60_000).await, "{source:?}");
        assert_eq!(world.remaining().await, 9, "{source:?}");
    }
}

#[tokio::test]
async fn theirs_with_a_clock_behind_leave_by_that_clock() {
    for source in SOURCES {
        let mut world = World::new(source, 10).await;
        assert!(world.ours(1).await.spent);
        let behind_ms = world.now_ms() - 20_000;
        for _ in 0..4 {
            assert!(world.theirs.allow(behind_ms).await);
        }
        assert_eq!(world.remaining().await, 5, "{source:?}: theirs and ours");
        assert!(world.ours(5).await.spent);
        let denied = world.ours(1).await;
        assert_eq!(denied.standings[0].retry_after(), Duration::from_secs(40), "{source:?}");
        assert!(!world.theirs.allow(behind_ms).await, "{source:?}: they see ours, though ahead");
        world.time.advance(Duration::from_secs(40));
        assert_eq!(world.remaining().await, 4, "{source:?}: all of theirs have left");
    }
}

#[tokio::test]
async fn members_of_any_spelling_count() {
    let world = World::new(Source::S4, 100).await;
    let now_ms = world.now_ms();
    let long = "x".repeat(5_000);
    let members = [
        "",
        " ",
        "0",
        "-1",
        "1767225600000",
        "1767225600000-0.8251",
        "6f1c1d5e-8a0e-4c39-9c5c-1f2b3a4d5e6f",
        "a:1",
        "käse\u{0}\r\n\"'",
        "{tag}",
        "nan",
        &long,
    ];
    for (number, member) in (1..).zip(members) {
        world.add(&now_ms.to_string(), member);
        assert_eq!(world.remaining().await, 100 - number, "{member:?}");
    }
    let mut held = 12;
    // Scores may be parts of a millisecond, and anything in the future.
    let half = format!("{}.25", now_ms - 1);
    let scores = [half.as_str(), "+inf", "1e300", "9007199254740993", &format!("{now_ms}.5")];
    for (number, score) in scores.into_iter().enumerate() {
        world.add(score, &format!("scored {number}"));
        held += 1;
        assert_eq!(world.remaining().await, 100 - held, "{score}");
    }
    // Or long ago, in seconds or of another sign: those have left.
    for score in ["-inf", "-5", "0", &(now_ms / 1000).to_string(), &(now_ms - 60_000).to_string()] {
        world.add(score, &format!("left {score}"));
        assert_eq!(world.remaining().await, 100 - held, "{score}");
    }
    assert!(world.ours(100 - held).await.spent);
    let denied = world.ours(100).await;
    assert!(!denied.spent);
    // The last were pulled to the present, and one part of a millisecond is rounded up.
    let wait = denied.standings[0].retry_after();
    assert!(wait <= Duration::from_millis(60_001) && wait >= Duration::from_secs(60), "{wait:?}");
    world.time.advance(wait);
    assert!(world.ours(100).await.spent);
}

/// Two windows of the first plan, and what redis-cli shows of them.
#[tokio::test]
async fn two_windows_are_two_sorted_sets_of_plain_scores() {
    let time = ManualTime::new();
    let server = RedisServer::options().time(&time).start();
    let builder = RedisStore::builder(server.url()).layout(Layout::SortedSet);
    let template = "ratelimit:<window>:<identity>".parse().unwrap();
    let store = builder.key_template(template).build().unwrap();
    let quotas = [Quota::per_minute(60), Quota::per_day(10_000)];
    let payer = Payer::new("free", Identity::user("42"), &quotas);
    assert!(store.spend(&payer.cost(3).into()).await.unwrap().spent);
    let range = |key: &str| {
        let found = server.command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]).array();
        let texts: Vec<String> = found.into_iter().map(|one| one.text()).collect();
        texts.chunks(2).map(|pair| pair[1].parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    let now_ms = time.now_us() / 1000;
    assert_eq!(range("ratelimit:min:42"), [now_ms; 3]);
    let tick_ms = 86_400_000_u64.div_ceil(4096);
    assert_eq!(range("ratelimit:day:42"), [now_ms.next_multiple_of(tick_ms); 3]);
}
