//! The clients for Node and Go, by tests of their own that ask a real Slidegate.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{free_address, run};
use crate::site::Site;

const NODE: &str = "apt-get install --yes --no-install-recommends nodejs";
const GO: &str = "apt-get install --yes --no-install-recommends golang-go";

fn examples(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(language)
}

/// Runs tests that find Slidegate at `SLIDEGATE_URL`, and nobody at `NOBODY_URL`.
fn check(command: &mut Command, install: &str) {
    let site = Site::new();
    command.env("SLIDEGATE_URL", format!("http://{}", site.decisions));
    command.env("NOBODY_URL", format!("http://{}", free_address()));
    let output = run(command, install);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", said(&output.stdout), said(&output.stderr));
}

#[test]
fn the_node_client_asks_and_fails_as_told() {
    let directory = examples("node");
    check(Command::new("node").arg("--test").current_dir(directory), NODE);
}

#[test]
fn the_go_client_asks_and_fails_as_told() {
    let directory = examples("go");
    let mut command = Command::new("go");
    command.args(["test", "-count=1", "./..."]).current_dir(directory);
    check(command.env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local"), GO);
}
