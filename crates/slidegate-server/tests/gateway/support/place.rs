//! A place for files.

use std::path::PathBuf;

use slidegate_testbed::SlidegateOptions;

use super::options;

/// A directory that outlives the processes that write to it, and is gone with this value.
pub(crate) struct Place(SlidegateOptions);

impl Place {
    pub(crate) fn new() -> Self {
        Self(options())
    }

    /// The path of a file in it, or of a folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.directory().join(name)
    }
}
