//! `[decisions]`, `[resp]`, `[rls]` and `[admin]`: the endpoints besides the gateway.

use std::time::Duration;

use slidegate::OnStoreError;
use slidegate_proxy::ListenAddress;

use crate::config::Secret;
use crate::config::error::Location;
use crate::config::gateway::{GatewayConfig, TlsFiles};
use crate::config::reader::Value;
use crate::config::sources;

/// The decision API, the rate limit service for Envoy, or the admin endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndpointConfig {
    pub(crate) listen: Vec<ListenAddress>,
    /// The bearer token that requests need.
    pub(crate) token: Option<Secret>,
    /// For the rate limit service only.
    pub(crate) tls: Option<TlsFiles>,
}

/// Random letters and digits have 95 bits at this length: at a million guesses a second, a token lasts
/// longer than the universe has.
const MIN_TOKEN_BYTES: usize = 16;

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
        Self { listen: listen(table, default), token, tls: None }
    }

    /// Reads `[rls]`, if it is there.
    pub(super) fn read_rls(table: &Value<'_>) -> Option<Self> {
        let tls = table.key("tls").table().and_then(|table| TlsFiles::read(&table));
        let endpoint = Self::read(table, "127.0.0.1:8082", sources::RLS_TOKEN);
        table.is_set().then_some(Self { tls, ..endpoint })
    }

    /// Whether a client needs a certificate to get as far as the token.
    fn needs_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// Reports a token that is easily guessed, where other machines can try.
    fn check_token(&self, table: &Value<'_>) {
        let is_reachable = self.listen.iter().any(|address| !address.is_of_this_machine());
        let Some(token) = self.token.as_ref().map(Secret::reveal) else { return };
        let given = table.named("token");
        let value = if given.is_set() { given } else { table.named("token_file") };
        let is_short = token.trim().len() < MIN_TOKEN_BYTES;
        if token.trim().is_empty() {
            value.hidden().report("expected a token that is not white space");
        } else if is_reachable && is_short && !self.needs_certificate() {
            value.hidden().report(format!(
                "reachable from other hosts, which can try to guess it: expected a token of at least \
                 {MIN_TOKEN_BYTES} characters, such as `openssl rand -hex 16` prints"
            ));
        }
    }

    /// Whether anybody who reaches it is believed: there is no token, and no certificate is asked for.
    fn is_open(&self) -> bool {
        self.token.is_none() && !self.needs_certificate()
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

/// How long what programs hold can be settled. A caller that fails knows it by then.
const SETTLE_WITHIN: Duration = Duration::from_secs(60);

/// The store remembers for as long what was settled.
const MAX_SETTLE_WITHIN: Duration = Duration::from_secs(3600);

/// Reads `decisions.settle_within`.
pub(super) fn read_settle_within(table: &Value<'_>) -> Duration {
    let value = table.key("settle_within");
    let Some(within) = value.period(MAX_SETTLE_WITHIN) else { return SETTLE_WITHIN };
    if within < Duration::from_secs(1) {
        value.report("expected at least 1s");
    }
    within
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
/// without a token: the admin API can ban and exempt, and the others trust their callers.
pub(super) fn check<'e>(
    root: &Value<'_>,
    gateway: Option<&'e GatewayConfig>,
    [decisions, resp, rls, admin]: [Option<&'e EndpointConfig>; 4],
) {
    for (section, endpoint) in
        [("decisions", decisions), ("resp", resp), ("rls", rls), ("admin", admin)]
    {
        if let Some(endpoint) = endpoint {
            endpoint.check_token(&root.named(section));
        }
    }
    let mut seen: Vec<(&ListenAddress, Location)> = Vec::new();
    let of = |section, endpoint: Option<&'e EndpointConfig>, variable| {
        let variable = endpoint.is_some_and(EndpointConfig::is_open).then_some(variable);
        (section, endpoint.map(|endpoint| &endpoint.listen), variable)
    };
    for (section, listen, variable) in [
        ("gateway", gateway.map(|gateway| &gateway.listen), None),
        of("decisions", decisions, sources::DECISIONS_TOKEN),
        of("resp", resp, sources::RESP_TOKEN),
        of("rls", rls, sources::RLS_TOKEN),
        of("admin", admin, sources::ADMIN_TOKEN),
    ] {
        let listen = listen.map_or(&[][..], Vec::as_slice);
        let whole = root.named(section).named("listen");
        let values = whole.elements();
        for (i, address) in listen.iter().enumerate() {
            let value = values.get(i).filter(|_| values.len() == listen.len()).unwrap_or(&whole);
            let report = |expected: String| value.report_with(expected, Some(&address.to_string()));
            if let Some((_, other)) = seen.iter().find(|(other, _)| address.collides_with(other)) {
                report(format!("address already used by {other}"));
            }
            if let Some(variable) = variable.filter(|_| !address.is_of_this_machine()) {
                report(format!(
                    "reachable from other hosts, but no token is set: set {variable} \
                     or {section}.token_file, or listen on 127.0.0.1"
                ));
            }
            seen.push((address, value.location.clone()));
        }
    }
}
