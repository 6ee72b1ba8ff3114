//! `slidegate check`: what a file means, and what is wrong with it.

mod memory;
mod report;

use std::path::PathBuf;

use anyhow::bail;

use crate::config::{self, Environment, File, Sources};
use crate::terminal;

pub(crate) const AFTER_HELP: &str = "\
What `slidegate serve FILE` would refuse in this environment and on this machine is refused here, by
the same rules. Nothing is connected to.

Exit codes:
  0  the file is good; there may be warnings
  1  the file is wrong, or has warnings and --deny-warnings is given
  2  the command line is wrong

Examples:
  slidegate check slidegate.toml
  slidegate check --deny-warnings slidegate.toml
  slidegate check --skip-files slidegate.toml      for a server on another machine
  generate-config | slidegate check -";

/// Arguments of `slidegate check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArguments {
    /// The file, or - for standard input
    #[arg(value_name = "FILE", required_unless_present = "config", conflicts_with = "config")]
    file: Option<PathBuf>,

    /// The same, written as for `serve`
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Exit with 1 if there are warnings
    #[arg(long)]
    deny_warnings: bool,

    /// Leave out certificates and folders, which may be on another machine
    #[arg(long)]
    skip_files: bool,
}

/// Prints what the file means; an error if it is invalid.
pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let path = arguments.file.as_ref().or(arguments.config.as_ref());
    let file = path.map(|path| File::or_stdin(path)).transpose()?;
    let environment = Environment::of_this_process();
    let sources = Sources { file, environment, ..Sources::default() };
    let loaded = match arguments.skip_files {
        true => config::load(&sources)?,
        false => config::load_to_start(&sources)?,
    };
    terminal::show(&report::report(&loaded))?;
    match loaded.warnings.len() {
        1 if arguments.deny_warnings => bail!("1 warning, and warnings are denied"),
        many if many > 0 && arguments.deny_warnings => {
            bail!("{many} warnings, and warnings are denied")
        }
        _ => Ok(()),
    }
}
