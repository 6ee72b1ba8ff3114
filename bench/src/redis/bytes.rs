//! What accounts weigh.

use std::num::NonZeroU32;

use slidegate::limit::{Charge, Charges, Quotas};
use slidegate::{Name, Quota, Store};
use slidegate_redis::{Layout, RedisStore};
use slidegate_testbed::{ManualTime, RedisServer};

use super::candidates::{CALL_DEADLINE, Customer, member};

/// The bytes of full accounts, by quota.
pub struct Bytes {
    rows: Vec<Row>,
}

struct Row {
    quota: Quota,
    sources: i64,
    sorted_set: i64,
    packed: i64,
    /// If all units were spent at once.
    packed_at_once: i64,
}

/// Spends of a day: each is of many units, or filling would take longer than all the rest.
const SPENDS_OF_A_DAY: u32 = 10_000;

impl Bytes {
    /// Fills an account of each quota, on a server whose clock is moved by hand.
    pub async fn measure() -> anyhow::Result<Self> {
        let time = ManualTime::new();
        let server = RedisServer::options().time(&time).start();
        let filling = Filling::new(&server, &time)?;
        let mut rows = Vec::new();
        for units in [10, 100, 600, 6_000] {
            rows.push(filling.row(Quota::per_minute(units), units).await?);
        }
        rows.push(filling.row(Quota::per_day(1_000_000), SPENDS_OF_A_DAY).await?);
        Ok(Self { rows })
    }

    /// Bytes of the packed layout for each byte of the sorted set.
    pub fn packed_by_sorted_set(&self, quota: Quota) -> f64 {
        let row = self.row(quota);
        row.packed as f64 / row.sorted_set as f64
    }

    /// Bytes of the packed layout.
    pub fn packed(&self, quota: Quota) -> i64 {
        self.row(quota).packed
    }

    fn row(&self, quota: Quota) -> &Row {
        self.rows.iter().find(|row| row.quota == quota).expect("the quota is one of the table's")
    }

    pub fn print(&self) {
        println!("\nbytes of a full account, by MEMORY USAGE, spent evenly over the window");
        println!(
            "  {:<14}{:>14}{:>14}{:>12}{:>10}{:>18}",
            "quota", "S0 and S3", "sorted-set", "packed", "ratio", "packed, at once"
        );
        for row in &self.rows {
            println!(
                "  {:<14}{:>14}{:>14}{:>12}{:>10.3}{:>18}",
                row.quota.to_string(),
                row.sources,
                row.sorted_set,
                row.packed,
                row.packed as f64 / row.sorted_set as f64,
                row.packed_at_once,
            );
        }
    }
}

/// What accounts are filled with.
struct Filling<'a> {
    server: &'a RedisServer,
    time: &'a ManualTime,
    sorted_set: RedisStore,
    packed: RedisStore,
    policy: Name,
}

impl<'a> Filling<'a> {
    fn new(server: &'a RedisServer, time: &'a ManualTime) -> anyhow::Result<Self> {
        let store = |layout| {
            RedisStore::builder(server.url()).layout(layout).deadline(CALL_DEADLINE).build()
        };
        Ok(Self {
            server,
            time,
            sorted_set: store(Layout::SortedSet)?,
            packed: store(Layout::Packed)?,
            policy: "api".parse()?,
        })
    }

    /// Fills one account after the other, in so many spends.
    async fn row(&self, quota: Quota, spends: u32) -> anyhow::Result<Row> {
        Ok(Row {
            quota,
            sources: self.sources(quota, spends),
            sorted_set: self.slidegate(&self.sorted_set, quota, spends, Pace::Even).await?,
            packed: self.slidegate(&self.packed, quota, spends, Pace::Even).await?,
            packed_at_once: self.slidegate(&self.packed, quota, spends, Pace::AtOnce).await?,
        })
    }

    /// A sorted set as the sources' pipelines and scripts leave it behind.
    fn sources(&self, quota: Quota, spends: u32) -> i64 {
        let cost = quota.units().get() / spends;
        for spend in 0..spends {
            let now_ms = self.time.now_us() / 1000;
            let mut command = vec!["ZADD".to_owned(), "throttle:ip:10.0.0.0:api".to_owned()];
            for unit in 0..cost {
                command.push(now_ms.to_string());
                command.push(member(now_ms, u64::from(spend * cost + unit)));
            }
            let command: Vec<&str> = command.iter().map(String::as_str).collect();
            assert_eq!(self.server.command(&command).integer(), i64::from(cost));
            self.time.advance(quota.window() / spends);
        }
        self.bytes_of_the_only_key()
    }

    async fn slidegate(
        &self,
        store: &RedisStore,
        quota: Quota,
        spends: u32,
        pace: Pace,
    ) -> anyhow::Result<i64> {
        let (customer, quotas) = (Customer::new(0), Quotas::from(quota));
        let cost = NonZeroU32::new(quota.units().get() / spends).expect("more units than spends");
        let charge = Charge::new(&self.policy, customer.identity(), &quotas).with_cost(cost)?;
        for left in (0..spends).rev() {
            let receipt = store.spend(&Charges::from(charge)).await?;
            assert_eq!(receipt.standings[0].remaining(), left * cost.get());
            if pace == Pace::Even {
                self.time.advance(quota.window() / spends);
            }
        }
        Ok(self.bytes_of_the_only_key())
    }

    fn bytes_of_the_only_key(&self) -> i64 {
        let key = self.server.command(&["RANDOMKEY"]).text();
        let bytes = self.server.command(&["MEMORY", "USAGE", &key, "SAMPLES", "0"]).integer();
        self.server.command(&["FLUSHALL"]).expect_ok();
        bytes
    }
}

/// When units are spent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Evenly over the window.
    Even,
    /// All in one moment.
    AtOnce,
}
