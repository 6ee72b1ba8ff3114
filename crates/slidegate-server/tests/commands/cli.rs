//! The command line, seen from outside.

use std::io::pipe;
use std::process::Stdio;

use crate::{run_with, slidegate};

#[test]
fn help_names_every_command_and_gives_examples() {
    let output = slidegate(&["--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("exact sliding-window rate limiter"), "{text}");
    for command in [
        "serve",
        "check",
        "explain",
        "test",
        "import",
        "demo",
        "digest",
        "schema",
        "completions",
        "man",
    ] {
        assert!(text.contains(&format!("  {command} ")), "{command}: {text}");
    }
    assert!(text.contains("Examples:\n  slidegate demo"), "{text}");
}

#[test]
fn every_commands_help_has_an_example() {
    for (command, example) in [
        ("serve", "slidegate serve --upstream http://127.0.0.1:3000 --quota 100/min"),
        ("serve", "RATE_LIMIT_WINDOW_MS"),
        ("check", "slidegate check slidegate.toml"),
        ("check", "1  the file is wrong"),
        ("explain", "slidegate explain --config slidegate.toml"),
        ("test", "slidegate test slidegate.toml"),
        ("schema", "slidegate schema > slidegate.schema.json"),
        ("schema", "\n  #:schema https://raw.githubusercontent.com/"),
        ("completions", "slidegate completions bash"),
        ("man", "slidegate man ~/.local/share/man/man1"),
    ] {
        let output = slidegate(&[command, "--help"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(text.contains(example), "{text}");
    }
}

#[test]
fn help_of_serve_lists_the_defaults() {
    let text = String::from_utf8(slidegate(&["serve", "--help"]).output().unwrap().stdout).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for default in [
        "[default: 127.0.0.1:8080]",
        "[default: 127.0.0.1:9090]",
        "[default without an upstream: 127.0.0.1:8081]",
        "[default without any policy: 100/min]",
        "[default: in memory]",
        "[default: peer]",
        "[default: one for each processor]",
        "[default: auto]",
        "-c, --config <FILE>",
        "[FILE]",
    ] {
        assert!(text.contains(default), "{default}: {text}");
    }
}

#[test]
fn the_schema_is_printed_as_it_is_published() {
    let output = slidegate(&["schema"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let published = include_str!("../../../../docs/slidegate.schema.json");
    assert!(output.stdout == published.as_bytes());
}

#[test]
fn digests_are_made_of_standard_input() {
    let digest = |input: &str| {
        let output = run_with(input, &["digest"]);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), said)
    };
    let one = "a2e3ac06bb3a3d74863f2e5db2e3fcbe\n";
    assert_eq!(digest("k-123"), (Some(0), one.to_owned()), "as docs/policies.md shows it");
    assert_eq!(digest("k-123\nk-123\r\n"), (Some(0), one.repeat(2)));
    let sha256 = run_with("hello", &["digest", "--hash", "sha256"]);
    let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\n";
    assert_eq!(String::from_utf8(sha256.stdout).unwrap(), hello, "as sha256sum prints it");
    for (input, expected) in [
        ("", "slidegate: expected an API key on standard input"),
        ("k-1\n\nk-2", "slidegate: line 2: expected an API key"),
        ("hunter2 \n", "slidegate: line 1: expected no space"),
    ] {
        let (code, said) = digest(input);
        assert!(code == Some(1) && said.starts_with(expected), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn an_import_is_toml_with_a_report_beside_it() {
    let import = |arguments: &[&str]| {
        let mut command = slidegate(&["import", "envoy-ratelimit"]);
        command.args(arguments).current_dir("../../examples/envoy-ratelimit");
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, toml, report) = import(&["config.yaml"]);
    let expected = include_str!("../../../../examples/envoy-ratelimit/slidegate.toml");
    assert_eq!((code, toml.as_str()), (Some(0), expected));
    assert!(
        report.starts_with("policies: 6. Their windows were fixed and are exact now"),
        "{report}"
    );
    assert!(report.contains("config.yaml:41: plan=gold: replaces"), "{report}");

    for (arguments, expected, error) in [
        (&["config.yaml", "config.yaml"][..], 1, "slidegate: config.yaml:3: domain \"edge\" is in"),
        (&["slidegate.toml"], 1, "slidegate: slidegate.toml: "),
        (&["missing.yaml"], 1, "slidegate: missing.yaml cannot be read: "),
        (&[], 2, "error: "),
    ] {
        let (code, toml, said) = import(arguments);
        assert_eq!((code, toml.as_str()), (Some(expected), ""), "{said}");
        assert!(said.starts_with(error), "{said}");
    }
    let (code, help, _) = import(&["--help"]);
    assert!(code == Some(0) && help.contains("fixed") && help.contains("Exit codes:"), "{help}");
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = slidegate(&["completions", shell]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(text.contains("trusted-proxy"), "{shell}");
    }
}

#[test]
fn a_server_with_invalid_arguments_does_not_start() {
    for (arguments, variable, expected) in [
        (&["serve", "--config", "/does/not/exist"][..], "", "/does/not/exist: cannot be read"),
        (&["serve"], "nonsense", "environment: RATE_LIMIT_MAX = \"nonsense\": expected"),
        (&["serve", "--upstream", "localhost"], "", "flag --upstream = \"localhost\": expected"),
    ] {
        let output = slidegate(arguments).env("RATE_LIMIT_MAX", variable).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.starts_with(&format!("slidegate: {expected}")), "{text}");
    }
}

#[test]
fn version_is_the_package_s() {
    let output = slidegate(&["--version"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text, format!("slidegate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_is_not_understood_exits_with_2_and_says_so_on_stderr() {
    for arguments in [
        &["dance"][..],
        &["demo", "--loudly"],
        &["serve", "--quota", "many"],
        &["serve", "--quota", "1/s", "--profile", "strict"],
        &["serve", "--workers", "0"],
        &["completions", "cmd"],
        &[],
    ] {
        let output = slidegate(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    for arguments in ["demo", "--help"] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let child = slidegate(&[arguments]).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{arguments}");
        assert_eq!(output.status.code(), Some(0), "{arguments}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let child = slidegate(&["demo"]).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.starts_with("slidegate: cannot write to standard output: "), "{text}");
}
