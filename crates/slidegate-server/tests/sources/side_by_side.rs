//! The sources' own limiters beside the gateway with the configuration for each, on the same keys
//! of one Redis: together they admit what one of them would.
//!
//! A source is played by the commands that it sends, in their order, with its members, and by the
//! clock of its own machine, which here is the one that Redis has.

use std::time::Duration;

use slidegate_testbed::{Gateway, ManualTime, RedisServer, Upstream, Wire};

use crate::example::{Example, send};

const CLIENT: &str = "203.0.113.7";
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A gateway with one of the configurations, and a Redis whose clock the test moves.
struct World {
    time: ManualTime,
    redis: RedisServer,
    gateway: Gateway,
    _upstream: Upstream,
}

/// Who was admitted how often.
#[derive(Debug, Default, PartialEq, Eq)]
struct Admitted {
    ours: usize,
    theirs: usize,
}

impl World {
    fn new(example: &str) -> Self {
        let time = ManualTime::new();
        let redis = RedisServer::options().time(&time).start();
        let upstream = Upstream::simple();
        let gateway = Example::load(example).start(&upstream, &redis);
        Self { time, redis, gateway, _upstream: upstream }
    }

    fn now_ms(&self) -> u64 {
        self.time.now_us() / 1000
    }

    fn integer(&self, command: &[&str]) -> u64 {
        u64::try_from(self.redis.command(command).integer()).unwrap()
    }

    /// Removes what has left the window by the source's clock, whose unit is that of the scores.
    fn remove_old(&self, key: &str, from: &str, until: u64) {
        self.redis.command(&["ZREMRANGEBYSCORE", key, from, &until.to_string()]);
    }

    /// So many requests to the gateway and to the source, taking turns.
    fn take_turns(
        &self,
        turns: usize,
        step: Duration,
        mut ours: impl FnMut(&mut Wire) -> bool,
        mut theirs: impl FnMut() -> bool,
    ) -> Admitted {
        let (mut wire, mut admitted) = (self.gateway.wire(), Admitted::default());
        for _ in 0..turns {
            self.time.advance(step);
            admitted.ours += usize::from(ours(&mut wire));
            self.time.advance(step);
            admitted.theirs += usize::from(theirs());
        }
        admitted
    }
}

impl Admitted {
    #[track_caller]
    fn assert_shared(&self, units: usize) {
        assert_eq!(self.ours + self.theirs, units, "{self:?}");
        assert!(self.ours >= units / 3 && self.theirs >= units / 3, "both had a part: {self:?}");
    }
}

fn passes(wire: &mut Wire, line: &str, headers: &str) -> bool {
    match send(wire, line, CLIENT, headers).status() {
        200 => true,
        429 => false,
        status => panic!("{line}: {status}"),
    }
}

/// The shortener behind Caddy: records first, counts then, and keeps what it denies.
#[test]
fn a_url_shortener_and_a_gateway_make_ten_links_a_minute_together() {
    let world = World::new("url-shortener.toml");
    let key = format!("rate_limit:{CLIENT}:post_shorten");
    let theirs = || {
        let now = world.now_ms();
        let member = format!("{now}-{:x}", fastrand::u64(..));
        world.redis.command(&["ZADD", &key, &now.to_string(), &member]);
        world.remove_old(&key, "0", now - 60_000);
        let count = world.integer(&["ZCARD", &key]);
        world.redis.command(&["ZRANGE", &key, "0", "0", "WITHSCORES"]);
        world.redis.command(&["EXPIRE", &key, "60"]);
        count <= 10
    };
    let ours = |wire: &mut Wire| passes(wire, "POST /shorten", "");
    let step = Duration::from_millis(1);
    world.take_turns(15, step, ours, theirs).assert_shared(10);
    world.time.advance(MINUTE);
    world.take_turns(15, step, ours, theirs).assert_shared(10);
    world.time.advance(MINUTE);
    // As its author tried it: fifteen in a loop, and again after Retry-After.
    let mut wire = world.gateway.wire();
    let statuses: Vec<bool> = (0..15).map(|_| ours(&mut wire)).collect();
    assert_eq!(statuses, [[true; 10].as_slice(), &[false; 5]].concat());
    let refused = send(&mut wire, "POST /shorten", CLIENT, "");
    let retry_after: u64 = refused.value("retry-after").unwrap().parse().unwrap();
    world.time.advance(Duration::from_secs(retry_after));
    assert!(ours(&mut wire), "after {retry_after} seconds");
}

