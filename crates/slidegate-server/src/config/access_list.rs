//! `[exempt]`, `[blocked]` and the exemptions of policies.

use http::HeaderName;
use slidegate::AccessList;
use slidegate::policy::Network;

use crate::config::reader::Value;

/// A list of exempt or blocked identities.
#[derive(Debug, Default)]
pub(super) struct AccessListConfig {
    pub(super) list: AccessList,
    /// What is on it, without secrets.
    pub(super) shown: Vec<String>,
}

impl AccessListConfig {
    pub(super) fn read(table: &Value<'_>) -> Self {
        let mut list = Self::default();
        for user in table.key("users").each(Value::text) {
            list.add(|all| all.user(user), format!("user {user:?}"));
        }
        list.add_secrets(&table.key("api_keys"), "API key", AccessList::api_key);
        list.add_secrets(
            &table.key("authorizations"),
            "Authorization value",
            AccessList::authorization,
        );
        for network in table.key("networks").each(Value::parsed::<Network>) {
            list.add(|all| all.network(network), format!("network {network}"));
        }
        for path in table.key("paths").each(Value::text) {
            list.add(|all| all.path(path), format!("path {path}"));
        }
        for (name, value) in table.key("headers").names() {
            let Ok(header) = name.parse::<HeaderName>() else {
                value.hidden().report("expected the name of a header, such as x-tenant");
                continue;
            };
            let values = value.each(Value::secret);
            let add = |all: AccessList| {
                values.iter().fold(all, |all, value| all.header(header.clone(), value.reveal()))
            };
            list.add(add, format!("values of {header}"));
        }
        list
    }

    fn add(&mut self, change: impl FnOnce(AccessList) -> AccessList, shown: String) {
        self.list = change(std::mem::take(&mut self.list));
        self.shown.push(shown);
    }

    fn add_secrets(
        &mut self,
        value: &Value<'_>,
        what: &str,
        add: impl Fn(AccessList, &str) -> AccessList,
    ) {
        let secrets = value.each(Value::secret);
        let shown = match secrets.len() {
            0 => return,
            1 => format!("1 {what}"),
            many => format!("{many} {what}s"),
        };
        value.warn_of_secret("secrets in the file: make sure that only the server can read it");
        self.add(|all| secrets.iter().fold(all, |all, secret| add(all, secret.reveal())), shown);
    }
}
