//! Where a caller stands, as JSON has it and as the page shows it.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Serialize;
use slidegate::limit::LedgerReading;
use slidegate::policy::Cost;
use slidegate::{CallerAccount, CallerBan, CallerStanding, Decision, Policies, Timestamp};

use crate::calendar::{Rfc3339, ceil_ms};

/// How many parts of a window the page shows.
const PARTS: usize = 60;

/// Where a caller stands under each quota.
#[derive(Debug, Serialize)]
pub(super) struct StandingAnswer {
    /// The store's time.
    pub(super) now_ms: u64,
    pub(super) now: Rfc3339,
    /// Whether no request of the caller is counted.
    pub(super) exempt: bool,
    pub(super) standings: Vec<CallerQuota>,
    /// The policies that refuse the caller for now.
    pub(super) bans: Vec<BanView>,
    #[serde(flatten)]
    pub(super) question: Option<AskedUnits>,
}

/// Where the caller stands under one quota. Names are those of the decision API's standings.
#[derive(Debug, Serialize)]
pub(super) struct CallerQuota {
    pub(super) policy: String,
    pub(super) identity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<String>,
    pub(super) window_ms: u64,
    pub(super) units: u32,
    pub(super) remaining: u32,
    pub(super) reset_after_ms: u64,
    /// When the next unit comes back. None if all are there.
    pub(super) next_unit_after_ms: Option<u64>,
    /// When the units that were asked about fit this quota.
    #[serde(flatten)]
    pub(super) passing: Option<Passing>,
    /// The units spent in equal parts of the window, oldest first.
    #[serde(skip)]
    pub(super) density: Vec<u32>,
}

/// A ban under one policy.
#[derive(Debug, Serialize)]
pub(super) struct BanView {
    pub(super) policy: String,
    pub(super) retry_after_ms: u64,
}

/// The units that were asked about, and when they pass under all policies for every request.
#[derive(Debug, Serialize)]
pub(super) struct AskedUnits {
    pub(super) units: NonZeroU32,
    #[serde(flatten)]
    pub(super) passing: Passing,
}

/// When units pass if nothing else is spent.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Passing {
    pub(super) passes_after_ms: Option<u64>,
    pub(super) passes_at_ms: Option<u64>,
    pub(super) passes_at: Option<Rfc3339>,
    /// Why they never do.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl StandingAnswer {
    /// The answer to a caller. The error is the refusal that each of its requests gets. `now` is the time
    /// of the answer if no account was read, which has the store's time.
    pub(super) fn new(
        standing: CallerStanding,
        policies: &Policies,
        now: Timestamp,
        units: Option<NonZeroU32>,
    ) -> Result<Self, Box<Decision>> {
        let (exempt, accounts, hidden, bans) = match standing {
            CallerStanding::Refused(decision) => return Err(decision.into()),
            CallerStanding::Counted { accounts, hidden, bans } => (false, accounts, hidden, bans),
            _ => (true, Vec::new(), Vec::new(), Vec::new()),
        };
        let now = accounts.iter().map(|account| account.reading.at).max().unwrap_or(now);
        let of_account = |account| quotas(account, policies, units);
        Ok(Self {
            now_ms: now.as_millis(),
            now: Rfc3339(now),
            exempt,
            standings: accounts.iter().flat_map(of_account).collect(),
            bans: bans.into_iter().map(BanView::from).collect(),
            question: units.map(|units| {
                let passing = together(&accounts, &hidden, now, units);
                AskedUnits { units, passing }
            }),
        })
    }
}

/// When the units pass under all policies that count every request: when they do under the last of
/// them. Where each that is shown is for some requests only, all of these are meant.
fn together(
    accounts: &[CallerAccount],
    hidden: &[CallerAccount],
    now: Timestamp,
    units: NonZeroU32,
) -> Passing {
    let is_for_some = accounts.iter().all(|account| !account.counts_every_request);
    let shown = accounts.iter().filter(|account| is_for_some || account.counts_every_request);
    let hidden = hidden.iter().filter(|account| account.counts_every_request);
    // A guard of 100 requests a second does not say that 500 units never pass.
    let hidden = hidden.map(|account| match account.cost {
        Cost::Request => (account, units),
        Cost::Units(of_one_request) => (account, of_one_request),
    });
    let mut last = Passing::at(now, now);
    for (account, units) in shown.map(|account| (account, units)).chain(hidden) {
        match account.passes_at(units) {
            None => return Passing::NEVER,
            // Each on the clock of its store.
            Some(at) => last = last.max(Passing::at(at, account.reading.at)),
        }
    }
    last
}

fn quotas(
    account: &CallerAccount,
    policies: &Policies,
    units: Option<NonZeroU32>,
) -> impl Iterator<Item = CallerQuota> {
    account.ledgers().map(move |(quota, ledger)| {
        let now = account.reading.at;
        let passing =
            |units| ledger.fits_at(units, now).map_or(Passing::NEVER, |at| Passing::at(at, now));
        CallerQuota {
            policy: account.policy.to_string(),
            identity: policies.shown(&account.identity).into_owned(),
            plan: account.plan.as_deref().map(|plan| plan.name.to_string()),
            window_ms: ceil_ms(quota.window()),
            units: quota.units().get(),
            remaining: ledger.remaining(),
            reset_after_ms: ceil_ms(reset_after(ledger, now).min(quota.longest_reset())),
            next_unit_after_ms: ledger
                .next_unit_at(now)
                .map(|at| ceil_ms(at.saturating_since(now))),
            passing: units.map(passing),
            density: ledger.density(now, PARTS),
        }
    })
}

/// How long until the first spent unit leaves the window.
fn reset_after(ledger: &LedgerReading, now: Timestamp) -> Duration {
    let first = ledger.entries.first().map(|entry| entry.stamp + ledger.quota.window());
    first.map_or(Duration::ZERO, |at| at.saturating_since(now))
}

impl Passing {
    const NEVER: Self = Self {
        passes_after_ms: None,
        passes_at_ms: None,
        passes_at: None,
        reason: Some("cost-above-units"),
    };

    /// Rounded up to milliseconds, so that it is never too early.
    fn at(at: Timestamp, now: Timestamp) -> Self {
        let at_ms = if at > now { at.as_nanos().div_ceil(1_000_000) } else { now.as_millis() };
        Self {
            passes_after_ms: Some(ceil_ms(at.saturating_since(now))),
            passes_at_ms: Some(at_ms),
            passes_at: Some(Rfc3339::from_millis(at_ms)),
            reason: None,
        }
    }

    /// The later of two that are not never.
    fn max(self, other: Self) -> Self {
        if other.passes_after_ms > self.passes_after_ms { other } else { self }
    }
}

impl From<CallerBan> for BanView {
    fn from(CallerBan { policy, retry_after }: CallerBan) -> Self {
        Self { policy: policy.to_string(), retry_after_ms: ceil_ms(retry_after) }
    }
}
