//! What holds for every file of `examples/configs`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::example::folder;

fn check(file: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
    let output = command.args(["check", "--deny-warnings"]).arg(file).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8(printed).unwrap();
    assert!(output.status.success(), "{file:?}: {printed}");
    printed
}

#[test]
fn every_example_is_good_and_there_is_one_for_each_source() {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    // The cases beside them are held against them in `commands/policy_tests.rs`.
    let entries = entries.filter(|path| !path.to_str().unwrap().ends_with(".test.toml"));
    let mut names: Vec<String> = entries
        .map(|path| {
            let printed = check(&path);
            assert!(
                printed.ends_with("The configuration is good, with no warnings.\n"),
                "{printed}"
            );
            path.file_name().unwrap().to_str().unwrap().to_owned()
        })
        .collect();
    names.sort();
    let expected = [
        "api-service.toml",
        "go-shortener.toml",
        "login.toml",
        "production-guide.toml",
        "saas-plans.toml",
        "url-shortener.toml",
    ];
    assert_eq!(names, expected);
}
