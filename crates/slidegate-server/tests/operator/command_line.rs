//! The operator's commands, as they are typed.

use std::fs;
use std::process::Command;

use slidegate_testbed::http1::response;
use slidegate_testbed::{Directory, Gateway, Upstream};

use crate::terminal::{Operator, errors};
use crate::{PROGRAM, configure, options};

const COMMANDS: [&str; 9] =
    ["accounts", "inspect", "reset", "grant", "exempt", "ban", "overrides", "lift", "plan"];

#[test]
fn every_operator_commands_help_has_examples_exit_codes_and_variables() {
    for command in COMMANDS {
        let output =
            Command::new(env!("CARGO_BIN_EXE_slidegate")).args([command, "--help"]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        for expected in [
            &format!("Examples:\n  slidegate {command}"),
            "Exit codes:\n  0  done\n  1  not done",
            "SLIDEGATE_ADMIN_TOKEN",
            "--admin <URL>",
            "--token-file <FILE>",
        ] {
            // Of lift the first example is how to find the override.
            let expected = expected.replace("Examples:\n  slidegate lift", "slidegate lift");
            assert!(text.contains(&expected), "{command}: {expected}: {text}");
        }
    }
}

#[test]
fn an_invalid_command_line_is_a_usage_error_and_sends_no_request() {
    let operator = Operator::of(&configure(&Upstream::simple()).start());
    for arguments in [
        &["ban", "ip:10.0.0.1", "--for", "1h"][..],
        &["ban", "ip:10.0.0.1", "--reason", "x"],
        &["ban", "ip:10.0.0.1", "--for", "1h", "--until", "2030-01-01T00:00:00Z", "--reason", "x"],
        &["ban", "--for", "1h", "--reason", "x"],
        &["grant", "ip:10.0.0.1", "0", "--for", "1h", "--reason", "x"],
        &["grant", "ip:10.0.0.1", "--for", "1h", "--reason", "x"],
        &["accounts", "--sort", "best"],
        &["accounts", "--token", "hunter2"],
        &["lift"],
    ] {
        let output = operator.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
    }
}

#[test]
fn a_server_that_cannot_be_asked_is_named_with_what_to_do() {
    let directory = Directory::new();
    let gateway = configure(&Upstream::simple()).start();
    let (admin, configure) = (gateway.admin(), format!("http://{}", gateway.listener()));
    drop(gateway);
    let upstream = Upstream::answering(|_| response("200 OK", "", "ok"));
    let elsewhere = upstream.url();
    let socket = format!("unix:{}", directory.file("none.sock").display());
    for (admin, expected) in [
        (
            format!("http://{admin}"),
            "is `slidegate serve` running there? --admin URL or SLIDEGATE_ADMIN",
        ),
        (configure, "cannot reach http://127.0.0.1"),
        (socket, "cannot reach unix:/"),
        (elsewhere, "but not as slidegate's admin endpoint does"),
        (
            "https://127.0.0.1".to_owned(),
            "--admin \"https://127.0.0.1\": expected http://HOST:PORT",
        ),
        (
            "localhost".to_owned(),
            "--admin \"localhost\": expected http://HOST:PORT, ADDRESS:PORT or",
        ),
    ] {
        let arguments = ["overrides", "--admin", &admin];
        let output =
            Command::new(env!("CARGO_BIN_EXE_slidegate")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{admin}");
        let said = errors(&output);
        assert!(said.starts_with("slidegate: ") && said.contains(expected), "{admin}: {said}");
    }
}

#[test]
fn a_token_is_in_a_variable_or_a_file_and_never_shown() {
    let directory = Directory::new();
    let (good, bad) = (directory.file("good"), directory.file("bad"));
    fs::write(&good, "hunter2\n").unwrap();
    fs::write(&bad, "hunter3\n").unwrap();
    let options = options().variable("SLIDEGATE_ADMIN_TOKEN", "hunter2");
    let gateway = configure(&Upstream::simple()).start_with(options);
    let operator = Operator::of(&gateway);
    let run = |token: Option<&str>, file: Option<&std::path::Path>| {
        let mut command = operator.command(&["overrides"]);
        token.map(|token| command.env("SLIDEGATE_ADMIN_TOKEN", token));
        file.map(|file| command.arg("--token-file").arg(file));
        let output = command.output().unwrap();
        let said = errors(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains("hunter"), "{said}");
        (output.status.code().unwrap(), said)
    };
    assert_eq!(run(Some("hunter2"), None), (0, "no overrides are in force\n".to_owned()));
    assert_eq!(run(None, Some(&good)).0, 0);
    assert_eq!(run(Some("hunter3"), Some(&good)).0, 0, "a file outweighs the variable");
    for (token, file, expected) in [
        (
            None,
            None,
            "asks for the operator's token: set SLIDEGATE_ADMIN_TOKEN, or name a --token-file",
        ),
        (Some(""), None, "asks for the operator's token"),
        (Some("hunter3"), None, "does not take the token in SLIDEGATE_ADMIN_TOKEN"),
        (None, Some(bad.as_path()), "does not take the token in /"),
        (None, Some(std::path::Path::new("/no/such")), "--token-file /no/such: No such file"),
    ] {
        let (code, said) = run(token, file);
        assert!(code == 1 && said.contains(expected), "{said}");
    }
}

#[test]
fn a_secret_is_never_taken_from_the_command_line() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).policy("api", "2/h", "identity = [\"api-key\"]").start();
    let operator = Operator::of(&gateway);
    let said = operator.fail(&["ban", "api-key:sk-secret", "--for", "1h", "--reason", "leaked"]);
    assert!(said.contains("api-key:-") && !said.contains("sk-secret"), "{said}");
    let arguments = ["ban", "api-key:-", "--for", "1h", "--reason", "leaked"];
    let said = operator.run_with("sk-secret\n", &arguments);
    assert!(said.starts_with("api-key:") && !said.contains("sk-secret"), "{said}");
    assert_eq!(gateway.get("/", "X-API-Key: sk-secret\r\n").status(), 403);
    assert_eq!(gateway.get("/", "X-API-Key: sk-other\r\n").status(), 200);
    assert!(!gateway.output().contains("sk-secret"));
}

#[test]
fn a_unix_socket_is_an_endpoint_too() {
    let directory = Directory::new();
    let socket = format!("unix:{}", directory.file("admin.sock").display());
    let text = Gateway::options(PROGRAM).key("upstream", "\"http://127.0.0.1:1\"").text();
    let listen = format!("[admin]\nlisten = [\"127.0.0.1:0\", {socket:?}]\n");
    let text = text.replace("[admin]\nlisten = \"127.0.0.1:0\"\n", &listen);
    let _server = options().configuration(&text).start();
    let ban = ["ban", "10.0.0.1", "--for", "1h", "--reason", "x", "--admin", &socket];
    for (arguments, expected) in [
        (&ban[..], "ip:10.0.0.1 is banned under every policy until 20"),
        (&["overrides", "--admin", &socket], "ban     ip:10.0.0.1  all"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
        let output = command.args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(expected), "{text}{}", errors(&output));
    }
}
