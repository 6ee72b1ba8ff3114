//! An operator's overrides over a store on Redis: a grant is in force at once, in spite of denials
//! that are kept, and its end too.

use std::num::NonZeroU32;
use std::time::Duration;

use http::Method;
use slidegate::limit::Quotas;
use slidegate::policy::{Action, Override, Overrides};
use slidegate::{
    Account, Bearer, Clock, Decision, Facts, Gate, Identity, ManualClock, MemoryStore, Plan,
    Policies, Policy, Quota, Source, Store,
};
use slidegate_redis::{Layout, RedisStore, ResilientStore};
use slidegate_testbed::{ManualTime, RedisServer};

use crate::support::timed;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// A gate whose clock is moved by hand, beside the server's.
struct World<S> {
    gate: Gate<S>,
    clock: ManualClock,
    time: ManualTime,
}

impl<S: Store> World<S> {
    fn new(store: S, clock: ManualClock, time: ManualTime, units: u32) -> Self {
        let policy = Policy::new("api").identity([Source::User]).quota(Quota::per_minute(units));
        let policies = Policies::builder().policy(policy).build().unwrap();
        let local = MemoryStore::builder().clock(clock.clone()).build();
        Self { gate: Gate::with_local(policies, store, local), clock, time }
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.time.advance(time);
    }

    fn grant(&self, units: u32, lasting: Duration) {
        let entry = Override {
            identity: Identity::user("ann"),
            policy: None,
            action: Action::Grant { units: NonZeroU32::new(units).unwrap(), window: None },
            until: self.clock.now() + lasting,
        };
        self.gate.admin().replace_overrides(Overrides::new([entry]).unwrap());
    }

    async fn decide(&self, cost: u32) -> Decision {
        let facts = Facts::new(&Method::GET, "/").user("ann");
        self.gate.decide(&facts.cost(NonZeroU32::new(cost).unwrap())).await.unwrap()
    }

    async fn allowed(&self) -> u32 {
        let mut allowed = 0;
        while self.decide(1).await.is_allowed() {
            allowed += 1;
        }
        allowed
    }

    async fn a_grant_comes_and_goes(&self) {
        assert_eq!(self.allowed().await, 3);
        assert_eq!(self.allowed().await, 0);
        self.grant(4, 20 * SECOND);
        assert_eq!(self.allowed().await, 4, "at once");
        self.pass(20 * SECOND);
        let denied = self.decide(1).await;
        assert_eq!(denied.tightest().unwrap().1.quota(), Quota::per_minute(3));
        assert_eq!(denied.retry_after(), Some(40 * SECOND));
        let account = Account { policy: "api".parse().unwrap(), identity: Identity::user("ann") };
        let found = self.gate.admin().inspect(&account, None).await.unwrap();
        assert_eq!((found.standings[0].remaining(), found.degraded), (0, false));
        self.pass(40 * SECOND);
        assert_eq!(self.allowed().await, 3);
    }
}

fn store(server: &RedisServer, layout: Layout) -> RedisStore {
    RedisStore::builder(server.url()).layout(layout).deadline(MINUTE).build().unwrap()
}

#[tokio::test]
async fn a_grant_is_in_force_at_once_in_both_layouts() {
    for layout in [Layout::Packed, Layout::SortedSet] {
        let (time, server) = timed();
        let world = World::new(store(&server, layout), ManualClock::default(), time, 3);
        world.a_grant_comes_and_goes().await;
    }
}

#[tokio::test]
async fn kept_denials_do_not_stand_in_a_grants_way() {
    let (time, server) = timed();
    let clock = ManualClock::default();
    let redis = store(&server, Layout::Packed);
    let store = ResilientStore::builder(redis).clock(clock.clone()).build();
    let world = World::new(store, clock, time, 3);
    world.a_grant_comes_and_goes().await;
    assert!(world.gate.store().stats().cache_hits > 0, "some answers were kept");
}

#[tokio::test]
async fn a_grant_may_make_ticks_coarse_and_its_spends_go_back_all_the_same() {
    for layout in [Layout::Packed, Layout::SortedSet] {
        let (time, server) = timed();
        let world = World::new(store(&server, layout), ManualClock::default(), time, 4000);
        world.pass(Duration::from_micros(7_654_321));
        world.grant(1000, SECOND);
        let spent = world.decide(4800).await;
        assert!(spent.is_allowed(), "{layout}");
        world.pass(2 * SECOND);
        assert!(!world.decide(1).await.is_allowed(), "{layout}");
        world.gate.refund(&spent).await.unwrap();
        assert!(world.decide(4000).await.is_allowed(), "{layout}");
    }
}

/// A customer's own quotas have a window that no policy names.
#[tokio::test]
async fn an_account_with_quotas_of_its_own_is_reset_and_refunded() {
    for layout in [Layout::Packed, Layout::SortedSet] {
        let (_time, server) = timed();
        let policy = Policy::new("api").identity([Source::Customer]).plans("free");
        let policies = Policies::builder().plan(Plan::new("free", ["3/min"])).policy(policy);
        let gate = Gate::new(policies.build().unwrap(), store(&server, layout));
        let own = Quotas::new(["4/h".parse().unwrap()]).unwrap();
        let bearer = Bearer::new().customer("acme").quotas(own);
        let is_allowed = async || {
            let facts = Facts::new(&Method::GET, "/").bearer(&bearer);
            gate.decide(&facts).await.unwrap().is_allowed()
        };
        let identity = Identity::customer("acme");
        let account = Account { policy: "api".parse().unwrap(), identity };
        assert!(gate.admin().is_untouched(&account).await.unwrap());
        for _ in 0..4 {
            assert!(is_allowed().await);
        }
        assert!(!is_allowed().await);
        assert!(!gate.admin().is_untouched(&account).await.unwrap(), "{layout}");
        gate.admin().refund_units(&account, NonZeroU32::MIN).await.unwrap();
        assert!(is_allowed().await && !is_allowed().await, "{layout}: one unit is back");
        gate.admin().reset(&account).await.unwrap();
        assert!(gate.admin().is_untouched(&account).await.unwrap());
        assert!(is_allowed().await, "{layout}: all are");
    }
}
