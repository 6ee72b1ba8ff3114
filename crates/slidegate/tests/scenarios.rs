//! Scenarios of the promises: traffic that people recognise, through a gate, in virtual time.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use slidegate::policy::PoliciesBuilder;
use slidegate::{
    Clock, Decision, Facts, Gate, ManualClock, MemoryStore, Plan, Policies, Policy, Quota, Source,
    Timestamp,
};

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;

static GET: Method = Method::GET;
static POST: Method = Method::POST;

/// A gate in virtual time, which begins at midnight.
struct Stage {
    gate: Gate,
    clock: ManualClock,
    midnight: Timestamp,
}

impl Stage {
    fn new(policies: PoliciesBuilder) -> Self {
        let clock = ManualClock::default();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let midnight = clock.now();
        Self { gate: Gate::new(policies.build().expect("policies"), store), clock, midnight }
    }

    fn with_policy(policy: Policy) -> Self {
        Self::new(Policies::builder().policy(policy))
    }

    fn decide(&self, at: Duration, facts: &Facts<'_>) -> Decision {
        self.clock.set(self.midnight + at);
        self.gate.decide_now(facts).expect("a memory store with room")
    }

    fn allows(&self, at: Duration, facts: &Facts<'_>) -> bool {
        self.decide(at, facts).is_allowed()
    }

    /// How many of so many requests at one instant are admitted.
    fn admits(&self, at: Duration, requests: usize, facts: &Facts<'_>) -> usize {
        (0..requests).filter(|_| self.allows(at, facts)).count()
    }

    fn retry_after(&self, at: Duration, facts: &Facts<'_>) -> Duration {
        self.decide(at, facts).retry_after().expect("a denial")
    }

    /// Sends requests evenly, and tells when those that were admitted were, in milliseconds.
    fn script(&self, length_ms: u64, every_ms: usize, facts: &Facts<'_>) -> Vec<u64> {
        let instants = (0..length_ms).step_by(every_ms);
        instants.filter(|at_ms| self.allows(Duration::from_millis(*at_ms), facts)).collect()
    }
}

/// The time of day in hours, minutes and seconds.
fn at(hours: u32, minutes: u32, seconds: f64) -> Duration {
    Duration::from_secs(u64::from(hours * 60 + minutes) * 60) + Duration::from_secs_f64(seconds)
}

fn client(last: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, last).into()
}

fn get(path: &str) -> Facts<'_> {
    Facts::new(&GET, path).client(client(7))
}

fn post(path: &str) -> Facts<'_> {
    Facts::new(&POST, path).client(client(7))
}

/// The most of some sorted instants in any interval of this length that begins with one.
fn most_within(instants_ms: &[u64], length_ms: u64) -> usize {
    let from = |i: usize| {
        let end_ms = instants_ms[i] + length_ms;
        instants_ms[i..].iter().take_while(|at_ms| **at_ms < end_ms).count()
    };
    (0..instants_ms.len()).map(from).max().unwrap_or(0)
}

fn plans() -> PoliciesBuilder {
    Policies::builder()
        .plan(Plan::new("free", [Quota::per_minute(60), Quota::per_day(10_000)]))
        .plan(Plan::new("pro", [Quota::per_minute(600), Quota::per_day(100_000)]))
        .plan(Plan::new("enterprise", [Quota::per_minute(6_000), Quota::per_day(1_000_000)]))
        .policy(Policy::new("api").identity([Source::User, Source::ip()]).plans("free"))
}

#[test]
fn a_burst_on_each_side_of_a_minute_boundary_gets_one_minutes_worth() {
    let stage = Stage::with_policy(Policy::new("api").quota(Quota::per_minute(100)));
    let facts = get("/");
    assert_eq!(stage.admits(at(0, 0, 59.9), 100, &facts), 100);
    assert_eq!(stage.admits(at(0, 1, 0.1), 100, &facts), 0, "a fixed window would admit 200");
    assert_eq!(stage.retry_after(at(0, 1, 0.1), &facts), at(0, 0, 59.8));
    assert!(!stage.allows(at(0, 1, 59.9) - Duration::from_nanos(1), &facts));
    assert_eq!(stage.admits(at(0, 1, 59.9), 200, &facts), 100);
}

#[test]
fn a_script_of_50_000_requests_in_ten_minutes_gets_what_its_plan_has() {
    for (plan, per_minute, admitted) in
        [("free", 60, 600), ("pro", 600, 6_000), ("enterprise", 6_000, 50_000)]
    {
        let stage = Stage::new(plans());
        let script = get("/v1/reports").user("script").plan(plan);
        let instants_ms = stage.script(10 * MINUTE_MS, 12, &script);
        assert_eq!(instants_ms.len(), admitted, "{plan}");
        assert!(most_within(&instants_ms, MINUTE_MS) <= per_minute, "{plan}");
    }
}

