//! Policies, responses and client addresses: the part that a reload can change.

use std::collections::HashMap;
use std::num::NonZeroU32;

use slidegate::policy::{PathReading, PoliciesBuilder, PolicyError, PolicyErrors, UnknownKeys};
use slidegate::{Policies, Policy};
use slidegate_replay::RuleSet;
use slidegate_tower::{ClientAddress, Responder};

use crate::config::api_keys::{IssuedKey, IssuedKeys};
use crate::config::endpoints::RespConfig;
use crate::config::policy::{PolicyConfig, access_list, header_name, read_plan, responder};
use crate::config::reader::Value;
use crate::config::standing::StandingConfig;
use crate::config::summary::ConfigSummary;
use crate::config::throttle;

/// Policies, responses and client addresses.
#[derive(Debug)]
pub(crate) struct LimiterConfig {
    pub(crate) policies: Policies,
    pub(crate) responder: Responder,
    pub(crate) client_address: ClientAddress,
    /// Where the gateway tells callers where they stand.
    pub(crate) standing: Option<StandingConfig>,
    /// False if the operator has switched all policies off. Then `policies` has none.
    pub(crate) enforced: bool,
    /// A summary of policies and plans.
    pub(crate) summary: ConfigSummary,
}

impl From<LimiterConfig> for RuleSet {
    fn from(LimiterConfig { policies, client_address, .. }: LimiterConfig) -> Self {
        Self { policies, client_address }
    }
}

/// The keys of `[gateway]` that are about all endpoints.
pub(super) const GATEWAY_KEYS: [&str; 7] = [
    "trusted_proxies",
    "client_address",
    "user_header",
    "ignore_case",
    "encoded_slashes",
    "backslashes",
    "path_parameters",
];

/// What is written for the limiter, before its policies are checked together.
pub(super) struct LimiterSections<'t> {
    pub(super) policies: Vec<PolicyConfig<'t>>,
    pub(super) api_keys: Vec<IssuedKey<'t>>,
    pub(super) plans: Vec<(&'t str, Value<'t>)>,
    /// All but the policies.
    builder: PoliciesBuilder,
    /// The policies of an endpoint, which are built in and not in the file.
    reserved: Vec<Policy>,
    /// The same, and without a summary.
    pub(super) config: LimiterConfig,
}

impl<'t> LimiterSections<'t> {
    pub(super) fn read(root: &Value<'t>, resp: Option<&RespConfig>, enforced: bool) -> Self {
        let gateway = root.section("gateway");
        let api_keys = IssuedKey::read_all(root);
        let issued = IssuedKeys::new(&api_keys, root);
        let policies = root.key("policy").each(Value::table);
        let policies: Vec<_> =
            policies.into_iter().map(|table| PolicyConfig::read(table, &issued)).collect();
        let mut builder = Policies::builder()
            .exempt(access_list(&root.section("exempt"), &issued))
            .blocked(access_list(&root.section("blocked"), &issued))
            .path_reading(path_reading(&gateway))
            .api_keys(api_keys.iter().map(|issued| issued.key.clone()));
        let mut plans = root.key("plans").names();
        plans.retain(|(_, value)| value.table().is_some());
        for (name, table) in &plans {
            builder = builder.plan(read_plan(name, table));
        }
        let unknown_keys = [
            ("ignore", UnknownKeys::Ignore),
            ("own", UnknownKeys::Own),
            ("refuse", UnknownKeys::Refuse),
        ];
        let unknown_keys = root.key("unknown_keys").one_of(&unknown_keys);
        // With a keys file or a source there is a table of keys, even while it is empty.
        let has_table = root.key("keys_file").is_set() || root.key("key_source").is_set();
        if let Some(unknown) = unknown_keys.or(has_table.then_some(UnknownKeys::Ignore)) {
            builder = builder.unknown_keys(unknown);
        }
        if root.key("jwt").is_set() {
            builder = builder.reads_tokens();
        }
        if root.key("jwt").elements().iter().any(|issuer| issuer.key("plan").is_set()) {
            builder = builder.tokens_have_plans();
        }
        let per_address = root.key("identities_per_address").number(1..=u32::MAX);
        if let Some(per_address) = per_address.and_then(NonZeroU32::new) {
            builder = builder.identities_per_address(per_address);
        }
        if let Some(user_header) = header_name(&gateway.key("user_header")) {
            builder = builder.user_header(user_header);
        }
        let source = gateway.key("client_address").parsed().unwrap_or_default();
        let trusted = gateway.key("trusted_proxies").each(Value::parsed);
        let config = LimiterConfig {
            policies: Policies::default(),
            responder: responder(root, &policies),
            client_address: ClientAddress::new(source, trusted),
            standing: StandingConfig::read(root),
            enforced,
            summary: ConfigSummary::default(),
        };
        let reserved = resp.map(|resp| throttle::policies(resp.on_store_error));
        let reserved = reserved.into_iter().flatten().collect();
        Self { policies, api_keys, plans, builder, reserved, config }
    }

