//! Programs that Debian does not have.

use std::env;
use std::path::PathBuf;

/// A program that `scripts/tools` installs, by its path in the target directory's `tools`.
#[must_use]
pub fn tool(path: &str) -> PathBuf {
    let test = env::current_exe().expect("a program knows where it is");
    // It is somewhere below the target directory, wherever that is.
    let mut places = test.ancestors().map(|above| above.join("tools").join(path));
    let place = places.find(|place| place.exists());
    place.unwrap_or_else(|| panic!("{path} is missing; install it: scripts/tools"))
}
