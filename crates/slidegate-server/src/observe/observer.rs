//! Records every request and exposes metrics, logs and the audit trail.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use slidegate::{Clock, Decision, Gate, HeldCharge, Hold, Name, Policies, Timestamp};
use slidegate_customers::Customers;
use slidegate_proxy::{ConnectionCounts, ConnectionTable};
use slidegate_tower::SettleOutcome;
use smallvec::smallvec;

use super::audit::{AuditEvent, DecisionEvent, SettledPolicy, Trail};
use super::customer_metrics;
use super::gate_metrics;
use super::histogram::DurationCounts;
use super::operations::{Operation, OperationOutcome, SettlementOutcome};
use super::page::{MetricsFormat, Page};
use super::peek_detector::PeekDetector;
use super::policy_metrics::{PolicyMetrics, PolicyTotals};
use super::request_log::{DenialLog, log_access};
use super::request_metrics::{RequestMetrics, RequestTotals};
use super::token_failures::TokenFailures;
use super::top_accounts::TopAccounts;
use super::trace::{RequestSpan, Tracer};
use super::{ListenerKind, RequestOutcome, UpstreamError, VerdictLabel, process};
use crate::config::LogConfig;
use crate::store::AnyStore;

/// Records every answered request. Clones are the same observer, and count in the same place.
#[derive(Clone)]
pub(crate) struct Observer(Arc<ObserverState>, Arc<WorkerMetrics>);

/// What one worker has counted. The metrics are the sum of all workers, so that no two of them write
/// to the same memory for a request.
struct WorkerMetrics {
    requests: RequestMetrics,
    policies: PolicyMetrics,
}

struct ObserverState {
    gate: Arc<Gate<AnyStore>>,
    workers: Mutex<Vec<Arc<WorkerMetrics>>>,
    /// The connections of each listener.
    connections: Mutex<Vec<(ListenerKind, Arc<ConnectionTable>)>>,
    denials: DenialLog,
    accounts: TopAccounts,
    peeks: PeekDetector,
    /// By action and outcome.
    operations: Family<[(&'static str, &'static str); 2], Counter>,
    /// By source and outcome.
    settlements: Family<[(&'static str, &'static str); 2], Counter>,
    reloads: Attempts,
    /// The sections that the last reload could not apply.
    restart_needed: Mutex<Vec<String>>,
    snapshots: Attempts,
    /// Bans that hold here only, although there are other gateways.
    bans_not_shared: Counter,
    /// Whether Redis replied when gateways last exchanged bans through it.
    redis_replies: AtomicBool,
    /// Policies that other gateways on the same Redis define in another way.
    conflicts: Mutex<Vec<PolicyConflict>>,
    token_failures: Arc<TokenFailures>,
    /// Who sends requests, by systems of the operator's.
    customers: OnceLock<Arc<Customers>>,
    /// Begins spans of requests, if they are exported.
    tracer: OnceLock<Arc<Tracer>>,
    audit: Option<Trail>,
    /// Whether there is a line for every request.
    access_log: bool,
    /// What was recorded, for tests of the endpoints.
    #[cfg(test)]
    recorded: Mutex<Vec<String>>,
    clock: Arc<dyn Clock>,
    started: Timestamp,
}

/// A policy that another gateway on the same Redis defines in another way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyConflict {
    pub(crate) policy: String,
    /// The other's name.
    pub(crate) gateway: String,
}

/// How the configuration in force came about.
#[derive(Debug)]
pub(crate) struct ReloadState {
    /// When it was read, by the calendar.
    pub(crate) last: Timestamp,
    /// Reloads that failed since then.
    pub(crate) failures: u64,
    /// The sections that have changed and that only a restart applies.
    pub(crate) restart_needed: Vec<String>,
}

/// How something went that is done now and then and may fail.
#[derive(Default)]
struct Attempts {
    successes: Counter,
    failures: Counter,
    /// Since the last success.
    failures_in_a_row: AtomicU64,
    /// In Unix time.
    last_success: Gauge<f64, AtomicU64>,
}

