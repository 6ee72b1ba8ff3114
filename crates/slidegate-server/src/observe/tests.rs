//! What is seen after known traffic, read by a parser that is not ours.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use openmetrics_parser::openmetrics::parse_openmetrics;
use openmetrics_parser::prometheus::parse_prometheus;
use openmetrics_parser::{MetricsExposition, OpenMetricsType, OpenMetricsValue};
use serde_json::Value;
use slidegate::limit::SystemClock;
use slidegate::{
    AccessList, Ban, Clock, Decision, Facts, Gate, ManualClock, MemoryStore, Plan, Policies,
    Policy, Quota, Scope, Source,
};
use slidegate_proxy::{Bounds, ConnectionTable};
use slidegate_redis::{LeasedStore, RedisStore, ResilientStore};

use super::{
    ListenerKind, MetricsFormat, Observer, RequestOutcome, UpstreamError, UpstreamOutcome,
};
use crate::config::{LogConfig, LogFormat};
use crate::logs::tests::lines_of;
use crate::store::{AnyStore, decide_now};

/// A page of metrics, read.
struct Read(MetricsExposition<OpenMetricsType, OpenMetricsValue>);

impl Read {
    fn of(observer: &Observer) -> Self {
        let page = observer.metrics(MetricsFormat::OpenMetrics).unwrap();
        Self(parse_openmetrics(&page).unwrap_or_else(|error| panic!("{error:?}\n{page}")))
    }

    /// The number that this series shows.
    fn value(&self, family: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let family = self.0.families.get(family)?;
        let fits = |set: &openmetrics_parser::LabelSet<'_>| {
            labels.iter().all(|(name, value)| set.get_label_value(name) == Some(value))
        };
        let mut samples = family.iter_samples();
        let sample = samples.find(|sample| fits(&sample.get_labelset().unwrap()))?;
        Some(match &sample.value {
            OpenMetricsValue::Counter(counter) => counter.value.as_f64(),
            OpenMetricsValue::Gauge(gauge) => gauge.as_f64(),
            OpenMetricsValue::Histogram(histogram) => histogram.count.unwrap() as f64,
            other => panic!("{other:?} is no number"),
        })
    }

    /// Every value of every label.
    fn label_values(&self) -> BTreeSet<String> {
        let samples = self.0.families.values().flat_map(|family| family.iter_samples());
        let values = |sample: &openmetrics_parser::OpenMetricsSample| {
            sample.get_labelset().unwrap().iter_values().cloned().collect::<Vec<_>>()
        };
        samples.flat_map(values).collect()
    }
}

/// A gate with a manual clock, and its observer.
struct Fixture {
    gate: Arc<Gate<AnyStore>>,
    observer: Observer,
    clock: ManualClock,
}

const LOG: LogConfig = LogConfig { format: LogFormat::Auto, level: String::new(), access: true };

impl Fixture {
    fn new(policies: Policies) -> Self {
        let clock = ManualClock::default();
        let store = || MemoryStore::builder().capacity(1000).clock(clock.clone()).build();
        let gate = Arc::new(Gate::with_local(policies, store().into(), store()));
        let observer = Observer::new(gate.clone(), &LOG, None, Arc::new(clock.clone()));
        Self { gate, observer, clock }
    }

    /// A request from a client of the network 10.0.0.0/8.
    fn ask(&self, path: &str, client: u16) -> Decision {
        let [high, low] = client.to_be_bytes();
        let facts = Facts::new(&Method::GET, path).client([10, 0, high, low].into());
        let decision = decide_now(&self.gate, &facts);
        let status = match decision.is_allowed() {
            true => StatusCode::OK,
            false => StatusCode::TOO_MANY_REQUESTS,
        };
        self.answer(path, status, Some(&decision));
        decision
    }

    fn answer(&self, path: &str, status: StatusCode, decision: Option<&Decision>) {
        self.answer_for(path, status, decision, UpstreamOutcome::NotCalled);
    }

    fn answer_for(
        &self,
        path: &str,
        status: StatusCode,
        decision: Option<&Decision>,
        upstream: UpstreamOutcome,
    ) {
        let began = self.clock.now();
        self.observer.record(&RequestOutcome {
            listener: ListenerKind::Gateway,
            method: &Method::GET,
            path,
            client: Some([10, 0, 0, 9].into()),
            status,
            decision,
            upstream,
            began,
            asked: began,
            decided: decision.map(|_| began + Duration::from_millis(1)),
            ended: began + Duration::from_millis(3),
        });
    }
}

