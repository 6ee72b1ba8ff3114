//! Limiters that keep a sliding log the usual way, and this store in the sorted-set layout, count
//! on the same keys: each sees what the other has spent.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use slidegate::limit::{Charges, Receipt};
use slidegate::policy::Prefixes;
use slidegate::{Identity, Quota, Store};
use slidegate_redis::{Layout, RedisStore, ScoreUnit};
use slidegate_testbed::{ManualTime, RedisServer};

use crate::support::Payer;

/// One of the five, by the commands that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Records first, in milliseconds, and counts what it denies.
    S0,
    /// Takes back what it denies: everything of that millisecond.
    S1,
    /// In seconds; the time is the member; admits one more than its limit; counts what it denies.
    S2,
    /// All in a script.
    S3,
    /// In nanoseconds, which are the member too; counts what it denies.
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

    fn unit(self) -> ScoreUnit {
        match self {
            Self::S2 => ScoreUnit::Seconds,
            Self::S4 => ScoreUnit::Nanoseconds,
            Self::S0 | Self::S1 | Self::S3 => ScoreUnit::Milliseconds,
        }
    }

    /// A time as it writes it.
    fn time(self, ms: u64) -> String {
        match self {
            Self::S2 => format!("{}.{:03}", ms / 1000, ms % 1000),
            Self::S4 => format!("{ms}000000"),
            Self::S0 | Self::S1 | Self::S3 => ms.to_string(),
        }
    }

    fn counts_what_it_denies(self) -> bool {
        matches!(self, Self::S0 | Self::S2 | Self::S4)
    }
}

const S3_SCRIPT: &str = "
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1] - ARGV[2])
local count = redis.call('ZCARD', KEYS[1])
if count < tonumber(ARGV[3]) then
    redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4])
    redis.call('EXPIRE', KEYS[1], ARGV[2] / 1000 + 10)
    return { 1, ARGV[3] - count - 1 }
end
return { 0, 0 }";

/// One of the five at work on a key, at most so many in a minute, by a clock of its own.
struct Theirs {
    source: Source,
    connection: MultiplexedConnection,
    key: &'static str,
    units: u32,
    asked: u64,
}

const MS: Duration = Duration::from_millis(1);
const MINUTE_MS: u64 = 60_000;

impl Theirs {
    /// No two at the same millisecond: to S1, S2 and S4 they would be one.
    async fn allow(&mut self, now_ms: u64) -> bool {
        self.asked += 1;
        let (now, asked) = (self.source.time(now_ms), self.asked);
        let left = self.source.time(now_ms - MINUTE_MS);
        match self.source {
            Source::S0 => self.record_and_count(&now, &left, &format!("{now}-{asked:x}")).await,
            Source::S1 => {
                let member = format!("{now}:{asked:06x}");
                let count = self.count_and_record(&now, &left, &member, "PEXPIRE").await;
                if count >= self.units {
                    self.take_back(&now).await;
                }
                count < self.units
            }
            Source::S2 => {
                // One less, for it admits one more.
                self.count_and_record(&now, &left, &now, "EXPIRE").await < self.units
            }
            Source::S3 => self.run_script(&now, &format!("{now}:{asked}")).await,
            Source::S4 => self.count_and_record(&now, &left, &now, "EXPIRE").await < self.units,
        }
    }

    async fn record_and_count(&mut self, now: &str, left: &str, member: &str) -> bool {
        let mut pipe = redis::pipe();
        pipe.cmd("ZADD").arg(self.key).arg(now).arg(member).ignore();
        pipe.cmd("ZREMRANGEBYSCORE").arg(self.key).arg(0).arg(left).ignore();
        pipe.cmd("ZCARD").arg(self.key);
        pipe.cmd("ZRANGE").arg(self.key).arg(0).arg(0).arg("WITHSCORES");
        pipe.cmd("EXPIRE").arg(self.key).arg(MINUTE_MS / 1000).ignore();
        let (count, _oldest): (u32, Vec<String>) =
            pipe.query_async(&mut self.connection).await.unwrap();
        count <= self.units
    }

    /// How many there were before this one.
    async fn count_and_record(&mut self, now: &str, left: &str, member: &str, expire: &str) -> u32 {
        let after = if expire == "PEXPIRE" { MINUTE_MS } else { MINUTE_MS / 1000 };
        let mut pipe = redis::pipe();
        pipe.cmd("ZREMRANGEBYSCORE").arg(self.key).arg("0").arg(left).ignore();
        pipe.cmd("ZCARD").arg(self.key);
        pipe.cmd("ZADD").arg(self.key).arg(now).arg(member).ignore();
        pipe.cmd(expire).arg(self.key).arg(after).ignore();
        let (count,): (u32,) = pipe.query_async(&mut self.connection).await.unwrap();
        count
    }

    async fn take_back(&mut self, now: &str) {
        let mut pipe = redis::pipe();
        pipe.cmd("ZREMRANGEBYSCORE").arg(self.key).arg(now).arg(now).ignore();
        pipe.cmd("ZRANGE").arg(self.key).arg(0).arg(0).arg("WITHSCORES");
        let (_oldest,): (Vec<String>,) = pipe.query_async(&mut self.connection).await.unwrap();
    }

