//! `[decisions]` and `[admin]`: the endpoints besides the gateway.

use crate::config::error::{ConfigError, Location};
use crate::config::gateway::GatewayConfig;
use crate::config::reader::{Reader, Table, Value};
use crate::config::sources;
use crate::config::tree::Node;
use crate::config::{ListenAddress, Secret};

/// The endpoint for programs that ask.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecisionsConfig {
    pub(crate) listen: Vec<ListenAddress>,
    /// The bearer token that requests need.
    pub(crate) token: Option<Secret>,
}

/// The admin endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdminConfig {
    pub(crate) listen: Vec<ListenAddress>,
    /// The bearer token that requests need.
    pub(crate) token: Option<Secret>,
}

impl DecisionsConfig {
    /// Reads the section. The endpoint is there if it is configured, or if no other would be public.
    pub(super) fn read(table: &Table<'_>, has_gateway: bool) -> Option<Self> {
        let decisions = Self { listen: listen(table, "127.0.0.1:8081"), token: token(table) };
        (table.node.is_some() || !has_gateway).then_some(decisions)
    }
}

impl AdminConfig {
    pub(super) fn read(table: &Table<'_>) -> Self {
        Self { listen: listen(table, "127.0.0.1:9090"), token: token(table) }
    }
}

/// Where to listen.
pub(super) fn listen(table: &Table<'_>, default: &str) -> Vec<ListenAddress> {
    let Some(value) = table.get("listen") else {
        return vec![default.parse().expect("an address that is well formed")];
    };
    if value.node.elements().is_empty() {
        value.report("expected at least one address, such as 127.0.0.1:8080");
    }
    value.each(Value::parsed)
}

fn token(table: &Table<'_>) -> Option<Secret> {
    let token = table.read("token", Value::secret);
    table.get("token_file").map_or(token.clone(), |file| match token {
        None => file.secret_in_file(),
        Some(_) => {
            file.report("a token is given already: expected token or token_file, not both");
            token
        }
    })
}

/// Reports listeners that would be in one another's place, and those that other machines can reach
/// without a token: the admin API can ban and exempt, and the decision API trusts its callers.
pub(super) fn check(
    root: &Node,
    gateway: Option<&GatewayConfig>,
    decisions: Option<&DecisionsConfig>,
    admin: &AdminConfig,
    reader: &Reader,
) {
    let of_gateway = gateway.map_or(&[][..], |gateway| &gateway.listen);
    let of_decisions = decisions.map_or(&[][..], |decisions| &decisions.listen);
    let is_open = decisions.is_some_and(|decisions| decisions.token.is_none());
    let needs_token = is_open.then_some(sources::DECISIONS_TOKEN);
    let admin_needs_token = admin.token.is_none().then_some(sources::ADMIN_TOKEN);
    let mut seen: Vec<(&ListenAddress, Location)> = Vec::new();
    for (section, listen, needed_token) in [
        ("gateway", of_gateway, None),
        ("decisions", of_decisions, needs_token),
        ("admin", &admin.listen, admin_needs_token),
    ] {
        let nodes = root.all(&[section, "listen"]);
        for (i, address) in listen.iter().enumerate() {
            let node = nodes.get(i).filter(|_| nodes.len() == listen.len());
            let whole = || root.location(&[section, "listen"]);
            let location = node.map_or_else(whole, |node| node.location.clone());
            let report = |expected: String| {
                let error = ConfigError::new(location.clone(), expected);
                reader.report(error.with_text(Some(&address.to_string())));
            };
            if let Some((_, other)) = seen.iter().find(|(other, _)| address.collides_with(other)) {
                report(format!("{other} is there already: expected a place of its own"));
            }
            if let Some(variable) = needed_token.filter(|_| !address.is_of_this_machine()) {
                report(format!(
                    "others than this machine can reach it, and there is no token: set {variable} \
                     or {section}.token_file, or listen on 127.0.0.1"
                ));
            }
            seen.push((address, location));
        }
    }
}
