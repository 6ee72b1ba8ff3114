//! `slidegate check`: what a file means, and what is wrong with it.

mod memory;
mod report;

use std::path::PathBuf;

use anyhow::bail;

use crate::config::{self, File, Sources};
use crate::terminal;

pub(crate) const AFTER_HELP: &str = "\
The file is looked at by itself: flags and the environment, which outweigh it when it is served,
are left out. Nothing is connected to.

Exit codes:
  0  the file is good; there may be warnings
  1  the file is wrong, or has warnings and --deny-warnings is given
  2  the command line is wrong

Examples:
  slidegate check slidegate.toml
  slidegate check --deny-warnings slidegate.toml
  generate-config | slidegate check -";

/// What `check` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArguments {
    /// The file, or - for standard input
    file: PathBuf,

    /// Exit with 1 if there are warnings
    #[arg(long)]
    deny_warnings: bool,
}

/// Tells what the file means; an error if it is wrong.
pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let sources = Sources { file: Some(File::or_stdin(&arguments.file)?), ..Sources::default() };
    let loaded = config::load(&sources)?;
    terminal::show(&report::report(&loaded))?;
    match loaded.warnings.len() {
        1 if arguments.deny_warnings => bail!("1 warning, and warnings are denied"),
        many if many > 0 && arguments.deny_warnings => {
            bail!("{many} warnings, and warnings are denied")
        }
        _ => Ok(()),
    }
}
