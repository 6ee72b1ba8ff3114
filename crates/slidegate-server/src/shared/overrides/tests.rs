//! Overrides without Redis, on a clock that is moved by hand.

use std::fs;
use std::num::NonZeroU32;
use std::path::PathBuf;

use http::Method;
use slidegate::{Clock, Facts, ManualClock, MemoryStore, Policies, Policy, Quota, Source};

use super::*;

use crate::api::OverrideView;
use crate::store::{AnyStore, decide_now};

const HOUR: Duration = Duration::from_secs(3600);

fn gate(clock: &ManualClock) -> Arc<Gate<AnyStore>> {
    let policy = |name| Policy::new(name).identity([Source::User]).quota(Quota::per_hour(2));
    let policies = Policies::builder().policy(policy("api")).policy(policy("login").path("/login"));
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    Arc::new(Gate::with_local(policies.build().unwrap(), store().into(), store()))
}

fn overrides(clock: &ManualClock) -> OverrideService {
    OverrideService::open(gate(clock), Persistence::Process).unwrap()
}

fn target(policy: Option<&str>) -> Target {
    let policy = policy.map(|policy| policy.parse().unwrap());
    Target { identity: "user:ann".parse().unwrap(), policy }
}

fn actor() -> Actor {
    Actor { by: None, reason: "a test".to_owned() }
}

fn after(lasting: Duration) -> Expiry {
    Expiry::For(lasting.as_millis() as u64)
}

async fn active(overrides: &OverrideService) -> Vec<OverrideView> {
    overrides.list(None).await.overrides
}

fn is_allowed(overrides: &OverrideService, path: &str) -> bool {
    let facts = Facts::new(&Method::GET, path).user("ann");
    decide_now(&overrides.gate, &facts).is_allowed()
}

#[tokio::test]
async fn overrides_hold_until_their_time_and_not_longer() {
    let clock = ManualClock::default();
    let overrides = overrides(&clock);
    let given = overrides.create(Action::Ban, target(None), after(HOUR), actor()).await.unwrap();
    let (created, until) = (given.created.created.0, given.created.until.0);
    assert_eq!(until.as_millis() - created.as_millis(), 3_600_000);
    clock.advance(HOUR - Duration::from_millis(1));
    assert!(!is_allowed(&overrides, "/"));
    assert_eq!(active(&overrides).await, [OverrideView { ends_in_ms: 1, ..given.created }]);
    clock.advance(Duration::from_millis(1));
    assert!(is_allowed(&overrides, "/"));
    assert_eq!(active(&overrides).await, []);
}

#[tokio::test]
async fn an_override_replaces_its_like_and_reports_the_others() {
    let clock = ManualClock::default();
    let overrides = overrides(&clock);
    let give = async |action, hours: u32| {
        let given = overrides.create(action, target(Some("api")), after(HOUR * hours), actor());
        given.await.unwrap()
    };
    let units = |units| Action::Grant { units: NonZeroU32::new(units).unwrap(), window: None };
    let first = give(units(1), 1).await;
    assert!(first.replaced.is_none() && first.others.is_empty());
    let second = give(units(5), 2).await;
    assert_eq!((second.replaced, second.others.len()), (Some(first.created), 0));
    let third = give(Action::Exempt, 3).await;
    assert_eq!((third.replaced, third.others), (None, vec![second.created.clone()]));
    assert_eq!(active(&overrides).await, [second.created, third.created.clone()]);
    let lifted = overrides.lift(&third.created.id, actor()).await.unwrap().lifted;
    assert_eq!(lifted, third.created);
    assert!(matches!(
        overrides.lift(&third.created.id, actor()).await,
        Err(OverrideError::UnknownOverride(_))
    ));
    assert_eq!((0..10).filter(|_| is_allowed(&overrides, "/")).count(), 7, "two, and five more");
}

#[tokio::test]
async fn times_that_are_over_or_too_far_are_refused_and_so_are_policies_that_there_are_not() {
    let clock = ManualClock::default();
    let overrides = overrides(&clock);
    let now_ms = clock.now().as_millis();
    let give = |until| overrides.create(Action::Ban, target(None), until, actor());
    for until in [Expiry::At(now_ms), Expiry::At(0), after(Duration::ZERO)] {
        assert!(matches!(give(until).await, Err(OverrideError::Past { .. })), "{until:?}");
    }
    let year = HOUR * 24 * 366;
    for until in [after(year + HOUR), Expiry::At(now_ms + 400 * 24 * 3_600_000)] {
        assert!(matches!(give(until).await, Err(OverrideError::TooLong)), "{until:?}");
    }
    assert!(give(after(year)).await.is_ok());
    let other = overrides.create(Action::Ban, target(Some("nope")), after(HOUR), actor()).await;
    let error = other.unwrap_err().to_string();
    assert_eq!(error, "there is no policy \"nope\"; there is api, login");
    let reset = overrides.reset(target(Some("nope")), actor()).await;
    assert!(matches!(reset, Err(OverrideError::UnknownPolicy { .. })));
}

