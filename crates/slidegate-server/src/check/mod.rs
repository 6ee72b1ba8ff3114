//! `slidegate check`: what a file means, and what is wrong with it.

pub(crate) mod memory;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use slidegate::limit::Period;
use slidegate::policy::UnknownKeys;
use slidegate::{Policies, Quota};
use slidegate_proxy::{ListenAddress, RouteConfig};
use slidegate_redis::KeyTemplate;

use crate::config::{
    self, Config, ConfigSummary, CustomersConfig, Flags, GatewayConfig, KeySourceConfig,
    LimitSummary, Loaded, RedisConfig, Sources, StandingConfig, StoreConfig,
};
use crate::preflight;
use crate::terminal;

pub(crate) const AFTER_HELP: &str = "\
What `slidegate serve FILE` would refuse in this environment and on this machine is refused here, by
the same limiter. Nothing is connected to.

Exit codes:
  0  the file is good; there may be warnings
  1  the file is wrong, or has warnings and --deny-warnings is given
  2  the command line is wrong

Examples:
  slidegate check slidegate.toml
  slidegate check --deny-warnings slidegate.toml
  slidegate check --skip-files slidegate.toml      for a server on another machine
  generate-config | slidegate check -";

/// Arguments of `slidegate check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArguments {
    /// The file, or - for standard input
    #[arg(value_name = "FILE", required_unless_present = "config", conflicts_with = "config")]
    file: Option<PathBuf>,

    /// The same, written as for `serve`
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Exit with 1 if there are warnings
    #[arg(long)]
    deny_warnings: bool,

    /// Leave out the files and folders that it names, which may be on another machine
    #[arg(long)]
    skip_files: bool,
}

/// Prints what the file means; an error if it is invalid.
pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let path = arguments.file.as_ref().or(arguments.config.as_ref());
    let sources = Sources::of_command(path.map(PathBuf::as_path), Flags::default())?;
    let loaded =
        config::load_to_start(&sources.skipping_files(arguments.skip_files), preflight::check)?;
    terminal::show(&report(&loaded))?;
    if arguments.deny_warnings && !loaded.warnings.is_empty() {
        bail!("{}, and warnings are denied", warnings(&loaded));
    }
    Ok(())
}

fn warnings(loaded: &Loaded) -> String {
    match loaded.warnings.len() {
        0 => "no warnings".to_owned(),
        1 => "1 warning".to_owned(),
        many => format!("{many} warnings"),
    }
}

/// All that there is to say about a good configuration.
fn report(loaded: &Loaded) -> String {
    let config = &loaded.config;
    let summary = &config.limiter.summary;
    let mut text = String::new();
    section(&mut text, "listeners", listeners(config));
    section(&mut text, "store", store(config));
    section(&mut text, "policies", texts(&summary.policies));
    section(&mut text, "plans", plans(summary));
    section(&mut text, "customers", customers(config));
    section(&mut text, "exempt", summary.exempt.clone());
    section(&mut text, "blocked", summary.blocked.clone());
    section(&mut text, "memory, at worst", accounts(config));
    section(&mut text, "warnings", lines(&loaded.warnings));
    let _ = writeln!(text, "The configuration is good, with {}.", warnings(loaded));
    text
}

fn section(text: &mut String, heading: &str, lines: Vec<String>) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "{heading}");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
    text.push('\n');
}

fn lines<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn texts(limits: &[LimitSummary]) -> Vec<String> {
    limits.iter().map(|limit| limit.text.clone()).collect()
}

fn plans(summary: &ConfigSummary) -> Vec<String> {
    let mut plans = texts(&summary.plans);
    match summary.api_keys {
        0 => {}
        1 => plans.push("1 API key names its plan".to_owned()),
        many => plans.push(format!("{many} API keys name their plan")),
    }
    match summary.unknown_keys {
        UnknownKeys::Ignore => {
            plans.push("other API keys are ignored: the next source counts".to_owned());
        }
        UnknownKeys::Refuse => plans.push("other API keys are refused with 401".to_owned()),
        UnknownKeys::Own => {}
    }
    plans
}

/// Where customers are known from, besides the configuration.
fn customers(config: &Config) -> Vec<String> {
    let CustomersConfig { key_source, issuers } = &config.server.customers;
    let keys = key_source.iter().map(KeySourceConfig::shown);
    let tokens = issuers.iter().map(|issuer| {
        let claims =
            [("user", &issuer.user), ("customer", &issuer.customer), ("plan", &issuer.plan)];
        let claims = claims
            .iter()
            .filter_map(|(what, claim)| claim.as_ref().map(|claim| format!("{what} from {claim}")));
        format!("tokens of {}: {}", issuer.issuer, claims.collect::<Vec<_>>().join(", "))
    });
    keys.chain(tokens).collect()
}

fn listeners(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(gateway) = &config.server.gateway {
        let secure = if gateway.tls.is_some() { ", TLS" } else { "" };
        lines.push(format!("gateway    {}{secure}", addresses(&gateway.listen)));
        lines.extend(routes(gateway));
        lines.extend(standing(config));
        lines.extend(bounds(gateway));
    }
    if let Some(decisions) = &config.server.decisions {
        lines.push(format!("decisions  {}", addresses(&decisions.listen)));
    }
    if let Some(resp) = &config.server.resp {
        lines.push(format!("resp       {}", addresses(&resp.endpoint.listen)));
    }
    if let Some(rls) = &config.server.rls {
        let secure = if rls.tls.is_some() { ", TLS" } else { "" };
        lines.push(format!("rls        {}{secure}", addresses(&rls.listen)));
    }
    lines.push(format!("admin      {}", addresses(&config.server.admin.listen)));
    lines
}

