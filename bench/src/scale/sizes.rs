//! What `slidegate size` says of loads from small to large.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::ensure;
use serde_json::Value;

use crate::harness::slidegate;

const REQUESTS_PER_SECOND: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

/// Rows of a table: requests, how many of them each account has in ten seconds, and the machines in sync
/// and with leases.
pub fn table() -> anyhow::Result<String> {
    let mut table = "\
| requests a second | accounts | `consistency` | gateways | Redis | calls for 1,000 requests | memory in Redis |
|---|---|---|---|---|---|---|
"
    .to_owned();
    for requests in REQUESTS_PER_SECOND {
        for (accounts, kind) in [(requests * 10, "quiet"), (requests / 100, "busy")] {
            for consistency in ["sync", "async"] {
                let size = size(requests, accounts, consistency)?;
                let number = |name: &str| size[name].as_f64().unwrap_or(f64::NAN);
                let redis = match number("redis_servers") {
                    1.0 => "1 server".to_owned(),
                    many => format!("{many} primaries"),
                };
                let _ = writeln!(
                    table,
                    "| {requests} | {accounts}, {kind} | {consistency} | {} | {redis}, {:.0} % busy | {:.0} | {} |",
                    number("gateways"),
                    number("redis_busy") * 100.0,
                    number("calls_per_1000"),
                    amount(number("redis_bytes")),
                );
            }
        }
    }
    Ok(table.trim_end().to_owned())
}

fn size(requests: u64, accounts: u64, consistency: &str) -> anyhow::Result<Value> {
    let output = Command::new(slidegate()?)
        .args(["size", "--json", "--skew", "0.6", "--quota", "10000/min"])
        .args(["--requests", &format!("{requests}/s"), "--accounts", &accounts.to_string()])
        .args(["--consistency", consistency])
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn amount(bytes: f64) -> String {
    match bytes {
        0.0..1e9 => format!("{:.1} MB", bytes / 1e6),
        _ => format!("{:.1} GB", bytes / 1e9),
    }
}
