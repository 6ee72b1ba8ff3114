//! Client addresses, trusted proxies, and what only they may say.

use slidegate::Source;
use slidegate_tower::AddressSource;

use super::Lint;
use crate::config::tree::Node;

const REMEDY: &str = "say in gateway.user_header which header of a trusted proxy names the user";

impl Lint<'_> {
    pub(super) fn lint_addresses(&mut self) {
        let proxies = self.root.all(&["gateway", "trusted_proxies"]);
        match proxies.is_empty() {
            true => self.lint_sources_without_proxies(),
            false => self.lint_proxies(proxies),
        }
        // Programs that ask can say themselves whose headers are to be believed. A gateway cannot.
        if self.has_gateway && proxies.is_empty() {
            self.lint_headers();
        }
        let has_users = self.has_decisions || self.policies.user_header().is_some();
        if self.has_gateway && !has_users {
            self.lint_users();
        }
    }

    fn has_proxy_protocol(&self) -> bool {
        self.root.get(&["gateway", "proxy_protocol"]).is_some_and(Node::is_true)
    }

    fn lint_sources_without_proxies(&mut self) {
        let source = self.limiter.client_address.source();
        if source != AddressSource::Peer {
            let text = format!(
                "{source} is never believed, because there are no trusted proxies: \
                 name those that set it in trusted_proxies"
            );
            self.warn(self.root.location(&["gateway", "client_address"]), text);
        }
        if self.has_proxy_protocol() {
            let text = "PROXY headers are never believed, because there are no trusted proxies";
            self.warn(self.root.location(&["gateway", "proxy_protocol"]), text);
        }
    }

    /// Trusted proxies without a source of addresses, or networks that contain everybody.
    fn lint_proxies(&mut self, proxies: &[Node]) {
        let location = self.root.location(&["gateway", "trusted_proxies"]);
        let source = self.limiter.client_address.source();
        if source == AddressSource::Peer && !self.has_proxy_protocol() {
            let text = "all clients behind a trusted proxy share the proxy's account: say in \
                        client_address which header tells their addresses, such as x-forwarded-for";
            self.warn(location.clone(), text);
        }
        if proxies.iter().any(|node| matches!(node.text(), Some("0.0.0.0/0" | "::/0"))) {
            self.warn(location, "everybody is trusted, so anybody can pass for any client");
        }
    }

    /// Headers that are read from trusted proxies only, and there are none.
    fn lint_headers(&mut self) {
        let mut found = Vec::new();
        if let Some(name) = self.policies.user_header() {
            let location = self.root.location(&["gateway", "user_header"]);
            found.push((location, format!("the header {name}")));
        }
        for (written, policy) in self.policies() {
            for source in &policy.identity {
                if let Source::Header(name) = source {
                    found
                        .push((written.node.location(&["identity"]), format!("the header {name}")));
                }
            }
            if let Some(name) = policy.plan_header() {
                found.push((written.node.location(&["plan"]), format!("the header {name}")));
            }
        }
        for list in self.lists() {
            let headers = list.get(&["headers"]).map(Node::entries).unwrap_or_default();
            found.extend(
                headers.iter().map(|(_, node)| (node.location.clone(), "this header".into())),
            );
        }
        for (location, what) in found {
            let text = format!("the gateway never believes {what}: there are no trusted proxies");
            self.warn(location, text);
        }
    }

    /// Users in policies and lists where the gateway has no source of user ids.
    fn lint_users(&mut self) {
        for (written, policy) in self.policies() {
            let users = policy.identity.iter().filter(|source| **source == Source::User).count();
            let text = match users {
                0 => continue,
                all if all == policy.identity.len() => format!(
                    "all requests are one anonymous: the gateway knows no users; {REMEDY}, or add \
                     a source such as api-key or ip"
                ),
                _ => format!("nobody is counted by user: the gateway knows no users; {REMEDY}"),
            };
            self.warn(written.node.location(&["identity"]), text);
        }
        for list in self.lists() {
            if !list.all(&["users"]).is_empty() {
                let text =
                    format!("nobody is listed by user: the gateway knows no users; {REMEDY}");
                self.warn(list.location(&["users"]), text);
            }
        }
    }
}
