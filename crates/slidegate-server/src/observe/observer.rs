//! Records every request and exposes metrics, logs and the audit trail.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use slidegate::{Account, Clock, Name, Policies, Timestamp};

use super::accounts::{Accounts, DeniedAccount, SeenAccount};
use super::attempts::Attempts;
use super::audit::{self, Event, Recorder};
use super::connections::{ConnectionStats, Connections};
use super::denial_log::DenialLog;
use super::endpoint::EndpointMetrics;
use super::exposition::Page;
use super::format::MetricsFormat;
use super::operations::{Operation, Operations};
use super::policy::PolicyMeters;
use super::report::GateReport;
use super::upstream::{UpstreamError, UpstreamMetrics, UpstreamOutcome};
use super::verdict::VerdictLabel;
use super::{ListenerKind, RequestOutcome, access, process, store};
use crate::config::LogConfig;

/// Sees every answer. Clones all are the same observer.
///
/// Seeing an allowed request costs a few additions to numbers of the thread's own: no lock, no
/// allocation, no reading of a clock. If half of a quota or more is spent, the account is written
/// down in a table of the thread's own.
#[derive(Clone)]
pub(crate) struct Observer(Arc<ObserverState>);

struct ObserverState {
    gate: Arc<dyn GateReport>,
    endpoints: EndpointMetrics,
    policies: PolicyMeters,
    denials: DenialLog,
    accounts: Accounts,
    operations: Operations,
    /// Whether there is a line for every request.
    access: bool,
    audit: Option<Recorder>,
    upstream: UpstreamMetrics,
    connections: Connections,
    reloads: Attempts,
    snapshots: Attempts,
    /// Bans that hold here only, although there are other gateways.
    bans_not_shared: AtomicU64,
    clock: Arc<dyn Clock>,
    started: Timestamp,
    /// When the current period of the lowest standings began, in nanoseconds.
    turned_ns: AtomicU64,
}

/// Long enough that two scrapes of any usual interval fall into it.
const PERIOD: Duration = Duration::from_secs(30);

impl Observer {
    /// An observer of this gate. Outcomes must be timed by the same clock.
    pub(crate) fn new(
        gate: Arc<dyn GateReport>,
        log: &LogConfig,
        audit: Option<Recorder>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let started = clock.wall();
        Self(Arc::new(ObserverState {
            endpoints: EndpointMetrics::default(),
            policies: PolicyMeters::new(gate.policies().names()),
            denials: DenialLog::default(),
            accounts: Accounts::default(),
            operations: Operations::default(),
            access: log.access,
            audit,
            upstream: UpstreamMetrics::default(),
            connections: Connections::default(),
            reloads: Attempts::since(started),
            snapshots: Attempts::default(),
            bans_not_shared: AtomicU64::new(0),
            started,
            turned_ns: AtomicU64::new(clock.now().as_nanos()),
            clock,
            gate,
        }))
    }

    /// Records a request that was answered.
    #[inline]
    pub(crate) fn record(&self, answered: &RequestOutcome<'_>) {
        let inner = &*self.0;
        let verdict = VerdictLabel::of(answered);
        inner.endpoints.count(answered, verdict);
        if let Some(decision) = answered.decision {
            inner.policies.count(decision);
            inner.denials.record(answered, decision, &*inner.gate);
            inner.accounts.record(decision, answered.ended);
        }
        match answered.upstream {
            UpstreamOutcome::NotCalled => {}
            UpstreamOutcome::Answered => {
                let sent = answered.decided.unwrap_or(answered.began);
                let took = answered.ended.saturating_since(sent);
                inner.upstream.answered(answered.status, took);
            }
            UpstreamOutcome::Failed(error) => inner.upstream.failed(error),
        }
        if let Some(audit) = &inner.audit {
            audit.answered(answered, verdict, &*inner.gate, &*inner.clock);
        }
        if inner.access {
            access::write(answered, verdict);
        }
    }

    /// The body of upstream's response broke off, after the request was recorded.
    pub(crate) fn upstream_body_failed(&self) {
        self.0.upstream.failed(UpstreamError::Body);
    }

    /// Adds a source of connection statistics.
    pub(crate) fn connections(
        &self,
        listener: ListenerKind,
        source: impl Fn() -> ConnectionStats + Send + Sync + 'static,
    ) {
        self.0.connections.add(listener, Box::new(source));
    }

    /// The server begins.
    pub(crate) fn started(&self) {
        self.0.record(|| Event::Start { policies: names(&self.0.gate.policies()) });
    }

    /// The server is about to end.
    pub(crate) fn stopped(&self) {
        self.0.record(|| Event::Stop);
    }

    /// The configuration was read again, and these policies are in force now; what is different,
    /// in words.
    pub(crate) fn reloaded(&self, policies: &Policies, changes: &[String]) {
        self.0.policies.follow(policies.names());
        self.0.reloads.succeeded(self.0.clock.wall());
        self.0.record(|| Event::Reload { policies: names(policies), changes: changes.to_vec() });
    }

