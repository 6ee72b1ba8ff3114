//! `slidegate size`: the gateways, Redis servers and memory that a load takes.

mod constants;
mod load;
mod model;
mod store;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use slidegate::{Consistency, Policies, Policy, Quota, Scope, Source};
use slidegate_redis::Layout;

use self::load::Load;
use self::model::{Estimate, Fleet, SizedPolicy};
use crate::config::{self, Flags, Sources, StoreConfig};
use crate::preflight;
use crate::terminal;

pub(crate) const AFTER_HELP: &str = "\
The estimate is computed from what decisions cost where docs/benchmarks.md was measured, and from how
often gateways ask Redis. docs/scale.md has the model and how far it is from real runs. Nothing is
connected to.

Examples:
  slidegate size --requests 200000/s --accounts 5000000 --quota 1000/min --consistency async
  slidegate size slidegate.toml --requests 20000/s --accounts 100000
  slidegate size slidegate.toml --requests 20000/s --accounts 100000 --policy api --json";

/// Arguments of `slidegate size`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("limits").required(true).args(["file", "quota"])))]
pub(crate) struct SizeArguments {
    /// The configuration file, for its policies and its layout; or --quota
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Requests of all gateways together, such as 200000/s
    #[arg(long, value_name = "RATE")]
    requests: Rate,

    /// Accounts that they are spread over
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    accounts: u64,

    /// Only this policy of the file; may be repeated
    #[arg(long, value_name = "NAME", requires = "file")]
    policy: Vec<String>,

    /// A quota of each account, in place of a file; may be repeated
    #[arg(long, value_name = "QUOTA")]
    quota: Vec<Quota>,

    /// Whether --quota is decided in Redis or from prefetched units
    #[arg(long, value_name = "MODE", conflicts_with = "file", default_value = "sync",
          value_parser = ["sync", "async"])]
    consistency: String,

    /// How uneven the accounts are: 0 if all are equally busy, 1 as Zipf's law has it
    #[arg(long, value_name = "EXPONENT", default_value = "1", value_parser = skew)]
    skew: f64,

    /// Milliseconds to Redis and back
    #[arg(long, value_name = "MS", default_value = "0.3", value_parser = round_trip)]
    round_trip_ms: f64,

    /// Processor cores of a gateway
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cores: u32,

    /// How many gateways there are, if that is known
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    gateways: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Requests in some time, written as a quota is.
#[derive(Debug, Clone, Copy)]
struct Rate(Quota);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let quota = text.parse().map_err(|_| "expected a rate such as 200000/s or 5000/min")?;
        Ok(Self(quota))
    }
}

impl Rate {
    fn per_second(self) -> f64 {
        f64::from(self.0.units().get()) / self.0.window().as_secs_f64()
    }
}

fn skew(text: &str) -> Result<f64, String> {
    number(text, 0.0, 3.0)
}

fn round_trip(text: &str) -> Result<f64, String> {
    number(text, 0.01, 10_000.0)
}

fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("expected a number from {least} to {most}"))
}

/// Prints the estimate.
pub(crate) fn run(arguments: &SizeArguments) -> anyhow::Result<()> {
    let (policies, layout) = match &arguments.file {
        Some(file) => from_file(file, &arguments.policy)?,
        None => (from_flags(arguments)?, Layout::default()),
    };
    let load = Load {
        requests_per_second: arguments.requests.per_second(),
        accounts: arguments.accounts,
        skew: arguments.skew,
    };
    let fleet = Fleet {
        cores: arguments.cores,
        gateways: arguments.gateways,
        round_trip: Duration::from_secs_f64(arguments.round_trip_ms / 1000.0),
        layout,
    };
    let estimate = model::estimate(load, &policies, fleet);
    if arguments.json {
        return terminal::show(&(serde_json::to_string_pretty(&estimate)? + "\n"));
    }
    terminal::show(&report(arguments, &policies, &estimate))
}