#[test]
fn a_script_twice_as_fast_as_the_enterprise_plan_is_cut_to_it() {
    let stage = Stage::new(plans());
    let script = get("/v1/reports").user("script").plan("enterprise");
    let instants_ms = stage.script(10 * MINUTE_MS, 5, &script);
    assert_eq!(most_within(&instants_ms, MINUTE_MS), 6_000);
    // Every minute begins at most a tick of 15 ms later than the one before.
    let ticks_late = 10 * 15 / 5;
    assert!((60_000 - ticks_late..=60_000).contains(&instants_ms.len()), "{}", instants_ms.len());
}

#[test]
fn other_customers_notice_nothing_of_the_script() {
    let stage = Stage::new(plans());
    let script = get("/v1/reports").user("script").plan("free");
    let mut script_admitted = 0;
    for request in 0..50_000 {
        let at = Duration::from_millis(12 * request);
        script_admitted += usize::from(stage.allows(at, &script));
        // Each of them asks every 1.2 seconds: 50 a minute.
        if request % 100 == 0 {
            for customer in ["ada", "grace", "edsger"] {
                assert!(stage.allows(at, &get("/v1/reports").user(customer).plan("free")));
            }
        }
    }
    assert_eq!(script_admitted, 600);
}

#[test]
fn a_request_a_second_all_day_gets_the_days_quota_and_goes_on_a_day_after_it_began() {
    let stage = Stage::new(plans());
    let patient = get("/v1/reports").user("patient").plan("free");
    let instants_ms = stage.script(2 * DAY_MS, 1_000, &patient);
    let (first_day, second_day) = instants_ms.split_at(10_000);
    assert_eq!(first_day.last(), Some(&9_999_000), "all of the first 10,000 seconds");
    let tick_ms = u64::try_from(Quota::per_day(10_000).tick().as_millis()).unwrap();
    assert!((DAY_MS..=DAY_MS + tick_ms + 1_000).contains(&second_day[0]), "{}", second_day[0]);
    assert!(most_within(&instants_ms, DAY_MS) <= 10_000);
}

#[test]
fn of_60_and_60_requests_within_a_minute_a_hundred_pass() {
    let stage = Stage::with_policy(Policy::new("per-ip").quota(Quota::per_minute(100)));
    let facts = get("/");
    assert_eq!(stage.admits(at(10, 0, 45.0), 60, &facts), 60);
    assert_eq!(stage.admits(at(10, 1, 10.0), 60, &facts), 40);
    assert_eq!(stage.retry_after(at(10, 1, 10.0), &facts), at(0, 0, 35.0));
    assert_eq!(stage.admits(at(10, 1, 44.999), 60, &facts), 0);
    assert_eq!(stage.admits(at(10, 1, 45.0), 120, &facts), 60, "the first 60 are free again");
    assert_eq!(stage.admits(at(10, 2, 10.0), 120, &facts), 40, "and then the 40");
    let neighbour = Facts::new(&GET, "/").client(client(8));
    assert_eq!(stage.admits(at(10, 2, 10.0), 120, &neighbour), 100, "each address for itself");
}

#[test]
fn a_short_quota_beside_the_long_one_spaces_requests_evenly() {
    let policy = Policy::new("api").quota(Quota::per_minute(600)).quota("1/100ms");
    let stage = Stage::with_policy(policy);
    let instants_ms = stage.script(2 * MINUTE_MS, 1, &get("/"));
    assert_eq!(most_within(&instants_ms, 100), 1);
    assert_eq!(most_within(&instants_ms, MINUTE_MS), 600);
    assert_eq!(instants_ms.len(), 1_200);
}

#[test]
fn requests_in_the_same_instant_and_in_the_same_millisecond_all_count() {
    let stage = Stage::with_policy(Policy::new("api").quota(Quota::per_minute(3)));
    let facts = get("/");
    let instant = at(0, 0, 1.0);
    assert_eq!(stage.admits(instant, 2, &facts), 2);
    assert!(stage.allows(instant + Duration::from_micros(300), &facts));
    assert!(!stage.allows(instant + Duration::from_micros(600), &facts));
    assert!(!stage.allows(instant + Duration::from_micros(999), &facts));
}

#[test]
fn logins_and_password_resets_have_separate_limits() {
    let stage = Stage::new(
        Policies::builder()
            .policy(Policy::new("login").method(POST.clone()).path("/login").quota(quota("5/60s")))
            .policy(
                Policy::new("password-reset")
                    .method(POST.clone())
                    .path("/password-reset")
                    .quota(quota("3/3600s")),
            ),
    );
    let (login, reset) = (post("/login"), post("/password-reset"));
    assert_eq!(stage.admits(at(9, 0, 0.0), 8, &login), 5);
    assert_eq!(stage.admits(at(9, 0, 0.0), 8, &reset), 3, "the logins took nothing from it");
    assert_eq!(stage.retry_after(at(9, 0, 20.0), &login), at(0, 0, 40.0));
    assert_eq!(stage.retry_after(at(9, 0, 20.0), &reset), at(0, 59, 40.0));
    assert_eq!(stage.admits(at(9, 1, 0.0), 8, &login), 5);
    assert_eq!(stage.admits(at(9, 59, 59.999), 8, &reset), 0);
    assert_eq!(stage.admits(at(10, 0, 0.0), 8, &reset), 3);
}