#[tokio::test]
async fn more_overrides_than_the_maximum_are_refused() {
    let clock = ManualClock::default();
    let overrides = overrides(&clock);
    let give = |i: usize, lasting| {
        let target = Target { identity: format!("user:{i}").parse().unwrap(), policy: None };
        overrides.create(Action::Exempt, target, after(lasting), actor())
    };
    {
        // All at once, because each by itself would put all in force again.
        let mut state = overrides.state.lock().await;
        let first = give_one(&clock);
        state.overrides = (0..Overrides::MAX)
            .map(|i| OverrideRecord { id: i.to_string(), ..first.clone() })
            .collect();
    }
    assert!(matches!(give(1, HOUR).await, Err(OverrideError::Full)));
    clock.advance(HOUR);
    assert!(give(1, HOUR).await.is_ok(), "those that are over make room");
}

fn give_one(clock: &ManualClock) -> OverrideRecord {
    let created_ms = clock.now().as_millis();
    OverrideRecord {
        id: String::new(),
        action: OperatorAction::Override(Action::Ban),
        target: target(None),
        actor: actor(),
        created_ms,
        until_ms: created_ms + 3_600_000,
    }
}

#[tokio::test]
async fn a_reset_is_of_one_policy_or_of_all() {
    let clock = ManualClock::default();
    let overrides = overrides(&clock);
    let spent = || (0..3).filter(|_| is_allowed(&overrides, "/login")).count();
    assert_eq!(spent(), 2);
    let done = overrides.reset(target(Some("login")), actor()).await.unwrap();
    assert_eq!(done.policies, ["login"]);
    assert_eq!(spent(), 0, "the other is still spent");
    let done = overrides.reset(target(None), actor()).await.unwrap();
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

    fn persistence(&self) -> Persistence {
        Persistence::File(self.0.join("accounts.overrides").into())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn overrides_in_a_file_are_in_force_after_a_restart_for_the_rest_of_their_time() {
    let (clock, file) = (ManualClock::default(), Temporary::new("overrides-kept"));
    let first = OverrideService::open(gate(&clock), file.persistence()).unwrap();
    let ban = first.create(Action::Ban, target(None), after(HOUR), actor()).await.unwrap();
    let exempt = first.create(Action::Exempt, target(Some("api")), after(HOUR), actor()).await;
    first.lift(&exempt.unwrap().created.id, actor()).await.unwrap();
    drop(first);
    clock.advance(HOUR / 2);
    let second = OverrideService::open(gate(&clock), file.persistence()).unwrap();
    assert!(!is_allowed(&second, "/"));
    assert_eq!(active(&second).await, [OverrideView { ends_in_ms: 1_800_000, ..ban.created }]);
    clock.advance(HOUR / 2);
    assert!(is_allowed(&second, "/"));
}

#[tokio::test]
async fn a_damaged_file_is_an_error_and_an_override_that_cannot_be_kept_is_not_in_force() {
    let (clock, file) = (ManualClock::default(), Temporary::new("overrides-damaged"));
    let Persistence::File(path) = file.persistence() else { unreachable!() };
    for text in ["", "{}", "{\"slidegate_overrides\":2,\"overrides\":[]}", "half a fi"] {
        fs::write(&path, text).unwrap();
        let error =
            format!("{:#}", OverrideService::open(gate(&clock), file.persistence()).unwrap_err());
        assert!(error.contains("accounts.overrides; move the file away"), "{error}");
    }
    fs::remove_file(&path).unwrap();
    let overrides = OverrideService::open(gate(&clock), file.persistence()).unwrap();
    fs::remove_dir_all(&file.0).unwrap();
    let given = overrides.create(Action::Ban, target(None), after(HOUR), actor()).await;
    assert!(matches!(given, Err(OverrideError::Disk(_))), "{given:?}");
    assert!(is_allowed(&overrides, "/") && active(&overrides).await.is_empty());
}
