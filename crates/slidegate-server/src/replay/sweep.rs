//! `--sweep`: the quotas to try, and the configuration with each of them.

use std::num::NonZeroU32;
use std::str::FromStr;

use anyhow::{Context, bail};
use slidegate::policy::CheckedPolicy;
use slidegate::{Policies, Quota};
use slidegate_replay::RuleSet;

use crate::config::{self, Sources};

/// How many quotas are tried, from the first to the last.
const STEPS: u32 = 16;

/// `api=10/min..1000/min`: the quotas of a policy to try.
#[derive(Debug, Clone)]
pub(super) struct SweepRange {
    pub(super) policy: String,
    from: Quota,
    to: Quota,
}

impl FromStr for SweepRange {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let expected = "expected a policy and two quotas, such as api=10/min..1000/min";
        let (policy, quotas) = text.split_once('=').context(expected)?;
        let (from, to) = quotas.split_once("..").context(expected)?;
        let (from, to): (Quota, Quota) = (from.trim().parse()?, to.trim().parse()?);
        if from.window() != to.window() || from.units() > to.units() {
            bail!("{expected}, of one window and the smaller first");
        }
        Ok(Self { policy: policy.trim().to_owned(), from, to })
    }
}

impl SweepRange {
    /// Each quota, and the limiter with it in place of the policy's own.
    pub(super) fn load(
        &self,
        sources: &Sources,
        policies: &Policies,
    ) -> anyhow::Result<Vec<(Quota, RuleSet)>> {
        let Some(policy) = policies.iter().find(|policy| *policy.name == *self.policy) else {
            let names: Vec<&str> = policies.names().map(|name| &**name).collect();
            bail!("--sweep: there is no policy {:?}; there are {}", self.policy, names.join(", "));
        };
        let load = |quota| {
            let changed = sources.with_quotas(&self.policy, self.replaced(policy, quota)?);
            Ok((quota, config::load(&changed)?.config.limiter.into()))
        };
        self.quotas()?.into_iter().map(load).collect()
    }

    /// From the first to the last, each larger by the same factor.
    fn quotas(&self) -> anyhow::Result<Vec<Quota>> {
        let (from, to) = (f64::from(self.from.units().get()), f64::from(self.to.units().get()));
        let units = |step: u32| {
            let part = f64::from(step) / f64::from(STEPS - 1);
            (from * (to / from).powf(part)).round() as u32
        };
        let mut all: Vec<u32> = (0..STEPS).map(units).collect();
        all.dedup();
        let quota = |units| {
            let units = NonZeroU32::new(units).context("a quota has at least one unit")?;
            Ok(Quota::new(units, self.from.window())?)
        };
        all.into_iter().map(quota).collect()
    }

    /// The quotas of the policy with this one in place of the only one, or of that of its window.
    fn replaced(&self, policy: &CheckedPolicy, quota: Quota) -> anyhow::Result<Vec<Quota>> {
        let mut quotas = policy.quotas().to_vec();
        if quotas.is_empty() {
            bail!(
                "--sweep: policy {:?} uses plans and has no quotas: expected a policy with quotas",
                self.policy
            );
        }
        let position = quotas.iter().position(|own| own.window() == quota.window());
        let position = position.or((quotas.len() == 1).then_some(0)).with_context(|| {
            let quotas: Vec<String> = quotas.iter().map(Quota::to_string).collect();
            let (policy, quotas) = (&self.policy, quotas.join(" and "));
            format!("--sweep: policy {policy:?} has {quotas}: expected the window of one of them")
        })?;
        quotas[position] = quota;
        Ok(quotas)
    }
}
