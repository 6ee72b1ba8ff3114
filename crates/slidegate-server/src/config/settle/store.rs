//! Where accounts are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use slidegate::Policies;
use slidegate_redis::{BuildError, KeyCollision, RedisTls};

use crate::config::error::ConfigError;
use crate::config::location::{Location, Sourced};
use crate::config::secret::Secret;
use crate::config::store::{RedisConfig, StoreConfig};
use crate::config::written::{StoreKind, Written, WrittenStore};

/// What the Redis store has itself: many times what a call takes.
const DEADLINE: Duration = Duration::from_millis(50);

pub(super) fn store(written: &Written, problems: &mut Vec<ConfigError>) -> Option<StoreConfig> {
    let store = &written.store;
    let kind = store.kind.as_ref().map(|kind| kind.value);
    match (kind, &store.url) {
        (Some(StoreKind::Redis) | None, Some(url)) => redis(written, url, problems),
        (Some(StoreKind::Redis), None) => {
            let location = store.kind.as_ref().map(|kind| kind.location.clone());
            let mut location = location.unwrap_or(Location::default_of("store.url"));
            location.key = "store.url".to_owned();
            let expected = "missing: expected where Redis is, such as redis://127.0.0.1:6379";
            problems.push(ConfigError::new(location, expected));
            None
        }
        (Some(StoreKind::Memory) | None, _) => {
            check_memory(store, problems);
            let snapshot = store.snapshot.as_ref().map(|sourced| sourced.value.clone());
            Some(StoreConfig::Memory { capacity: store.capacity, snapshot })
        }
    }
}

/// Reports what means nothing to a store in memory.
fn check_memory(store: &WrittenStore, problems: &mut Vec<ConfigError>) {
    let locations = [
        store.url.as_ref().map(|sourced| &sourced.location),
        store.layout.as_ref().map(|sourced| &sourced.location),
        store.score_unit.as_ref().map(|sourced| &sourced.location),
        store.deadline.as_ref().map(|sourced| &sourced.location),
        store.key_template.as_ref().map(|sourced| &sourced.location),
        store.key_templates.first().map(|(policy, _)| &policy.location),
        store.share.as_ref().map(|sourced| &sourced.location),
        store.ca.as_ref().map(|sourced| &sourced.location),
        store.certificate.as_ref().map(|sourced| &sourced.location),
        store.key.as_ref().map(|sourced| &sourced.location),
    ];
    for location in locations.into_iter().flatten() {
        let expected = "only for kind = \"redis\": the store is in memory";
        problems.push(ConfigError::new(location.clone(), expected));
    }
}

fn redis(
    written: &Written,
    url: &Sourced<Secret>,
    problems: &mut Vec<ConfigError>,
) -> Option<StoreConfig> {
    let store = &written.store;
    if let Some(snapshot) = &store.snapshot {
        let expected = "only for kind = \"memory\": Redis keeps accounts by itself";
        problems.push(ConfigError::new(snapshot.location.clone(), expected));
    }
    check_certificate(store, problems);
    check_template_policies(written, problems);
    let config = RedisConfig {
        url: url.reveal().to_owned(),
        layout: store.layout.as_ref().map(|sourced| sourced.value).unwrap_or_default(),
        score_unit: store.score_unit.as_ref().map(|sourced| sourced.value),
        deadline: store.deadline.as_ref().map_or(DEADLINE, |sourced| sourced.value),
        key_template: store.key_template.as_ref().map(|sourced| sourced.value.clone()),
        key_templates: templates(store),
        share: store.share.as_ref().map(|sourced| sourced.value),
        capacity: store.capacity,
        ca: store.ca.as_ref().map(|sourced| sourced.value.clone()),
        client: store.client(),
    };
    check_build(store, url, &config, problems);
    Some(StoreConfig::Redis(config))
}

/// Reports ledgers that would share a key.
pub(super) fn check_keys(
    written: &Written,
    store: &StoreConfig,
    policies: &Policies,
    problems: &mut Vec<ConfigError>,
) {
    let StoreConfig::Redis(config) = store else { return };
    // A store that cannot be built has been reported.
    let Ok(store) = config.builder().build() else { return };
    if let Err(collisions) = store.check_policies(policies) {
        let problem = |collision| ConfigError::new(template_spot(written, collision), collision);
        problems.extend(collisions.as_slice().iter().map(problem));
    }
}

/// Where the template stands that gives two ledgers one key: that of the later policy, if it is in
/// the file.
fn template_spot(written: &Written, collision: &KeyCollision) -> Location {
    let store = &written.store;
    let names = collision.policies().into_iter().rev();
    let own = names
        .into_iter()
        .find_map(|name| store.key_templates.iter().find(|(policy, _)| *policy.value == **name));
    let own = own.map(|(policy, _)| &policy.location);
    let shared = store.key_template.as_ref().map(|sourced| &sourced.location);
    own.or(shared).cloned().unwrap_or_else(|| Location::default_of("store.key_template"))
}

fn templates(store: &WrittenStore) -> BTreeMap<String, slidegate_redis::KeyTemplate> {
    let entry =
        |(policy, template): &(Sourced<String>, _)| (policy.value.clone(), Clone::clone(template));
    store.key_templates.iter().map(entry).collect()
}

fn check_certificate(store: &WrittenStore, problems: &mut Vec<ConfigError>) {
    let (alone, other) = match (&store.certificate, &store.key) {
        (Some(certificate), None) => (certificate, "key"),
        (None, Some(key)) => (key, "certificate"),
        _ => return,
    };
    let expected = format!("expected its {other} too");
    problems.push(ConfigError::new(alone.location.clone(), expected));
}

fn check_template_policies(written: &Written, problems: &mut Vec<ConfigError>) {
    for (name, _) in &written.store.key_templates {
        if !written.policies.iter().any(|policy| policy.name.value == name.value) {
            problems.push(ConfigError::new(name.location.clone(), "there is no such policy"));
        }
    }
}

/// Builds the store, which does not connect yet, only to validate its settings.
fn check_build(
    store: &WrittenStore,
    url: &Sourced<Secret>,
    config: &RedisConfig,
    problems: &mut Vec<ConfigError>,
) {
    let mut builder = config.builder();
    if config.ca.is_some() || config.client.is_some() {
        builder = builder.tls(RedisTls::new());
    }
    let Err(error) = builder.build() else { return };
    let template = store.key_template.as_ref().map(|sourced| &sourced.location);
    let first = store.key_templates.first().map(|(policy, _)| &policy.location);
    let certificate =
        store.ca.as_ref().or(store.certificate.as_ref()).map(|sourced| &sourced.location);
    let location = match error {
        BuildError::ClusterTemplate(_) => template.or(first),
        BuildError::UnusedCertificates => certificate,
        BuildError::NoScores(_) => store.score_unit.as_ref().map(|sourced| &sourced.location),
        _ => None,
    };
    problems.push(ConfigError::new(location.unwrap_or(&url.location).clone(), error));
}
