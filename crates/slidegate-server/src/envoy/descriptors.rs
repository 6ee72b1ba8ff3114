//! `RateLimitService/ShouldRateLimit`: all descriptors of a request, in one decision.

use std::cmp::Reverse;
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use slidegate::limit::{Period, Quotas};
use slidegate::{
    AccountError, Clock, Decision, NamedCharge, Policies, PolicyStanding, Quota, Standing,
    StoreError, Verdict,
};
use tonic::{Request, Response, Status};

use super::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use super::proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::proto::envoy::r#type::v3::RateLimitUnit;
use super::{Asked, EnvoyService, header_values};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The most descriptors of a request: more than any route has.
const MAX_DESCRIPTORS: usize = 100;

/// The most entries of a descriptor, for which there are no more actions either.
const MAX_ENTRIES: usize = 64;

/// What a descriptor wants of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hits {
    /// To spend units if they fit.
    Admit,
    /// To write units down whether they fit or not.
    Record,
    /// To know whether the account is open.
    Peek,
    /// To take back its newest units.
    Refund,
}

/// A charge of a descriptor.
struct HitCharge<'a> {
    hits: Hits,
    charge: NamedCharge<'a>,
}

/// All charges of a descriptor, one for each policy that is for it.
type HitCharges<'a> = Vec<HitCharge<'a>>;

#[tonic::async_trait]
impl RateLimitService for EnvoyService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let began = self.clock.now();
        let RateLimitRequest { domain, descriptors, hits_addend } = request.into_inner();
        check(&domain, &descriptors)?;
        let policies = self.live.gate().policies();
        let limits: Vec<Option<Quotas>> =
            descriptors.iter().map(|descriptor| quotas(descriptor.limit.as_ref())).collect();
        let mut charged = Vec::with_capacity(descriptors.len());
        for (descriptor, quotas) in descriptors.iter().zip(&limits) {
            let entries: Vec<(&str, &str)> =
                descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
            let (hits, cost) = hits(descriptor, hits_addend);
            let is_none = descriptor.limit.is_some_and(|limit| limit.requests_per_unit == 0);
            // A quota has at least one unit; of a limit of none, this is more than that, and denied.
            let is_none = is_none && quotas.is_some();
            let cost = if is_none { Some(NonZeroU32::MAX) } else { cost };
            let quotas = quotas.as_ref();
            let charges = policies.descriptor_charges(&domain, &entries);
            let charges = charges.map(|charge| HitCharge {
                hits: match hits {
                    Hits::Record if is_none || is_admit_only(&policies, charge.policy) => {
                        Hits::Admit
                    }
                    _ => hits,
                },
                charge: NamedCharge { cost, quotas, ..charge },
            });
            charged.push(charges.collect::<HitCharges<'_>>());
        }
        let unmatched = charged.iter().filter(|charges| charges.is_empty()).count();
        if unmatched > 0 {
            self.observer.unmatched_descriptors(policies.has_domain(&domain), unmatched);
        }
        let entries = descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        let client = entries.filter(|entry| entry.key == "remote_address");
        let client = client.filter_map(|entry| entry.value.parse().ok()).next();
        let asked = Asked { began, method: &Method::POST, path: PATH, client };
        if unmatched == charged.len() {
            self.record(&asked, StatusCode::OK, None);
            let statuses = charged.iter().map(|_| status(&[], &Decision::default())).collect();
            let overall_code = Code::Ok.into();
            let answer = RateLimitResponse { overall_code, statuses, ..Default::default() };
            return Ok(Response::new(answer));
        }
        let outcome = match self.decide(&charged).await {
            Ok(decided) => Ok(decided),
            Err(AccountError::Store(error)) => Err(error),
            // The policies have changed since they were read.
            Err(error) => return Err(Status::aborted(error.to_string())),
        };
        self.answer(&asked, &charged, outcome)
    }
}

