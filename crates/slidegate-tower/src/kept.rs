//! Refusals that were told lately, to be told again.
//!
//! In a flood the next refusal mostly says what one before it has said: the same quotas are used
//! up, for as many seconds more.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::Response;
use slidegate::{Name, PolicyStanding, Quota, Standing};
use smallvec::SmallVec;

use crate::headers::{Reset, enforced};
use crate::refusal::{Reason, Refused};
use crate::seconds;
use crate::shared::SharedRefusal;

/// Each thread keeps so many, of one to two KiB each. With windows of a minute they are all that
/// one quota's clients are told at a time, or nearly.
const KEPT: usize = 64;

thread_local! {
    /// Each in the place that its numbers say.
    static REFUSALS: RefCell<Vec<Option<Box<Kept>>>> = const { RefCell::new(Vec::new()) };
}

/// Which answers a refusal is of: others have other headers and bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edition(u64);

impl Default for Edition {
    /// One that nothing has been told in.
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a refusal for used-up quotas tells.
pub(crate) struct Told<'a> {
    pub(crate) refused: &'a Refused<'a>,
    pub(crate) edition: Edition,
    /// The standing that binds the client most.
    pub(crate) tightest: &'a Standing,
    /// None if no policy that took part is in the headers.
    pub(crate) shown: Option<Shown<'a>>,
}

/// The standing that is told in headers with room for one.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) standing: &'a Standing,
    pub(crate) reset: Reset,
}

/// A refusal, and all that it depends on.
struct Kept {
    edition: Edition,
    reason: Reason,
    reset: Option<Reset>,
    retry_after_s: Option<u64>,
    quotas: SmallVec<[KeptQuota; 2]>,
    /// Which of them binds the client most, and which is told in headers with room for one.
    tightest: usize,
    shown: Option<usize>,
    /// The plan that is told, and where its customers can get more.
    plan: Option<(Name, Option<String>)>,
    refusal: Arc<SharedRefusal>,
}

/// What is told of one quota.
struct KeptQuota {
    policy: Name,
    quota: Quota,
    remaining: u32,
    effective_window_s: u64,
    is_violated: bool,
    is_in_headers: bool,
}

/// The refusal as it was told before, or else a new one, which is kept.
pub(crate) fn refusal(
    told: &Told<'_>,
    make: impl FnOnce() -> Response<Bytes>,
) -> Arc<SharedRefusal> {
    // At any moment, who waits for as many seconds may do so until one of two seconds of the
    // calendar. The sum has places for both, and others for those who wait longer.
    let place = match told.reset() {
        Some(reset) => reset.after_s.wrapping_add(reset.at_s),
        None => told.refused.retry_after_s().unwrap_or_default(),
    };
    let place = place as usize % KEPT;
    REFUSALS.with_borrow_mut(|refusals| {
        if refusals.is_empty() {
            refusals.resize_with(KEPT, || None);
        }
        match &refusals[place] {
            Some(kept) if told.is_in(kept) => Arc::clone(&kept.refusal),
            _ => {
                let refusal = Arc::new(SharedRefusal::new(make()));
                refusals[place] = Some(Box::new(told.keep(Arc::clone(&refusal))));
                refusal
            }
        }
    })
}

impl Told<'_> {
    fn is_in(&self, kept: &Kept) -> bool {
        kept.edition == self.edition
            && kept.reset == self.reset()
            && kept.reason == self.refused.reason()
            && kept.retry_after_s == self.refused.retry_after_s()
            && self.has_quotas_of(kept)
            && self.has_plan_of(kept)
    }

    fn has_quotas_of(&self, kept: &Kept) -> bool {
        let mut kept_quotas = kept.quotas.iter().enumerate();
        let same = self.quotas().all(|(policy, standing)| {
            kept_quotas.next().is_some_and(|(place, quota)| {
                quota.tells(policy, standing)
                    && (place == kept.tightest) == self.is_tightest(standing)
                    && (Some(place) == kept.shown) == self.is_shown(standing)
            })
        });
        same && kept_quotas.next().is_none()
    }

    fn has_plan_of(&self, kept: &Kept) -> bool {
        match (&kept.plan, self.refused.plan()) {
            (None, None) => true,
            (Some((name, url)), Some(plan)) => {
                name == plan.name() && url.as_deref() == plan.upgrade_url()
            }
            _ => false,
        }
    }

    fn keep(&self, refusal: Arc<SharedRefusal>) -> Kept {
        let quotas = self.quotas().map(|(policy, standing)| KeptQuota::of(policy, standing));
        let tightest = self.quotas().position(|(_, standing)| self.is_tightest(standing));
        let shown = self.quotas().position(|(_, standing)| self.is_shown(standing));
        let plan = self.refused.plan();
        Kept {
            edition: self.edition,
            reason: self.refused.reason(),
            reset: self.reset(),
            retry_after_s: self.refused.retry_after_s(),
            quotas: quotas.collect(),
            tightest: tightest.expect("it is one of the quotas that bind the client"),
            shown,
            plan: plan.map(|plan| (plan.name().clone(), plan.upgrade_url().map(str::to_owned))),
            refusal,
        }
    }

    fn quotas(&self) -> impl Iterator<Item = (&PolicyStanding, &Standing)> {
        self.refused.decision().into_iter().flat_map(enforced)
    }

    fn reset(&self) -> Option<Reset> {
        self.shown.map(|shown| shown.reset)
    }

    fn is_shown(&self, standing: &Standing) -> bool {
        self.shown.is_some_and(|shown| std::ptr::eq(standing, shown.standing))
    }

    fn is_tightest(&self, standing: &Standing) -> bool {
        std::ptr::eq(standing, self.tightest)
    }
}

impl KeptQuota {
    fn of(policy: &PolicyStanding, standing: &Standing) -> Self {
        Self {
            policy: policy.policy().clone(),
            quota: standing.quota(),
            remaining: standing.remaining(),
            effective_window_s: seconds::effective_window_s(standing),
            is_violated: standing.is_violated(),
            is_in_headers: policy.is_in_headers(),
        }
    }

    fn tells(&self, policy: &PolicyStanding, standing: &Standing) -> bool {
        self.policy == *policy.policy()
            && self.quota == standing.quota()
            && self.remaining == standing.remaining()
            && self.effective_window_s == seconds::effective_window_s(standing)
            && self.is_violated == standing.is_violated()
            && self.is_in_headers == policy.is_in_headers()
    }
}