/// The shared policies of a file, or those of them that are named.
fn from_file(
    file: &std::path::Path,
    named: &[String],
) -> anyhow::Result<(Vec<SizedPolicy>, Layout)> {
    let sources = Sources::of_command(Some(file), Flags::default())?;
    let loaded = config::load_to_start(&sources.skipping_files(true), preflight::check)?;
    let config = &loaded.config;
    let layout = match &config.server.store {
        StoreConfig::Redis(redis) => redis.layout,
        StoreConfig::Memory { .. } => bail!(
            "{}: store.url: missing; accounts are in each gateway's memory, and gateways share nothing \
             that could be sized",
            file.display()
        ),
    };
    let policies = &config.limiter.policies;
    for name in named {
        let policy = policies.iter().find(|policy| *policy.name == **name);
        let policy = policy.with_context(|| {
            let names: Vec<&str> = policies.names().map(|name| &**name).collect();
            format!("--policy {name:?}: there is no such policy; there are {}", names.join(", "))
        })?;
        ensure!(policy.scope == Scope::Shared, "--policy {name:?}: it is local, and asks no Redis");
    }
    let is_named = |name: &str| named.is_empty() || named.iter().any(|other| other == name);
    let sized = SizedPolicy::all(policies).filter(|policy| is_named(&policy.name));
    let sized: Vec<SizedPolicy> = sized.collect();
    ensure!(!sized.is_empty(), "{}: no policy asks Redis", file.display());
    Ok((sized, layout))
}

fn from_flags(arguments: &SizeArguments) -> anyhow::Result<Vec<SizedPolicy>> {
    let consistency = match &*arguments.consistency {
        "async" => Consistency::ASYNC,
        _ => Consistency::Sync,
    };
    let quotas = arguments.quota.iter().copied();
    let policy = Policy::new("api").identity([Source::User]).consistency(consistency);
    let policy = quotas.fold(policy, Policy::quota);
    let policies = Policies::builder().policy(policy).build().context("--quota")?;
    Ok(SizedPolicy::all(&policies).collect())
}

fn report(arguments: &SizeArguments, policies: &[SizedPolicy], estimate: &Estimate) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<11}{value}");
    };
    let spread = if arguments.skew == 0.0 {
        "equally busy".to_owned()
    } else {
        format!("the busiest with {} of the requests", percent(estimate.busiest_share))
    };
    line("load", format!("{}, {} accounts, {spread}", arguments.requests.0, arguments.accounts));
    for policy in policies {
        line("policy", policy.text.clone());
    }
    line("refused", percent(estimate.refused_share));
    line(
        "gateways",
        format!(
            "{} of {} cores, busy to {}{}",
            estimate.gateways,
            arguments.cores,
            percent(estimate.gateway_busy),
            if arguments.gateways.is_none() { "; one of them may be away" } else { "" }
        ),
    );
    line("redis", redis(estimate));
    if estimate.busiest_account_busy > constants::MAX_BUSY {
        let busy = percent(estimate.busiest_account_busy);
        line(
            "warning",
            format!("the busiest account needs {busy} of a core, and it is on one server"),
        );
    }
    line(
        "calls",
        format!(
            "{:.0} to Redis a second, {:.0} for 1,000 requests; {} of the requests wait for one",
            estimate.calls_per_second,
            estimate.calls_per_1000,
            percent(estimate.waiting_share)
        ),
    );
    line("network", format!("{} a second to and from Redis", amount(estimate.bytes_per_second)));
    line(
        "memory",
        format!(
            "{} in Redis for {:.0} live accounts, {} each; twice that with a replica each",
            amount(estimate.redis_bytes),
            estimate.live_accounts,
            amount(estimate.redis_bytes / estimate.live_accounts.max(1.0)),
        ),
    );
    text + "\n" + &assumptions(arguments)
}

fn redis(estimate: &Estimate) -> String {
    let busy = percent(estimate.redis_busy);
    match estimate.redis_servers {
        1 => format!("one server, its core busy to {busy}; Sentinel for a replica"),
        many => format!("a Cluster of {many} primaries, the core of each busy to {busy}"),
    }
}

fn assumptions(arguments: &SizeArguments) -> String {
    format!(
        "Assumed: every request counts in every policy above, for one account; a round trip to Redis takes\n\
         {} ms; cores are as fast as those of docs/benchmarks.md, and are to be busy to at most {}; requests\n\
         and answers are short, over HTTP/1.1 without TLS. Plans: each account has the largest.\n",
        arguments.round_trip_ms,
        percent(constants::MAX_BUSY),
    )
}

fn percent(part: f64) -> String {
    match part * 100.0 {
        0.0 => "0 %".to_owned(),
        small if small < 1.0 => format!("{small:.2} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Bytes for people.
fn amount(bytes: f64) -> String {
    match bytes {
        0.0..1e4 => format!("{bytes:.0} bytes"),
        0.0..1e7 => format!("{:.0} kB", bytes / 1e3),
        0.0..1e10 => format!("{:.0} MB", bytes / 1e6),
        _ => format!("{:.0} GB", bytes / 1e9),
    }
}
