//! What an operator can type, and what is asked of the server for it.

use std::num::NonZeroU32;

use anyhow::Context;
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::client::{AdminEndpoint, encoded};
use super::identity;
use crate::admin::views::{
    AccountList, AccountSort, AccountsReset, IdentityView, OverrideCreated, OverrideLifted,
    OverrideList,
};
use crate::terminal;

macro_rules! help {
    ($($own:literal)*) => {
        concat!(
            $($own,)*
            "
Environment:
  SLIDEGATE_ADMIN        where the server's admin endpoint is, if --admin does not say
  SLIDEGATE_ADMIN_TOKEN  the operator's token, if --token-file does not name a file

Exit codes:
  0  done
  1  not done: standard error says why
  2  the command line is wrong"
        )
    };
}

pub(crate) const ACCOUNTS_HELP: &str = help!(
    "\
The list has what this gateway has seen of late, in a table of a fixed size: accounts with half of a
quota spent or more, or those that were denied, whose count is halved every ten minutes. Where each
stands is asked of the store now.

Examples:
  slidegate accounts                        who is nearest to a quota
  slidegate accounts --sort denied --limit 5
  slidegate accounts --json | jq '.accounts[].identity'
"
);

pub(crate) const INSPECT_HELP: &str = help!(
    "\
Examples:
  slidegate inspect ip:203.0.113.7
  slidegate inspect user:42 --policy login
  slidegate inspect api-key:-               reads the key from standard input; only its digest is sent
  slidegate inspect api-key:@/run/key       reads it from a file
"
);

pub(crate) const RESET_HELP: &str = help!(
    "\
With Redis it is done at all gateways, within a second. Overrides stay in force; bans that a policy
has begun by itself are lifted.

Examples:
  slidegate reset user:42 --reason 'our own retry loop, fixed in 4.2'
  slidegate reset ip:203.0.113.7 --policy login --reason 'typed the password wrong'
"
);

pub(crate) const GRANT_HELP: &str = help!(
    "\
Each quota has that many units more until then. A second grant for the same identity and policy takes
the place of the first. With Redis it holds at all gateways, within a second.

Examples:
  slidegate grant user:42 500 --for 1h --reason 'import, ticket 1234'
  slidegate grant user:42 500 --policy api --until 2026-01-01T06:00:00Z --reason 'launch night'
"
);

pub(crate) const EXEMPT_HELP: &str = help!(
    "\
Requests pass and are not counted until then, unless they are banned or blocked. With Redis it holds
at all gateways, within a second.

Examples:
  slidegate exempt ip:203.0.113.7 --for 30min --reason 'load test, ticket 1234'
  slidegate exempt user:42 --policy api --until 2026-01-01T06:00:00Z --reason 'migration'
"
);

pub(crate) const BAN_HELP: &str = help!(
    "\
Requests are refused until then; without --policy all of them, whatever policy they fall under. With
Redis it holds at all gateways, within a second.

Examples:
  slidegate ban ip:203.0.113.7 --for 1d --reason 'scrapes the whole catalogue'
  slidegate ban 203.0.113.0/24 --for 1h --reason 'attack, ticket 1234'
  slidegate ban api-key:- --policy api --for 7d --reason 'leaked key'    reads the key from standard input
"
);

pub(crate) const OVERRIDES_HELP: &str = help!(
    "\
Examples:
  slidegate overrides
  slidegate overrides --json | jq -r '.overrides[].id'
"
);

pub(crate) const LIFT_HELP: &str = help!(
    "\
Examples:
  slidegate overrides                       shows which there are
  slidegate lift 1f0c6a9be2d74a53 --reason 'they have fixed it'
"
);

#[derive(Debug, clap::Args)]
pub(crate) struct AccountsArguments {
    /// What comes first
    #[arg(long, value_enum, default_value = "nearest")]
    sort: AccountSort,

    /// How many, 1 to 100
    #[arg(long, value_name = "N", default_value = "20")]
    limit: u32,

