//! What several tests need.

pub(crate) mod trace;

use std::num::NonZeroU32;
use std::thread;
use std::time::Duration;

use slidegate::limit::{Charge, Charges, Quotas};
use slidegate::{Identity, Name, Quota};
use slidegate_testbed::{Flavour, ManualTime, RedisCluster, RedisSentinels, RedisServer};
use tokio::runtime::Builder;

/// Runs a scenario on Redis and on Valkey at the same time, for most of it is waiting. Each has a
/// thread of its own, which is named in what fails, and a runtime that goes on while it blocks.
pub(crate) fn on_redis_and_valkey(scenario: impl AsyncFn(Flavour) + Sync) {
    thread::scope(|scope| {
        for flavour in Flavour::BOTH {
            let scenario = &scenario;
            let run = move || {
                let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
                runtime.unwrap().block_on(scenario(flavour));
            };
            let thread = thread::Builder::new().name(format!("on {flavour:?}"));
            thread.spawn_scoped(scope, run).unwrap();
        }
    });
}

/// One URL for a whole cluster.
pub(crate) fn cluster_url(cluster: &RedisCluster) -> String {
    group_url("cluster", &cluster.urls())
}

/// One URL for whichever server the sentinels name.
pub(crate) fn sentinel_url(sentinels: &RedisSentinels) -> String {
    format!("{}/{}", group_url("sentinel", &sentinels.urls()), sentinels.master_name())
}

fn group_url(kind: &str, urls: &[String]) -> String {
    let (scheme, _) = urls[0].split_once("://").expect("a URL");
    let hosts: Vec<&str> = urls.iter().map(|url| host(url)).collect();
    format!("{scheme}-{kind}://{}", hosts.join(","))
}

/// A server whose clock is moved by hand.
pub(crate) fn timed() -> (ManualTime, RedisServer) {
    let time = ManualTime::new();
    let server = RedisServer::options().time(&time).start();
    (time, server)
}

/// Waits for something to come true.
pub(crate) async fn until(what: &str, mut true_now: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if true_now() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited 30 s until {what}");
}

/// A host and a port out of a URL of one server.
pub(crate) fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/');
    rest.rsplit_once('@').map_or(rest, |(_, host)| host)
}

/// An account, and the quotas that it is charged by.
pub(crate) struct Payer {
    pub(crate) policy: Name,
    pub(crate) identity: Identity,
    pub(crate) quotas: Quotas,
}

impl Payer {
    pub(crate) fn new(policy: &str, identity: Identity, quotas: &[Quota]) -> Self {
        let policy = policy.parse().expect("a name");
        let quotas = Quotas::new(quotas.iter().copied()).expect("quotas that differ");
        Self { policy, identity, quotas }
    }

    /// A user's account under the policy `api`.
    pub(crate) fn user(name: &str, quota: Quota) -> Self {
        Self::new("api", Identity::user(name), &[quota])
    }

    pub(crate) fn charge(&self) -> Charge<'_> {
        Charge::new(&self.policy, &self.identity, &self.quotas)
    }

    pub(crate) fn cost(&self, cost: u32) -> Charge<'_> {
        let cost = NonZeroU32::new(cost).expect("a cost");
        self.charge().with_cost(cost).expect("a cost within the units")
    }
}

/// Everything that one request is charged.
pub(crate) fn charges<'a>(list: impl IntoIterator<Item = Charge<'a>>) -> Charges<'a> {
    let mut charges = Charges::new();
    list.into_iter().for_each(|charge| charges.push(charge).expect("accounts that differ"));
    charges
}
