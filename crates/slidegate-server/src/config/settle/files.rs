//! The files and folders that the server needs before it can start.

use std::path::Path;

use crate::config::Config;
use crate::config::problem::Problem;
use crate::config::spot::Spot;
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
    problems: &mut Vec<Problem>,
) {
    let mut report = |spot: &Spot, path: Option<&Path>, result: anyhow::Result<()>| {
        if let Err(error) = result {
            let problem = Problem::new(spot.clone(), format!("{error:#}"));
            problems.push(match path {
                Some(path) => problem.with_value(format!("{:?}", path.display().to_string())),
                None => problem,
            });
        }
    };
    if let Some(tls) = written.gateway.as_ref().and_then(|gateway| gateway.tls.as_ref()) {
        report(&tls.spot, None, Tls::load(tls).map(drop));
    }
    if let Some(audit) = &written.audit {
        report(&audit.file, Some(&audit.config.file), Trail::check(&audit.config));
    }
    if let Some(snapshot) = &written.store.snapshot {
        let (spot, path) = (snapshot.spot.below("file"), snapshot.file.as_path());
        report(&spot, Some(path), disk::try_writing(path));
    }
    if let Some(StoreConfig::Redis(redis)) = config.map(|config| &config.store) {
        let store = &written.store;
        let certificate = store.ca.as_ref().or(store.certificate.as_ref()).map(|said| &said.spot);
        let spot = certificate.or(store.url.as_ref().map(|said| &said.spot));
        if let Some(spot) = spot {
            report(spot, None, server::check_redis(redis));
        }
    }
}