    async fn run_script(&mut self, now: &str, member: &str) -> bool {
        let mut call = redis::cmd("EVAL");
        call.arg(S3_SCRIPT).arg(1).arg(self.key).arg(now).arg(MINUTE_MS);
        call.arg(self.units).arg(member);
        let (allowed, _remaining): (u32, u32) =
            call.query_async(&mut self.connection).await.unwrap();
        allowed == 1
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
            .score_unit(source.unit())
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
        self.time.advance(MS);
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
async fn slidegate_and_a_source_see_each_others_spends() {
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
        // Of which each has taken a millisecond since the first.
        let wait = Duration::from_secs(40) - 4 * MS;
        assert_eq!(denied.standings[0].retry_after(), wait, "{source:?}");
        world.time.advance(wait - MS);
        assert!(!world.look().await.spent, "{source:?}");
        world.time.advance(MS);
        assert_eq!(world.remaining().await, 2, "{source:?}: the first two have left");
        assert!(world.ours(2).await.spent);
        assert!(!world.theirs().await, "{source:?}: ours fill theirs");
        world.time.advance(Duration::from_secs(20) + 10 * MS);
        let held = if source.counts_what_it_denies() { 3 } else { 2 };
        assert_eq!(world.remaining().await, 10 - held, "{source:?}");
        assert!(world.theirs().await && world.ours(1).await.spent);
        world.time.advance(Duration::from_secs(72));
        assert_eq!(world.keys(), BTreeSet::new(), "{source:?}: idle, it goes by itself");
    }
}

/// Whoever asks, and whenever, the two admit no more in any minute than one budget has.
#[tokio::test]
async fn slidegate_and_a_source_admit_one_budget_together() {
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
            let (cost, ours) = (random.u32(1..=3), random.bool());
            let cost = if ours { cost } else { 1 };
            let passed = if ours { world.ours(cost).await.spent } else { world.theirs().await };
            let now_ms = world.now_ms();
            if passed {
                admitted.push((now_ms, cost, ours));
            }
            let within = admitted.iter().filter(|(at_ms, ..)| now_ms - at_ms < MINUTE_MS);
            let within: u32 = within.map(|(_, cost, _)| cost).sum();
            assert!(within <= 12, "{source:?}: {within} in the minute that ends at {now_ms}");
            // Unless denied requests are recorded, all that is not admitted is free.
            let remaining = world.remaining().await;
            assert!(remaining <= 12 - within, "{source:?}: {remaining} beside {within}");
            assert!(source.counts_what_it_denies() || remaining == 12 - within, "{source:?}");
        }
        let of = |whose: bool| admitted.iter().filter(|(_, _, ours)| *ours == whose).count();
        assert!(of(true) > 20 && of(false) > 20, "{source:?}: {} and {}", of(true), of(false));
    }
}

#[tokio::test]
async fn entries_of_a_source_with_a_clock_ahead_count_from_when_they_are_seen() {
    for source in SOURCES {
        let mut world = World::new(source, 10).await;
        let ahead_ms = world.now_ms() + 3_600_000;
        for later_ms in 0..4 {
            assert!(world.theirs.allow(ahead_ms + later_ms).await);
        }
        let receipt = world.ours(6).await;
        assert!(receipt.spent && receipt.standings[0].remaining() == 0, "{source:?}");
        let denied = world.ours(1).await;
        assert!(!denied.spent, "{source:?}");
        assert_eq!(denied.standings[0].retry_after(), Duration::from_secs(60), "{source:?}");
        world.time.advance(Duration::from_secs(60));
        assert_eq!(
            world.remaining().await,
            10,
            "{source:?}: no identity is locked out for an hour"
        );
        assert!(world.theirs.allow(ahead_ms + 60_000).await, "{source:?}");
        assert_eq!(world.remaining().await, 9, "{source:?}");
    }
}

#[tokio::test]
async fn entries_of_a_source_with_a_clock_behind_leave_by_that_clock() {
    for source in SOURCES {
        let mut world = World::new(source, 10).await;
        assert!(world.ours(1).await.spent);
        let behind_ms = world.now_ms() - 20_000;
        for later_ms in 0..4 {
            assert!(world.theirs.allow(behind_ms + later_ms).await);
        }
        assert_eq!(world.remaining().await, 5, "{source:?}: theirs and ours");
        assert!(world.ours(5).await.spent);
        let denied = world.ours(1).await;
        assert_eq!(denied.standings[0].retry_after(), Duration::from_secs(40), "{source:?}");
        let allowed = world.theirs.allow(behind_ms + 4).await;
        assert!(!allowed, "{source:?}: they see ours, though ahead");
        world.time.advance(Duration::from_secs(40) + 4 * MS);
        assert_eq!(world.remaining().await, 4, "{source:?}: all of theirs have left");
    }
}

