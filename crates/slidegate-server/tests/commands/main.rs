//! The commands that need no running server, seen from outside.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod check;
mod cli;
mod demo;
mod explain;
mod man;
mod policy_tests;
mod replay;
mod size;

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// A command, ready to run.
fn slidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
    command.args(arguments);
    command
}

/// What a command does that is given this text on its standard input.
fn run_with(input: &str, arguments: &[&str]) -> Output {
    let mut command = slidegate(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command line that is wrong is refused before anything is read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}
