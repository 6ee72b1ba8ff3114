//! Client addresses, trusted proxies, and what only they may say.

use slidegate::Source;
use slidegate_tower::AddressSource;

use super::Lint;
use crate::config::reader::Value;

const REMEDY: &str = "say in gateway.user_header which header of a trusted proxy names the user";

impl Lint<'_> {
    pub(super) fn lint_addresses(&self) {
        let gateway = self.root.named("gateway");
        let (proxies, protocol) =
            (gateway.named("trusted_proxies"), gateway.named("proxy_protocol"));
        let source = self.limiter.client_address.source();
        let is_peer = source == AddressSource::Peer;
        let networks = proxies.each(Value::text);
        if networks.is_empty() {
            let text = format!(
                "{source} is never believed, because there are no trusted proxies: name those that \
                 set it in trusted_proxies"
            );
            gateway.named("client_address").warn_if(!is_peer, text);
            let text = "PROXY headers are never believed, because there are no trusted proxies";
            protocol.warn_if(protocol.is_true(), text);
        } else {
            let text = "all clients behind a trusted proxy share the proxy's account: say in \
                        client_address which header tells their addresses, such as x-forwarded-for";
            proxies.warn_if(is_peer && !protocol.is_true(), text);
        }
        let is_everybody = networks.iter().any(|text| matches!(*text, "0.0.0.0/0" | "::/0"));
        proxies.warn_if(is_everybody, "everybody is trusted, so anybody can pass for any client");
        // Programs that ask can say themselves whose headers are to be believed. A gateway cannot.
        if self.has_gateway && networks.is_empty() {
            self.lint_headers();
        }
        if self.has_gateway && !self.has_decisions && self.policies.user_header().is_none() {
            self.lint_users();
        }
    }

    /// Headers that are read from trusted proxies only, and there are none.
    fn lint_headers(&self) {
        let warn = |value: &Value<'_>, what: &str| {
            let text = format!("the gateway never believes {what}: there are no trusted proxies");
            value.warn_if(true, text);
        };
        if let Some(name) = self.policies.user_header() {
            let value = self.root.named("gateway").named("user_header");
            warn(&value, &format!("the header {name}"));
        }
        for (written, policy) in self.policies() {
            for source in &policy.identity {
                if let Source::Header(name) = source {
                    warn(&written.table.named("identity"), &format!("the header {name}"));
                }
            }
            if let Some(name) = policy.plan_header() {
                warn(&written.table.named("plan"), &format!("the header {name}"));
            }
        }
        for (_, value) in self.lists().flat_map(|list| list.named("headers").names()) {
            warn(&value, "this header");
        }
    }

    /// Users in policies and lists where the gateway has no source of user ids.
    fn lint_users(&self) {
        for (written, policy) in self.policies() {
            let identity = written.table.named("identity");
            let users = policy.identity.iter().filter(|source| **source == Source::User).count();
            let is_all = users == policy.identity.len();
            let text = format!(
                "all requests are one anonymous: the gateway knows no users; {REMEDY}, or add a \
                 source such as api-key or ip"
            );
            identity.warn_if(is_all, text);
            let text = format!("nobody is counted by user: the gateway knows no users; {REMEDY}");
            identity.warn_if(users > 0 && !is_all, text);
        }
        for users in self.lists().map(|list| list.named("users")) {
            let text = format!("nobody is listed by user: the gateway knows no users; {REMEDY}");
            users.warn_if(!users.elements().is_empty(), text);
        }
    }
}