    #[command(flatten)]
    server: AdminEndpoint,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InspectArguments {
    #[command(flatten)]
    whom: Whom,

    /// With the quotas of this plan; without it that of the API key, or the one it was last seen with
    #[arg(long, value_name = "NAME")]
    plan: Option<String>,

    #[command(flatten)]
    server: AdminEndpoint,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResetArguments {
    #[command(flatten)]
    whom: Whom,

    #[command(flatten)]
    why: Why,

    #[command(flatten)]
    server: AdminEndpoint,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GrantArguments {
    #[command(flatten)]
    whom: Whom,

    /// How many units more, in each quota
    units: NonZeroU32,

    #[command(flatten)]
    when: When,

    #[command(flatten)]
    why: Why,

    #[command(flatten)]
    server: AdminEndpoint,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OverrideArguments {
    #[command(flatten)]
    whom: Whom,

    #[command(flatten)]
    when: When,

    #[command(flatten)]
    why: Why,

    #[command(flatten)]
    server: AdminEndpoint,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OverridesArguments {
    #[command(flatten)]
    server: AdminEndpoint,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LiftArguments {
    /// The override, as `slidegate overrides` shows it
    #[arg(value_name = "OVERRIDE")]
    id: String,

    #[command(flatten)]
    why: Why,

    #[command(flatten)]
    server: AdminEndpoint,
}

#[derive(Debug, clap::Args)]
struct Whom {
    /// The identity as logs show it, such as ip:203.0.113.7, user:42 or api-key:NAME
    identity: String,

    /// Under this policy only; without it, under all of them
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct When {
    /// For this long, such as 30min, 1h or 7d; at most 366d
    #[arg(long = "for", value_name = "TIME")]
    lasting: Option<String>,

    /// Until this instant, in UTC, such as 2026-01-01T12:00:00Z
    #[arg(long, value_name = "INSTANT")]
    until: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Why {
    /// The reason, for the audit trail; up to 200 characters
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// What an override does that has no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Exempt,
    Ban,
}

/// `slidegate accounts`
pub(crate) fn accounts(arguments: &AccountsArguments) -> anyhow::Result<()> {
    let AccountsArguments { sort, limit, server } = arguments;
    let sort = match sort {
        AccountSort::Nearest => "nearest",
        AccountSort::Denied => "denied",
    };
    let answer =
        server.ask(Method::GET, &format!("/v1/accounts?sort={sort}&limit={limit}"), None)?;
    show(server, answer, |list: AccountList| list.text())
}

/// `slidegate inspect`
pub(crate) fn inspect(arguments: &InspectArguments) -> anyhow::Result<()> {
    let InspectArguments { whom, plan, server } = arguments;
    let given = [("policy", &whom.policy), ("plan", plan)];
    let given = given.iter().filter_map(|(name, value)| {
        value.as_ref().map(|value| format!("{name}={}", encoded(value)))
    });
    let query = given.collect::<Vec<_>>().join("&");
    let mark = if query.is_empty() { "" } else { "?" };
    let answer = server.ask(Method::GET, &format!("{}{mark}{query}", whom.path("")?), None)?;
    show(server, answer, |found: IdentityView| found.text())
}

/// `slidegate reset`
pub(crate) fn reset(arguments: &ResetArguments) -> anyhow::Result<()> {
    let ResetArguments { whom, why, server } = arguments;
    let body = body([("policy", whom.policy.as_deref()), ("reason", Some(&why.reason))]);
    let answer = server.ask(Method::POST, &whom.path("/reset")?, Some(&body.into()))?;
    show(server, answer, |reset: AccountsReset| reset.text())
}

/// `slidegate grant`
pub(crate) fn grant(arguments: &GrantArguments) -> anyhow::Result<()> {
    let GrantArguments { whom, units, when, why, server } = arguments;
    let mut body = override_body(whom, when, why);
    body.insert("units".to_owned(), units.get().into());
    let answer = server.ask(Method::POST, &whom.path("/grant")?, Some(&body.into()))?;
    show(server, answer, |created: OverrideCreated| created.text())
}

/// `slidegate exempt` and `slidegate ban`
pub(crate) fn set_override(verb: Verb, arguments: &OverrideArguments) -> anyhow::Result<()> {
    let OverrideArguments { whom, when, why, server } = arguments;
    let path = match verb {
        Verb::Exempt => "/exempt",
        Verb::Ban => "/ban",
    };
    let body = override_body(whom, when, why);
    let answer = server.ask(Method::POST, &whom.path(path)?, Some(&body.into()))?;
    show(server, answer, |created: OverrideCreated| created.text())
}

/// `slidegate overrides`
pub(crate) fn overrides(arguments: &OverridesArguments) -> anyhow::Result<()> {
    let server = &arguments.server;
    let answer = server.ask(Method::GET, "/v1/overrides", None)?;
    show(server, answer, |list: OverrideList| list.text())
}

/// `slidegate lift`
pub(crate) fn lift(arguments: &LiftArguments) -> anyhow::Result<()> {
    let LiftArguments { id, why, server } = arguments;
    let path = format!("/v1/overrides/{}", encoded(id));
    let body = body([("reason", Some(why.reason.as_str()))]);
    let answer = server.ask(Method::DELETE, &path, Some(&body.into()))?;
    show(server, answer, |lifted: OverrideLifted| lifted.text())
}

impl Whom {
    fn path(&self, rest: &str) -> anyhow::Result<String> {
        let identity = identity::read(&self.identity)?;
        Ok(format!("/v1/accounts/{}{rest}", encoded(&identity)))
    }
}

fn override_body(whom: &Whom, when: &When, why: &Why) -> Map<String, Value> {
    body([
        ("policy", whom.policy.as_deref()),
        ("for", when.lasting.as_deref()),
        ("until", when.until.as_deref()),
        ("reason", Some(&why.reason)),
    ])
}

fn body<const N: usize>(members: [(&str, Option<&str>); N]) -> Map<String, Value> {
    let given =
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
    given.collect()
}

fn show<T: DeserializeOwned>(
    server: &AdminEndpoint,
    answer: String,
    text: impl Fn(T) -> String,
) -> anyhow::Result<()> {
    let shown = match server.json {
        true => answer + "\n",
        false => {
            let answer = serde_json::from_str(&answer);
            text(answer.context("the server answers as another version does; see --json")?)
        }
    };
    Ok(terminal::show(&shown)?)
}
