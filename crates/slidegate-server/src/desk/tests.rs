//! A desk without Redis, on a clock that is moved by hand.

use std::fs;
use std::num::NonZeroU32;
use std::path::PathBuf;

use http::Method;
use slidegate::{Clock, Facts, ManualClock, MemoryStore, Policies, Policy, Quota, Source};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn gate(clock: &ManualClock) -> Arc<Gate> {
    let policy = |name| Policy::new(name).identity([Source::User]).quota(Quota::per_hour(2));
    let policies = Policies::builder().policy(policy("api")).policy(policy("login").path("/login"));
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    Arc::new(Gate::with_local(policies.build().unwrap(), store(), store()))
}

fn desk(clock: &ManualClock) -> Desk<MemoryStore> {
    Desk::open(gate(clock), Place::Here).unwrap()
}

fn target(policy: Option<&str>) -> Target {
    let policy = policy.map(|policy| policy.parse().unwrap());
    Target { identity: "user:ann".parse().unwrap(), policy }
}

fn motive() -> Motive {
    Motive { by: None, reason: "a test".to_owned() }
}

fn is_allowed(desk: &Desk<MemoryStore>, path: &str) -> bool {
    let facts = Facts::new(&Method::GET, path).user("ann");
    desk.gate.decide_now(&facts).unwrap().is_allowed()
}

#[tokio::test]
async fn orders_hold_until_their_time_and_not_longer() {
    let clock = ManualClock::default();
    let desk = desk(&clock);
    let given = desk.give(Measure::Ban, target(None), Until::For(HOUR), motive()).await.unwrap();
    assert_eq!(given.order.until_ms - given.order.given_ms, 3_600_000);
    clock.advance(HOUR - Duration::from_millis(1));
    assert!(!is_allowed(&desk, "/"));
    assert_eq!(desk.in_force().await.orders, [given.order]);
    clock.advance(Duration::from_millis(1));
    assert!(is_allowed(&desk, "/"));
    assert_eq!(desk.in_force().await.orders, []);
}

#[tokio::test]
async fn an_order_takes_the_place_of_its_like_and_tells_of_the_others() {
    let clock = ManualClock::default();
    let desk = desk(&clock);
    let give = async |measure, hours: u32| {
        let given = desk.give(measure, target(Some("api")), Until::For(HOUR * hours), motive());
        given.await.unwrap()
    };
    let units = |units| Measure::Grant(NonZeroU32::new(units).unwrap());
    let first = give(units(1), 1).await;
    assert!(first.replaced.is_none() && first.others.is_empty());
    let second = give(units(5), 2).await;
    assert_eq!((second.replaced, second.others.len()), (Some(first.order), 0));
    let third = give(Measure::Exempt, 3).await;
    assert_eq!((third.replaced, third.others), (None, vec![second.order.clone()]));
    assert_eq!(desk.in_force().await.orders, [second.order.clone(), third.order.clone()]);
    assert_eq!(desk.lift(&third.order.id, motive()).await.unwrap(), third.order);
    assert!(matches!(desk.lift(&third.order.id, motive()).await, Err(DeskError::UnknownOrder(_))));
    assert_eq!((0..10).filter(|_| is_allowed(&desk, "/")).count(), 7, "two, and five more");
}

#[tokio::test]
async fn times_that_are_over_or_too_far_are_refused_and_so_are_policies_that_there_are_not() {
    let clock = ManualClock::default();
    let desk = desk(&clock);
    let now_ms = clock.now().as_millis();
    let give = |until| desk.give(Measure::Ban, target(None), until, motive());
    for until in [Until::At(now_ms), Until::At(0), Until::For(Duration::ZERO)] {
        assert!(matches!(give(until).await, Err(DeskError::Past { .. })), "{until:?}");
    }
    let year = HOUR * 24 * 366;
    for until in [Until::For(year + HOUR), Until::At(now_ms + 400 * 24 * 3_600_000)] {
        assert!(matches!(give(until).await, Err(DeskError::TooLong)), "{until:?}");
    }
    assert!(give(Until::For(year)).await.is_ok());
    let other = desk.give(Measure::Ban, target(Some("nope")), Until::For(HOUR), motive()).await;
    let error = other.unwrap_err().to_string();
    assert_eq!(error, "there is no policy \"nope\"; there is api, login");
    let reset = desk.reset(target(Some("nope")), motive()).await;
    assert!(matches!(reset, Err(DeskError::UnknownPolicy { .. })));
}

