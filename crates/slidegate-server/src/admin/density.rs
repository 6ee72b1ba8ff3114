//! The density of spends over each window of an identity's quotas.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use slidegate::Timestamp;
use slidegate::limit::{AccountReading, LedgerReading};

use super::Operator;
use super::accounts::identity;
use crate::api::{AccountDensity, DensityView, FreedUnits, QuotaDensity};
use crate::calendar::{Rfc3339, ceil_ms};
use crate::endpoint::problem::Problem;
use crate::observe::SeenAccount;
use crate::shared::OverrideError;

const DEFAULT_BUCKETS: usize = 60;
const MAX_BUCKETS: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DensityParameters {
    buckets: Option<usize>,
    policy: Option<String>,
    plan: Option<String>,
}

/// `GET /v1/accounts/{identity}/density`
pub(super) async fn density(
    State(operator): State<Arc<Operator>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<DensityParameters>, QueryRejection>,
) -> Result<Json<DensityView>, Problem> {
    let policies = operator.policies();
    let Path(identity_text) = path?;
    let identity = policies.account_of(identity(&identity_text, &policies)?);
    let Query(DensityParameters { buckets, policy, plan }) = query?;
    let buckets = buckets.unwrap_or(DEFAULT_BUCKETS);
    if !(1..=MAX_BUCKETS).contains(&buckets) {
        let problem =
            format_args!("expected a whole number from 1 to {MAX_BUCKETS}, not {buckets}");
        return Err(Problem::invalid_member("buckets", problem));
    }
    let mut accounts = Vec::new();
    for candidate in operator.candidates(&identity, policy.as_deref(), plan.as_deref())? {
        let SeenAccount { account, plan, quotas, .. } = &candidate.seen;
        let admin = operator.overrides.gate().admin();
        let reading = admin.read_by(account, plan.as_deref(), quotas.as_ref()).await;
        let reading = reading.map_err(OverrideError::Account)?;
        if candidate.counts || reading.ledgers.iter().any(|ledger| ledger.spent() > 0) {
            accounts.push(AccountDensity::new(account.policy.to_string(), &reading, buckets));
        }
    }
    Ok(Json(DensityView { identity: policies.shown(&identity).into_owned(), accounts }))
}

impl AccountDensity {
    fn new(policy: String, reading: &AccountReading, buckets: usize) -> Self {
        let density = |ledger| QuotaDensity::new(ledger, reading.at, buckets);
        let quotas = reading.ledgers.iter().map(density).collect();
        Self { policy, at: Rfc3339(reading.at), degraded: reading.degraded, quotas }
    }
}

impl QuotaDensity {
    fn new(ledger: &LedgerReading, now: Timestamp, buckets: usize) -> Self {
        let (units, window) = (ledger.quota.units().get(), ledger.quota.window());
        let (counts, mut free) = (ledger.density(now, buckets), Vec::new());
        // Units above the quota's leave the window without a unit coming free.
        let mut excess = ledger.spent().saturating_sub(units);
        for entry in &ledger.entries {
            let freed = entry.units.saturating_sub(excess);
            excess -= excess.min(entry.units);
            if freed > 0 {
                let after_ms = ceil_ms((entry.stamp + window).saturating_since(now));
                free.push(FreedUnits { units: freed, after_ms });
            }
        }
        let window_ms = ceil_ms(window);
        let (quota, spent) = (ledger.quota.to_string(), ledger.spent());
        Self { quota, units, window_ms, spent, counts, free }
    }
}

#[cfg(test)]
mod tests {
    use slidegate::Quota;
    use slidegate::limit::LedgerEntry;

    use super::*;

    #[test]
    fn every_unit_is_in_one_bucket_and_comes_free_a_window_after_its_stamp() {
        let now = Timestamp::from_nanos(1_000_000_000_500_000);
        let entry = |ago_ms: i64, units| {
            let stamp_ms = 1_000_000_001_i64 - ago_ms;
            LedgerEntry { stamp: Timestamp::from_millis(stamp_ms as u64), units }
        };
        // The oldest is as old as can be, the newest is stamped with the tick that ends next.
        let entries = vec![entry(60_000, 3), entry(30_001, 1), entry(30_000, 1), entry(0, 5)];
        let of = |units, buckets| {
            let quota = Quota::per_minute(units);
            QuotaDensity::new(&LedgerReading { quota, entries: entries.clone() }, now, buckets)
        };
        let density = of(20, 2);
        assert_eq!((density.spent, density.window_ms), (10, 60_000));
        assert_eq!(density.counts, [4, 6]);
        assert_eq!(of(20, 1).counts, [10]);
        assert_eq!(of(20, 60).counts[0], 3);
        let freed = |list: &[(u32, u64)]| -> Vec<FreedUnits> {
            list.iter().map(|&(units, after_ms)| FreedUnits { units, after_ms }).collect()
        };
        assert_eq!(density.free, freed(&[(3, 1), (1, 30_000), (1, 30_001), (5, 60_001)]));
        assert_eq!(of(6, 1).free, freed(&[(1, 30_001), (5, 60_001)]), "four are in excess");
    }
}
