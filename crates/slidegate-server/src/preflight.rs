//! Checks what a start depends on outside of the configuration: certificates, folders, the store.

use crate::certificates::Certificates;
use crate::config::Preflight;
use crate::observe::{Trail, check_collector};
use crate::{customers, disk, store};
/// Checks one thing that a configuration names. Connects to nothing, and leaves nothing behind.
pub(crate) fn check(step: Preflight<'_>) -> anyhow::Result<()> {
    match step {
        Preflight::Snapshot(file) => disk::try_writing(file),
        Preflight::Redis(config) => store::check_redis(config),
        Preflight::Tls(files) => Certificates::load(files).map(drop),
        Preflight::Audit(config) => Trail::check(config),
        Preflight::Customers(config) => customers::check(config),
        Preflight::Trace(config) => check_collector(config),
    }
}
