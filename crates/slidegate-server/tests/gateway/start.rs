//! How the program is started, and what it says then.

use std::fs;
use std::process::Command;

use serde_json::Value;
use slidegate_testbed::{Directory, Gateway, SlidegateOptions, Upstream, Wire, wait_until};

use crate::{configure, options};

/// The lines of the log that have this message.
fn logged(gateway: &Gateway, message: &str) -> Vec<Value> {
    let output = gateway.output();
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}

#[test]
fn a_servers_log_names_its_listeners_and_its_stop() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).tables("[decisions]\nlisten = \"localhost:0\"").start();
    wait_until("the line", || !logged(&gateway, "listening").is_empty());
    let lines = logged(&gateway, "listening");
    assert_eq!(lines.len(), 1);
    for (field, address) in [
        ("gateway", gateway.listener()),
        ("decisions", gateway.address("decisions")),
        ("admin", gateway.admin()),
    ] {
        assert_eq!(lines[0][field], address.to_string(), "{field}");
    }
    assert!(logged(&gateway, "stopped").is_empty());
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    assert_eq!(logged(&gateway, "stopped").len(), 1, "{}", gateway.output());
}

#[test]
fn off_a_terminal_the_banner_is_beside_the_log_unless_that_is_json() {
    let upstream = Upstream::simple();
    let setup = configure(&upstream).policy("api", "5/min", "");
    let read =
        |gateway: &Gateway, name| fs::read_to_string(gateway.directory().join(name)).unwrap();
    let text = setup.start_with(with_banner(options()));
    assert_eq!(read(&text, "output"), "");
    let errors = read(&text, "errors");
    assert!(errors.contains("\n  gateway    http://127.0.0.1:"), "{errors}");

    for json in [setup.start(), setup.start_with(options().argument("--log").argument("json"))] {
        json.signal("TERM");
        assert_eq!(json.wait(), Some(0));
        assert_eq!(read(&json, "output"), "");
        let lines: Vec<Value> =
            read(&json, "errors").lines().map(|line| line.parse().unwrap()).collect();
        let listening = lines.iter().find(|line| line["message"] == "listening").unwrap();
        assert_eq!(listening["limits"], "api: 5/min per ip");
        assert_eq!(listening["store"], "memory, for this process alone");
        assert_eq!(listening["version"], env!("CARGO_PKG_VERSION"));
    }
}

fn with_banner(options: SlidegateOptions) -> SlidegateOptions {
    options.argument("--log").argument("pretty")
}

#[test]
fn a_banners_command_works_when_it_is_pasted() {
    let upstream = Upstream::simple();
    let text = "[decisions]\nlisten = \"0.0.0.0:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let options_with_token = || {
        options()
            .configuration(text)
            .variable("SLIDEGATE_DECISIONS_TOKEN", "hunter2-hunter2-hunter2")
    };
    let local = text.replace("0.0.0.0", "127.0.0.1");
    for (gateway, expected) in [
        (configure(&upstream).start_with(with_banner(options())), "HTTP/1.1 200"),
        (
            Gateway::from(with_banner(options()).configuration(&local).start()),
            "\"verdict\":\"allow\"",
        ),
        (Gateway::from(with_banner(options_with_token()).start()), "\"verdict\":\"allow\""),
    ] {
        let output = gateway.output();
        let line = output.lines().find_map(|line| line.strip_prefix("  try ")).unwrap().trim();
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env("SLIDEGATE_DECISIONS_TOKEN", "hunter2-hunter2-hunter2");
        let pasted = shell.output().unwrap();
        let said = String::from_utf8_lossy(&pasted.stdout);
        assert!(said.contains(expected), "{line}\n{said}");
        assert!(!output.contains("hunter2-hunter2-hunter2"));
    }
}

#[test]
fn serve_takes_its_file_in_every_way_that_check_does() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let file = directory.file("some.toml");
    fs::write(&file, configure(&upstream).policy("api", "2/h", "").text()).unwrap();
    for way in [&[][..], &["-c"], &["--config"]] {
        let with = way.iter().fold(options(), |options, word| options.argument(word));
        let gateway = Gateway::from(with.argument(file.to_str().unwrap()).start());
        let statuses = [(); 3].map(|()| gateway.status("/"));
        assert_eq!(statuses, [200, 200, 429], "{way:?}");
    }
}

#[test]
fn a_decision_service_that_others_can_reach_asks_for_its_token() {
    let text = "[decisions]\nlisten = \"0.0.0.0:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let refused = options().configuration(text).spawn();
    assert_eq!(refused.wait(), Some(1));
    assert!(refused.output().contains("set SLIDEGATE_DECISIONS_TOKEN"), "{}", refused.output());

    let directory = Directory::new();
    let token = directory.file("token");
    fs::write(&token, "hunter2-hunter2-hunter2\n").unwrap();
    let in_file = text.replace("[admin]", &format!("token_file = {token:?}\n[admin]"));
    for with in [
        options()
            .configuration(text)
            .variable("SLIDEGATE_DECISIONS_TOKEN", "hunter2-hunter2-hunter2"),
        options().configuration(&in_file),
    ] {
        let gateway = Gateway::from(with.start());
        let port = gateway.address("decisions").port();
        let ask = |path: &str, headers: &str| {
            let mut wire = Wire::connect(([127, 0, 0, 1], port).into());
            let json = "Content-Type: application/json\r\nContent-Length: 2\r\n";
            let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{json}{headers}\r\n{{}}");
            wire.send(head);
            wire.response().status()
        };
        let forwarded = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n";
        let own = "X-Slidegate-Token: hunter2-hunter2-hunter2\r\n";
        let bearer = "Authorization: Bearer hunter2-hunter2-hunter2\r\n";
        for (path, headers, status) in [
            ("/v1/decide", String::new(), 401),
            ("/v1/decide", "X-Slidegate-Token: hunter3\r\n".to_owned(), 401),
            ("/v1/decide", own.to_owned(), 200),
            ("/v1/decide", bearer.to_owned(), 200),
            ("/v1/auth", forwarded.to_owned(), 401),
            ("/v1/auth", format!("{forwarded}{bearer}"), 401),
            ("/v1/auth", format!("{forwarded}{own}"), 200),
            ("/v1/auth", format!("{forwarded}{own}{own}"), 401),
        ] {
            assert_eq!(ask(path, &headers), status, "{path} {headers}");
        }
        assert!(!gateway.output().contains("hunter"));
    }
}
