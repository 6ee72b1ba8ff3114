//! The packages, the image, the unit, compose, Kubernetes, the alerts and the dashboard: what can be known of them
//! without Docker, systemd and a cluster. Their command lines, files, probes, queries and numbers are held against the
//! real programs.

mod alerts;
mod compose;
mod dockerfile;
mod grafana;
mod kubernetes;
mod packages;
mod systemd;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use slidegate_testbed::Directory;

/// The path of a file of the project.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A file of YAML with one document.
fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The items of a list; none if it is not there.
fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// Runs a program in `packaging`, and returns what it wrote. Fails if it does.
fn run(command: &mut Command, install: &str) -> String {
    let output = command.current_dir(path("packaging")).output();
    let output =
        output.unwrap_or_else(|error| panic!("{command:?}: {error}; install it: {install}"));
    let written = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{written}{complaint}");
    written
}

fn promtool(arguments: &[&str]) {
    run(Command::new("promtool").args(arguments), "apt-get install prometheus");
}

/// Fails unless `slidegate check` is content with the file, warnings included. The folders that it
/// names are on the machine that it is for. Returns what it says.
fn check(file: &Path) -> String {
    check_with(file, &[])
}

/// The same with variables in the environment.
fn check_with(file: &Path, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
    command.args(["check", "--deny-warnings", "--skip-files"]).arg(file);
    run(command.envs(variables.iter().copied()), "cargo build")
}

/// How long requests in flight have when the server is to stop. That page is held against the
/// program by a test of its own.
fn drain_s() -> u64 {
    let page = read("docs/configuration.md");
    let (_, rest) = page.split_once("\ndrain = \"").expect("the page has it");
    let (seconds, _) = rest.split_once("s\"").expect("in seconds");
    seconds.parse().unwrap()
}

#[test]
fn docs_show_good_configurations_and_name_files_that_exist() {
    let page = read("docs/deployment.md");
    let directory = Directory::new();
    let file = directory.file("slidegate.toml");
    let mut count = 0;
    for page in [&page, &read("docs/how-to.md")] {
        for rest in page.split("```toml\n").skip(1) {
            fs::write(&file, rest.split("```").next().unwrap()).unwrap();
            check(&file);
            count += 1;
        }
    }
    assert!(count > 10, "{count}");
    for rest in page.split("](../").skip(1) {
        let name = rest.split(')').next().unwrap();
        assert!(path(name).exists(), "{name}");
    }
    for entry in fs::read_dir(path("examples/configs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_cases = name.ends_with(".test.toml");
        assert!(is_cases || page.contains(&format!("`{name}`")), "{name:?}");
    }
}
