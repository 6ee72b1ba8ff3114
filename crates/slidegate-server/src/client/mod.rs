//! The operator's commands, which call a running server.

mod admin_endpoint;
mod chart;
mod health;
mod identity;
mod overview;
mod picture;
mod print;
mod top;

use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::Context;
use clap::Subcommand;
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::admin_endpoint::{AdminEndpoint, AdminUrl, path_segment};
use self::top::TopArguments;
use crate::api::{
    AccountList, AccountSort, AccountsReset, DensityView, IdentityView, LiftBody, OverrideBody,
    OverrideCreated, OverrideLifted, OverrideList, PlanBody, ReloadPlan, ResetBody,
};
use crate::config;
use crate::terminal::columns;

#[derive(Debug, Subcommand)]
pub(crate) enum RemoteCommand {
    /// Watch a running server: decisions of each policy, the store, and the accounts nearest to a quota
    #[command(after_help = help(top::AFTER_HELP))]
    Top(TopArguments),

    /// Ask whether a running server is ready, for container health checks
    #[command(after_help = health::AFTER_HELP)]
    Health(AdminUrl),

    /// List the accounts nearest to a quota, or the most denied, of a running server
    #[command(after_help = help("\
The list has what this gateway has seen recently, in a table of a fixed size: accounts with half of a
quota spent or more, or those that were denied, whose count is halved every ten minutes. Where each
stands is asked of the store now.

Examples:
  slidegate accounts                        who is nearest to a quota
  slidegate accounts --sort denied --limit 5
  slidegate accounts --sort candidate       who would be denied by the candidates of policies
  slidegate accounts --json | jq '.accounts[].identity'"))]
    Accounts(AccountsQuery),

    /// Show where an identity stands: spending, bans, exemptions and grants
    #[command(after_help = help("\
Examples:
  slidegate inspect ip:203.0.113.7
  slidegate inspect user:42 --policy login
  slidegate inspect user:42 --density       when it spent what, and when that is free again
  slidegate inspect api-key:-               reads the key from standard input; only its digest is sent
  slidegate inspect api-key:@/run/key       reads it from a file"))]
    Inspect(InspectQuery),

    /// Reset what an identity has spent
    #[command(after_help = help("\
With Redis it is done at all gateways, within a second. Overrides stay in force; bans that a policy
has begun by itself are lifted.

Examples:
  slidegate reset user:42 --reason 'our own retry loop, fixed in 4.2'
  slidegate reset ip:203.0.113.7 --policy login --reason 'typed the password wrong'"))]
    Reset(AccountChange),

    /// Grant an identity more units until a time
    #[command(after_help = help("\
The quota has that many units more until then. If there are several, --quota says which of them. A
second grant for the same identity, policy and quota takes the place of the first. With Redis it
holds at all gateways, within a second.

Examples:
  slidegate grant user:42 500 --for 1h --reason 'import, ticket 1234'
  slidegate grant api-key:acme 5000 --quota 1d --for 1d --reason 'their sale'
  slidegate grant user:42 500 --policy api --until 2026-01-01T06:00:00Z --reason 'launch night'"))]
    Grant(Grant),

    /// Exempt an identity from limits until a time
    #[command(after_help = help("\
Requests pass and are not counted until then, unless they are banned or blocked. With Redis it holds
at all gateways, within a second.

Examples:
  slidegate exempt ip:203.0.113.7 --for 30min --reason 'load test, ticket 1234'
  slidegate exempt user:42 --policy api --until 2026-01-01T06:00:00Z --reason 'migration'"))]
    Exempt(TimedChange),

    /// Ban an identity until a time
    #[command(after_help = help("\
Requests are refused until then; without --policy all of them, whatever policy they fall under. With
Redis it holds at all gateways, within a second.

Examples:
  slidegate ban ip:203.0.113.7 --for 1d --reason 'scrapes the whole catalogue'
  slidegate ban 203.0.113.0/24 --for 1h --reason 'attack, ticket 1234'
  slidegate ban api-key:- --policy api --for 7d --reason 'leaked key'    reads the key from standard input"))]
    Ban(TimedChange),

