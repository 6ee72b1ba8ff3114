//! Records every request and exposes metrics, logs and the audit trail.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use slidegate::{Account, Clock, Name, Policies, Timestamp};

use super::audit::{AuditEvent, DecisionEvent, Recorder};
use super::connections::Connections;
use super::format::MetricsFormat;
use super::operations::{Operation, OperationMetrics, OperationOutcome};
use super::page::Page;
use super::policy_metrics::PolicyMetrics;
use super::report::GateReport;
use super::request_log::{DenialLog, log_access};
use super::request_metrics::{Labels, RequestMetrics, register};
use super::top_accounts::{DeniedAccount, SeenAccount, TopAccounts};
use super::verdict::VerdictLabel;
use super::{ListenerKind, RequestOutcome, UpstreamError, gate_metrics, process};
use crate::config::LogConfig;
use crate::net::ConnectionTable;

/// Records every answered request. Clones are the same observer.
#[derive(Clone)]
pub(crate) struct Observer(Arc<ObserverState>);

struct ObserverState {
    registry: Registry,
    sources: MetricSources,
    requests: RequestMetrics,
    denials: DenialLog,
    accounts: TopAccounts,
    operations: OperationMetrics,
    reloads: Attempts,
    snapshots: Attempts,
    /// Bans that hold here only, although there are other gateways.
    bans_not_shared: Counter,
    /// Whether there is a line for every request.
    access_log: bool,
    clock: Arc<dyn Clock>,
}

/// What is asked for its metrics when they are scraped.
#[derive(Clone)]
struct MetricSources {
    gate: Arc<dyn GateReport>,
    policies: Arc<PolicyMetrics>,
    connections: Arc<Connections>,
    audit: Option<Recorder>,
    started: Timestamp,
}

impl Observer {
    /// An observer of this gate. Outcomes must be timed by the same clock.
    pub(crate) fn new(
        gate: Arc<dyn GateReport>,
        log: &LogConfig,
        audit: Option<Recorder>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let started = clock.wall();
        let mut registry = Registry::default();
        let sources = MetricSources {
            policies: Arc::new(PolicyMetrics::new(&gate.policies(), clock.now())),
            connections: Arc::default(),
            gate,
            audit,
            started,
        };
        registry.register_collector(Box::new(sources.clone()));
        let left_out = register(
            &mut registry,
            "slidegate_denial_log_left_out",
            "Denials not logged individually because of the log's rate limit",
            Counter::default(),
        );
        let reloads = Attempts::register(
            &mut registry,
            (
                "slidegate_config_reloads",
                "Reloads of the configuration, by outcome: ok or failed (the previous one stays)",
            ),
            (
                "slidegate_config_last_reload_timestamp_seconds",
                "Unix time of the last successful load of the configuration",
            ),
        );
        reloads.last_success.set(unix_seconds(started));
        Self(Arc::new(ObserverState {
            requests: RequestMetrics::register(&mut registry),
            denials: DenialLog::new(left_out, &clock),
            accounts: TopAccounts::default(),
            operations: OperationMetrics::register(&mut registry),
            reloads,
            snapshots: Attempts::register(
                &mut registry,
                (
                    "slidegate_snapshots",
                    "Snapshots of the accounts in memory, by outcome: ok or failed",
                ),
                (
                    "slidegate_snapshot_last_timestamp_seconds",
                    "Unix time of the last successful snapshot; 0 if none since the start",
                ),
            ),
            bans_not_shared: register(
                &mut registry,
                "slidegate_bans_not_shared",
                "Bans that apply at this gateway only because the queue for Redis was full",
                Counter::default(),
            ),
            access_log: log.access,
            sources,
            registry,
            clock,
        }))
    }

    /// Records a request that was answered.
    pub(crate) fn record(&self, outcome: &RequestOutcome<'_>) {
        let state = &*self.0;
        let gate = &state.sources.gate;
        let verdict = VerdictLabel::of(outcome);
        state.requests.record(outcome, verdict);
        if let Some(decision) = outcome.decision {
            state.sources.policies.record(decision);
            state.denials.record(outcome, decision, || gate.policies());
            state.accounts.record(decision, outcome.ended);
        }
        if state.access_log {
            log_access(outcome, verdict);
        }
        let is_audited = |audit: &&Recorder| match verdict {
            VerdictLabel::Deny | VerdictLabel::Block | VerdictLabel::Unavailable => true,
            VerdictLabel::Allow => audit.every_decision,
            VerdictLabel::None => false,
        };
        if let Some(audit) = state.sources.audit.as_ref().filter(is_audited) {
            let event = DecisionEvent::new(outcome, verdict, &gate.policies());
            audit.record(state.clock.wall(), &AuditEvent::Decision(event));
        }
    }

    /// The body of upstream's response broke off, after the request was recorded.
    pub(crate) fn upstream_body_failed(&self) {
        self.0.requests.record_upstream_error(UpstreamError::Body);
    }

    /// Shows the connections of a listener, once for each listener.
    pub(crate) fn connections(&self, listener: ListenerKind, connections: Arc<ConnectionTable>) {
        self.0.sources.connections.add(listener, connections);
    }