    /// Checks all policies together, whether they are enforced or not.
    pub(super) fn check(&self, root: &Value<'_>) -> Option<Policies> {
        for (i, policy) in self.policies.iter().enumerate() {
            // The library compares only with policies that are otherwise good.
            if self.policies[..i].iter().any(|other| other.name == policy.name) {
                policy.table.key("name").report("another policy has this name");
            }
        }
        let mut reserved = &self.reserved[..];
        let is_reserved = |policy: &&PolicyConfig<'_>| {
            !self.reserved.is_empty() && throttle::POLICIES.contains(&&*policy.name)
        };
        for policy in self.policies.iter().filter(is_reserved) {
            policy.table.key("name").report("[resp] has a policy of this name");
            reserved = &[];
        }
        let policies = self.policies.iter().map(|policy| &policy.policy);
        let policies = policies.chain(reserved).cloned();
        let built = policies.fold(self.builder.clone(), PoliciesBuilder::policy).build_silently();
        built.map_err(|errors| self.report(&errors, root)).ok()
    }

    /// The limiter's configuration; without any policy if none is enforced.
    pub(super) fn finish(self, root: &Value<'_>, policies: Policies) -> Option<LimiterConfig> {
        let summary = ConfigSummary::new(root, &policies, &self);
        let in_force = if self.config.enforced { policies } else { self.builder.build().ok()? };
        Some(LimiterConfig { policies: in_force, summary, ..self.config })
    }

    /// Reports errors of the library at the keys that they are about.
    fn report(&self, errors: &PolicyErrors, root: &Value<'_>) {
        let mut keys: HashMap<&str, Vec<&IssuedKey<'_>>> = HashMap::new();
        for key in &self.api_keys {
            keys.entry(key.key.identity().as_str()).or_default().push(key);
        }
        for error in errors.as_slice() {
            // A plan that is there is not found because it is wrong itself.
            if error.key == "plan" && self.plans.iter().any(|(name, _)| *name == error.value) {
                continue;
            }
            let text = Some(error.value.as_str()).filter(|text| !text.is_empty());
            if let Some(keys) = keys.get(error.place.as_str()) {
                // Of two that are the same, the later is the one that is wrong.
                let found = keys.iter().rev().find_map(|key| key.find(error));
                found.unwrap_or(keys[0].table.clone()).report_with(&error.problem, text);
                continue;
            }
            self.find(error, root).report_with(&error.problem, text);
        }
    }

    /// The value that an error of the library is about, or the place of it.
    fn find<'v>(&self, error: &PolicyError, root: &Value<'v>) -> Value<'v>
    where
        't: 'v,
    {
        let is_place = |kind: &str, name: &str| error.place == format!("{kind} {name:?}");
        let policy = self.policies.iter().rfind(|policy| is_place("policy", &policy.name));
        let plan = self.plans.iter().find(|(name, _)| is_place("plan", name));
        let value = match (policy, plan, error.key) {
            (Some(policy), _, "method" | "path" | "domain" | "descriptors" | "except") => {
                policy.table.named("match")
            }
            (Some(policy), _, key) => policy.table.named(key),
            (_, Some((_, plan)), "name") => return plan.clone(),
            (_, Some((_, plan)), key) => plan.named(key),
            (_, _, "user_header") => root.named("gateway").named("user_header"),
            (_, _, "path") => root.named(&error.place).named("paths"),
            (_, _, list) => root.named(&error.place).named(list),
        };
        value.find(&error.value).unwrap_or(value)
    }
}

/// In which ways paths are read: in all, but for those that are switched off.
fn path_reading(gateway: &Value<'_>) -> PathReading {
    let mut reading = PathReading::default();
    if gateway.key("ignore_case").boolean() == Some(false) {
        reading = reading.matching_case();
    }
    let is_off = |key, on| gateway.key(key).one_of(&[(on, false), ("keep", true)]);
    if is_off("encoded_slashes", "decode") == Some(true) {
        reading = reading.keeping_encoded_slashes();
    }
    if is_off("backslashes", "slash") == Some(true) {
        reading = reading.keeping_backslashes();
    }
    if is_off("path_parameters", "cut") == Some(true) {
        reading = reading.keeping_parameters();
    }
    reading
}
