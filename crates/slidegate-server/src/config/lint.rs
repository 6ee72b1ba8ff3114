//! Warnings: what is valid, but probably not meant.

use std::collections::BTreeMap;

use http::{Method, Uri};
use slidegate::limit::Quotas;
use slidegate::policy::CheckedPolicy;
use slidegate::{AccessList, Cost, Facts, Policies, Quota, Scope, Source};
use slidegate_customers::PostgresUrl;
use slidegate_proxy::ListenAddress;
use slidegate_tower::AddressSource;
use url::{Host, Url};

use crate::config::api_keys;
use crate::config::customers::CustomersConfig;
use crate::config::gateway::GatewayConfig;
use crate::config::limiter::LimiterSections;
use crate::config::policy::PolicyConfig;
use crate::config::reader::Value;

const REMEDY: &str = "say in gateway.user_header which header of a trusted proxy names the user";

/// A configuration without errors, to be warned of.
pub(super) struct Lint<'c> {
    pub(super) root: &'c Value<'c>,
    pub(super) limiter: &'c LimiterSections<'c>,
    /// All policies, whether they are enforced or not.
    pub(super) policies: &'c Policies,
    pub(super) gateway: Option<&'c GatewayConfig>,
    pub(super) has_decisions: bool,
    pub(super) has_rls: bool,
    /// Endpoints that decide about requests and never see the responses.
    pub(super) blind: &'c [&'static str],
    pub(super) has_redis: bool,
    pub(super) customers: &'c CustomersConfig,
}

impl<'c> Lint<'c> {
    pub(super) fn run(&self) {
        self.lint_addresses();
        self.lint_path_reading();
        self.lint_upstreams();
        self.lint_exemptions();
        self.lint_policies();
        self.lint_invented();
        self.lint_anonymous();
        self.lint_plans();
        self.lint_customers();
        self.lint_plaintext();
        self.lint_standing();
    }

    /// Each policy as it is written and as it was checked.
    fn policies(&self) -> impl Iterator<Item = (&'c PolicyConfig<'c>, &'c CheckedPolicy)> {
        self.limiter.policies.iter().zip(self.policies.iter())
    }