fn policies(policies: impl IntoIterator<Item = Policy>) -> Policies {
    let builder = Policies::builder().blocked(AccessList::new().path("/blocked"));
    policies.into_iter().fold(builder, |builder, policy| builder.policy(policy)).build().unwrap()
}

fn three_policies() -> Policies {
    policies([
        Policy::new("flood").scope(Scope::Local).quota(Quota::per_second(100)),
        Policy::new("login").path("/login").quota(Quota::per_minute(2)),
        Policy::new("trial").path("/login").quota(Quota::per_minute(1)).shadow(),
    ])
}

#[test]
fn known_traffic_is_counted_as_it_was() {
    let fixture = Fixture::new(three_policies());
    (0..5).for_each(|_| drop(fixture.ask("/login", 1)));
    (0..3).for_each(|_| drop(fixture.ask("/other", 1)));
    drop(fixture.ask("/blocked", 1));
    fixture.answer("/login", StatusCode::SERVICE_UNAVAILABLE, None);
    fixture.answer("/exempt", StatusCode::NO_CONTENT, None);
    let read = Read::of(&fixture.observer);
    let gateway = |verdict| {
        read.value("slidegate_requests", &[("listener", "gateway"), ("verdict", verdict)])
    };
    assert_eq!(gateway("allow"), Some(5.0));
    assert_eq!(gateway("deny"), Some(3.0));
    assert_eq!(gateway("block"), Some(1.0));
    assert_eq!(gateway("unavailable"), Some(1.0));
    assert_eq!(gateway("none"), Some(1.0));
    let of = |family: &str, policy| read.value(family, &[("policy", policy)]);
    assert_eq!(of("rate_limit_exceeded", "login"), Some(3.0));
    assert_eq!(of("rate_limit_exceeded", "flood"), Some(0.0));
    assert_eq!(of("slidegate_shadow_denials", "trial"), Some(4.0));
    assert_eq!(of("slidegate_shadow_denials", "login"), Some(0.0));
    assert_eq!(of("rate_limit_remaining", "login"), Some(0.0));
    assert_eq!(of("rate_limit_remaining", "flood"), Some(95.0));
    assert_eq!(of("rate_limit_reset_seconds", "login"), Some(60.0));
    let other =
        |family, label, value| read.value(family, &[("listener", "gateway"), (label, value)]);
    assert_eq!(other("slidegate_blocks", "reason", "listed"), Some(1.0));
    assert_eq!(other("slidegate_responses", "class", "4xx"), Some(4.0));
    assert_eq!(read.value("slidegate_response_seconds", &[("listener", "gateway")]), Some(11.0));
    assert_eq!(read.value("slidegate_memory_accounts", &[("store", "shared")]), Some(2.0));
    assert_eq!(read.value("slidegate_memory_accounts", &[("store", "local")]), Some(1.0));
    assert_eq!(read.value("slidegate_memory_capacity", &[("store", "local")]), Some(1000.0));
}

#[test]
fn metrics_are_the_sum_of_all_workers_also_after_a_reload() {
    let mut fixture = Fixture::new(three_policies());
    let first = fixture.observer.clone();
    drop(fixture.ask("/login", 1));
    fixture.observer = first.for_worker();
    (0..2).for_each(|_| drop(fixture.ask("/login", 1)));
    fixture.gate.replace_policies(three_policies());
    fixture.observer.reloaded(&[], Vec::new());
    fixture.observer = first.for_worker();
    drop(fixture.ask("/login", 1));
    for observer in [&first, &fixture.observer] {
        let read = Read::of(observer);
        let verdicts = ["allow", "deny"].map(|verdict| {
            read.value("slidegate_requests", &[("listener", "gateway"), ("verdict", verdict)])
        });
        assert_eq!(verdicts, [Some(2.0), Some(2.0)]);
        let decisions = ["allow", "deny"].map(|verdict| {
            let labels = [("policy", "login"), ("verdict", verdict)];
            read.value("slidegate_policy_decisions", &labels)
        });
        assert_eq!(decisions, [Some(2.0), Some(2.0)]);
        let of = |family: &str| read.value(family, &[("policy", "login")]);
        assert_eq!((of("rate_limit_exceeded"), of("rate_limit_remaining")), (Some(2.0), Some(0.0)));
        let seconds = |family| read.value(family, &[("listener", "gateway")]);
        assert_eq!(seconds("slidegate_decision_seconds"), Some(4.0));
        let totals = observer.request_totals();
        assert_eq!((totals.allowed, totals.refused), (2, 2));
        let p99 = observer.decision_times().quantile(0.99).unwrap();
        assert!(p99 >= Duration::from_millis(1) && p99 <= Duration::from_micros(1100), "{p99:?}");
    }
}

