//! What is not wrong, but probably not meant.

mod addresses;
mod limits;
mod matches;
mod secrets;
mod sharing;

use crate::config::environment::{self, Environment};
use crate::config::location::Location;
use crate::config::warning::ConfigWarning;
use crate::config::written::{StoreKind, Written};

/// Everything that is probably not meant, in the order of the file.
pub(super) fn lint(
    written: &Written,
    environment: &Environment,
    is_open_to_all: bool,
) -> Vec<ConfigWarning> {
    let mut warnings = Vec::new();
    switches(written, environment, &mut warnings);
    addresses::lint(written, &mut warnings);
    limits::lint(written, &mut warnings);
    matches::lint(written, &mut warnings);
    sharing::lint(written, &mut warnings);
    secrets::lint(written, is_open_to_all, &mut warnings);
    warnings.sort_by(|a, b| a.location().cmp(b.location()));
    warnings
}

/// What the environment switches off, or would if the file let it.
fn switches(written: &Written, environment: &Environment, warnings: &mut Vec<ConfigWarning>) {
    if let Some(sourced) = written.enforced.as_ref().filter(|sourced| !sourced.value) {
        let text = "NO POLICY IS ENFORCED: every request that is not blocked passes, uncounted";
        warnings.push(ConfigWarning::new(&sourced.location, text));
    }
    let is_memory = |kind: &StoreKind| *kind == StoreKind::Memory;
    if environment.get(environment::REDIS_URL).is_some()
        && written.store.kind.as_ref().is_some_and(|kind| is_memory(&kind.value))
    {
        let location = Location::variable(environment::REDIS_URL);
        warnings.push(ConfigWarning::new(
            &location,
            "not used: the file says that the store is in memory",
        ));
    }
}