    /// `[exempt]`, `[blocked]` and the exemptions of policies.
    fn lists(&self) -> impl Iterator<Item = Value<'c>> {
        let own = self.limiter.policies.iter().map(|policy| policy.table.named("exempt"));
        [self.root.named("exempt"), self.root.named("blocked")].into_iter().chain(own)
    }

    fn lint_addresses(&self) {
        let gateway = self.root.named("gateway");
        let (proxies, protocol) =
            (gateway.named("trusted_proxies"), gateway.named("proxy_protocol"));
        let source = self.limiter.config.client_address.source();
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
        if self.gateway.is_some() && networks.is_empty() {
            self.lint_headers();
        }
        if self.has_no_users() {
            self.lint_users();
        }
    }

    /// Readings of paths that are switched off.
    fn lint_path_reading(&self) {
        let gateway = self.root.named("gateway");
        let is_kept = |key| gateway.named(key).text() == Some("keep");
        for (key, is_off, spelling) in [
            ("ignore_case", gateway.named("ignore_case").is_false(), "/LOGIN"),
            ("encoded_slashes", is_kept("encoded_slashes"), "/x%2F..%2Flogin"),
            ("backslashes", is_kept("backslashes"), "/x\\..\\login"),
            ("path_parameters", is_kept("path_parameters"), "/login;x=1"),
        ] {
            let text = format!(
                "{spelling} evades a policy for /login, unless it is another path to your service"
            );
            gateway.named(key).warn_if(is_off, text);
        }
    }

    /// Whether requests come only through a gateway that has no source of user ids.
    fn has_no_users(&self) -> bool {
        let has_tokens = self.customers.issuers.iter().any(|issuer| issuer.user.is_some());
        let is_named = self.has_decisions || self.policies.user_header().is_some() || has_tokens;
        self.gateway.is_some() && !is_named
    }

    /// Customers that nothing counts, and policies that count by customer where nothing names one.
    fn lint_customers(&self) {
        let CustomersConfig { key_source, issuers } = self.customers;
        let reads = |sources: &[Source]| {
            self.policies
                .iter()
                .any(|policy| policy.identity.iter().any(|one| sources.contains(one)))
        };
        let lists = |names: &[&str]| {
            self.lists().any(|list| names.iter().any(|name| list.named(name).is_set()))
        };
        let has_plans = self.policies.iter().any(|policy| policy.default_plan().is_some());
        let text = "no policy counts by api-key or customer, so its keys change nothing";
        let counts_keys =
            reads(&[Source::ApiKey, Source::Customer]) || has_plans || lists(&["customers"]);
        self.root.named("key_source").warn_if(key_source.is_some() && !counts_keys, text);
        let text = "no policy counts by user or customer, so its tokens change nothing";
        let jwt = self.root.named("jwt");
        let has_plan_of_token = has_plans && issuers.iter().any(|issuer| issuer.plan.is_some());
        let counts_tokens = reads(&[Source::User, Source::Customer])
            || has_plan_of_token
            || lists(&["users", "customers"]);
        jwt.warn_if(!issuers.is_empty() && !counts_tokens, text);
        let is_named = self.has_decisions
            || key_source.is_some()
            || issuers.iter().any(|issuer| issuer.customer.is_some())
            || self.limiter.api_keys.iter().any(|key| key.customer().is_some())
            || api_keys::are_skipped(self.root);
        for (written, policy) in self.policies().filter(|_| !is_named) {
            let text = "customer never applies: nothing says whose key or token a request has; set \
                        customer in [[api_key]], [key_source] or [[jwt]]";
            let is_read = policy.identity.contains(&Source::Customer);
            written.table.named("identity").warn_if(is_read, text);
        }
        let mut plans: BTreeMap<&str, &str> = BTreeMap::new();
        for key in &self.limiter.api_keys {
            let (Some(customer), Some(plan)) = (key.customer(), key.table.named("plan").text())
            else {
                continue;
            };
            let first = *plans.entry(customer).or_insert(plan);
            let text = format!(
                "another key of customer {customer:?} has the plan {first}: both spend from one \
                 account, each by its own plan"
            );
            key.table.named("plan").warn_if(first != plan, text);
        }
    }

    /// Sources in plaintext, for which others on the network can answer.
    fn lint_plaintext(&self) {
        let source = self.root.named("key_source");
        let url = source.named("url");
        let text = url.text().unwrap_or_default();
        let effect = match source.named("token_file").is_set() {
            true => "read the token and answer in its place",
            false => "answer in its place",
        };
        let remedy =
            format!("it is plaintext, so others on the network can {effect}: use https://");
        url.warn_if(is_plaintext(text), remedy);
        let allows_plaintext =
            text.parse::<PostgresUrl>().is_ok_and(|database| database.allows_plaintext());
        let remedy = "it does not require TLS, so others on the network can read the keys and \
                      answer in its place: add ?sslmode=require";
        url.warn_if(allows_plaintext, remedy);
        for issuer in self.root.named("jwt").elements() {
            let jwks = issuer.named("jwks");
            let remedy = "it is plaintext, so others on the network can name keys of their own and \
                          sign any token: use https:// or a file";
            jwks.warn_if(jwks.text().is_some_and(is_plaintext), remedy);
        }
    }

    /// Upstreams that are the gateway itself, which then forwards to itself without end.
    fn lint_upstreams(&self) {
        let Some(gateway) = self.gateway else { return };
        let table = self.root.named("gateway");
        let routes = table.named("route").elements();
        let tables = std::iter::once(table).chain(routes);
        for value in tables.flat_map(|table| table.named("upstream").elements()) {
            let address = value.text().and_then(upstream_address);
            let is_own = |address| gateway.listen.iter().any(|own| own.is_reached_by(address));
            let text = "it is this gateway: gateway.listen has the same address";
            value.warn_if(address.as_ref().is_some_and(is_own), text);
        }
    }

    /// Lists of exemptions that every request is on.
    fn lint_exemptions(&self) {
        let own = self.limiter.policies.iter().map(|policy| (&policy.table, "exempt from it"));
        for (table, exempt) in std::iter::once((self.root, "exempt from all policies")).chain(own) {
            let list = table.named("exempt");
            for network in list.named("networks").elements() {
                let is_all = matches!(network.text(), Some("0.0.0.0/0" | "::/0"));
                network.warn_if(is_all, format!("every address is {exempt}"));
            }
            let paths = list.named("paths");
            let is_all = covers(&paths.each(Value::text), "/{any}/{any}/{any}");
            paths.warn_if(is_all, format!("every path is {exempt}"));
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
            let effect = match policy.skip_anonymous {
                true => "it never takes part",
                false => "all requests are one anonymous",
            };
            let text = format!(
                "{effect}: the gateway knows no users; {REMEDY}, or add a source such as api-key or ip"
            );
            identity.warn_if(is_all, text);
            let text = format!("user never applies: the gateway knows no users; {REMEDY}");
            identity.warn_if(users > 0 && !is_all, text);
        }
        for users in self.lists().map(|list| list.named("users")) {
            let text = format!("the list never applies: the gateway knows no users; {REMEDY}");
            users.warn_if(!users.elements().is_empty(), text);
        }
    }

    fn lint_policies(&self) {
        for (i, (written, policy)) in self.policies().enumerate() {
            let table = &written.table;
            lint_quotas(table, policy.quotas());
            lint_candidate(table, policy);
            lint_cost(table, policy);
            lint_hold(table, policy);
            self.lint_responses(table, policy);
            self.lint_paths(table);
            lint_sharing(table, policy);
            lint_methods(table, policy);
            self.lint_key_plans(table, policy);
            let mut others = self.policies().take(i);
            if let Some((twin, _)) = others.find(|(_, other)| is_same(policy, other)) {
                table.warn_if(true, format!("it says what policy {} says already", twin.name));
            }
            let text = "it never takes part: there is no [rls] that descriptors could come to";
            table.warn_if(policy.descriptors.is_some() && !self.has_rls, text);
            let ban = table.named("ban");
            let text = "it never bans: shadow policies refuse no requests";
            ban.warn_if(policy.shadow && ban.is_set(), text);
            let consistency = table.named("consistency");
            let text = "it holds units longer and spares no call: the store is in memory";
            consistency.warn_if(policy.lease.is_some() && !self.has_redis, text);
            let template = self.root.named("store").named("key_templates").named(&policy.name);
            let text = "it has no keys in Redis: the policy is local";
            template.warn_if(policy.scope == Scope::Local && template.is_set(), text);
        }
    }

    /// Keys about responses, where no response is seen.
    fn lint_responses(&self, table: &Value<'_>, policy: &CheckedPolicy) {
        let Some(rule) = &policy.response else { return };
        let mut keys = vec!["count", "refund"];
        keys.retain(|key| table.named(key).is_set());
        keys.extend(rule.cost.as_ref().map(|_| "cost"));
        let (Some(first), false) = (keys.first(), self.blind.is_empty()) else { return };
        let have = if keys.len() == 1 { "has" } else { "have" };
        let calls = match self.blind {
            ["[rls]"] => "",
            _ => ", unless the caller settles it",
        };
        let text = format!(
            "{} {have} no effect at {}, which never sees a response: what is held there stays \
             spent{calls}",
            keys.join(" and "),
            self.blind.join(" and ")
        );
        table.named(first).warn_if(true, text);
    }

    /// Plans of API keys in a policy that does not count by key.
    fn lint_key_plans(&self, table: &Value<'_>, policy: &CheckedPolicy) {
        let mut sources = policy.identity.iter();
        let is_by_address =
            sources.all(|source| matches!(source, Source::Ip(_) | Source::Everyone));
        let text = "API keys have plans, and this policy does not count by key: all keys of an address \
                    share an account, each with its own plan; put api-key first";
        let has_keys = !self.limiter.api_keys.is_empty() || self.customers.key_source.is_some();
        let has_keys = has_keys && policy.default_plan().is_some();
        table.named("identity").warn_if(has_keys && is_by_address, text);
    }

    /// Policies that clients evade by inventing credentials.
    fn lint_invented(&self) {
        for (evaded, source) in self.policies.evaded() {
            let keys = match source {
                Source::Authorization => "",
                _ => ", or list the keys in [[api_key]] or keys_file",
            };
            let text = format!(
                "clients evade it by inventing values of {source}, because each value has its own \
                 account: add a policy with identity = \"ip\" for the same requests{keys}"
            );
            let written = self.policies().find(|(_, policy)| policy.name == evaded.name);
            if let Some((written, _)) = written {
                written.table.named("identity").warn_if(true, text);
            }
        }
    }

    /// Policies in which all requests without an identity share one account.
    fn lint_anonymous(&self) {
        let sharing: Vec<_> =
            self.policies.sharing_anonymous().map(|policy| &policy.name).collect();
        for (written, policy) in self.policies().filter(|(_, one)| sharing.contains(&&one.name)) {
            let is_only_users = policy.identity.iter().all(|source| *source == Source::User);
            let text = format!(
                "all requests without {} share one account, and a few of them can deny the rest: \
                 add \"ip\", or say anonymous = \"skip\" if the policy is not for them",
                policy.identity.iter().map(Source::to_string).collect::<Vec<_>>().join(" or ")
            );
            // Where no request has a user, there is a warning already.
            let is_told = is_only_users && self.has_no_users();
            written.table.named("identity").warn_if(!is_told, text);
        }
    }

    /// Paths that are all exempt or blocked.
    fn lint_paths(&self, table: &Value<'_>) {
        let matched = table.named("match");
        let mut paths = matched.named("path").elements();
        paths.extend(matched.named("paths").elements());
        for (list, what) in [
            (self.root.named("exempt"), "exempt"),
            (self.root.named("blocked"), "blocked"),
            (table.named("exempt"), "exempt from it"),
        ] {
            let list = list.named("paths").each(Value::text);
            let is_covered = |path: &Value<'_>| path.text().is_some_and(|path| covers(&list, path));
            let text = format!("it never takes part: its paths are {what}");
            table.warn_if(!paths.is_empty() && paths.iter().all(is_covered), text);
        }
    }

    /// Policies, routes and exemptions that name the standing path, which the gateway answers itself.
    fn lint_standing(&self) {
        let Some(standing) = &self.limiter.config.standing else { return };
        let path = standing.path.as_str();
        let is_it = |value: &Value<'_>| value.text() == Some(path);
        for value in self.root.named("exempt").named("paths").elements() {
            let text = "it needs no exemption: [standing] answers it, and no policy counts it";
            value.warn_if(is_it(&value), text);
        }
        for route in self.root.named("gateway").named("route").elements() {
            let prefix = route.named("prefix");
            let text = "[standing] answers this path itself: only what is below it goes upstream";
            prefix.warn_if(is_it(&prefix), text);
        }
        for (written, policy) in self.policies() {
            let text = "it never takes part: [standing] answers its path, within quotas of its own";
            written.table.warn_if(policy.paths() == [path], text);
        }
    }

    /// Plans that no request can have, and their quotas.
    fn lint_plans(&self) {
        let defaults: Vec<_> =
            self.policies.iter().filter_map(CheckedPolicy::default_plan).collect();
        let is_named = api_keys::are_skipped(self.root)
            || self.has_decisions
            || self.customers.key_source.is_some()
            || self.customers.issuers.iter().any(|issuer| issuer.plan.is_some())
            || self.policies.iter().any(|policy| policy.plan_header().is_some());
        for plan in self.policies.plans() {
            let name = &plan.name;
            let table = self.root.named("plans").named(name);
            lint_quotas(&table, plan.quotas.as_slice());
            let is_default = defaults.iter().any(|plan| plan.name == *name);
            let has_key = || {
                self.limiter.api_keys.iter().any(|key| key.table.named("plan").text() == Some(name))
            };
            let text = "no policy uses plans: set plan = \"…\" in one";
            table.warn_if(defaults.is_empty(), text);
            let text = "no request can have this plan: no API key has it, no header names it, and \
                        no policy has it as its default";
            let is_unused = !(defaults.is_empty() || is_default || is_named || has_key());
            table.warn_if(is_unused, text);
        }
    }
}

