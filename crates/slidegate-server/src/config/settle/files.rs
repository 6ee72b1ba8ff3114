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
/// in which the audit trail or a snapshot cannot be written.
pub(in crate::config) fn check(written: &Written, config: &Config, problems: &mut Vec<Problem>) {
    let mut report = |spot: &Spot, path: Option<&Path>, result: anyhow::Result<()>| {
        if let Err(error) = result {
            let problem = Problem::new(spot.clone(), format!("{error:#}"));
            problems.push(match path {
                Some(path) => problem.with_value(format!("{:?}", path.display().to_string())),
                None => problem,
            });
        }
    };
    let tls = written.gateway.as_ref().and_then(|gateway| gateway.tls.as_ref());
    if let Some(tls) = tls.filter(|_| config.gateway.is_some()) {
        report(&tls.spot, None, Tls::load(tls).map(drop));
    }
    if let Some(audit) = &written.audit {
        report(&audit.file, Some(&audit.config.file), Trail::check(&audit.config));
    }
    match &config.store {
        StoreConfig::Memory { .. } => {
            if let Some(snapshot) = &written.store.snapshot {
                let (spot, path) = (snapshot.spot.below("file"), snapshot.file.as_path());
                report(&spot, Some(path), disk::try_writing(path));
            }
        }
        StoreConfig::Redis(redis) => {
            let certificate = written.store.ca.as_ref().or(written.store.certificate.as_ref());
            let url = written.store.url.as_ref().map(|said| &said.spot);
            let spot = certificate.map(|said| &said.spot).or(url);
            if let Some(spot) = spot {
                report(spot, None, server::check_redis(redis));
            }
        }
    }
}
