//! One customer sends 50,000 requests in ten minutes, beside a hundred who stay within their plan.

use std::time::Duration;

use slidegate::limit::{Charge, Charges, Quotas};
use slidegate::{ManualClock, Name, Quota, Store, Timestamp};
use slidegate_redis::{RedisStore, ResilientStore};
use slidegate_testbed::{CommandCounts, ManualTime, RedisServer};

use super::candidates::{CALL_DEADLINE, Customer};

const ABUSER_REQUESTS: u32 = 50_000;
/// Between two requests of the abuser: ten minutes for all of them.
const ABUSER_EVERY: Duration = Duration::from_millis(12);
const NORMAL_CUSTOMERS: u32 = 100;
/// Between two requests of anybody else: 30 a minute for each of them.
const NORMAL_EVERY: Duration = Duration::from_millis(20);

/// What came of it.
#[derive(Default)]
pub struct Scenario {
    abuser: Requests,
    normal: Requests,
    /// Calls of the decision script that the server has seen.
    calls: u64,
}

#[derive(Default)]
struct Requests {
    sent: u64,
    allowed: u64,
}

impl Scenario {
    /// Plays it on a server and a store whose clocks are moved by hand.
    pub async fn play() -> anyhow::Result<Self> {
        let time = ManualTime::new();
        let server = RedisServer::options().time(&time).start();
        let mut clocks = Clocks::new(time);
        let redis = RedisStore::builder(server.url()).deadline(CALL_DEADLINE).build()?;
        let store = ResilientStore::builder(redis).clock(clocks.client.clone()).build();
        let plan = Plan {
            store,
            policy: "api".parse()?,
            quotas: Quotas::new([Quota::per_minute(60), Quota::per_day(10_000)])?,
        };
        let abuser = Customer::new(0);
        let others: Vec<Customer> = (1..=NORMAL_CUSTOMERS).map(Customer::new).collect();
        let mut scenario = Self::default();
        let before = CommandCounts::of([&server]);
        let mut next = others.iter().cycle();
        let mut next_at = Duration::ZERO;
        for request in 0..ABUSER_REQUESTS {
            let at = ABUSER_EVERY * request;
            while next_at <= at {
                clocks.move_to(next_at);
                let customer = next.next().expect("they come again and again");
                plan.request(customer, &mut scenario.normal).await?;
                next_at += NORMAL_EVERY;
            }
            clocks.move_to(at);
            plan.request(&abuser, &mut scenario.abuser).await?;
        }
        scenario.calls = CommandCounts::of([&server]).since(&before).calls("evalsha");
        anyhow::ensure!(plan.store.stats().fallbacks == 0, "Redis did not decide everything");
        Ok(scenario)
    }

    /// Calls for the abuser, for each 1000 of its requests, those that were allowed included.
    pub fn abuser_calls_per_1000(&self) -> f64 {
        per_1000(self.abuser_calls(), self.abuser.sent)
    }

    pub fn print(&self) {
        let (abuser, normal) = (&self.abuser, &self.normal);
        let denied = abuser.sent - abuser.allowed;
        let calls_for_denied = self.abuser_calls().saturating_sub(abuser.allowed);
        println!("\none customer at 83 requests a second beside 100 at one every two seconds");
        println!("  60/min and 10000/day for each, ten minutes, one process");
        println!("  {:<24}{:>10}{:>10}{:>16}", "", "requests", "allowed", "calls to Redis");
        let row = |who, requests: &Requests, calls| {
            println!("  {who:<24}{:>10}{:>10}{calls:>16}", requests.sent, requests.allowed);
        };
        row("the one", abuser, self.abuser_calls());
        row("the others", normal, self.normal_calls());
        println!(
            "  for each 1000 requests of the one {:.1} calls; of those that were denied {:.1}",
            self.abuser_calls_per_1000(),
            per_1000(calls_for_denied, denied),
        );
    }

    /// An allowed request is a call, and none of the others' was denied and might have been
    /// answered without one.
    fn normal_calls(&self) -> u64 {
        self.normal.sent
    }

    fn abuser_calls(&self) -> u64 {
        self.calls - self.normal_calls()
    }
}

fn per_1000(calls: u64, requests: u64) -> f64 {
    calls as f64 * 1000.0 / requests as f64
}

/// What everybody has.
struct Plan {
    store: ResilientStore,
    policy: Name,
    quotas: Quotas,
}

impl Plan {
    async fn request(&self, customer: &Customer, seen: &mut Requests) -> anyhow::Result<()> {
        let charge = Charge::new(&self.policy, customer.identity(), &self.quotas);
        let receipt = self.store.spend(&Charges::from(charge)).await?;
        seen.sent += 1;
        seen.allowed += u64::from(receipt.spent);
        Ok(())
    }
}

/// The server's clock and the store's own, moved together.
struct Clocks {
    server: ManualTime,
    client: ManualClock,
    moved: Duration,
}

impl Clocks {
    fn new(server: ManualTime) -> Self {
        let client = ManualClock::new(Timestamp::from_millis(server.now_us() / 1000));
        Self { server, client, moved: Duration::ZERO }
    }

    /// Moves both to so long after the start, unless they are there.
    fn move_to(&mut self, at: Duration) {
        let by = at.saturating_sub(self.moved);
        self.server.advance(by);
        self.client.advance(by);
        self.moved += by;
    }
}