    /// The configuration could not be read again for these reasons, and everything is as it was.
    pub(crate) fn reload_failed(&self, problems: Vec<String>) {
        self.0.reloads.failed();
        self.record_failed_reload(problems);
    }

    /// The certificate could not be read again, and is as it was.
    pub(crate) fn certificate_reload_failed(&self, problem: String) {
        self.record_failed_reload(vec![problem]);
    }

    fn record_failed_reload(&self, problems: Vec<String>) {
        let policies = || names(&self.0.gate.policies());
        self.0.record(|| Event::ReloadFailed { policies: policies(), problems });
    }

    /// An operator did something, or tried to.
    pub(crate) fn operated(&self, operation: Operation) {
        self.0.operations.count(&operation);
        operation.log();
        self.0.record(|| Event::Operator(Box::new(operation)));
    }

    /// The accounts were saved.
    pub(crate) fn snapshot_saved(&self) {
        self.0.snapshots.succeeded(self.0.clock.wall());
    }

    /// The accounts could not be saved.
    pub(crate) fn snapshot_failed(&self) {
        self.0.snapshots.failed();
    }

    /// Counts bans that could not be shared with the other gateways.
    pub(crate) fn bans_not_shared(&self, bans: u64) {
        self.0.bans_not_shared.fetch_add(bans, Ordering::Relaxed);
    }

    /// The accounts that were denied most often of late, the most often first.
    pub(crate) fn most_denied(&self, most: usize) -> Vec<DeniedAccount> {
        self.0.accounts.most_denied(most, self.0.clock.now())
    }

    /// The accounts that were last seen nearest to a quota, the nearest first.
    pub(crate) fn nearest(&self, most: usize) -> Vec<SeenAccount> {
        self.0.accounts.nearest(most, self.0.clock.now())
    }

    /// The plan that an account was last seen with, if it was seen near a quota.
    pub(crate) fn plan_of(&self, account: &Account) -> Option<Name> {
        self.0.accounts.plan_of(account, self.0.clock.now())
    }

    /// The gate that is observed.
    pub(crate) fn gate(&self) -> &dyn GateReport {
        &*self.0.gate
    }

    /// The page of metrics.
    pub(crate) fn metrics(&self, format: MetricsFormat) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(MetricsCollector(self.0.clone())));
        let mut page = String::with_capacity(16 * 1024);
        text::encode(&mut page, &registry)?;
        self.0.turn_if_due();
        Ok(format.convert(page))
    }
}

impl ObserverState {
    fn record(&self, event: impl FnOnce() -> Event) {
        if let Some(audit) = &self.audit {
            audit.record(self.clock.wall(), event());
        }
    }

    fn turn_if_due(&self) {
        let now_ns = self.clock.now().as_nanos();
        let turned_ns = self.turned_ns.load(Ordering::Relaxed);
        let due = Duration::from_nanos(now_ns.saturating_sub(turned_ns)) >= PERIOD;
        let order = Ordering::Relaxed;
        if due && self.turned_ns.compare_exchange(turned_ns, now_ns, order, order).is_ok() {
            self.policies.turn();
        }
    }
}

fn names(policies: &Policies) -> Vec<Name> {
    policies.names().cloned().collect()
}

/// All metrics, at the moment that they are asked for.
struct MetricsCollector(Arc<ObserverState>);

impl Collector for MetricsCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (inner, page) = (&self.0, &mut Page(encoder));
        inner.policies.expose(page)?;
        inner.endpoints.expose(page)?;
        inner.upstream.expose(page)?;
        inner.connections.expose(page)?;
        store::expose(&*inner.gate, page)?;
        page.counter(
            "slidegate_bans_not_shared",
            "Bans that apply at this gateway only because the queue for Redis was full.",
            inner.bans_not_shared.load(Ordering::Relaxed),
        )?;
        inner.denials.expose(page)?;
        inner.operations.expose(&*inner.gate, page)?;
        audit::expose(inner.audit.as_ref(), page)?;
        inner.reloads.expose(
            page,
            (
                "slidegate_config_reloads",
                "Reloads of the configuration, by outcome: ok or failed (the previous one stays).",
            ),
            (
                "slidegate_config_last_reload_timestamp_seconds",
                "Unix time of the last successful load of the configuration.",
            ),
        )?;
        inner.snapshots.expose(
            page,
            (
                "slidegate_snapshots",
                "Snapshots of the accounts in memory, by outcome: ok or failed.",
            ),
            (
                "slidegate_snapshot_last_timestamp_seconds",
                "Unix time of the last successful snapshot; 0 if there was none since the start.",
            ),
        )?;
        process::expose(inner.started, page)
    }
}

impl fmt::Debug for MetricsCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Everything").finish_non_exhaustive()
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