impl Observer {
    /// An observer of this gate. Outcomes must be timed by the same clock.
    pub(crate) fn new(
        gate: Arc<Gate<AnyStore>>,
        log: &LogConfig,
        audit: Option<Trail>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let started = clock.wall();
        let reloads = Attempts::default();
        reloads.last_success.set(unix_seconds(started));
        let (operations, settlements) = (Family::default(), Family::default());
        for outcome in ["done", "refused", "failed"] {
            for action in ["reset", "grant", "exempt", "ban", "lift"] {
                drop(operations.get_or_create(&[("action", action), ("outcome", outcome)]));
            }
        }
        for outcome in SettlementOutcome::ALL {
            for source in ["api", "resp"] {
                let labels = [("source", source), ("outcome", outcome.as_str())];
                drop(settlements.get_or_create(&labels));
            }
        }
        let own = Arc::new(WorkerMetrics::new(&gate, &*clock));
        let state = ObserverState {
            workers: Mutex::new(vec![own.clone()]),
            connections: Mutex::default(),
            denials: DenialLog::new(&clock),
            accounts: TopAccounts::default(),
            peeks: PeekDetector::new(&gate.policies()),
            customers: OnceLock::new(),
            tracer: OnceLock::new(),
            operations,
            settlements,
            reloads,
            restart_needed: Mutex::default(),
            snapshots: Attempts::default(),
            bans_not_shared: Counter::default(),
            redis_replies: AtomicBool::default(),
            conflicts: Mutex::default(),
            token_failures: Arc::default(),
            audit,
            access_log: log.access,
            #[cfg(test)]
            recorded: Mutex::default(),
            gate,
            clock,
            started,
        };
        Self(Arc::new(state), own)
    }

    /// The same observer with counters for another worker.
    pub(crate) fn for_worker(&self) -> Self {
        let mut workers = self.0.workers.lock();
        let own = Arc::new(WorkerMetrics::new(&self.0.gate, &*self.0.clock));
        workers.push(own.clone());
        Self(self.0.clone(), own)
    }

    /// Records a request that was answered.
    pub(crate) fn record(&self, outcome: &RequestOutcome<'_>) {
        #[cfg(test)]
        {
            let RequestOutcome { method, path, client, status, decision, .. } = outcome;
            let allowed = decision.map(slidegate::Decision::is_allowed);
            let line = format!("{method} {path} {client:?} {} {allowed:?}", status.as_u16());
            self.0.recorded.lock().push(line);
        }
        let state = &*self.0;
        let gate = &state.gate;
        let verdict = VerdictLabel::of(outcome);
        self.1.requests.record(outcome, verdict);
        if let Some(decision) = outcome.decision {
            self.1.policies.record(decision);
            state.denials.record(outcome, decision, || gate.policies());
            state.accounts.record(decision, outcome.ended);
        }
        if state.access_log {
            log_access(outcome, verdict);
        }
        let is_audited = |audit: &&Trail| match verdict {
            VerdictLabel::Deny
            | VerdictLabel::Recorded
            | VerdictLabel::Block
            | VerdictLabel::Unavailable => true,
            VerdictLabel::Allow => audit.every_decision,
            VerdictLabel::None => false,
        };
        if let Some(audit) = state.audit.as_ref().filter(is_audited) {
            let event = DecisionEvent::new(outcome, verdict, &gate.policies());
            audit.record(state.clock.wall(), &AuditEvent::Decision(event));
        }
    }

    /// Ends the span of a request that was answered, which the route with this prefix is for.
    pub(crate) fn end_span(
        &self,
        tracer: &Tracer,
        span: RequestSpan,
        outcome: &RequestOutcome<'_>,
        route: Option<String>,
    ) {
        let verdict = VerdictLabel::of(outcome);
        tracer.end(span, outcome, verdict, route, || self.gate().policies());
    }

