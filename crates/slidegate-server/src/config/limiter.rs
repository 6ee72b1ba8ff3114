//! Policies, responses and client addresses: the part that a reload can change.

use std::collections::HashMap;

use slidegate::Policies;
use slidegate::policy::{PoliciesBuilder, PolicyError, PolicyErrors, UnknownKeys};
use slidegate_tower::{ClientAddress, PathReading, Responder};

use crate::config::access_list::AccessListConfig;
use crate::config::api_keys::{ApiKeys, IssuedKey};
use crate::config::error::{ConfigError, Location};
use crate::config::policy::{PolicyConfig, header_name, plans};
use crate::config::reader::{Reader, Table, Value};
use crate::config::responses::responder;
use crate::config::summary::ConfigSummary;
use crate::config::tree::Node;

/// Policies, responses and client addresses.
#[derive(Debug)]
pub(crate) struct LimiterConfig {
    pub(crate) policies: Policies,
    pub(crate) answers: Responder,
    pub(crate) client_address: ClientAddress,
    /// How paths are read, beside how they were sent.
    pub(crate) paths: PathReading,
    /// False if the operator has switched all policies off. Then `policies` has none.
    pub(crate) enforced: bool,
    /// A summary of policies and plans.
    pub(crate) outline: ConfigSummary,
}

/// The keys of `[gateway]` that are about all endpoints.
pub(super) const GATEWAY_KEYS: [&str; 6] = [
    "trusted_proxies",
    "client_address",
    "user_header",
    "encoded_slashes",
    "path_parameters",
    "ignore_case",
];

/// What is read for the limiter, before its policies are checked together.
pub(super) struct LimiterSections<'t> {
    pub(super) policies: Vec<PolicyConfig<'t>>,
    pub(super) api_keys: ApiKeys,
    exempt: AccessListConfig,
    blocked: AccessListConfig,
    plans: Vec<&'t str>,
    builder: PoliciesBuilder,
    answers: Responder,
    pub(super) client_address: ClientAddress,
    paths: PathReading,
}

impl<'t> LimiterSections<'t> {
    pub(super) fn read(root: &Table<'t>, gateway: &Table<'t>) -> Self {
        let policies: Vec<_> = root.list("policy", |value| PolicyConfig::read(&value.table()?));
        let api_keys = ApiKeys::read(root);
        let exempt = AccessListConfig::read(&root.table("exempt"));
        let blocked = AccessListConfig::read(&root.table("blocked"));
        let plans = plans(root);
        let unknown_keys = [("ignore", UnknownKeys::Ignore), ("own", UnknownKeys::Own)];
        let unknown_keys = root.read("unknown_keys", |value| value.one_of(&unknown_keys));
        // With a keys file there is a table of keys, even while the file is empty.
        let unknown_keys = unknown_keys.or(api_keys.file.as_ref().map(|_| UnknownKeys::Ignore));
        let mut builder = Policies::builder()
            .exempt(exempt.list.clone())
            .blocked(blocked.list.clone())
            .api_keys(api_keys.keys.iter().map(|issued| issued.key.clone()));
        let names = plans.iter().map(|(name, _)| *name).collect();
        builder = plans.into_iter().map(|(_, plan)| plan).fold(builder, PoliciesBuilder::plan);
        builder = unknown_keys.into_iter().fold(builder, PoliciesBuilder::unknown_keys);
        let user_header = gateway.read("user_header", header_name);
        builder = user_header.into_iter().fold(builder, PoliciesBuilder::user_header);
        let source = gateway.read("client_address", Value::parsed).unwrap_or_default();
        let trusted = gateway.list("trusted_proxies", Value::parsed);
        Self {
            answers: responder(root, &policies),
            client_address: ClientAddress::new(source, trusted),
            paths: paths(gateway),
            plans: names,
            policies,
            api_keys,
            exempt,
            blocked,
            builder,
        }
    }

    /// Checks all policies together, whether they are enforced or not.
    pub(super) fn check(&self, root: &Node, reader: &Reader) -> Option<Policies> {
        for (i, PolicyConfig { name, node, .. }) in self.policies.iter().enumerate() {
            // The library compares only with policies that are otherwise good.
            if self.policies[..i].iter().any(|other| other.name == *name) {
                let error =
                    ConfigError::new(node.location(&["name"]), "another policy has this name");
                reader.report(error.with_text(Some(name)));
            }
        }
        let policies = self.policies.iter().map(|policy| policy.policy.clone());
        let built = policies.fold(self.builder.clone(), PoliciesBuilder::policy).build();
        built.map_err(|errors| self.report(&errors, root, reader)).ok()
    }

