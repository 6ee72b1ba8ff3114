//! `slidegate import`: configurations of other limiters, as Slidegate's own.

mod envoy_ratelimit;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, bail};

use self::envoy_ratelimit::Import;
use crate::terminal;

const AFTER_HELP: &str = "\
Prints TOML for `slidegate serve` to standard output, and to standard error a report of what has no
equal: every rule and every key is either in the TOML or in the report.

Windows of envoyproxy/ratelimit are fixed: they begin anew at set times, and up to twice the limit
passes around those. Slidegate's are exact. A month has 30 days and a year 365 in both.

Exit codes:
  0  the files are imported; there may be a report
  1  a file is wrong
  2  the command line is wrong

Examples:
  slidegate import envoy-ratelimit config.yaml > slidegate.toml
  slidegate import envoy-ratelimit config/*.yaml > slidegate.toml
  slidegate check slidegate.toml";

/// What can be imported.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ImportCommand {
    /// The YAML of Envoy's rate limit service, envoyproxy/ratelimit
    #[command(after_help = AFTER_HELP)]
    EnvoyRatelimit {
        /// The files, one for each domain
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
}

impl ImportCommand {
    /// Prints what the files are for Slidegate; an error if one of them is invalid.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Self::EnvoyRatelimit { files } = self;
        let mut import = Import::default();
        for file in files {
            let name = file.display().to_string();
            let text =
                fs::read_to_string(&file).with_context(|| format!("{name} cannot be read"))?;
            import.add(&name, &text)?;
        }
        if !import.errors.is_empty() {
            bail!("{}", import.errors.join("\n"));
        }
        // A closed standard error is no reason to keep the result back.
        let _ = std::io::stderr().write_all(import.report().as_bytes());
        terminal::show(&import.toml())
    }
}