    /// Counts what became of a charge that was held until the response was known.
    pub(crate) fn response_cost(&self, charge: &HeldCharge, outcome: SettleOutcome) {
        self.1.policies.record_response_cost(&charge.policy, outcome);
        let Some(audit) = self.0.audit.as_ref().filter(|audit| audit.every_decision) else {
            return;
        };
        let held = charge.units.get();
        let (outcome, units) = match outcome {
            SettleOutcome::Refunded(unused) => (SettlementOutcome::Done, held - unused.get()),
            SettleOutcome::Recorded(more) => {
                (SettlementOutcome::Done, held.saturating_add(more.get()))
            }
            SettleOutcome::Failed | SettleOutcome::Dropped => (SettlementOutcome::Failed, held),
            // The decision's own line has what was held.
            _ => return,
        };
        let hold = Hold { charges: smallvec![charge.clone()] };
        let policies = SettledPolicy::all(&hold, &self.gate().policies());
        let event = AuditEvent::Settlement { source: "response", outcome, units, policies };
        audit.record(self.0.clock.wall(), &event);
    }

    /// The body of upstream's response broke off, after the request was recorded.
    pub(crate) fn upstream_body_failed(&self) {
        self.1.requests.upstream_errors[UpstreamError::Body as usize].add(1);
    }

    /// Counts descriptors that match no policy, of a domain that has policies or not.
    pub(crate) fn unmatched_descriptors(&self, is_known_domain: bool, descriptors: usize) {
        let counts = &self.1.requests.unmatched_descriptors;
        counts[usize::from(is_known_domain)].add(descriptors as u64);
    }

    /// Takes note of accounts that descriptors peeked at, and of others that they charged. Warns once of
    /// a policy whose accounts are only ever peeked at.
    pub(crate) fn peeked_descriptors(&self, peeked: &Decision, charged: &Decision) {
        charged.policies().iter().for_each(|policy| self.0.peeks.charged(policy));
        for policy in peeked.policies().iter().filter(|policy| self.0.peeks.peeked(policy)) {
            tracing::warn!(
                policy = &*policy.policy,
                "the policy limits nothing: Envoy has peeked at its accounts (hits_addend = 0) 1000 \
                 times, and no unit was ever spent from them; report the cost after the response with \
                 a second entry in rate_limits that has apply_on_stream_done = true and a hits_addend, \
                 in the filter's own configuration, because Envoy ignores hits_addend in a route's \
                 rate_limits"
            );
        }
    }

