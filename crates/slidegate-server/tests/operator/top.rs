//! `slidegate top`, piped and on a terminal.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use slidegate_testbed::{Upstream, wait_until};

use crate::terminal::{Operator, for_many_clients, passing};

/// On a terminal of its own, whose keyboard is the standard input.
fn on_a_terminal(admin: &str) -> Command {
    let mut command = Command::new("script");
    let top = format!(
        "stty rows 24 cols 100; exec '{}' top --interval 100ms --admin {admin}",
        env!("CARGO_BIN_EXE_slidegate")
    );
    command.args(["-q", "-e", "-c", &top, "/dev/null"]);
    command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("SLIDEGATE_ADMIN_TOKEN");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn top_prints_once_into_a_pipe_and_fills_a_terminal_until_ctrl_c() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream).policy("api", "10/h", "").start();
    let operator = Operator::of(&gateway);
    let text = operator.run(&["top"]);
    assert!(text.contains("no decisions yet"), "{text}");
    assert!(text.contains("nearest to a quota: none\n\nmost denied: none\n"), "{text}");
    assert_eq!(passing(&gateway, "10.0.0.1", 15), 10);

    let mut child = on_a_terminal(&format!("http://{}", gateway.admin()))
        .spawn()
        .unwrap_or_else(|error| panic!("script: {error}; apt-get install bsdutils"));
    let mut keyboard = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let written = Arc::new(Mutex::new(String::new()));
    let of_thread = written.clone();
    let reader = thread::spawn(move || {
        let (mut piece, mut bytes) = ([0; 4096], Vec::new());
        while let Ok(length @ 1..) = stdout.read(&mut piece) {
            bytes.extend_from_slice(&piece[..length]);
            *of_thread.lock().unwrap() = String::from_utf8_lossy(&bytes).into_owned();
        }
    });
    let screens = || written.lock().unwrap().clone();
    let is_counted = |screen: &str| screen.contains("api") && screen.contains("LAST 15 MIN");
    wait_until("the first step on the screen", || is_counted(&screens()));
    let text = operator.run(&["top"]);
    let line = text.lines().find(|line| line.starts_with("api ")).unwrap();
    let numbers = line.split_whitespace().skip(1).take(4);
    assert!(numbers.map(str::parse::<f64>).all(|number| number.is_ok()), "{text}");
    assert!(line.contains('█') && !text.contains('\x1b'), "{text}");
    assert!(text.starts_with("slidegate ") && text.contains("\nstore: memory ready, "), "{text}");
    assert!(text.contains("\ndecision time  p50 "), "{text}");
    assert!(text.contains("\nmost denied\nIDENTITY     POLICY"), "{text}");
    let json = operator.json(&["top"]);
    assert_eq!(json["policies"][0]["policy"], "api");

    drop(gateway);
    wait_until("it to notice", || screens().contains("trying again"));
    keyboard.write_all(b"\x03").unwrap();
    let status = child.wait().unwrap();
    reader.join().unwrap();
    let screens = screens();
    assert_eq!(status.code(), Some(0), "{screens:?}");
    assert!(screens.starts_with("\x1b[?1049h\x1b[?25l\x1b[?7l"), "{screens:?}");
    assert!(screens.trim_end().ends_with("\x1b[?25h\x1b[?7h\x1b[?1049l"), "{screens:?}");
    assert!(screens.contains("\x1b[31m█\x1b[0m"), "what was refused is red: {screens:?}");
    let (_, last) = screens.rsplit_once("\x1b[H").unwrap();
    assert!(last.contains("cannot reach") && is_counted(last), "the last known stays: {last:?}");
    assert!(last.lines().count() <= 24, "{last:?}");
}

#[test]
fn top_reports_an_invalid_command_line() {
    let top = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
        let output = command.arg("top").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = top(&["--interval", "10ms"]);
    assert!(code == Some(2) && said.contains("expected at least 100ms"), "{said}");
    let (code, said) = top(&["--interval", "often"]);
    assert!(code == Some(2) && said.contains("expected a length of time such as 50ms"), "{said}");
    let (code, said) = top(&["--admin", "http://127.0.0.1:1"]);
    assert!(code == Some(1) && said.contains("cannot reach http://127.0.0.1:1"), "{said}");
}