#[test]
fn shortening_is_limited_and_following_a_short_link_is_free() {
    let shorten =
        Policy::new("shorten").method(POST.clone()).path("/shorten").quota(quota("10/60s"));
    let stage = Stage::with_policy(shorten);
    assert_eq!(stage.admits(at(0, 0, 0.0), 15, &post("/shorten")), 10);
    assert_eq!(stage.admits(at(0, 0, 0.0), 1_000, &get("/abc123")), 1_000);
    let decision = stage.decide(at(0, 0, 0.0), &get("/abc123"));
    assert!(decision.policies().is_empty(), "no policy is for it");
    let neighbour = Facts::new(&POST, "/shorten").client(client(8));
    assert_eq!(stage.admits(at(0, 0, 0.0), 15, &neighbour), 10);
    assert_eq!(stage.admits(at(0, 1, 0.0), 15, &post("/shorten")), 10);
}

#[test]
fn anonymous_clients_count_per_address_and_users_wherever_they_are() {
    let stage = Stage::new(
        Policies::builder()
            .plan(Plan::new("anonymous", [Quota::per_minute(100)]))
            .plan(Plan::new("user", [Quota::per_minute(1_000)]))
            .policy(Policy::new("api").identity([Source::User, Source::ip()]).plans("anonymous")),
    );
    let noon = at(12, 0, 0.0);
    let (here, there) = (client(1), client(2));
    assert_eq!(stage.admits(noon, 2_000, &Facts::new(&GET, "/").client(here)), 100);
    assert_eq!(stage.admits(noon, 2_000, &Facts::new(&GET, "/").client(there)), 100);
    let ada = |address: IpAddr| Facts::new(&GET, "/").client(address).user("ada").plan("user");
    assert_eq!(stage.admits(noon, 600, &ada(here)), 600, "the address's quota is not hers");
    assert_eq!(stage.admits(noon, 600, &ada(there)), 400, "one user, two addresses");
}

#[test]
fn of_several_policies_all_must_allow_and_a_denial_takes_from_none() {
    let tenant = HeaderName::from_static("x-tenant");
    let stage = Stage::new(
        Policies::builder()
            .policy(Policy::new("per-ip").quota(Quota::per_minute(50)))
            .policy(
                Policy::new("per-tenant")
                    .identity([Source::Header(tenant.clone())])
                    .quota(Quota::per_minute(70)),
            )
            .policy(
                Policy::new("export")
                    .path("/export")
                    .identity([Source::Everyone])
                    .quota(Quota::per_minute(10)),
            ),
    );
    let mut headers = HeaderMap::new();
    headers.insert(tenant, HeaderValue::from_static("acme"));
    let request = |path: &'static str, address: u8| {
        Facts::new(&GET, path).client(client(address)).headers(&headers).headers_trusted()
    };
    let noon = at(12, 0, 0.0);
    assert_eq!(stage.admits(noon, 500, &request("/export", 1)), 10, "490 denied by the endpoint");
    assert_eq!(stage.admits(noon, 500, &request("/", 1)), 40, "50 for the address, ten exports");
    assert_eq!(stage.admits(noon, 500, &request("/", 2)), 20, "70 for the tenant");
    let denied = stage.decide(noon, &request("/", 2));
    let standings = denied.policies().iter().map(|policy| {
        (policy.policy.to_string(), policy.standings[0].remaining(), policy.is_violated())
    });
    let expected = [("per-ip".to_owned(), 30, false), ("per-tenant".to_owned(), 0, true)];
    assert!(standings.eq(expected), "{denied:?}");
}

#[test]
fn a_client_that_waits_for_retry_after_is_admitted_whatever_policies_denied() {
    let stage = Stage::new(
        Policies::builder()
            .policy(Policy::new("burst").quota(quota("2/s")))
            .policy(Policy::new("login").path("/login").quota(quota("3/10s"))),
    );
    let facts = post("/login");
    assert_eq!(stage.admits(at(0, 0, 0.0), 3, &facts), 2);
    assert_eq!(stage.retry_after(at(0, 0, 0.25), &facts), at(0, 0, 0.75), "for the burst");
    assert_eq!(stage.admits(at(0, 0, 1.0), 3, &facts), 1);
    assert_eq!(stage.retry_after(at(0, 0, 1.0), &facts), at(0, 0, 9.0), "for the logins");
    assert!(!stage.allows(at(0, 0, 10.0) - Duration::from_nanos(1), &facts));
    assert!(stage.allows(at(0, 0, 10.0), &facts));
}

#[test]
fn a_client_that_keeps_hammering_stays_out_only_where_denied_requests_count() {
    for (policy, admitted) in [
        (Policy::new("patient").quota(Quota::per_minute(5)), 5 * 10),
        (Policy::new("strict").quota(Quota::per_minute(5)).count_denied(), 5),
    ] {
        let stage = Stage::with_policy(policy);
        let instants_ms = stage.script(10 * MINUTE_MS, 1_000, &get("/"));
        assert_eq!(instants_ms.len(), admitted);
        assert!(stage.allows(at(0, 11, 0.0), &get("/")), "a minute after it stopped");
    }
}

fn quota(text: &str) -> Quota {
    text.parse().expect("a quota")
}
