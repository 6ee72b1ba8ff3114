//! The files and folders that the server needs before it can start.

use std::path::Path;

use crate::config::Config;
use crate::config::error::ConfigError;
use crate::config::location::Location;
use crate::config::store::StoreConfig;
use crate::config::written::Written;
use crate::listener::Tls;
use crate::observe::Trail;
use crate::{disk, server};

/// Reports what would keep the server from starting: certificates that cannot be used, and folders
/// in which the audit trail or a snapshot cannot be written. If the rest is wrong, there is no
/// configuration, and all that is known is what is written.
pub(in crate::config) fn check(
    written: &Written,
    config: Option<&Config>,
    problems: &mut Vec<ConfigError>,
) {
    let mut report = |location: &Location, path: Option<&Path>, result: anyhow::Result<()>| {
        if let Err(error) = result {
            let problem = ConfigError::new(location.clone(), format!("{error:#}"));
            problems.push(match path {
                Some(path) => problem.with_value(format!("{:?}", path.display().to_string())),
                None => problem,
            });
        }
    };
    if let Some(tls) = written.gateway.as_ref().and_then(|gateway| gateway.tls.as_ref()) {
        report(&tls.location, None, Tls::load(tls).map(drop));
    }
    if let Some(audit) = &written.audit {
        report(&audit.file, Some(&audit.config.file), Trail::check(&audit.config));
    }
    if let Some(snapshot) = &written.store.snapshot {
        let (location, path) = (snapshot.location.below("file"), snapshot.file.as_path());
        report(&location, Some(path), disk::try_writing(path));
    }
    if let Some(StoreConfig::Redis(redis)) = config.map(|config| &config.store) {
        let store = &written.store;
        let certificate =
            store.ca.as_ref().or(store.certificate.as_ref()).map(|sourced| &sourced.location);
        let location = certificate.or(store.url.as_ref().map(|sourced| &sourced.location));
        if let Some(location) = location {
            report(location, None, server::check_redis(redis));
        }
    }
}
