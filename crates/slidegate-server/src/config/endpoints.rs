//! `[decisions]`, `[resp]` and `[admin]`: the endpoints besides the gateway.

use slidegate::OnStoreError;

use crate::config::error::Location;
use crate::config::gateway::GatewayConfig;
use crate::config::reader::Value;
use crate::config::sources;
use crate::config::{ListenAddress, Secret};

/// The decision API, or the admin endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndpointConfig {
    pub(crate) listen: Vec<ListenAddress>,
    /// The bearer token that requests need.
    pub(crate) token: Option<Secret>,
}

impl EndpointConfig {
    /// Reads a section, with its default address and the variable that can have its token.
    pub(super) fn read(table: &Value<'_>, default: &str, variable: &str) -> Self {
        let (token, file) = (table.key("token"), table.key("token_file"));
        if token.is_set() && file.is_set() {
            file.report("a token is given already: expected token or token_file, not both");
        }
        if token.is_set() {
            let remedy = format!("name a token_file, or set {variable}");
            token.warn_of_secret(format!("a secret in the file: {remedy}"));
        }
        let token = if token.is_set() { token.secret() } else { file.secret_in_file() };
        Self { listen: listen(table, default), token }
    }
}

/// The endpoint for Redis clients.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RespConfig {
    pub(crate) endpoint: EndpointConfig,
    /// What happens to `THROTTLE` when the store cannot count.
    pub(super) on_store_error: OnStoreError,
}

impl RespConfig {
    pub(super) fn read(table: &Value<'_>) -> Self {
        let on_store_error = table.key("on_store_error").parsed().unwrap_or_default();
        let endpoint = EndpointConfig::read(table, "127.0.0.1:8083", sources::RESP_TOKEN);
        Self { endpoint, on_store_error }
    }
}

/// Where to listen.
pub(super) fn listen(table: &Value<'_>, default: &str) -> Vec<ListenAddress> {
    let value = table.key("listen");
    if !value.is_set() {
        return vec![default.parse().expect("an address that is well formed")];
    }
    if value.elements().is_empty() {
        value.report("expected at least one address, such as 127.0.0.1:8080");
    }
    value.each(Value::parsed)
}

/// Reports listeners that would be in one another's place, and those that other machines can reach
/// without a token: the admin API can ban and exempt, and the other two trust their callers.
pub(super) fn check(
    root: &Value<'_>,
    gateway: Option<&GatewayConfig>,
    decisions: Option<&EndpointConfig>,
    resp: Option<&EndpointConfig>,
    admin: &EndpointConfig,
) {
    let mut seen: Vec<(&ListenAddress, Location)> = Vec::new();
    let needs_token = |endpoint: &EndpointConfig| endpoint.token.is_none();
    for (section, listen, variable) in [
        ("gateway", gateway.map(|gateway| &gateway.listen), None),
        (
            "decisions",
            decisions.map(|decisions| &decisions.listen),
            decisions.is_some_and(needs_token).then_some(sources::DECISIONS_TOKEN),
        ),
        (
            "resp",
            resp.map(|resp| &resp.listen),
            resp.is_some_and(needs_token).then_some(sources::RESP_TOKEN),
        ),
        ("admin", Some(&admin.listen), needs_token(admin).then_some(sources::ADMIN_TOKEN)),
    ] {
        let listen = listen.map_or(&[][..], Vec::as_slice);
        let whole = root.named(section).named("listen");
        let values = whole.elements();
        for (i, address) in listen.iter().enumerate() {
            let value = values.get(i).filter(|_| values.len() == listen.len()).unwrap_or(&whole);
            let report = |expected: String| value.report_with(expected, Some(&address.to_string()));
            if let Some((_, other)) = seen.iter().find(|(other, _)| address.collides_with(other)) {
                report(format!("{other} is there already: expected a place of its own"));
            }
            if let Some(variable) = variable.filter(|_| !address.is_of_this_machine()) {
                report(format!(
                    "others than this machine can reach it, and there is no token: set {variable} \
                     or {section}.token_file, or listen on 127.0.0.1"
                ));
            }
            seen.push((address, value.location.clone()));
        }
    }
}
