//! `[exempt]`, `[blocked]` and the exemptions of policies.

use http::HeaderName;
use slidegate::AccessList;
use slidegate::policy::Network;

use crate::config::location::{Location, Sourced};
use crate::config::reader::{Table, Value};

/// A list of exempt or blocked identities.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct WrittenRoster {
    /// Everything that is listed; secrets as digests.
    pub(in crate::config) roster: AccessList,
    pub(in crate::config) paths: Vec<Sourced<String>>,
    /// In words, without secrets.
    pub(in crate::config) shown: Vec<String>,
    /// Where secrets stand.
    pub(in crate::config) secrets: Vec<Location>,
    /// Where values of named headers stand, which are believed of trusted proxies only.
    pub(in crate::config) headers: Vec<Location>,
    /// Where users stand, if there are any.
    pub(in crate::config) users: Option<Location>,
}

impl WrittenRoster {
    pub(super) fn read(value: Option<Value<'_>>) -> Self {
        value.and_then(|value| value.table(Self::of)).unwrap_or_default()
    }

    fn of(table: &Table<'_>) -> Self {
        let mut list = Self::default();
        if let Some(users) = table.get("users") {
            list.users = Some(users.location()).filter(|_| users.count() > 0);
            for user in users.each(|value| value.text().map(str::to_owned)) {
                list.add(|roster| roster.user(&user), format!("user {:?}", user.value));
            }
        }
        list.secrets(table.get_secret("api_keys"), "API key", AccessList::api_key);
        list.secrets(
            table.get_secret("authorizations"),
            "Authorization value",
            AccessList::authorization,
        );
        if let Some(networks) = table.get("networks") {
            for network in networks.each(Value::parsed::<Network>) {
                list.add(|roster| roster.network(*network), format!("network {}", network.value));
            }
        }
        if let Some(paths) = table.get("paths") {
            for path in paths.each(|value| value.text().map(str::to_owned)) {
                list.add(|roster| roster.path(path.value.clone()), format!("path {}", path.value));
                list.paths.push(path);
            }
        }
        if let Some(headers) = table.get("headers") {
            let _ = headers.names(|entries| list.headers(entries));
        }
        list
    }

    fn add(&mut self, change: impl FnOnce(AccessList) -> AccessList, shown: String) {
        self.roster = change(std::mem::take(&mut self.roster));
        self.shown.push(shown);
    }

    fn secrets(
        &mut self,
        values: Option<Value<'_>>,
        what: &str,
        list: impl Fn(AccessList, &str) -> AccessList,
    ) {
        let Some(values) = values else { return };
        let secrets = values.each(Value::secret);
        for secret in &secrets {
            self.roster = list(std::mem::take(&mut self.roster), secret.reveal());
        }
        match secrets.len() {
            0 => return,
            1 => self.shown.push(format!("1 {what}")),
            many => self.shown.push(format!("{many} {what}s")),
        }
        self.secrets.push(values.location());
    }

    fn headers(&mut self, entries: Vec<(&str, Value<'_>)>) {
        for (name, value) in entries {
            let Ok(header) = name.parse::<HeaderName>() else {
                value.report_hidden("expected the name of a header, such as x-tenant");
                continue;
            };
            for listed in value.each(Value::secret) {
                let roster = std::mem::take(&mut self.roster);
                self.roster = roster.header(header.clone(), listed.reveal());
            }
            self.shown.push(format!("values of {header}"));
            self.headers.push(value.location());
        }
    }
}