impl EnvoyService {
    /// Decides all descriptors of a call, in this order:
    ///
    /// 1. Peeks.
    /// 2. Records, in one step and whatever the peeks say: the units are already used.
    /// 3. Admissions, all of them or none. If a peek or a record was not allowed, none is spent.
    /// 4. Refunds, if everything else was allowed.
    ///
    /// The second decision says where the refunded accounts stand.
    async fn decide(
        &self,
        charged: &[HitCharges<'_>],
    ) -> Result<(Decision, Decision), AccountError> {
        let gate = self.live.gate();
        let of = |hits: Hits| -> Vec<NamedCharge<'_>> {
            let meant = charged.iter().flatten().filter(|one| one.hits == hits);
            meant.map(|one| one.charge).collect()
        };
        let (peeks, records) = (of(Hits::Peek), of(Hits::Record));
        let (admissions, refunds) = (of(Hits::Admit), of(Hits::Refund));
        let peeked = gate.peek_named(&peeks).await?;
        let recorded = gate.record_named(&records).await?;
        let admitted = match peeked.is_allowed() && recorded.is_allowed() {
            true => gate.decide_named(&admissions).await?,
            false => gate.peek_named(&admissions).await?,
        };
        let charged = admitted.and(recorded);
        self.observer.peeked_descriptors(&peeked, &charged);
        let decision = charged.and(peeked);
        if decision.is_allowed() {
            gate.refund_named(&refunds).await?;
        }
        let looks = refunds.iter().map(|refund| NamedCharge { cost: None, ..*refund });
        let looks: Vec<NamedCharge<'_>> = looks.collect();
        Ok((decision, gate.peek_named(&looks).await?))
    }

