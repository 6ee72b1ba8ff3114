//! `slidegate man`, with the pages read by mandoc.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use slidegate_testbed::Directory;
use slidegate_testbed::program::run;

use crate::slidegate;

const MANDOC: &str = "apt-get install mandoc";

/// The pages that there have to be: for a command, and for those that its help lists.
fn expected(command: &[&str], pages: &mut BTreeSet<String>) {
    pages.insert(format!("{}.1", [&["slidegate"][..], command].concat().join("-")));
    let help = slidegate(&[command, &["--help"]].concat()).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        expected(&[command, &[name]].concat(), pages);
    }
}

fn written(directory: &Directory) -> BTreeSet<String> {
    let entries = fs::read_dir(directory.path().join("man1")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn there_is_a_page_for_every_command_and_mandoc_accepts_it() {
    let directory = Directory::new();
    let output = slidegate(&["man"]).arg(directory.file("man1")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let mut pages = BTreeSet::new();
    expected(&[], &mut pages);
    assert!(pages.contains("slidegate-import-envoy-ratelimit.1"), "{pages:?}");
    assert_eq!(written(&directory), pages);
    for page in pages {
        let mut lint = Command::new("mandoc");
        lint.args(["-T", "lint", "-W", "warning"]).arg(directory.file("man1").join(&page));
        let complaints = String::from_utf8(run(&mut lint, MANDOC).stdout).unwrap();
        // Pages belong to a version instead of a date, and clap_mangen writes line breaks that have no effect.
        let known = [": missing date", ": skipping paragraph macro: br "];
        for complaint in complaints.lines() {
            assert!(known.iter().any(|known| complaint.contains(known)), "{complaint}");
        }
    }
}

#[test]
fn pages_keep_the_lines_of_examples_and_tables() {
    let directory = Directory::new();
    slidegate(&["man"]).arg(directory.path()).output().unwrap();
    let mut mandoc = Command::new("mandoc");
    mandoc.args(["-T", "ascii", "-O", "width=120"]).arg(directory.file("slidegate-check.1"));
    let mut text = String::from_utf8(run(&mut mandoc, MANDOC).stdout).unwrap();
    // Bold letters are printed twice, with a backspace between.
    while let Some(backspace) = text.find('\u{8}') {
        text.replace_range(backspace - 1..=backspace, "");
    }
    let version = concat!("slidegate ", env!("CARGO_PKG_VERSION"), " ");
    assert!(text.lines().last().unwrap().starts_with(version), "{text}");
    for expected in [
        "slidegate-check - Check a configuration file and print what it means",
        "\nNOTES\n       What `slidegate serve FILE` would refuse",
        "\nEXIT CODES\n       0  the file is good; there may be warnings\n       1  the file is wrong",
        "\nEXAMPLES\n       slidegate check slidegate.toml\n       slidegate check --deny-warnings",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let output = slidegate(&["man", "/dev/null/pages"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.starts_with("slidegate: /dev/null/pages cannot be created: "), "{text}");
}