    /// List the grants, exemptions and bans in force
    #[command(after_help = help("\
Examples:
  slidegate overrides
  slidegate overrides --json | jq -r '.overrides[].id'"))]
    Overrides(AdminEndpoint),

    /// End a grant, an exemption or a ban early
    #[command(after_help = help("\
Examples:
  slidegate overrides                       shows which there are
  slidegate lift 1f0c6a9be2d74a53 --reason 'they have fixed it'"))]
    Lift(Lift),

    /// Ask a running server what a reload with a configuration file would change
    #[command(after_help = help("\
The server reads the file as it would in a reload, with its own flags and environment, and changes
nothing. It says which policies, quotas and identities would change, where accounts keep what they
have spent, which accounts would be over the new quotas, of at most 100 that it has lately seen near
a quota or denied, and which sections need a restart. Errors in the file are reported as by
`slidegate check`.

Examples:
  slidegate plan --config new.toml
  slidegate plan --config new.toml --json | jq '.accounts.over'
  generate-config | slidegate plan --config -"))]
    Plan(PlanQuery),
}

/// The parameters of `GET /v1/accounts`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct AccountsQuery {
    /// What comes first
    #[arg(long, value_enum, default_value = "nearest")]
    sort: AccountSort,

    /// How many, 1 to 100
    #[arg(long, value_name = "N", default_value = "20")]
    limit: u32,

    #[command(flatten)]
    #[serde(skip)]
    server: AdminEndpoint,
}

/// The parameters of `GET /v1/accounts/IDENTITY`, and of its density.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct InspectQuery {
    /// The identity as logs show it, such as ip:203.0.113.7, user:42 or api-key:NAME
    #[serde(skip)]
    identity: String,

    /// Under this policy only; without it, under all of them
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,

    /// With the quotas of this plan; without it that of the API key, or the one it was last seen with
    #[arg(long, value_name = "NAME")]
    plan: Option<String>,

    /// Draw what was spent over each quota's window, as a bar chart
    #[arg(long)]
    #[serde(skip)]
    density: bool,

    /// In how many parts of the window, 1 to 1000 [default: 60]
    #[arg(long, value_name = "N", requires = "density")]
    buckets: Option<u32>,

    /// Write the charts to this file as an SVG picture, too
    #[arg(long, value_name = "FILE", requires = "density", conflicts_with = "json")]
    #[serde(skip)]
    svg: Option<PathBuf>,

    #[command(flatten)]
    #[serde(skip)]
    server: AdminEndpoint,
}

/// A change of an identity's accounts, such as a reset.
#[derive(Debug, clap::Args)]
pub(crate) struct AccountChange {
    /// The identity as logs show it, such as ip:203.0.113.7, user:42 or api-key:NAME
    identity: String,

    /// Under this policy only; without it, under all of them
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,

    /// The reason, for the audit trail; up to 200 characters
    #[arg(long, value_name = "TEXT")]
    reason: String,

    #[command(flatten)]
    server: AdminEndpoint,
}

/// A change that ends by itself: an exemption or a ban.
#[derive(Debug, clap::Args)]
pub(crate) struct TimedChange {
    #[command(flatten)]
    end: ChangeEnd,

    #[command(flatten)]
    change: AccountChange,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct ChangeEnd {
    /// For this long, such as 30min, 1h or 7d; at most 366d
    #[arg(long, value_name = "TIME")]
    r#for: Option<String>,

    /// Until this instant, with any offset, such as 2026-01-01T12:00:00Z or 2026-01-01T14:00:00+02:00
    #[arg(long, value_name = "INSTANT")]
    until: Option<String>,
}

/// More units until a time.
#[derive(Debug, clap::Args)]
pub(crate) struct Grant {
    #[command(flatten)]
    timed: TimedChange,

    /// How many units more
    units: NonZeroU32,

    /// The window of the quota that gets them, such as min or 1d, or `all`; needed if there are
    /// several
    #[arg(long, value_name = "WINDOW")]
    quota: Option<String>,
}

/// The end of an override.
#[derive(Debug, clap::Args)]
pub(crate) struct Lift {
    /// The override, as `slidegate overrides` shows it
    #[arg(value_name = "OVERRIDE")]
    id: String,

