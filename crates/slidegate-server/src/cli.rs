//! What can be typed after `slidegate`.

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::check::{self, CheckArguments};
use crate::client::RemoteCommand;
use crate::config::{self, Flags, Sources};
use crate::demo::{self, DemoArguments};
use crate::digest::{self, DigestArguments};
use crate::explain::{self, ExplainArguments};
use crate::import::ImportCommand;
use crate::man::{self, ManArguments};
use crate::policy_test::{self, TestArguments};
use crate::replay::{self, ReplayArguments};
use crate::size::{self, SizeArguments};
use crate::{server, terminal};

/// Slidegate: an exact sliding-window rate limiter for HTTP APIs.
///
/// A quota such as 100/min means: never more than 100 units in any 60 seconds,
/// wherever they begin. Counters that start again on the minute admit up to twice
/// that around the boundary.
#[derive(Debug, Parser)]
#[command(name = "slidegate", version, arg_required_else_help = true, verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  slidegate demo                                   see it hold its limits, in half a minute
  slidegate serve --upstream http://127.0.0.1:3000 --quota 100/min
                                                   limit an API, without any file
  slidegate check slidegate.toml                   what a file means, and what is wrong with it
  slidegate explain --config slidegate.toml --method POST --path /login --client 203.0.113.7
                                                   which policies one request falls under
  slidegate test slidegate.toml                    run the policy tests
  slidegate replay --config slidegate.toml access.log
                                                   which requests these policies would have refused
  slidegate top                                    what a running server does now
  slidegate accounts                               who is nearest to a quota, on a running server
  slidegate ban ip:203.0.113.7 --for 1h --reason 'scraper'
                                                   ban an identity until a time, at all gateways")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Limit an API: as a gateway in front of it, or as a decision API that other programs call
    ///
    /// With an upstream, requests that may pass are passed on to it, and the rest is
    /// refused. Without one, the decision API answers programs that ask. Either way there is
    /// an endpoint for metrics, health and the operator.
    ///
    /// A flag outweighs the environment, which outweighs the file.
    #[command(verbatim_doc_comment)]
    #[command(after_help = "\
Environment:
  SLIDEGATE_CONFIG           the file, if none is named on the command line
  SLIDEGATE_ADMIN_TOKEN      token of the admin endpoint
  SLIDEGATE_DECISIONS_TOKEN  token of the decision API
  SLIDEGATE_RESP_TOKEN       token of the endpoint for Redis clients
  SLIDEGATE_RLS_TOKEN        token of the services for Envoy
  REDIS_URL                  URL of Redis, if --redis is not given
  RATE_LIMIT_MAX             units of a policy, with
  RATE_LIMIT_TTL             its window in seconds, or
  RATE_LIMIT_WINDOW_MS       its window in milliseconds
  RATE_LIMIT_POLICY          the policy that these change [default: the only one, or `default`]
  RATE_LIMIT_ENABLED         false: no policy is enforced

Examples:
  slidegate serve --upstream http://127.0.0.1:3000 --quota 100/min
  slidegate serve --upstream http://127.0.0.1:3000 --quota 60/min --quota 10000/day
  slidegate serve slidegate.toml --redis redis://10.0.0.5:6379")]
    Serve(Serve),

    /// Check a configuration file and print what it means
    #[command(after_help = check::AFTER_HELP)]
    Check(CheckArguments),

    /// Estimate the gateways, Redis servers and memory that a load takes
    #[command(after_help = size::AFTER_HELP)]
    Size(SizeArguments),

    /// Explain which policies apply to a request, for which identity, and why others do not
    #[command(after_help = explain::AFTER_HELP)]
    Explain(ExplainArguments),

    /// Test policies with cases: requests over virtual time, and what is to be decided of each
    #[command(after_help = policy_test::AFTER_HELP)]
    Test(TestArguments),

    /// Play access logs through policies, and tell who would have been refused
    ///
    /// For each policy: the requests and the would-be refusals, the identities that are refused
    /// most, the worst minute, and what each quota would have to be so that 99 %, 99.9 % or all
    /// identities are never refused.
    #[command(verbatim_doc_comment)]
    #[command(after_help = replay::AFTER_HELP)]
    Replay(Box<ReplayArguments>),

    /// Turn another limiter's configuration into one for Slidegate
    #[command(subcommand)]
    Import(ImportCommand),

    #[command(flatten)]
    Remote(RemoteCommand),

    /// Watch a gateway hold its limits: a real run on this machine, for half a minute
    ///
    /// A small API, the gateway in front of it, and four clients: a free user who keeps to
    /// the plan, a customer's script of 50,000 requests, a client that sends its quota twice
    /// around the moment at which counters start again, and one that guesses passwords. It
    /// shows what each of them gets, prints URLs to try meanwhile, and proves in the end,
    /// from the clients' own records, that no limit was exceeded.
    #[command(verbatim_doc_comment)]
    #[command(after_help = demo::AFTER_HELP)]
    Demo(DemoArguments),

    /// Print the digest of an API key that is read from standard input
    #[command(after_help = digest::AFTER_HELP)]
    Digest(DigestArguments),

    /// Print the JSON Schema of the configuration file, with which editors complete and check its keys
    #[command(after_help = config::SCHEMA_HELP)]
    Schema,

    /// Print a script that completes commands and flags in your shell
    ///
    /// For instance: slidegate completions bash > ~/.local/share/bash-completion/completions/slidegate
    Completions {
        /// The shell
        shell: Shell,
    },

    /// Write the manual pages into a directory
    #[command(after_help = man::AFTER_HELP)]
    Man(ManArguments),
}

#[derive(Debug, clap::Args)]
struct Serve {
    /// The configuration file, or - for standard input
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,

    /// The configuration file (same as FILE)
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    flags: Flags,
}

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Serve(Serve { file, config, flags }) => {
                server::run(Sources::of_command(file.or(config).as_deref(), flags)?)
            }
            Command::Check(arguments) => check::run(&arguments),
            Command::Size(arguments) => size::run(&arguments),
            Command::Explain(arguments) => explain::run(&arguments),
            Command::Test(arguments) => policy_test::run(&arguments),
            Command::Replay(arguments) => replay::run(&arguments),
            Command::Import(command) => command.run(),
            Command::Remote(command) => command.run(),
            Command::Demo(arguments) => demo::run(&arguments),
            Command::Digest(arguments) => digest::run(&arguments),
            Command::Schema => terminal::show(config::SCHEMA),
            Command::Completions { shell } => completions(shell),
            Command::Man(arguments) => man::run(&arguments, Cli::command()),
        }
    }
}

fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "slidegate", &mut script);
    terminal::show(&String::from_utf8(script)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_definition_of_the_command_line() {
        Cli::command().debug_assert();
    }
}