/// The API with plans: counts before it records, and takes back what it denies.
#[test]
fn an_api_with_plans_and_a_gateway_admit_sixty_a_minute_together() {
    let world = World::new("saas-plans.toml");
    let window = |name: &str, length: Duration, max: u64| {
        let (now, key) = (world.now_ms(), format!("ratelimit:{name}:{CLIENT}"));
        let length_ms = u64::try_from(length.as_millis()).unwrap();
        world.remove_old(&key, "0", now - length_ms);
        let count = world.integer(&["ZCARD", &key]);
        let member = format!("{now}:{:06x}", fastrand::u32(..1 << 24));
        world.redis.command(&["ZADD", &key, &now.to_string(), &member]);
        world.redis.command(&["PEXPIRE", &key, &length_ms.to_string()]);
        if count >= max {
            let now = now.to_string();
            world.redis.command(&["ZREMRANGEBYSCORE", &key, &now, &now]);
            world.redis.command(&["ZRANGE", &key, "0", "0", "WITHSCORES"]);
        }
        count < max
    };
    let theirs = || window("min", MINUTE, 60) && window("day", DAY, 10_000);
    let ours = |wire: &mut Wire| passes(wire, "GET /v1/reports", "");
    let step = Duration::from_millis(2);
    world.take_turns(45, step, ours, theirs).assert_shared(60);
    assert_eq!(world.integer(&["ZCARD", &format!("ratelimit:day:{CLIENT}")]), 60);
}

const SCRIPT: &str = "
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1] - ARGV[2])
local count = redis.call('ZCARD', KEYS[1])
if count < tonumber(ARGV[3]) then
  redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4])
  redis.call('EXPIRE', KEYS[1], ARGV[2] / 1000 + 10)
  return {1, ARGV[3] - count - 1}
end
return {0, 0}";

/// The production guide: a script, which records what it admits.
#[test]
fn a_production_guides_script_and_a_gateway_share_every_axis() {
    let world = World::new("production-guide.toml");
    let tenant = "X-Tenant: acme\r\n";
    let user = "X-User-Id: ann\r\n";
    for (key, window, max, line, headers) in [
        ("throttle:endpoint:ann:expensive", MINUTE, 30, "GET /reports/2026", user),
        ("throttle:tenant:acme:api", DAY, 100, "GET /api/orders", tenant),
        ("throttle:ip:203.0.113.7:public", MINUTE, 120, "GET /", ""),
    ] {
        // What another axis has left of the address is not to matter.
        world.time.advance(MINUTE);
        let theirs = || {
            let now = world.now_ms().to_string();
            let window = window.as_millis().to_string();
            let member = format!("{now}:{}", fastrand::u32(..999_999));
            let call = ["EVAL", SCRIPT, "1", key, &now, &window, &max.to_string(), &member];
            world.redis.command(&call).array()[0].clone().integer() == 1
        };
        let ours = |wire: &mut Wire| passes(wire, line, headers);
        let step = Duration::from_millis(1);
        world.take_turns(max, step, ours, theirs).assert_shared(max);
    }
}

#[test]
fn an_api_service_and_a_gateway_admit_a_hundred_a_minute_together() {
    share_with_the_api_service(&format!("ratelimit:ip:{CLIENT}"), "");
}

#[test]
fn an_api_service_and_a_gateway_admit_a_hundred_a_minute_of_a_user_together() {
    share_with_the_api_service("ratelimit:user:42", "X-User-Id: 42\r\n");
}

/// The service on Bun: counts before it records, in seconds, with the time as the member. It compares
/// with `>`, so it admits one more than its limit, and keeps what it denies.
fn share_with_the_api_service(key: &str, headers: &str) {
    let world = World::new("api-service.toml");
    let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
    let theirs = || {
        let now = world.now_ms();
        world.redis.command(&["ZREMRANGEBYSCORE", key, "0", &seconds(now - 60_000)]);
        let count = world.integer(&["ZCARD", key]);
        world.redis.command(&["ZADD", key, &seconds(now), &seconds(now)]);
        world.redis.command(&["EXPIRE", key, "60"]);
        count <= 100
    };
    let ours = |wire: &mut Wire| passes(wire, "GET /api/v1/items", headers);
    let admitted = world.take_turns(150, Duration::from_millis(1), ours, theirs);
    assert_eq!(admitted, Admitted { ours: 50, theirs: 51 }, "the one more is its own");
}