    /// The reason, for the audit trail; up to 200 characters
    #[arg(long, value_name = "TEXT")]
    reason: String,

    #[command(flatten)]
    server: AdminEndpoint,
}

/// A reload that is only asked about.
#[derive(Debug, clap::Args)]
pub(crate) struct PlanQuery {
    /// The configuration file, or - for standard input
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    #[command(flatten)]
    server: AdminEndpoint,
}

fn help(text: &str) -> String {
    format!(
        "{text}

Environment:
  SLIDEGATE_ADMIN        where the server's admin endpoint is, if --admin does not say
  SLIDEGATE_ADMIN_TOKEN  the operator's token, if --token-file does not name a file

Exit codes:
  0  done
  1  not done: standard error says why
  2  the command line is wrong"
    )
}

impl RemoteCommand {
    /// Calls the server and prints its answer.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Top(arguments) => top::run(arguments),
            Self::Health(url) => health::run(url),
            Self::Accounts(query) => {
                let path = format!("/v1/accounts?{}", serde_urlencoded::to_string(query)?);
                query.server.print::<AccountList>(Method::GET, &path, Vec::new())
            }
            Self::Inspect(query) => {
                let parameters = serde_urlencoded::to_string(query)?;
                let path = account_path(&query.identity)?;
                if query.density {
                    let path = format!("{path}/density?{parameters}");
                    let show = |view| query.show_density(&view);
                    return query.server.print_as(Method::GET, &path, Vec::new(), show);
                }
                let path = format!("{path}?{parameters}");
                query.server.print::<IdentityView>(Method::GET, &path, Vec::new())
            }
            Self::Reset(change) => change.post::<AccountsReset>("reset", &change.body()),
            Self::Grant(grant) => {
                grant.timed.change.post::<OverrideCreated>("grant", &grant.body())
            }
            Self::Exempt(timed) => timed.change.post::<OverrideCreated>("exempt", &timed.body()),
            Self::Ban(timed) => timed.change.post::<OverrideCreated>("ban", &timed.body()),
            Self::Overrides(server) => {
                server.print::<OverrideList>(Method::GET, "/v1/overrides", Vec::new())
            }
            Self::Lift(lift) => {
                let path = format!("/v1/overrides/{}", path_segment(&lift.id));
                let body = serde_json::to_vec(&LiftBody { reason: lift.reason.clone() })?;
                lift.server.print::<OverrideLifted>(Method::DELETE, &path, body)
            }
            Self::Plan(plan) => {
                let (name, config) = config::read_named(&plan.config)?;
                let body = serde_json::to_vec(&PlanBody { config, name })?;
                plan.server.print::<ReloadPlan>(Method::POST, "/v1/plan", body)
            }
        }
    }
}

impl InspectQuery {
    /// The charts for the terminal; writes the picture if there is to be one.
    fn show_density(&self, view: &DensityView) -> anyhow::Result<String> {
        if let Some(file) = &self.svg {
            std::fs::write(file, picture::picture(view))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(chart::chart(view, columns()))
    }
}

impl AccountChange {
    fn body(&self) -> ResetBody {
        ResetBody { policy: self.policy.clone(), reason: self.reason.clone() }
    }

    /// Asks for an action, and prints the answer.
    fn post<T: DeserializeOwned + Display>(
        &self,
        action: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<()> {
        let path = format!("{}/{action}", account_path(&self.identity)?);
        self.server.print::<T>(Method::POST, &path, serde_json::to_vec(body)?)
    }
}

impl TimedChange {
    fn body(&self) -> OverrideBody {
        let ResetBody { policy, reason } = self.change.body();
        let ChangeEnd { r#for, until } = &self.end;
        let (r#for, until) = (r#for.clone(), until.clone());
        OverrideBody { policy, units: None, quota: None, r#for, until, reason }
    }
}

impl Grant {
    fn body(&self) -> OverrideBody {
        let (units, quota) = (Some(self.units), self.quota.clone());
        OverrideBody { units, quota, ..self.timed.body() }
    }
}

fn account_path(identity: &str) -> anyhow::Result<String> {
    Ok(format!("/v1/accounts/{}", path_segment(&identity::read(identity)?)))
}