    /// The limiter's configuration; without any policy if none is enforced.
    pub(super) fn finish(self, policies: Policies, enforced: bool) -> Option<LimiterConfig> {
        let mut outline = ConfigSummary::new(&policies, &self.policies, &self.plans);
        (outline.exempt, outline.blocked) = (self.exempt.shown, self.blocked.shown);
        Some(LimiterConfig {
            policies: if enforced { policies } else { self.builder.build().ok()? },
            answers: self.answers,
            client_address: self.client_address,
            paths: self.paths,
            enforced,
            outline,
        })
    }

    /// Reports errors of the library at the keys that they are about.
    fn report(&self, errors: &PolicyErrors, root: &Node, reader: &Reader) {
        let mut keys: HashMap<&str, Vec<&IssuedKey>> = HashMap::new();
        for key in &self.api_keys.keys {
            keys.entry(key.key.identity().as_str()).or_default().push(key);
        }
        for error in errors.as_slice() {
            // A plan that is there is not found because it is wrong itself.
            if error.key == "plan" && self.plans.contains(&error.value.as_str()) {
                continue;
            }
            let of_key = keys.get(error.place.as_str()).map(|keys| {
                // Of two that are the same, the later is the one that is wrong.
                let found = keys.iter().rev().find_map(|key| key.location_of(error));
                found.unwrap_or_else(|| keys[0].location.clone())
            });
            let location = of_key.unwrap_or_else(|| self.location(error, root));
            let value = Some(&*error.value).filter(|value| !value.is_empty());
            reader.report(ConfigError::new(location, &*error.problem).with_text(value));
        }
    }

    fn location(&self, error: &PolicyError, root: &Node) -> Location {
        let listed = |node: &Node, path: &[&str]| {
            let is_wrong = |element: &&Node| element.text() == Some(&*error.value);
            node.all(path).iter().rfind(is_wrong).map(|element| element.location.clone())
        };
        let is_place = |kind: &str, name: &str| error.place == format!("{kind} {name:?}");
        if let Some(policy) = self.policies.iter().rfind(|p| is_place("policy", &p.name)) {
            let found = match error.key {
                "method" | "path" => {
                    let plural = format!("{}s", error.key);
                    listed(policy.node, &["match", error.key])
                        .or_else(|| listed(policy.node, &["match", &plural]))
                }
                "exempt" => listed(policy.node, &["exempt", "paths"]),
                "plan" => policy.node.get(&["plan", "default"]).map(|node| node.location.clone()),
                _ => None,
            };
            return found.unwrap_or_else(|| policy.node.location(&[error.key]));
        }
        if let Some(name) = self.plans.iter().find(|name| is_place("plan", name)) {
            let path = if error.key == "name" {
                &["plans", name][..]
            } else {
                &["plans", name, error.key]
            };
            return root.location(path);
        }
        match error.key {
            "user_header" => root.location(&["gateway", "user_header"]),
            _ => listed(root, &[&error.place, "paths"])
                .unwrap_or_else(|| root.location(&[&error.place])),
        }
    }
}

fn paths(gateway: &Table<'_>) -> PathReading {
    let mut paths = PathReading::normal();
    if gateway.boolean("ignore_case") {
        paths = paths.ignoring_case();
    }
    let keeps = [("cut", false), ("keep", true)];
    if gateway.read("path_parameters", |value| value.one_of(&keeps)) == Some(true) {
        paths = paths.keeping_parameters();
    }
    let decodes = [("keep", false), ("decode", true)];
    if gateway.read("encoded_slashes", |value| value.one_of(&decodes)) == Some(true) {
        paths = paths.decoding_slashes();
    }
    paths
}

#[cfg(test)]
impl LimiterConfig {
    /// Rules that are otherwise as by default.
    pub(crate) fn new(
        policies: Policies,
        answers: Responder,
        client_address: ClientAddress,
    ) -> Self {
        let (paths, outline) = (PathReading::normal(), ConfigSummary::default());
        Self { policies, answers, client_address, paths, enforced: true, outline }
    }
}