#[test]
fn names_are_as_promised_and_everything_says_what_it_is() {
    let fixture = Fixture::new(three_policies());
    drop(fixture.ask("/login", 1));
    let connections = Arc::new(ConnectionTable::new(&Bounds::default()));
    connections.counts().open.store(5, Ordering::Relaxed);
    fixture.observer.connections(ListenerKind::Gateway, connections);
    fixture.answer_for("/", StatusCode::BAD_GATEWAY, None, UpstreamOutcome::Answered);
    let failed = UpstreamOutcome::Failed(UpstreamError::Timeout);
    fixture.answer_for("/", StatusCode::GATEWAY_TIMEOUT, None, failed);
    let page = fixture.observer.metrics(MetricsFormat::OpenMetrics).unwrap();
    for sample in [
        "rate_limit_exceeded_total{policy=\"login\"} 0",
        "rate_limit_remaining{policy=\"login\"} 1.0",
        "rate_limit_reset_seconds{policy=\"login\"} 60.0",
        "slidegate_requests_total{listener=\"gateway\",verdict=\"allow\"} 1",
        "slidegate_fallback_decisions_total{listener=\"gateway\"} 0",
        "slidegate_upstream_responses_total{class=\"5xx\"} 1",
        "slidegate_upstream_errors_total{reason=\"timeout\"} 1",
        "slidegate_connections{listener=\"gateway\"} 5.0",
        "slidegate_connection_failures_total{listener=\"gateway\",reason=\"tls\"} 0",
        "slidegate_config_reloads_total{outcome=\"ok\"} 0",
        "slidegate_config_last_reload_timestamp_seconds 1767225600.0",
        "process_start_time_seconds 1767225600.0",
        "slidegate_store_info{kind=\"memory\"} 1",
        concat!("slidegate_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(page.lines().any(|line| line == sample), "{sample} is not in\n{page}");
    }
    let read = Read::of(&fixture.observer);
    for (name, family) in &read.0.families {
        assert!(family.help.ends_with('.') && family.help.len() > 10, "{name}: {}", family.help);
        assert_ne!(family.family_type, OpenMetricsType::Unknown, "{name}");
    }
}

#[test]
fn each_policy_counts_its_verdicts_by_plan() {
    let plan = |name, units| Plan::new(name, [Quota::per_hour(units)]);
    let api = Policy::new("api").plan_header(HeaderName::from_static("x-plan"), "free");
    let login = Policy::new("login").path("/login").quota(Quota::per_minute(1));
    let trial = Policy::new("trial").path("/login").quota(Quota::per_minute(3)).shadow();
    let policies = |api: Policy| {
        let plans = Policies::builder().plan(plan("free", 2)).plan(plan("pro", 100));
        plans.policy(api).policy(login.clone()).policy(trial.clone()).build().unwrap()
    };
    let fixture = Fixture::new(policies(api));
    let ask = |plan: &str, path: &str| {
        let facts = Facts::new(&Method::GET, path).client([10, 0, 0, 1].into()).plan(plan);
        let decision = decide_now(&fixture.gate, &facts);
        fixture.answer(path, StatusCode::OK, Some(&decision));
    };
    (0..3).for_each(|_| ask("free", "/"));
    (0..5).for_each(|_| ask("pro", "/login"));
    let counts = |policy, plan, verdict| {
        let labels = [("policy", policy), ("plan", plan), ("verdict", verdict)];
        Read::of(&fixture.observer).value("slidegate_policy_decisions", &labels)
    };
    for (policy, plan, verdict, expected) in [
        ("api", "free", "allow", Some(2.0)),
        ("api", "free", "deny", Some(1.0)),
        ("api", "pro", "deny", Some(0.0)),
        ("api", "", "allow", None),
        ("login", "", "allow", Some(1.0)),
        ("login", "", "deny", Some(4.0)),
        ("login", "", "block", Some(0.0)),
        ("trial", "", "shadow-deny", Some(0.0)),
    ] {
        assert_eq!(counts(policy, plan, verdict), expected, "{policy} {plan} {verdict}");
    }
    fixture.gate.replace_policies(policies(Policy::new("api").quota(Quota::per_hour(9))));
    fixture.observer.reloaded(&[], Vec::new());
    assert_eq!(counts("api", "free", "deny"), None);
    assert_eq!(counts("api", "", "deny"), Some(0.0));
    assert_eq!(counts("login", "", "deny"), Some(4.0));
    let exceeded = Read::of(&fixture.observer).value("rate_limit_exceeded", &[("policy", "api")]);
    assert_eq!(exceeded, Some(1.0), "whatever becomes of its plans");
}

#[test]
fn decision_time_is_measured_apart_from_that_of_upstream() {
    let fixture = Fixture::new(three_policies());
    let decision = fixture.ask("/", 1);
    fixture.answer_for("/", StatusCode::OK, Some(&decision), UpstreamOutcome::Answered);
    fixture.answer_for("/", StatusCode::OK, None, UpstreamOutcome::Answered);
    let page = fixture.observer.metrics(MetricsFormat::Text).unwrap();
    for sample in [
        "slidegate_decision_seconds_sum{listener=\"gateway\"} 0.002",
        "slidegate_decision_seconds_count{listener=\"gateway\"} 2",
        "slidegate_decision_seconds_bucket{le=\"0.001\",listener=\"gateway\"} 2",
        "slidegate_upstream_seconds_sum 0.005",
        "slidegate_upstream_seconds_count 2",
        "slidegate_response_seconds_count{listener=\"gateway\"} 3",
    ] {
        assert!(page.lines().any(|line| line == sample), "{sample} is not in\n{page}");
    }
}

#[test]
fn both_formats_say_the_same() {
    let fixture = Fixture::new(three_policies());
    drop(fixture.ask("/login", 1));
    let text = fixture.observer.metrics(MetricsFormat::Text).unwrap();
    let text = parse_prometheus(&text).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
    let openmetrics = Read::of(&fixture.observer).0.families;
    assert_eq!(text.families.len(), openmetrics.len());
    for (name, family) in openmetrics {
        let suffix = match family.family_type {
            OpenMetricsType::Counter => "_total",
            OpenMetricsType::Info => "_info",
            _ => "",
        };
        let same = &text.families[&format!("{name}{suffix}")];
        assert_eq!(same.help, family.help);
        assert_eq!(same.iter_samples().count(), family.iter_samples().count(), "{name}");
    }
}

#[test]
fn a_store_on_redis_reports_its_calls() {
    let redis = RedisStore::builder("redis://127.0.0.1:1").build().unwrap();
    let gate = Gate::new(three_policies(), LeasedStore::new(ResilientStore::new(redis)).into());
    let read = Read::of(&Observer::new(Arc::new(gate), &LOG, None, Arc::new(SystemClock::new())));
    assert_eq!(read.value("slidegate_store_breaker", &[("state", "closed")]), Some(1.0));
    assert_eq!(read.value("slidegate_store_breaker", &[("state", "open")]), Some(0.0));
    for family in [
        "slidegate_store_latency_seconds",
        "slidegate_store_cache_hits",
        "slidegate_store_merges",
        "slidegate_store_merged_units",
        "slidegate_store_unmerged_accounts",
        "slidegate_store_fallbacks",
    ] {
        assert_eq!(read.value(family, &[]), Some(0.0), "{family}");
    }
    assert_eq!(read.value("slidegate_store_calls", &[("outcome", "deadline")]), Some(0.0));
    assert_eq!(read.value("slidegate_memory_accounts", &[("store", "shared")]), None);
}

#[test]
fn every_metric_is_described_in_the_documentation() {
    let redis = RedisStore::builder("redis://127.0.0.1:1").build().unwrap();
    let gate = Gate::new(three_policies(), LeasedStore::new(ResilientStore::new(redis)).into());
    let observer = Observer::new(Arc::new(gate), &LOG, None, Arc::new(SystemClock::new()));
    let connections = ConnectionTable::new(&Bounds::default());
    observer.connections(ListenerKind::Gateway, Arc::new(connections));
    let described = include_str!("../../../../docs/operation.md");
    for (name, family) in Read::of(&observer).0.families {
        let suffix = match family.family_type {
            OpenMetricsType::Counter => "_total",
            OpenMetricsType::Info => "_info",
            _ => "",
        };
        assert!(described.contains(&format!("`{name}{suffix}")), "{name}{suffix} is not described");
    }
}

#[test]
fn ten_thousand_identities_make_no_more_series_than_one() {
    let fixture = Fixture::new(three_policies());
    drop(fixture.ask("/login", 0));
    let (bytes, labels) = (
        fixture.observer.metrics(MetricsFormat::OpenMetrics).unwrap().len(),
        Read::of(&fixture.observer).label_values(),
    );
    for client in 0..10_000 {
        drop(fixture.ask(&format!("/login/{client}"), client));
        drop(fixture.ask("/login", client));
    }
    assert_eq!(Read::of(&fixture.observer).label_values(), labels);
    let grown = fixture.observer.metrics(MetricsFormat::OpenMetrics).unwrap().len() - bytes;
    assert!(grown < 1000, "only digits may have been added, not {grown} bytes");
}

#[test]
fn bans_are_counted_apart() {
    let ban = Ban::after(Quota::per_minute(2)).lasting(Duration::from_secs(600));
    let login = Policy::new("login").identity([Source::ip()]).quota(Quota::per_minute(1)).ban(ban);
    let fixture = Fixture::new(policies([login]));
    (0..5).for_each(|_| drop(fixture.ask("/", 1)));
    let read = Read::of(&fixture.observer);
    assert_eq!(read.value("rate_limit_exceeded", &[("policy", "login")]), Some(2.0));
    assert_eq!(read.value("slidegate_banned_requests", &[("policy", "login")]), Some(2.0));
    let banned = [("listener", "gateway"), ("reason", "banned")];
    assert_eq!(read.value("slidegate_blocks", &banned), Some(2.0));
    let blocked = [("policy", "login"), ("verdict", "block")];
    assert_eq!(read.value("slidegate_policy_decisions", &blocked), Some(2.0));
    assert_eq!(read.value("slidegate_bans", &[]), Some(1.0));
}

#[test]
fn lowest_standing_expires_by_time_and_not_by_being_read() {
    let fixture = Fixture::new(three_policies());
    let remaining =
        || Read::of(&fixture.observer).value("rate_limit_remaining", &[("policy", "login")]);
    (0..2).for_each(|_| drop(fixture.ask("/login", 1)));
    drop(fixture.ask("/login", 2));
    assert_eq!((remaining(), remaining()), (Some(0.0), Some(0.0)));
    fixture.clock.advance(Duration::from_secs(30));
    assert_eq!(remaining(), Some(0.0));
    drop(fixture.ask("/login", 3));
    fixture.clock.advance(Duration::from_secs(29));
    assert_eq!(remaining(), Some(0.0));
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!((remaining(), remaining()), (Some(0.0), Some(1.0)));
    fixture.clock.advance(Duration::from_secs(30));
    assert_eq!((remaining(), remaining()), (Some(1.0), None));
}

#[test]
fn a_reload_keeps_what_was_counted_for_policies_that_stay() {
    let fixture = Fixture::new(three_policies());
    (0..3).for_each(|_| drop(fixture.ask("/login", 1)));
    let login = Policy::new("login").path("/login").quota(Quota::per_minute(1));
    let search = Policy::new("search").path("/search").quota(Quota::per_minute(1));
    fixture.gate.replace_policies(policies([login, search]));
    fixture.clock.advance(Duration::from_secs(7));
    fixture.observer.reloaded(&[], Vec::new());
    fixture.observer.reload_failed(&[]);
    drop(fixture.ask("/login", 1));
    let read = Read::of(&fixture.observer);
    let exceeded = |policy| read.value("rate_limit_exceeded", &[("policy", policy)]);
    assert_eq!(exceeded("login"), Some(2.0));
    assert_eq!(exceeded("search"), Some(0.0));
    assert_eq!(exceeded("flood"), None);
    let reloads = |outcome| read.value("slidegate_config_reloads", &[("outcome", outcome)]);
    assert_eq!((reloads("ok"), reloads("failed")), (Some(1.0), Some(1.0)));
    let last = read.value("slidegate_config_last_reload_timestamp_seconds", &[]);
    assert_eq!(last, Some(1_767_225_607.0));
}

#[test]
fn a_denial_has_a_line_with_all_that_an_operator_asks_for() {
    let fixture = Fixture::new(three_policies());
    let lines = lines_of("slidegate::denied=info", || {
        (0..3).for_each(|_| drop(fixture.ask("/login", 1)));
    });
    let [trial, login] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&trial["policy"], &trial["shadow"]), (&Value::from("trial"), &Value::from(true)));
    for (field, value) in [
        ("target", Value::from("slidegate::denied")),
        ("level", "INFO".into()),
        ("message", "limit exceeded".into()),
        ("policy", "login".into()),
        ("identity", "ip:10.0.0.1".into()),
        ("units", 2.into()),
        ("window_s", 60.0.into()),
        ("spent", 2.into()),
        ("remaining", 0.into()),
        ("retry_after_s", 60.0.into()),
        ("shadow", false.into()),
        ("listener", "gateway".into()),
        ("method", "GET".into()),
        ("path", "/login".into()),
        ("client", "10.0.0.9".into()),
        ("left_out", 0.into()),
    ] {
        assert_eq!(login[field], value, "{field} in {login}");
    }
}

