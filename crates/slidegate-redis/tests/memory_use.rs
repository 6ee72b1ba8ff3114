//! Accounts take no more of Redis' memory than was promised, by what `redis-server` says itself.

use std::num::NonZeroU32;
use std::time::Duration;

use slidegate::limit::{Charge, Quotas};
use slidegate::policy::Prefixes;
use slidegate::{Identity, Name, Quota, Store};
use slidegate_redis::RedisStore;
use slidegate_testbed::{ManualTime, RedisServer};
use tokio::task::JoinSet;

const UNITS: u32 = 100;

/// A store with keys of the usual length, on a machine that may be slow.
fn packed(server: &RedisServer) -> RedisStore {
    RedisStore::builder(server.url()).deadline(Duration::from_secs(30)).build().unwrap()
}

async fn spend(store: &RedisStore, address: u32, cost: u32) {
    let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + address);
    let identity = Identity::ip(address.into(), Prefixes::default());
    let (policy, quotas): (Name, Quotas) =
        ("api".parse().unwrap(), Quota::per_minute(UNITS).into());
    let charge = Charge::new(&policy, &identity, &quotas);
    let charge = charge.with_cost(NonZeroU32::new(cost).unwrap()).unwrap();
    assert!(store.spend(&charge.into()).await.unwrap().spent);
}

/// The write-ups of `docs/migrate.md` estimate 800 bytes for an address with 100 requests in the minute,
/// and 1 KB for an identity that stays at its limit.
#[tokio::test]
async fn an_account_takes_no_more_than_the_sources_estimate() {
    let time = ManualTime::new();
    let server = RedisServer::options().time(&time).start();
    let store = packed(&server);
    for most in [800, 1024] {
        for _ in 0..UNITS {
            spend(&store, 0, 1).await;
            time.advance(Duration::from_millis(600));
        }
        let key = server.command(&["RANDOMKEY"]).text();
        let bytes = server.command(&["MEMORY", "USAGE", &key, "SAMPLES", "0"]).integer();
        assert!(bytes <= most, "{bytes} bytes, at most {most}");
    }
}

/// They estimate 80 MB for 100,000 addresses with 100 requests each. A unit takes a slot whether it
/// came alone or not, so one request of 100 units leaves what 100 requests leave.
#[tokio::test]
async fn a_hundred_thousand_full_accounts_take_no_more_than_the_sources_estimate() {
    const TASKS: u32 = 64;
    const ADDRESSES: u32 = 100_000;
    let server = RedisServer::start();
    let store = packed(&server);
    spend(&store, ADDRESSES, UNITS).await;
    let used = || server.info("used_memory").parse::<u64>().unwrap();
    let before = used();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let store = store.clone();
        tasks.spawn(async move {
            for address in (task..ADDRESSES).step_by(TASKS as usize) {
                spend(&store, address, UNITS).await;
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(server.command(&["DBSIZE"]).integer(), i64::from(ADDRESSES) + 1);
    let bytes = used() - before;
    assert!(bytes <= 80_000_000, "{bytes} bytes");
}
