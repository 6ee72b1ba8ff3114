//! What many policies and long lists of networks add to a decision.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use http::Method;
use slidegate::policy::PoliciesBuilder;
use slidegate::{AccessList, Facts, Gate, MemoryStore, Policies, Policy, Quota};

use crate::harness::{Directory, slidegate};

const POLICIES: u32 = 1000;
const NETWORKS: u32 = 100_000;
const MANY_NETWORKS: u32 = 1_000_000;
/// The target for reading so many.
const MOST_FOR_MANY: Duration = Duration::from_secs(2);
/// Decisions of one round. Each candidate has a round in turn.
const DECISIONS: u32 = 20_000;
const ROUNDS: usize = 15;

/// Measures, and prints the table and the result.
pub fn run() -> anyhow::Result<()> {
    let base =
        || Policies::builder().policy(Policy::new("api").quota(Quota::per_minute(1_000_000)));
    let with_policies = (0..POLICIES).fold(base(), |builder, nth| {
        let path = format!("/api/v1/things-{nth}/{{id}}");
        builder.policy(Policy::new(format!("policy-{nth}")).path(path).quota(Quota::per_minute(9)))
    });
    let networks = (0..NETWORKS).fold(AccessList::new(), |list, nth| list.network(network(nth)));
    let candidates = [
        ("one policy", gate(base())?),
        ("1,000 policies with paths", gate(with_policies)?),
        ("100,000 blocked networks", gate(base().blocked(networks))?),
    ];
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for ((_, gate), times) in candidates.iter().zip(&mut times) {
            times.push(round(gate)?);
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6 / f64::from(DECISIONS)
    };
    let us = times.each_mut().map(median);
    println!("a decision for a path that no policy with a path matches, from memory:");
    for ((name, _), us) in candidates.iter().zip(us) {
        println!("{name:<28}{us:>8.3} µs");
    }
    let loaded = load_file()?;
    println!(
        "\nRESULT policies added_us_1000={:.2} networks_added_us_100k={:.2} million_networks_s={:.2}",
        us[1] - us[0],
        us[2] - us[0],
        loaded.as_secs_f64()
    );
    Ok(())
}

/// How much longer the program takes to read and check a configuration with a file of a million networks.
fn load_file() -> anyhow::Result<Duration> {
    let (program, directory) = (slidegate()?, Directory::new()?);
    let file = directory.path("networks");
    let text = format!(
        "[gateway]\nupstream = \"http://127.0.0.1:3000\"\n[blocked]\nnetworks_file = {file:?}\n\
         [[policy]]\nname = \"api\"\nquotas = \"10/min\"\n"
    );
    let configuration = directory.write("slidegate.toml", &text)?;
    let check = |networks: u32| {
        let lines: String = (0..networks).map(|nth| format!("{}\n", network(nth))).collect();
        directory.write("networks", &lines)?;
        let began = Instant::now();
        let output = Command::new(&program).arg("check").arg(&configuration).output()?;
        let took = began.elapsed();
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "slidegate check: {complaint}");
        Ok(took)
    };
    let (one, many) = (check(1)?, check(MANY_NETWORKS)?);
    println!("slidegate check with a networks_file of 1 line: {one:.2?}, of 1,000,000: {many:.2?}");
    ensure!(many < MOST_FOR_MANY, "a million networks take longer than {MOST_FOR_MANY:?}");
    Ok(many.saturating_sub(one))
}

/// Networks of several lengths, spread over the addresses that clients do not have here.
fn network(nth: u32) -> slidegate::policy::Network {
    let bits = 20 + nth % 13;
    let address = Ipv4Addr::from(0x4000_0000 | (nth.wrapping_mul(2_654_435_761) & 0x3fff_ffff));
    let network = u32::from(address) & (u32::MAX << (32 - bits));
    let text = format!("{}/{bits}", Ipv4Addr::from(network));
    text.parse().expect("bits after the prefix are zero")
}

fn gate(policies: PoliciesBuilder) -> anyhow::Result<Gate> {
    Ok(Gate::new(policies.build()?, MemoryStore::new()))
}

fn round(gate: &Gate) -> anyhow::Result<Duration> {
    let began = Instant::now();
    for nth in 0..DECISIONS {
        let client = Ipv4Addr::from(0x0a00_0000 + nth % 1000).into();
        let facts = Facts::new(&Method::GET, "/api/v1/orders/17").client(client);
        assert!(gate.decide_now(&facts)?.is_allowed());
    }
    Ok(began.elapsed())
}