#[test]
fn one_identity_cannot_flood_the_log() {
    let fixture = Fixture::new(policies([Policy::new("api").quota(Quota::per_day(1))]));
    let lines = lines_of("slidegate::denied=info", || {
        for _ in 0..3 {
            (0..1000).for_each(|_| drop(fixture.ask("/", 1)));
            fixture.clock.advance(Duration::from_secs(60));
        }
    });
    let left_out: Vec<_> = lines.iter().map(|line| line["left_out"].as_u64().unwrap()).collect();
    assert_eq!(left_out, [0, 998, 999]);
    let read = Read::of(&fixture.observer);
    assert_eq!(read.value("slidegate_denial_log_left_out", &[]), Some(998.0 + 999.0 + 999.0));
}

#[test]
fn many_identities_cannot_flood_the_log() {
    let everyone = Policy::new("api").quota(Quota::per_day(1));
    let fixture = Fixture::new(policies([everyone]));
    let lines = lines_of("slidegate::denied=info", || {
        for client in 0..900 {
            (0..2).for_each(|_| drop(fixture.ask("/", client)));
        }
        fixture.clock.advance(Duration::from_secs(1));
        drop(fixture.ask("/", 899));
    });
    assert_eq!(lines.len(), 11);
    assert_eq!(lines[10]["left_out"], 890);
}

