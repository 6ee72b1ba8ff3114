//! `slidegate size`, beside a real run of the same load. Processor time is that of docs/benchmarks.md.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use slidegate_testbed::{CommandCounts, Gateway, RedisServer, Upstream, ledger_keys};

use crate::redis::on_redis;
use crate::{PROGRAM, configure};

/// A load, and what was seen of it.
struct Run {
    gateways: usize,
    accounts: u32,
    quota: &'static str,
    consistency: &'static str,
    /// Before it is measured, and then. Units leave in the order in which they were spent.
    requests_per_second: [f64; 2],
    measured: Duration,
}

struct Seen {
    requests_per_second: f64,
    calls_per_1000: f64,
    refused_share: f64,
    bytes_per_second: f64,
    redis_bytes: f64,
}

/// The estimates may be off by a quarter.
const OFF: f64 = 0.25;
const WARM_UP: Duration = Duration::from_secs(5);

impl Run {
    fn see(&self) -> Seen {
        let (redis, upstream) = (RedisServer::start(), Upstream::simple());
        let keys = format!("identity = \"header:x-user\"\nconsistency = {:?}", self.consistency);
        let setup = on_redis(configure(&upstream), &redis.url())
            .key("trusted_proxies", "[\"127.0.0.0/8\"]")
            .policy("api", self.quota, &keys);
        let gateways: Vec<Gateway> = (0..self.gateways).map(|_| setup.start()).collect();
        let [before, then] = self.requests_per_second;
        self.send(&gateways, before, WARM_UP);
        let net = || {
            number(&redis, "stats", "total_net_input_bytes")
                + number(&redis, "stats", "total_net_output_bytes")
        };
        let (calls, bytes, began) = (CommandCounts::of([&redis]), net(), Instant::now());
        let (sent, refused) = self.send(&gateways, then, self.measured);
        let took_s = began.elapsed().as_secs_f64();
        let calls = CommandCounts::of([&redis]).since(&calls).calls("evalsha");
        Seen {
            requests_per_second: sent / took_s,
            calls_per_1000: calls as f64 * 1000.0 / sent,
            refused_share: refused / sent,
            bytes_per_second: (net() - bytes) / took_s,
            redis_bytes: ledger_keys(&redis).iter().map(|key| bytes_of(&redis, key)).sum(),
        }
    }

    /// Sends requests evenly to all gateways and for all accounts; how many, and how many were refused.
    fn send(&self, gateways: &[Gateway], per_second: f64, time: Duration) -> (f64, f64) {
        let pause = Duration::from_secs_f64(gateways.len() as f64 / per_second);
        let send = |gateway: &Gateway| {
            let (mut wire, began) = (gateway.wire(), Instant::now());
            let (mut sent, mut refused) = (0_u32, 0_u32);
            while began.elapsed() < time {
                let user = format!("X-User: user-{}\r\n", sent % self.accounts);
                refused += u32::from(wire.get("/", &user).status() == 429);
                sent += 1;
                thread::sleep((pause * sent).saturating_sub(began.elapsed()));
            }
            (f64::from(sent), f64::from(refused))
        };
        thread::scope(|scope| {
            let clients: Vec<_> =
                gateways.iter().map(|gateway| scope.spawn(move || send(gateway))).collect();
            let all = clients.into_iter().map(|client| client.join().unwrap());
            all.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        })
    }

    fn estimate(&self, seen: &Seen) -> Value {
        let output = Command::new(PROGRAM)
            .args(["size", "--json", "--skew", "0", "--quota", self.quota])
            .args(["--consistency", self.consistency])
            .args(["--requests", &format!("{:.0}/s", seen.requests_per_second)])
            .args(["--accounts", &self.accounts.to_string()])
            .args(["--gateways", &self.gateways.to_string()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn check(&self) -> Seen {
        let seen = self.see();
        let estimate = self.estimate(&seen);
        let is_close = |name: &str, seen: f64| {
            let estimated = estimate[name].as_f64().unwrap();
            let off = (estimated / seen - 1.0).abs();
            assert!(off <= OFF, "{name}: {estimated:.1}, and there were {seen:.1}; {estimate}");
        };
        is_close("calls_per_1000", seen.calls_per_1000);
        is_close("bytes_per_second", seen.bytes_per_second);
        seen
    }
}

fn bytes_of(redis: &RedisServer, key: &str) -> f64 {
    redis.command(&["MEMORY", "USAGE", key, "SAMPLES", "0"]).integer() as f64
}

/// A figure of `INFO`.
fn number(redis: &RedisServer, section: &str, name: &str) -> f64 {
    let info = redis.command(&["INFO", section]).text();
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap().trim().parse().unwrap()
}

#[test]
fn the_size_of_a_load_in_sync_is_as_estimated() {
    let run = Run {
        gateways: 2,
        accounts: 300,
        quota: "100/4s",
        consistency: "sync",
        requests_per_second: [1000.0; 2],
        measured: Duration::from_secs(7),
    };
    let seen = run.check();
    assert_eq!(seen.refused_share, 0.0);
    // The window has passed by then, and every account is as full as it stays.
    let estimated = run.estimate(&seen)["redis_bytes"].as_f64().unwrap();
    assert!((estimated / seen.redis_bytes - 1.0).abs() <= OFF, "{estimated} {}", seen.redis_bytes);
}

#[test]
fn the_size_of_a_load_with_leases_is_as_estimated() {
    let run = Run {
        gateways: 1,
        accounts: 20,
        quota: "1000/min",
        consistency: "async",
        requests_per_second: [200.0; 2],
        measured: Duration::from_secs(10),
    };
    assert_eq!(run.check().refused_share, 0.0);
}

#[test]
fn the_size_of_a_load_beyond_quotas_is_as_estimated() {
    let run = Run {
        gateways: 2,
        accounts: 5,
        quota: "10/s",
        consistency: "sync",
        requests_per_second: [50.0, 200.0],
        measured: Duration::from_secs(7),
    };
    let seen = run.check();
    let refused = run.estimate(&seen)["refused_share"].as_f64().unwrap();
    assert!((refused / seen.refused_share - 1.0).abs() <= OFF, "{refused} {}", seen.refused_share);
}