/// Quotas that another one of the same account keeps from ever being reached.
fn lint_quotas(table: &Value<'_>, quotas: &[Quota]) {
    let warn = |quota: &Quota, text: String| {
        let all = table.named("quotas");
        let selects =
            |value: &Value<'_>| value.text().and_then(|text| text.parse().ok()) == Some(*quota);
        all.elements().into_iter().find(selects).unwrap_or(all).warn_if(true, text);
    };
    for short in quotas {
        for long in quotas.iter().filter(|long| long.window() > short.window()) {
            let windows = long.window().as_millis().div_ceil(short.window().as_millis());
            let most = windows * u128::from(short.units().get());
            let units = u128::from(long.units().get());
            // One unit at a time spaces requests evenly, and the long quota is the rate.
            let is_spacing = short.units().get() == 1 && units == most;
            if long.units() <= short.units() {
                warn(short, format!("{short} never matters: {long} is tighter"));
            } else if units >= most && !is_spacing {
                let text =
                    format!("{long} is never reached: {short} allows at most {most} in that time");
                warn(long, text);
            }
        }
    }
}

/// A candidate that cannot deny what its policy allows.
fn lint_candidate(table: &Value<'_>, policy: &CheckedPolicy) {
    let candidate = policy.candidate.as_ref().map_or(&[][..], Quotas::as_slice);
    for quota in candidate {
        let mut own = policy.quotas().iter().filter(|own| own.window() == quota.window());
        if let Some(own) = own.find(|own| own.units() <= quota.units()) {
            let text = format!(
                "{quota} would deny no request that {own} allows; to evaluate a looser quota, use \
                 `slidegate replay`"
            );
            table.named("candidate").warn_if(true, text);
        }
    }
}

