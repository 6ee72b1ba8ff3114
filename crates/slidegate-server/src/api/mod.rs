//! The JSON of the operator's API: a type for each body and answer, which the server writes and the
//! commands read. What does not apply is left out.

mod accounts;
mod density;
mod now;
mod overrides;
mod plan;
mod policies;
mod readiness;

pub(crate) use self::accounts::{
    AccountList, AccountSort, AccountView, AuditView, CandidateView, IdentityView, QuotaView,
};
pub(crate) use self::density::{AccountDensity, DensityView, FreedUnits, QuotaDensity};
pub(crate) use self::now::{
    DecisionTimeSeries, GatewayView, NowView, PolicySeries, ReloadView, RequestSeries, StoreView,
};
pub(crate) use self::overrides::{
    AccountsReset, LiftBody, OverrideBody, OverrideCreated, OverrideLifted, OverrideList,
    OverrideView, ResetBody,
};
pub(crate) use self::plan::{
    AccountOverQuota, AccountsOverQuota, PlanBody, ReloadChanges, ReloadPlan,
};
pub(crate) use self::policies::{
    BanRule, DecisionCounts, ExplainView, PlanChoice, PlanView, PolicyEffect, PolicyList,
    PolicyView,
};
pub(crate) use self::readiness::{KeyTrouble, Readiness, SourceTrouble};

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
