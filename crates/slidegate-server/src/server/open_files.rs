//! The limit of open files, which bounds connections before the configuration does.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::GatewayConfig;

/// Open files besides connections: logs, listeners, Redis, the runtime's own.
const OTHER_FILES: u64 = 128;

/// Kept for the admin endpoint, which alone goes beyond the soft limit: enough for probes, scrapes and
/// an operator while clients have all others.
const RESERVED: u64 = 64;

/// Raises the soft limit to the hard one, but for the reserve. Many systems start services with a soft
/// limit of 1,024, for programs that use `select`.
pub(super) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Of a limit that is low all the same, most is for clients.
    let wanted = maximum.map(|maximum| maximum - RESERVED.min(maximum / 4));
    if current != wanted
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum })
    {
        tracing::warn!(%error, ?current, ?maximum, "cannot raise the limit of open files");
    }
}

/// Warns if the limit is too low for the configured connections.
pub(super) fn check_limit(config: &GatewayConfig) {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    let needed = needed(config);
    if limit < needed {
        tracing::warn!(
            limit,
            needed,
            "the limit of open files (ulimit -Hn) is too low for gateway.bounds.connections"
        );
    }
}

/// A file for each client. Those to upstream are fewer: a client waits for one at a time.
fn needed(config: &GatewayConfig) -> u64 {
    (config.proxy.bounds.connections as u64).saturating_add(OTHER_FILES)
}