#[test]
fn an_access_log_has_a_line_for_every_request_and_no_more_of_it_than_is_safe() {
    let fixture = Fixture::new(three_policies());
    let lines = lines_of("slidegate::access=info", || {
        drop(fixture.ask("/login", 1));
        fixture.answer(&"/x".repeat(500), StatusCode::SERVICE_UNAVAILABLE, None);
    });
    assert_eq!(lines.len(), 2);
    for (field, value) in [
        ("method", "GET".into()),
        ("path", "/login".into()),
        ("status", 200.into()),
        ("client", "10.0.0.9".into()),
        ("duration_ms", 3.0.into()),
        ("verdict", "allow".into()),
        ("policy", Value::from("login")),
    ] {
        assert_eq!(lines[0][field], value, "{field} in {}", lines[0]);
    }
    assert_eq!(lines[1]["verdict"], "unavailable");
    assert_eq!(lines[1]["path"].as_str().unwrap().len(), 200);
    assert!(lines[1].get("policy").is_none());
}

#[test]
fn secrets_are_in_no_line() {
    let by_key = Policy::new("api").identity([Source::ApiKey]).quota(Quota::per_day(1));
    let fixture = Fixture::new(policies([by_key]));
    let mut headers = http::HeaderMap::new();
    headers.insert("x-api-key", "hunter2".parse().unwrap());
    let facts = Facts::new(&Method::GET, "/?key=hunter2").headers(&headers);
    let lines = lines_of("info", || {
        for _ in 0..2 {
            let decision = decide_now(&fixture.gate, &facts);
            fixture.answer("/", StatusCode::OK, Some(&decision));
        }
    });
    assert_eq!(lines.len(), 3, "two of the access log and one of the denials: {lines:?}");
    assert!(lines.iter().all(|line| !line.to_string().contains("hunter2")), "{lines:?}");
    assert!(lines[1]["identity"].as_str().unwrap().starts_with("api-key:"), "{lines:?}");
}