#[tokio::test]
async fn there_are_so_many_orders_and_no_more() {
    let clock = ManualClock::default();
    let desk = desk(&clock);
    let give = |i: usize, lasting| {
        let target = Target { identity: format!("user:{i}").parse().unwrap(), policy: None };
        desk.give(Measure::Exempt, target, Until::For(lasting), motive())
    };
    {
        // All at once, because each by itself would put all in force again.
        let mut files = desk.files.lock().await;
        let first = give_one(&clock);
        files.orders =
            (0..Orders::MAX).map(|i| Filed { id: i.to_string(), ..first.clone() }).collect();
    }
    assert!(matches!(give(1, HOUR).await, Err(DeskError::Full)));
    clock.advance(HOUR);
    assert!(give(1, HOUR).await.is_ok(), "those that are over make room");
}

fn give_one(clock: &ManualClock) -> Filed {
    let given_ms = clock.now().as_millis();
    Filed {
        id: String::new(),
        action: Action::Order(Measure::Ban),
        target: target(None),
        motive: motive(),
        given_ms,
        until_ms: given_ms + 3_600_000,
    }
}

#[tokio::test]
async fn a_reset_is_of_one_policy_or_of_all() {
    let clock = ManualClock::default();
    let desk = desk(&clock);
    let spent = || (0..3).filter(|_| is_allowed(&desk, "/login")).count();
    assert_eq!(spent(), 2);
    let done = desk.reset(target(Some("login")), motive()).await.unwrap();
    assert_eq!(done.policies, ["login".parse().unwrap()]);
    assert_eq!(spent(), 0, "the other is still spent");
    let done = desk.reset(target(None), motive()).await.unwrap();
    assert_eq!(done.policies.len(), 2);
    assert_eq!(spent(), 2);
}

/// A path in a directory of its own, gone on drop.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("slidegate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn place(&self) -> Place {
        Place::File(self.0.join("accounts.orders").into())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn orders_in_a_file_are_in_force_in_the_next_life_for_the_rest_of_their_time() {
    let (clock, file) = (ManualClock::default(), Temporary::new("orders-kept"));
    let first = Desk::open(gate(&clock), file.place()).unwrap();
    let ban = first.give(Measure::Ban, target(None), Until::For(HOUR), motive()).await.unwrap();
    let exempt = first.give(Measure::Exempt, target(Some("api")), Until::For(HOUR), motive()).await;
    first.lift(&exempt.unwrap().order.id, motive()).await.unwrap();
    drop(first);
    clock.advance(HOUR / 2);
    let second = Desk::open(gate(&clock), file.place()).unwrap();
    assert!(!is_allowed(&second, "/"));
    assert_eq!(second.in_force().await.orders, [ban.order]);
    clock.advance(HOUR / 2);
    assert!(is_allowed(&second, "/"));
}

#[tokio::test]
async fn a_damaged_file_is_an_error_and_an_order_that_cannot_be_kept_is_not_in_force() {
    let (clock, file) = (ManualClock::default(), Temporary::new("orders-damaged"));
    let Place::File(path) = file.place() else { unreachable!() };
    for text in ["", "{}", "{\"slidegate_orders\":2,\"orders\":[]}", "half a fi"] {
        fs::write(&path, text).unwrap();
        let error = format!("{:#}", Desk::open(gate(&clock), file.place()).unwrap_err());
        assert!(error.contains("accounts.orders; move the file away"), "{error}");
    }
    fs::remove_file(&path).unwrap();
    let desk = Desk::open(gate(&clock), file.place()).unwrap();
    fs::remove_dir_all(&file.0).unwrap();
    let given = desk.give(Measure::Ban, target(None), Until::For(HOUR), motive()).await;
    assert!(matches!(given, Err(DeskError::Disk(_))), "{given:?}");
    assert!(is_allowed(&desk, "/") && desk.in_force().await.orders.is_empty());
}