#[tokio::test]
async fn members_of_any_spelling_count() {
    let world = World::new(Source::S3, 100).await;
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
    let tomorrow = (now_ms + 86_400_000).to_string();
    let scores = [half.as_str(), "+inf", "1e300", &tomorrow, &format!("{now_ms}.5")];
    for (number, score) in scores.into_iter().enumerate() {
        world.add(score, &format!("scored {number}"));
        held += 1;
        assert_eq!(world.remaining().await, 100 - held, "{score}");
    }
    // Or long ago, or of another sign: those have left.
    for score in ["-inf", "-5", "0", "946684800000", &(now_ms - 60_000).to_string()] {
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

/// The fifth writes nanoseconds, and so does this store: 400 requests that alternate between the two
/// find one budget of 100.
#[tokio::test]
async fn alternating_with_a_limiter_in_nanoseconds_one_budget_is_admitted() {
    let mut world = World::new(Source::S4, 100).await;
    let mut admitted = 0;
    for _ in 0..200 {
        admitted += u32::from(world.theirs().await);
        admitted += u32::from(world.ours(1).await.spent);
    }
    assert_eq!(admitted, 100);
}

/// Scores are doubles: whatever the unit, a spend never seems older than it is, to us or to others.
#[tokio::test]
async fn a_score_is_never_before_its_spend_in_any_unit() {
    let units = [
        (ScoreUnit::Seconds, 1_000_000_000_u128),
        (ScoreUnit::Milliseconds, 1_000_000),
        (ScoreUnit::Microseconds, 1_000),
        (ScoreUnit::Nanoseconds, 1),
    ];
    let time = ManualTime::new();
    let server = RedisServer::options().time(&time).start();
    for (unit, nanos) in units {
        let builder = RedisStore::builder(server.url()).layout(Layout::SortedSet);
        let template = format!("{unit}:<identity>").parse().unwrap();
        let store = builder.score_unit(unit).key_template(template).build().unwrap();
        for number in 0..64 {
            // Whole milliseconds, of which three in four are no double in nanoseconds.
            time.advance(Duration::from_micros(1000 - time.now_us() % 1000));
            let spent_ns = u128::from(time.now_us()) * 1000;
            let user = number.to_string();
            let payer = Payer::new("api", Identity::user(&user), &[Quota::per_second(1)]);
            let one = Charges::from(payer.charge());
            assert!(store.spend(&one).await.unwrap().spent);
            let key = format!("{unit}:{user}");
            let found = server.command(&["ZRANGE", &key, "0", "0", "WITHSCORES"]).array();
            let score = found.into_iter().nth(1).unwrap().text();
            let score_ns = exact_nanos(score.parse().unwrap(), nanos);
            assert!(score_ns >= spent_ns, "{unit}: {score} for {spent_ns} ns");
            assert!(score_ns - spent_ns < 1000, "{unit}: {score} for {spent_ns} ns");

            time.advance(Duration::from_millis(999));
            let denied = store.peek(&one).await.unwrap();
            assert!(!denied.spent, "{unit}: not a window yet");
            assert_eq!(denied.standings[0].retry_after(), MS, "{unit}");
            time.advance(MS);
            assert!(store.peek(&one).await.unwrap().spent, "{unit}: exactly a window");
        }
    }
}

/// The value of a double in nanoseconds, rounded down, without the rounding of doubles.
fn exact_nanos(score: f64, nanos_per_unit: u128) -> u128 {
    let bits = score.to_bits();
    let (exponent, fraction) = ((bits >> 52) as i32 - 1075, bits & ((1 << 52) - 1) | 1 << 52);
    let scaled = u128::from(fraction) * nanos_per_unit;
    if exponent < 0 { scaled >> -exponent } else { scaled << exponent }
}

#[tokio::test]
async fn scores_in_another_unit_are_an_error_and_stay_as_they_are() {
    for (source, unit) in [
        (Source::S4, ScoreUnit::Milliseconds),
        (Source::S4, ScoreUnit::Microseconds),
        (Source::S0, ScoreUnit::Nanoseconds),
        (Source::S0, ScoreUnit::Seconds),
        (Source::S2, ScoreUnit::Milliseconds),
        (Source::S2, ScoreUnit::Nanoseconds),
    ] {
        let mut world = World::new(source, 10).await;
        let (template, ..) = source.naming();
        let other = RedisStore::builder(world.server.url())
            .layout(Layout::SortedSet)
            .score_unit(unit)
            .key_template(template.parse().unwrap())
            .build()
            .unwrap();
        for _ in 0..5 {
            assert!(world.theirs().await);
        }
        let range = || world.server.command(&["ZRANGE", world.theirs.key, "0", "-1", "WITHSCORES"]);
        let before = format!("{:?}", range());
        let one = Charges::from(world.payer.charge());
        for answer in [other.peek(&one).await, other.spend(&one).await] {
            let error = answer.unwrap_err();
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains("SCOREUNIT") && cause.contains("score_unit"), "{cause}");
        }
        assert_eq!(format!("{:?}", range()), before, "{source:?} read in {unit}");
        assert!(world.ours(1).await.spent, "who reads it right goes on");
    }
}
