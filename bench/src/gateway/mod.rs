//! Gateways in front of one upstream: Slidegate beside nginx, HAProxy, Envoy and Traefik.

mod bulk;
mod chunks;
mod gateways;

pub use self::gateways::{Env, Gateway};
use crate::harness::{self, Directory, Pair, Runner, Table, Traffic};

/// Measures, and prints the table and the result.
pub fn run(options: &harness::Options) -> anyhow::Result<()> {
    harness::require(&["wrk", "nginx", "haproxy", "redis-server"])?;
    let directory = Directory::new()?;
    let env = Env::prepare(&directory)?;
    bulk::write_body(&directory)?;
    let mut runners = vec![env.upstream()?];
    for traffic in Traffic::ALL {
        for gateway in Gateway::ALL {
            if !gateway.is_for(traffic) || !options.want(gateway.name(), traffic) {
                continue;
            }
            if gateway.is_installed() {
                runners.push(env.start(gateway, traffic)?);
            } else {
                println!("SKIPPED {}: it is missing; ./scripts/bench installs it", gateway.name());
            }
        }
    }
    let table = harness::run(&runners, options, &directory)?;
    table.print();
    println!("\n{}", result(&table));
    let allowed = |gateway: Gateway| {
        let is =
            |runner: &&Runner| runner.traffic == Traffic::Allowed && runner.name == gateway.name();
        runners.iter().find(is)
    };
    match (allowed(Gateway::Memory), allowed(Gateway::Nginx)) {
        (Some(ours), Some(nginx)) => bulk::run([ours, nginx], options, &directory)?,
        _ => return Ok(()),
    }
    drop(runners);
    chunks::run(options, &directory)
}

fn result(table: &Table) -> String {
    use Traffic::{Allowed, Refused};
    let pair = |ours: Gateway, theirs: Gateway| Pair { ours: ours.name(), theirs: theirs.name() };
    let by = |theirs| pair(Gateway::Memory, theirs);
    let figure = |figure: Option<f64>, digits: usize| {
        figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
    };
    format!(
        "RESULT gateway nginx_allow_ratio={} nginx_deny_ratio={} haproxy_allow_ratio={} \
         envoy_allow_ratio={} traefik_allow_ratio={} p99_ratio={} \
         nginx_few_words_ratio={} second_worker_deny_ratio={} redis_allow_rps={} rss_mb={}",
        figure(table.rate_ratio(Allowed, by(Gateway::Nginx)), 2),
        figure(table.rate_ratio(Refused, by(Gateway::Nginx)), 2),
        figure(table.rate_ratio(Allowed, by(Gateway::Haproxy)), 2),
        figure(table.rate_ratio(Allowed, by(Gateway::Envoy)), 2),
        figure(table.rate_ratio(Allowed, by(Gateway::Traefik)), 2),
        figure(table.p99_ratio(Allowed, by(Gateway::Nginx)), 2),
        figure(table.rate_ratio(Refused, pair(Gateway::MemoryTerse, Gateway::Nginx)), 2),
        figure(table.rate_ratio(Refused, pair(Gateway::MemoryTwoWorkers, Gateway::Memory)), 2),
        figure(table.rate(Allowed, Gateway::Redis.name()), 0),
        figure(table.rss_mb(Allowed, Gateway::Memory.name()), 1),
    )
}