    fn answer(
        &self,
        asked: &Asked<'_>,
        charged: &[HitCharges<'_>],
        outcome: Result<(Decision, Decision), StoreError>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let (decision, refunded) = match outcome {
            Ok(decided) => decided,
            // Not a decision: Envoy applies its failure_mode_deny.
            Err(error) => {
                self.record(asked, StatusCode::SERVICE_UNAVAILABLE, None);
                return Err(Status::unavailable(error.to_string()));
            }
        };
        let statuses = charged.iter().map(|charges| match charges.first() {
            Some(HitCharge { hits: Hits::Refund, .. }) => status(charges, &refunded),
            _ => status(charges, &decision),
        });
        let statuses = statuses.collect();
        let responder = &self.live.settings().limiter.responder;
        let outcome = Ok(decision);
        let refusal = responder.refuse(&outcome, &HeaderMap::new());
        let code = if refusal.is_some() { Code::OverLimit } else { Code::Ok };
        let mut response = refusal.unwrap_or_else(|| http::Response::new(Bytes::new()));
        if let (Ok(decision), Code::Ok) = (&outcome, code) {
            responder.annotate(decision, &mut response);
        }
        self.record(asked, response.status(), outcome.as_ref().ok());
        Ok(Response::new(RateLimitResponse {
            overall_code: code.into(),
            statuses,
            response_headers_to_add: header_values(response.headers()).collect(),
            raw_body: response.into_body().into(),
        }))
    }
}

fn check(domain: &str, descriptors: &[RateLimitDescriptor]) -> Result<(), Status> {
    let problem = if domain.is_empty() {
        "expected a domain"
    } else if descriptors.is_empty() {
        "expected at least one descriptor"
    } else if descriptors.len() > MAX_DESCRIPTORS {
        "expected at most 100 descriptors"
    } else if descriptors.iter().any(|descriptor| descriptor.entries.len() > MAX_ENTRIES) {
        "expected at most 64 entries in a descriptor"
    } else {
        return Ok(());
    };
    Err(Status::invalid_argument(problem))
}

/// What a descriptor wants, and how many units if it says so. Only a cost above one that Envoy states
/// may be known from a response; one, or what the policy fixes, is the cost of a request to come.
fn hits(descriptor: &RateLimitDescriptor, of_request: u32) -> (Hits, Option<NonZeroU32>) {
    // Of a request, none is one; of a descriptor it is none.
    let own = descriptor.hits_addend.map(|hits| u32::try_from(hits).unwrap_or(u32::MAX));
    let hits = own.unwrap_or(of_request);
    let wanted = match own {
        Some(0) => Hits::Peek,
        _ if descriptor.is_negative_hits => Hits::Refund,
        _ if hits > 1 => Hits::Record,
        _ => Hits::Admit,
    };
    (wanted, NonZeroU32::new(hits))
}

fn is_admit_only(policies: &Policies, name: &str) -> bool {
    policies.iter().any(|policy| policy.admit_only && *policy.name == *name)
}

/// The quota that a descriptor brings along.
fn quotas(limit: Option<&RateLimitOverride>) -> Option<Quotas> {
    let limit = limit?;
    let units = NonZeroU32::new(limit.requests_per_unit).unwrap_or(NonZeroU32::MIN);
    Quota::new(units, window(limit.unit())?).ok().map(Quotas::from)
}

const DAY: u64 = 24 * 3600;

/// A month has 30 days and a year 365, as for Envoy's own service.
const SECONDS: [(Unit, u64); 7] = [
    (Unit::Second, 1),
    (Unit::Minute, 60),
    (Unit::Hour, 3600),
    (Unit::Day, DAY),
    (Unit::Week, 7 * DAY),
    (Unit::Month, 30 * DAY),
    (Unit::Year, 365 * DAY),
];

fn window(unit: RateLimitUnit) -> Option<Duration> {
    let named = SECONDS.iter().find(|(other, _)| other.as_str_name() == unit.as_str_name());
    named.map(|(_, seconds)| Duration::from_secs(*seconds))
}

/// Where a descriptor stands. The quota that is shown is one that headers may show: of those that
/// deny the one that takes longest, else the one with the fewest units left.
fn status(charges: &[HitCharge<'_>], decision: &Decision) -> DescriptorStatus {
    let is_own = |policy: &&PolicyStanding| {
        let mut own = charges.iter().map(|own| own.charge);
        own.any(|own| *own.policy == *policy.policy && own.identity == policy.identity)
    };
    let policies = || decision.policies().iter().filter(is_own);
    let is_over = match decision.verdict() {
        Verdict::Allow => false,
        Verdict::Block(_) => !charges.is_empty(),
        _ => policies().any(|policy| !policy.shadow && policy.is_violated()),
    };
    let shown = policies().filter(|policy| policy.in_headers);
    let shown = shown.flat_map(|policy| policy.standings.iter().map(move |one| (policy, one)));
    let shown = shown.min_by_key(|(_, one)| {
        (Reverse(one.is_violated()), Reverse(one.retry_after()), one.remaining())
    });
    DescriptorStatus {
        code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
        current_limit: shown.map(|(policy, standing)| rate_limit(&policy.policy, standing)),
        limit_remaining: shown.map_or(0, |(_, standing)| standing.remaining()),
        duration_until_reset: shown.map(|(_, standing)| until_reset(standing)),
    }
}

fn rate_limit(policy: &str, standing: &Standing) -> RateLimit {
    let (quota, name) = (standing.quota(), policy.to_owned());
    let unit = SECONDS.iter().find(|(_, secs)| quota.window() == Duration::from_secs(*secs));
    let unit = unit.map_or(Unit::Unknown, |(unit, _)| *unit).into();
    RateLimit { requests_per_unit: quota.units().get(), unit, name }
}

/// How long until the request would fit, else until the first unit is free again; in whole seconds,
/// because Envoy drops the rest.
fn until_reset(standing: &Standing) -> prost_types::Duration {
    let reset_after = standing.reset_after().min(standing.quota().longest_reset());
    let time = match standing.is_violated() {
        true => standing.retry_after(),
        false => reset_after,
    };
    let seconds = i64::try_from(Period(time).ceil_seconds()).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: 0 }
}