    /// Shows the connections of a listener, once for each listener.
    pub(crate) fn connections(&self, listener: ListenerKind, connections: Arc<ConnectionTable>) {
        self.0.connections.lock().push((listener, connections));
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

    /// The configuration was read again and is in force now; what is different, in words, and which
    /// sections only a restart applies.
    pub(crate) fn reloaded(&self, changes: &[String], restart_needed: Vec<String>) {
        *self.0.restart_needed.lock() = restart_needed;
        self.0.peeks.follow(&self.gate().policies());
        for worker in &*self.0.workers.lock() {
            worker.policies.follow(&self.gate().policies());
        }
        self.0.reloads.succeeded(self.0.clock.wall());
        self.audit_reload(OperationOutcome::Done, Some(changes), None);
    }

    /// The configuration could not be read again for these reasons, and everything is as it was.
    pub(crate) fn reload_failed(&self, problems: &[String]) {
        self.0.reloads.failed();
        self.audit_reload(OperationOutcome::Failed, None, Some(problems));
    }

    /// The certificate could not be read again, and is as it was.
    pub(crate) fn certificate_reload_failed(&self, problem: String) {
        self.audit_reload(OperationOutcome::Failed, None, Some(&[problem]));
    }

    fn audit_reload(
        &self,
        outcome: OperationOutcome,
        changes: Option<&[String]>,
        problems: Option<&[String]>,
    ) {
        let policies = self.gate().policies();
        let in_force = names(&policies);
        self.audit(&AuditEvent::Reload { outcome, changes, problems, in_force });
    }

    /// An operator did something, or tried to.
    pub(crate) fn operated(&self, operation: &Operation) {
        let labels = [("action", operation.action), ("outcome", operation.outcome.as_str())];
        self.0.operations.get_or_create(&labels).inc();
        operation.log();
        self.audit(&AuditEvent::Operator(operation));
    }

    /// Units were to be settled, of a hold if there is one.
    pub(crate) fn settled(
        &self,
        source: &'static str,
        outcome: SettlementOutcome,
        hold: Option<&Hold>,
        units: u32,
    ) {
        #[cfg(test)]
        {
            let charges = hold.map_or(0, |hold| hold.charges.len());
            self.0.recorded.lock().push(format!("settle {source} {outcome:?} {charges} {units}"));
        }
        let labels = [("source", source), ("outcome", outcome.as_str())];
        self.0.settlements.get_or_create(&labels).inc();
        if let Some(audit) = self.0.audit.as_ref().filter(|audit| audit.every_decision)
            && let Some(hold) = hold
        {
            let policies = SettledPolicy::all(hold, &self.gate().policies());
            let event = AuditEvent::Settlement { source, outcome, units, policies };
            audit.record(self.0.clock.wall(), &event);
        }
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

    /// Notes whether Redis replied to the latest call that no request waits for.
    pub(crate) fn redis_replied(&self, replied: bool) {
        self.0.redis_replies.store(replied, Ordering::Relaxed);
    }

    /// Whether Redis replied to the latest such call; false before the first.
    pub(crate) fn redis_replies(&self) -> bool {
        self.0.redis_replies.load(Ordering::Relaxed)
    }

    /// The policies that other gateways define in another way, as of now. Each is logged when it
    /// begins.
    pub(crate) fn policy_conflicts(&self, conflicts: Vec<PolicyConflict>) {
        let mut known = self.0.conflicts.lock();
        for PolicyConflict { policy, gateway } in
            conflicts.iter().filter(|one| !known.contains(one))
        {
            tracing::warn!(
                policy,
                gateway,
                "another gateway on the same Redis has a policy of this name with another identity, \
                 quota, window, plan or consistency: both count in the same accounts; give the \
                 gateways one configuration, or the policies different names"
            );
        }
        *known = conflicts;
    }

    /// The names of policies that other gateways define in another way.
    pub(crate) fn conflicting_policies(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.0.conflicts.lock().iter().map(|conflict| conflict.policy.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Wrong tokens at all listeners.
    pub(crate) fn token_failures(&self) -> &Arc<TokenFailures> {
        &self.0.token_failures
    }

    /// The accounts that an operator wants to see first, and the time to ask for them.
    pub(crate) fn accounts(&self) -> (&TopAccounts, Timestamp) {
        (&self.0.accounts, self.0.clock.now())
    }

    /// The file of the audit trail, if there is one.
    pub(crate) fn audit_file(&self) -> Option<&Path> {
        self.0.audit.as_ref().map(|audit| &*audit.file)
    }

    /// What each policy in force has decided.
    pub(crate) fn policy_totals(&self) -> Vec<(Name, PolicyTotals)> {
        let uncounted = self.gate().admin().uncounted();
        let (policies, workers) = (self.gate().policies(), self.workers());
        let workers: Vec<&PolicyMetrics> = workers.iter().map(|worker| &worker.policies).collect();
        let totals = policies.names().map(|name| {
            let failed = uncounted.get(name).copied().unwrap_or_default();
            (name.clone(), PolicyTotals { failed, ..PolicyMetrics::totals(&workers, name) })
        });
        totals.collect()
    }

    /// Requests that the gate has decided, at all listeners.
    pub(crate) fn request_totals(&self) -> RequestTotals {
        let workers = self.workers();
        let workers: Vec<&RequestMetrics> = workers.iter().map(|worker| &worker.requests).collect();
        RequestMetrics::totals(&workers)
    }

    /// How long decisions took, at all listeners.
    pub(crate) fn decision_times(&self) -> DurationCounts {
        self.workers().iter().map(|worker| worker.requests.decision_times()).sum()
    }

    /// How the configuration in force came about.
    pub(crate) fn reload_state(&self) -> ReloadState {
        let last_ms = (self.0.reloads.last_success.get() * 1000.0).round();
        ReloadState {
            last: Timestamp::from_millis(last_ms as u64),
            failures: self.0.reloads.failures_in_a_row.load(Ordering::Relaxed),
            restart_needed: self.0.restart_needed.lock().clone(),
        }
    }

    /// When the server began, by the calendar.
    pub(crate) fn started_at(&self) -> Timestamp {
        self.0.started
    }

    /// Has the sources of keys and tokens among the metrics, from now on.
    pub(crate) fn watch_customers(&self, customers: Arc<Customers>) {
        // There is one server, which says so once.
        let _ = self.0.customers.set(customers);
    }

    /// The sources of keys and tokens, if there are any.
    pub(crate) fn customers(&self) -> Option<&Customers> {
        self.0.customers.get().map(|customers| &**customers)
    }

    /// Has spans among the metrics, from now on.
    pub(crate) fn watch_tracer(&self, tracer: Arc<Tracer>) {
        // As for the customers.
        let _ = self.0.tracer.set(tracer);
    }

    /// The gate that is observed.
    pub(crate) fn gate(&self) -> &Gate<AnyStore> {
        &self.0.gate
    }

    /// What was recorded since this was last called.
    #[cfg(test)]
    pub(crate) fn take_recorded(&self) -> Vec<String> {
        std::mem::take(&mut self.0.recorded.lock())
    }

    /// The page of metrics.
    pub(crate) fn metrics(&self, format: MetricsFormat) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut page = String::with_capacity(32 * 1024);
        text::encode(&mut page, &registry)?;
        let now = self.0.clock.now();
        self.workers().iter().for_each(|worker| worker.policies.turn_if_due(now));
        Ok(format.convert(page))
    }

    fn workers(&self) -> Vec<Arc<WorkerMetrics>> {
        self.0.workers.lock().clone()
    }

    fn audit(&self, event: &AuditEvent<'_>) {
        if let Some(audit) = &self.0.audit {
            audit.record(self.0.clock.wall(), event);
        }
    }
}

impl WorkerMetrics {
    fn new(gate: &Gate<AnyStore>, clock: &dyn Clock) -> Self {
        Self {
            requests: RequestMetrics::default(),
            policies: PolicyMetrics::new(&gate.policies(), clock.now()),
        }
    }
}

impl Collector for Observer {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (state, page) = (&*self.0, &mut Page(encoder));
        let workers = self.workers();
        let requests: Vec<&RequestMetrics> =
            workers.iter().map(|worker| &worker.requests).collect();
        RequestMetrics::encode(&requests, page)?;
        let policies: Vec<&PolicyMetrics> = workers.iter().map(|worker| &worker.policies).collect();
        PolicyMetrics::encode(&policies, page)?;
        encode_connections(&state.connections.lock(), page)?;
        gate_metrics::encode(&self.0.gate, page)?;
        if let Some(customers) = self.customers() {
            customer_metrics::encode(customers, page)?;
        }
        if let Some(tracer) = self.0.tracer.get() {
            page.family(
                "slidegate_trace_spans",
                "Spans of sampled requests, by outcome: exported, dropped (the queue was full) or \
                 failed (the collector did not take them).",
                tracer.counts().by_outcome(),
            )?;
        }
        page.metric(
            "slidegate_denial_log_left_out",
            "Denials not logged individually because of the log's rate limit.",
            &state.denials.left_out,
        )?;
        page.metric(
            "slidegate_bans_not_shared",
            "Bans that apply at this gateway only because the queue for Redis was full.",
            &state.bans_not_shared,
        )?;
        page.metric(
            "slidegate_policy_conflicts",
            "Policies that another gateway on the same Redis defines with another identity, quota, \
             window, plan or consistency.",
            &ConstGauge::new(self.conflicting_policies().len() as f64),
        )?;
        page.metric(
            "slidegate_token_failures",
            "Wrong tokens presented, by listener.",
            &state.token_failures.counts,
        )?;
        page.metric(
            "slidegate_audit_dropped",
            "Audit records dropped because the queue was full or the disk failed.",
            &ConstCounter::new(state.audit.as_ref().map_or(0, Trail::dropped)),
        )?;
        page.metric(
            "slidegate_operator_actions",
            "Operator actions, by outcome: done, refused (invalid) or failed (the store or disk \
             failed).",
            &state.operations,
        )?;
        page.metric(
            "slidegate_settlements",
            "Settlements of held units, by source (api, resp) and outcome: done, repeated (settled \
             before), refused (nothing held by that id) or failed (the store failed).",
            &state.settlements,
        )?;
        page.family(
            "slidegate_config_reloads",
            "Reloads of the configuration, by outcome: ok or failed (the previous one stays).",
            state.reloads.by_outcome(),
        )?;
        page.metric(
            "slidegate_config_last_reload_timestamp_seconds",
            "Unix time of the last successful load of the configuration.",
            &state.reloads.last_success,
        )?;
        page.family(
            "slidegate_snapshots",
            "Snapshots of the accounts in memory, by outcome: ok or failed.",
            state.snapshots.by_outcome(),
        )?;
        page.metric(
            "slidegate_snapshot_last_timestamp_seconds",
            "Unix time of the last successful snapshot; 0 if none since the start.",
            &state.snapshots.last_success,
        )?;
        process::encode(state.started, page)
    }
}

fn encode_connections(
    listeners: &[(ListenerKind, Arc<ConnectionTable>)],
    page: &mut Page<'_>,
) -> fmt::Result {
    type CounterOf = fn(&ConnectionCounts) -> &AtomicU64;
    let each = |counter: CounterOf| {
        listeners.iter().map(move |(listener, connections)| {
            let count = counter(connections.counts()).load(Ordering::Relaxed);
            (("listener", listener.as_str()), count)
        })
    };
    page.gauges(
        "slidegate_connections",
        "Open client connections.",
        each(|counts| &counts.open).map(|(listener, open)| ([listener], open as f64)),
    )?;
    page.counters(
        "slidegate_connections_accepted",
        "Client connections accepted.",
        each(|counts| &counts.accepted).map(|(listener, count)| ([listener], count)),
    )?;
    page.counters(
        "slidegate_connections_waited",
        "Connections that waited because the connection limit was reached.",
        each(|counts| &counts.waited).map(|(listener, count)| ([listener], count)),
    )?;
    let failures: [(_, CounterOf); 5] = [
        ("refused", |counts| &counts.untrusted),
        ("address", |counts| &counts.over_address_limit),
        ("tls", |counts| &counts.tls_failures),
        ("proxy-header", |counts| &counts.proxy_header_failures),
        ("timeout", |counts| &counts.timeouts),
    ];
    page.counters(
        "slidegate_connection_failures",
        "Connections that were closed early, by reason: an untrusted peer where a PROXY header is \
         needed (refused), too many of one address (address), a failed TLS handshake (tls), a bad \
         PROXY header (proxy-header), a client that took too long (timeout).",
        failures.into_iter().flat_map(|(reason, counter)| {
            each(counter).map(move |(listener, count)| ([listener, ("reason", reason)], count))
        }),
    )
}

impl Attempts {
    fn succeeded(&self, now: Timestamp) {
        self.successes.inc();
        self.failures_in_a_row.store(0, Ordering::Relaxed);
        self.last_success.set(unix_seconds(now));
    }

    fn failed(&self) {
        self.failures.inc();
        self.failures_in_a_row.fetch_add(1, Ordering::Relaxed);
    }

    fn by_outcome(&self) -> [([(&'static str, &'static str); 1], Counter); 2] {
        [
            ([("outcome", "ok")], self.successes.clone()),
            ([("outcome", "failed")], self.failures.clone()),
        ]
    }
}

fn unix_seconds(at: Timestamp) -> f64 {
    at.as_millis() as f64 / 1000.0
}

fn names(policies: &Policies) -> Vec<&str> {
    policies.names().map(|name| &**name).collect()
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}