fn routes(gateway: &GatewayConfig) -> impl Iterator<Item = String> {
    let route = |route: &RouteConfig| {
        let servers: Vec<String> = route.servers.iter().map(ToString::to_string).collect();
        let http2 = if route.http2 { ", HTTP/2" } else { "" };
        format!("           {} to {}{http2}", route.prefix, servers.join(", "))
    };
    gateway.proxy.routes.iter().map(route)
}

/// The path that the gateway answers itself.
fn standing(config: &Config) -> Option<String> {
    let StandingConfig { path, quotas } = config.limiter.standing.as_ref()?;
    let quotas = lines(quotas.as_slice()).join(" and ");
    Some(format!("           {path} tells callers where they stand, {quotas} for each address"))
}

/// What one client can take of the gateway.
fn bounds(gateway: &GatewayConfig) -> [String; 2] {
    let (bounds, timeouts) = (&gateway.proxy.bounds, &gateway.proxy.timeouts);
    let [total, each] = [bounds.connections, bounds.connections_per_address];
    let [all, own] = [bounds.in_flight, bounds.in_flight_per_address];
    let size = match bounds.body_bytes {
        Some(most) => format!("at most {}", bytes(most)),
        None => "any size".to_owned(),
    };
    let rate = match bounds.body_rate {
        0 => String::new(),
        rate => format!(", at {rate} bytes/s or more"),
    };
    let (body, tunnel) = (Period(timeouts.body), Period(timeouts.tunnel));
    [
        format!(
            "           {total} connections, {each} of one address; \
             {all} requests in flight, {own} of one address"
        ),
        format!("           bodies of {size} within {body}{rate}; tunnels idle for {tunnel}"),
    ]
}

fn addresses(listen: &[ListenAddress]) -> String {
    lines(listen).join(", ")
}

fn store(config: &Config) -> Vec<String> {
    match &config.server.store {
        StoreConfig::Memory { capacity, snapshot } => {
            let saved = snapshot.as_ref().map(|s| format!(", saved in {}", s.file.display()));
            vec![format!("in memory, for {capacity} accounts{}", saved.unwrap_or_default())]
        }
        StoreConfig::Redis(redis) => {
            let (layout, deadline) = (redis.layout, redis.deadline.as_millis());
            let scores = redis.score_unit.map(|unit| format!(" with scores in {unit}"));
            let scores = scores.unwrap_or_default();
            let place = redis.shown();
            let mut lines =
                vec![format!("Redis at {place}, {layout}{scores}, deadline {deadline} ms")];
            lines.extend(permissions(redis, &config.limiter.policies));
            lines
        }
    }
}

/// What a Redis user has to be allowed that has not all keys.
fn permissions(redis: &RedisConfig, policies: &Policies) -> Option<String> {
    let patterns = redis.builder().build().ok()?.key_patterns(policies);
    let granted: Vec<String> = patterns.iter().map(|pattern| format!("~{pattern}")).collect();
    Some(format!("keys for its user, if it may not touch all: {}", granted.join(" ")))
}

/// What one account of each policy takes at its worst, and a full store in all.
fn accounts(config: &Config) -> Vec<String> {
    let summary = &config.limiter.summary;
    let mut largest = 0;
    let mut lines = Vec::new();
    for policy in &summary.policies {
        for (plan, quotas) in quotas(policy, summary) {
            let here = memory::embedded(quotas);
            largest = largest.max(here);
            let there = match &config.server.store {
                StoreConfig::Redis(redis) if !policy.is_local => in_redis(redis, policy, quotas),
                _ => String::new(),
            };
            let what = format!("{}{plan}", policy.name);
            lines.push(format!("an account of {what}: {}{there}", bytes(here)));
        }
    }
    let capacity = match &config.server.store {
        StoreConfig::Memory { capacity, .. } => *capacity,
        StoreConfig::Redis(redis) => redis.capacity,
    };
    let all = bytes(largest.saturating_mul(capacity as u64));
    lines.push(format!("{capacity} accounts, each of the largest kind and full: {all}"));
    lines
}

/// The quotas of a policy, or those of each plan that its requests may have.
fn quotas<'o>(policy: &'o LimitSummary, summary: &'o ConfigSummary) -> Vec<(String, &'o [Quota])> {
    if !policy.quotas.is_empty() {
        return vec![(String::new(), &policy.quotas)];
    }
    let plans = summary.plans.iter();
    plans.map(|plan| (format!(", plan {}", plan.name), plan.quotas.as_slice())).collect()
}

fn in_redis(redis: &RedisConfig, policy: &LimitSummary, quotas: &[Quota]) -> String {
    let template = redis.key_templates.get(&policy.name).or(redis.key_template.as_ref());
    let template = template.cloned().unwrap_or_else(KeyTemplate::default).to_string();
    let key_len = template.len() + policy.name.len();
    format!(" here, {} in Redis", bytes(memory::redis(quotas, redis.layout, key_len)))
}

/// Bytes for people.
fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} bytes"),
        10_000..10_000_000 => format!("{} kB", count.div_ceil(1000)),
        10_000_000..10_000_000_000 => format!("{} MB", count.div_ceil(1_000_000)),
        _ => format!("{} GB", count.div_ceil(1_000_000_000)),
    }
}
