//! The file as it is written: every value read, nothing filled in yet.

mod access_list;
mod answers;
mod api_keys;
mod endpoints;
mod gateway;
mod policy;
mod store;

use slidegate::Quota;
use slidegate::policy::UnknownKeys;

pub(super) use self::access_list::WrittenRoster;
pub(super) use self::answers::{WrittenHeaders, WrittenRefusal};
pub(super) use self::api_keys::{KeysFile, WrittenApiKey};
pub(super) use self::endpoints::{WrittenAudit, WrittenEndpoint, WrittenLog};
pub(super) use self::gateway::{WrittenGateway, WrittenRoute, upstream, upstream_problem};
pub(super) use self::policy::{WrittenPolicy, WrittenSource};
pub(super) use self::store::{StoreKind, WrittenStore};
use crate::config::location::{Location, Sourced};
use crate::config::profile::Profile;
use crate::config::reader::{Table, Value};

/// The file as it is written.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    pub(super) gateway: Option<Sourced<WrittenGateway>>,
    pub(super) decisions: Option<Sourced<WrittenEndpoint>>,
    pub(super) admin: Option<WrittenEndpoint>,
    pub(super) store: WrittenStore,
    pub(super) headers: WrittenHeaders,
    pub(super) refusal: Option<WrittenRefusal>,
    pub(super) profile: Option<Sourced<Profile>>,
    pub(super) plans: Vec<WrittenPlan>,
    pub(super) policies: Vec<WrittenPolicy>,
    /// Those of the file, and those of the keys file.
    pub(super) api_keys: Vec<WrittenApiKey>,
    pub(super) keys_file: Option<Sourced<KeysFile>>,
    pub(super) unknown_keys: Option<UnknownKeys>,
    pub(super) exempt: WrittenRoster,
    pub(super) blocked: WrittenRoster,
    pub(super) log: WrittenLog,
    pub(super) audit: Option<WrittenAudit>,
    /// From the environment only: whether policies are enforced.
    pub(super) enforced: Option<Sourced<bool>>,
}

/// A plan.
#[derive(Debug, Clone)]
pub(super) struct WrittenPlan {
    pub(super) name: Sourced<String>,
    pub(super) quotas: WrittenQuotas,
    pub(super) upgrade_url: Option<String>,
}

/// Quotas, and whether some could not be read.
#[derive(Debug, Clone)]
pub(super) struct WrittenQuotas {
    pub(super) location: Location,
    pub(super) quotas: Vec<Sourced<Quota>>,
    pub(super) is_whole: bool,
}

impl Written {
    pub(super) fn read(root: &Table<'_>) -> Self {
        let section = |key| root.get(key);
        let mut api_keys = api_keys::tables(root);
        let keys_file = root.sourced("keys_file", |value| KeysFile::read(value, &mut api_keys));
        let unknown_keys = [("ignore", UnknownKeys::Ignore), ("own", UnknownKeys::Own)];
        Self {
            gateway: root.sourced("gateway", |value| value.table(WrittenGateway::read)),
            decisions: root.sourced("decisions", |value| value.table(WrittenEndpoint::read)),
            admin: section("admin").and_then(|value| value.table(WrittenEndpoint::read)),
            store: section("store").and_then(|v| v.table(WrittenStore::read)).unwrap_or_default(),
            headers: section("headers")
                .and_then(|value| value.table(WrittenHeaders::read))
                .unwrap_or_default(),
            refusal: section("refusal").and_then(|value| WrittenRefusal::read(&value)),
            profile: root.sourced("profile", |value| value.one_of(&Profile::WORDS)),
            plans: section("plans").and_then(|v| v.names(plans)).unwrap_or_default(),
            policies: tables(root.get("policy"), WrittenPolicy::read),
            api_keys,
            keys_file,
            unknown_keys: section("unknown_keys").and_then(|value| value.one_of(&unknown_keys)),
            exempt: WrittenRoster::read(root.get("exempt")),
            blocked: WrittenRoster::read(root.get("blocked")),
            log: section("log").and_then(|value| value.table(WrittenLog::read)).unwrap_or_default(),
            audit: section("audit").and_then(|value| value.table(WrittenAudit::read)?),
            enforced: None,
        }
    }
}

/// What `read` makes of each table of a list.
fn tables<T>(list: Option<Value<'_>>, read: impl Fn(&Table<'_>) -> T) -> Vec<T> {
    let each = list.map(|list| list.each(|value| value.table(&read))).unwrap_or_default();
    each.into_iter().map(|sourced| sourced.value).collect()
}

fn plans(entries: Vec<(&str, Value<'_>)>) -> Vec<WrittenPlan> {
    let plan = |(name, value): (&str, Value<'_>)| {
        let name = value.location().with_value(name.to_owned());
        value.table(|table| WrittenPlan::read(name, table))
    };
    entries.into_iter().filter_map(plan).collect()
}

impl WrittenPlan {
    fn read(name: Sourced<String>, table: &Table<'_>) -> Self {
        let url = |value: Value<'_>| {
            let text = value.text()?;
            let is_whole = text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some());
            if !is_whole {
                value.report("expected a URL such as https://app.example.com/upgrade");
            }
            Some(text.to_owned())
        };
        Self {
            name,
            quotas: WrittenQuotas::read(table),
            upgrade_url: table.get("upgrade_url").and_then(url),
        }
    }
}

impl WrittenQuotas {
    pub(super) fn read(table: &Table<'_>) -> Self {
        let Some(list) = table.get("quotas") else {
            return Self {
                location: table.location().below("quotas"),
                quotas: Vec::new(),
                is_whole: true,
            };
        };
        let quotas = list.each(Value::parsed::<Quota>);
        Self { location: list.location(), is_whole: quotas.len() == list.count(), quotas }
    }

    /// What can stand for them, so that the rest can be checked.
    pub(super) fn or_stand_in(&self) -> Vec<Quota> {
        if self.is_whole { self.values() } else { vec![Quota::per_day(u32::MAX)] }
    }

    pub(super) fn values(&self) -> Vec<Quota> {
        self.quotas.iter().map(|sourced| sourced.value).collect()
    }
}
