//! The `slidegate` command.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use slidegate_server::Cli;

/// Faster than the system's allocator for the small allocations of requests.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The exit code of clap for an invalid command line.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and version come this way too; a closed pipe is not an error for them.
            let _ = answer.print();
            return u8::try_from(answer.exit_code()).unwrap_or(USAGE).into();
        }
    };
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Unlike `eprintln!`, this does not panic when stderr is closed.
            let _ = writeln!(std::io::stderr(), "slidegate: {error:#}");
            ExitCode::FAILURE
        }
    }
}