    /// The server begins.
    pub(crate) fn started(&self) {
        let policies = self.gate().policies();
        let version = env!("CARGO_PKG_VERSION");
        self.audit(&AuditEvent::Start { version, in_force: names(&policies) });
    }

    /// The server is about to end.
    pub(crate) fn stopped(&self) {
        self.audit(&AuditEvent::Stop {});
    }

    /// The configuration was read again, and these policies are in force now; what is different,
    /// in words.
    pub(crate) fn reloaded(&self, policies: &Policies, changes: &[String]) {
        self.0.sources.policies.follow(policies);
        self.0.reloads.succeeded(self.0.clock.wall());
        self.audit(&AuditEvent::Reload {
            outcome: OperationOutcome::Done,
            changes: Some(changes),
            problems: None,
            in_force: names(policies),
        });
    }

    /// The configuration could not be read again for these reasons, and everything is as it was.
    pub(crate) fn reload_failed(&self, problems: &[String]) {
        self.0.reloads.failures.inc();
        self.audit_failed_reload(problems);
    }

    /// The certificate could not be read again, and is as it was.
    pub(crate) fn certificate_reload_failed(&self, problem: String) {
        self.audit_failed_reload(&[problem]);
    }

    fn audit_failed_reload(&self, problems: &[String]) {
        let policies = self.gate().policies();
        self.audit(&AuditEvent::Reload {
            outcome: OperationOutcome::Failed,
            changes: None,
            problems: Some(problems),
            in_force: names(&policies),
        });
    }

    /// An operator did something, or tried to.
    pub(crate) fn operated(&self, operation: &Operation) {
        self.0.operations.record(operation);
        operation.log();
        self.audit(&AuditEvent::Operator(operation));
    }

    /// The accounts were saved.
    pub(crate) fn snapshot_saved(&self) {
        self.0.snapshots.succeeded(self.0.clock.wall());
    }

    /// The accounts could not be saved.
    pub(crate) fn snapshot_failed(&self) {
        self.0.snapshots.failures.inc();
    }

    /// Counts bans that could not be shared with the other gateways.
    pub(crate) fn bans_not_shared(&self, bans: u64) {
        self.0.bans_not_shared.inc_by(bans);
    }

    /// The accounts that were denied most often of late, the most often first.
    pub(crate) fn most_denied(&self, limit: usize) -> Vec<DeniedAccount> {
        self.0.accounts.most_denied(limit, self.0.clock.now())
    }

    /// The accounts that were last seen nearest to a quota, the nearest first.
    pub(crate) fn nearest(&self, limit: usize) -> Vec<SeenAccount> {
        self.0.accounts.nearest(limit, self.0.clock.now())
    }

    /// The plan that an account was last seen with, if it was seen near a quota.
    pub(crate) fn plan_of(&self, account: &Account) -> Option<Name> {
        self.0.accounts.plan_of(account, self.0.clock.now())
    }

    /// The gate that is observed.
    pub(crate) fn gate(&self) -> &dyn GateReport {
        &*self.0.sources.gate
    }

    /// The page of metrics.
    pub(crate) fn metrics(&self, format: MetricsFormat) -> Result<String, fmt::Error> {
        let mut page = String::with_capacity(32 * 1024);
        text::encode(&mut page, &self.0.registry)?;
        self.0.sources.policies.turn_if_due(self.0.clock.now());
        Ok(format.convert(page))
    }

    fn audit(&self, event: &AuditEvent<'_>) {
        if let Some(audit) = &self.0.sources.audit {
            audit.record(self.0.clock.wall(), event);
        }
    }
}

impl Collector for MetricSources {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut Page(encoder);
        self.policies.encode(page)?;
        self.connections.encode(page)?;
        gate_metrics::encode(&*self.gate, page)?;
        page.counter(
            "slidegate_audit_dropped",
            "Audit records dropped because the queue was full or the disk failed.",
            self.audit.as_ref().map_or(0, Recorder::dropped),
        )?;
        process::encode(self.started, page)
    }
}

/// How something went that is done now and then and may fail.
struct Attempts {
    successes: Counter,
    failures: Counter,
    /// In Unix time.
    last_success: Gauge<f64, AtomicU64>,
}

impl Attempts {
    fn register(
        registry: &mut Registry,
        counter: (&str, &str),
        last_success_gauge: (&str, &str),
    ) -> Self {
        let attempts = Family::<Labels<1>, Counter>::default();
        let attempts = register(registry, counter.0, counter.1, attempts);
        let (name, help) = last_success_gauge;
        Self {
            successes: attempts.get_or_create_owned(&[("outcome", "ok")]),
            failures: attempts.get_or_create_owned(&[("outcome", "failed")]),
            last_success: register(registry, name, help, Gauge::default()),
        }
    }

    fn succeeded(&self, now: Timestamp) {
        self.successes.inc();
        self.last_success.set(unix_seconds(now));
    }
}

fn unix_seconds(at: Timestamp) -> f64 {
    at.as_millis() as f64 / 1000.0
}

fn names(policies: &Policies) -> Vec<&str> {
    policies.names().map(|name| &**name).collect()
}

impl fmt::Debug for MetricSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricSources").finish_non_exhaustive()
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
