//! What can be typed after `slidegate`.

use clap::{Parser, Subcommand};

use crate::demo;

/// Slidegate: an exact sliding-window rate limiter for HTTP APIs.
///
/// A quota such as 100/min means: never more than 100 units in any 60 seconds,
/// wherever they begin. Counters that start again on the minute admit up to twice
/// that around the boundary.
#[derive(Debug, Parser)]
#[command(name = "slidegate", version, arg_required_else_help = true, verbatim_doc_comment)]
#[command(after_help = "Example:\n  slidegate demo    see the difference, in a second")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play the same traffic through a fixed-window counter and through Slidegate
    ///
    /// Ten minutes of requests pass in virtual time: a burst around the minute
    /// boundary, then a script of 50,000 requests beside three customers who keep to
    /// their plans. Shows what each limiter admitted, and fails if Slidegate admitted
    /// more than a quota allows.
    #[command(verbatim_doc_comment)]
    Demo,
}

impl Cli {
    /// Does what was asked for.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self.command {
            Command::Demo => demo::run(),
        }
    }
}