/// A cost that only one request of a whole window can pay.
fn lint_cost(table: &Value<'_>, policy: &CheckedPolicy) {
    let Cost::Units(cost) = policy.cost else { return };
    let Some(fewest) = policy.quotas().iter().min_by_key(|quota| quota.units()) else { return };
    let (units, cost) = (fewest.units().get(), cost.get());
    let rest = units.saturating_sub(cost);
    let noun = if rest == 1 { "unit" } else { "units" };
    let text = format!("one request fits {fewest}, and {rest} {noun} of it can never be spent");
    table.named("cost").warn_if(cost > 1 && cost > units / 2 && cost < units, text);
}

/// The usual hold of one unit, where responses cost many.
fn lint_hold(table: &Value<'_>, policy: &CheckedPolicy) {
    let is_from_response = policy.response.as_ref().is_some_and(|rule| rule.cost.is_some());
    let hold = table.named("cost").named("hold");
    let is_large = |quota: &Quota| quota.units().get() > MAX_UNITS_HELD_SINGLY;
    let has_small = policy.quotas().iter().any(|quota| !is_large(quota));
    let text = "one unit is held until the response, so parallel requests can overrun the quotas by \
                nearly all that they cost: set hold to what a request usually costs";
    let is_probable = !hold.is_set() && !policy.quotas().is_empty() && !has_small;
    table.named("cost").warn_if(is_from_response && is_probable, text);
}

/// Units of a quota up to which a response that costs one is usual.
const MAX_UNITS_HELD_SINGLY: u32 = 1000;

/// A policy for GET that clients evade with HEAD, which servers answer with the same work.
fn lint_methods(table: &Value<'_>, policy: &CheckedPolicy) {
    let has = |method: Method| policy.methods.contains(&method);
    let matched = table.named("match");
    let methods = [matched.named("method"), matched.named("methods")];
    let get = methods.iter().find_map(|value| value.find("GET")).unwrap_or(matched);
    let text = "HEAD requests are not counted: list GET and HEAD";
    get.warn_if(has(Method::GET) && !has(Method::HEAD), text);
}

/// Bans and counted denials of an account that clients of the policy can share.
fn lint_sharing(table: &Value<'_>, policy: &CheckedPolicy) {
    let is_decisive = |source: &&Source| {
        matches!(source, Source::Everyone | Source::Ip(_) | Source::Descriptor(_))
    };
    let shared = match policy.identity.iter().find(is_decisive) {
        Some(Source::Everyone) => "the account everyone",
        Some(_) => return,
        None if policy.skip_anonymous => return,
        None => "the account anonymous, if they have none of the identities",
    };
    let ban = table.named("ban");
    let text = format!("one client can have all others banned: they share {shared}");
    ban.warn_if(ban.is_set(), text);
    let text = format!("one client can keep all others out: they share {shared}");
    table.named("count_denied").warn_if(policy.count_denied, text);
}

/// Whether a URL is one of HTTP without TLS at another machine.
fn is_plaintext(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        None => false,
    };
    url.scheme() == "http" && !is_local
}

/// The address of an upstream that is not named by a host name other than localhost.
fn upstream_address(url: &str) -> Option<ListenAddress> {
    let uri: Uri = url.parse().ok()?;
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    format!("{}:{port}", uri.host()?).parse().ok()
}

/// Whether the list covers every path of a pattern, judged by an unlikely sample path.
fn covers(list: &[&str], pattern: &str) -> bool {
    let listed = list.iter().copied().fold(AccessList::new(), AccessList::path);
    let Ok(policies) = Policies::builder().exempt(listed).build() else { return false };
    let sample = |segment: &str| match (segment.find('{'), segment.contains('}')) {
        (Some(start), true) => format!("{}~any~", &segment[..start]),
        _ => segment.to_owned(),
    };
    let path = pattern.split('/').map(sample).collect::<Vec<_>>().join("/");
    policies.explain(&Facts::new(&Method::GET, &path)).exempt.is_some()
}

/// Whether two policies limit the same requests in the same way.
fn is_same(one: &CheckedPolicy, other: &CheckedPolicy) -> bool {
    fn sorted<T: ToString>(items: &[T]) -> Vec<String> {
        let mut items: Vec<String> = items.iter().map(T::to_string).collect();
        items.sort_unstable();
        items
    }
    let plan = |policy: &CheckedPolicy| policy.default_plan().map(|plan| plan.name.clone());
    sorted(&one.methods) == sorted(&other.methods)
        && sorted(one.paths()) == sorted(other.paths())
        && one.descriptors == other.descriptors
        && one.quotas() == other.quotas()
        && plan(one) == plan(other)
        && one.plan_header() == other.plan_header()
        && one.identity == other.identity
        && one.skip_anonymous == other.skip_anonymous
        && one.scope == other.scope
        && one.shadow == other.shadow
}
