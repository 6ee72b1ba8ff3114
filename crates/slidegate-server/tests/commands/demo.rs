//! `slidegate demo`, seen from outside: real runs, most of them shorter than the half minute.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use reqwest::blocking::Client;
use slidegate_testbed::wait_until;

/// A demo that runs, killed on drop.
struct Demo {
    child: Child,
    /// What it has written so far, and all of it when it has ended.
    written: Arc<Mutex<String>>,
}

/// A row of the final table.
#[derive(Debug)]
struct Row {
    sent: u32,
    admitted: u32,
    refused: u32,
    most: u32,
    units: u32,
    verdict: String,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
    command.arg("demo").args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The same on a terminal of its own, whose keyboard is the standard input.
fn on_a_terminal(arguments: &[&str]) -> Command {
    let mut command = Command::new("script");
    // A shell that stays in between, as dash does, would be interrupted too and end with 130.
    let demo = format!("exec '{}' demo {}", env!("CARGO_BIN_EXE_slidegate"), arguments.join(" "));
    command.args(["-q", "-e", "-c", &demo, "/dev/null"]);
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Demo {
    fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut stdout = child.stdout.take().unwrap();
        let written = Arc::new(Mutex::new(String::new()));
        let of_thread = written.clone();
        thread::spawn(move || {
            let mut piece = [0; 4096];
            let mut bytes = Vec::new();
            while let Ok(length @ 1..) = stdout.read(&mut piece) {
                bytes.extend_from_slice(&piece[..length]);
                *of_thread.lock().unwrap() = String::from_utf8_lossy(&bytes).into_owned();
            }
        });
        Self { child, written }
    }

    fn text(&self) -> String {
        self.written.lock().unwrap().clone()
    }

    fn wait_for(&self, text: &str) -> String {
        wait_until(text, || self.text().contains(text));
        self.text()
    }

    fn interrupt(&self) {
        let pid = self.child.id().to_string();
        let mut kill = Command::new("sh");
        let status = kill.args(["-c", "kill -s INT \"$0\"", &pid]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for its end, and returns all that it wrote.
    fn end_with(&mut self, code: i32) -> String {
        let mut status = None;
        wait_until("the demo's end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        // Only then are there no more writers.
        wait_until("the end of its output", || Arc::strong_count(&self.written) == 1);
        let mut complaint = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        assert_eq!(status.unwrap().code(), Some(code), "{complaint}\n{}", self.text());
        assert_eq!(complaint, "");
        self.text()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run that meets a boundary of ten seconds, whenever it begins.
fn run() -> &'static Output {
    static RUN: OnceLock<Output> = OnceLock::new();
    RUN.get_or_init(|| command(&["--seconds", "12"]).output().expect("the binary runs"))
}

fn plain() -> String {
    String::from_utf8(run().stdout.clone()).expect("the demo is text")
}

fn row(text: &str, name: &str) -> Row {
    let (_, table) = text.split_once("most in any window\n").expect("the table has headings");
    let line = table.lines().find(|line| line.trim_start().starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no row for {name}: {text}"));
    let rest = line.trim_start().strip_prefix(name).unwrap();
    let words: Vec<&str> = rest.split_whitespace().collect();
    let number = |word: &str| word.replace(',', "").parse::<u32>().expect(line);
    let of = words.iter().position(|word| *word == "of").expect(line);
    Row {
        sent: number(words[0]),
        admitted: number(words[1]),
        refused: number(words[2]),
        most: number(words[of - 1]),
        units: number(words[of + 1]),
        verdict: (*words.last().unwrap()).to_owned(),
    }
}

/// The URL in the line that has this text.
fn url(text: &str, part: &str) -> String {
    let words = text.split_whitespace();
    let url = words.filter(|word| word.starts_with("http://")).find(|word| word.contains(part));
    url.unwrap_or_else(|| panic!("no URL with {part}: {text}")).to_owned()
}

#[test]
fn a_demo_ends_by_itself_and_reports_that_every_limit_held() {
    assert_eq!(run().status.code(), Some(0), "{}", plain());
    assert!(run().stderr.is_empty());
    assert!(plain().contains("Every limit held, and the polite user was never refused."));
    for (name, units) in [
        ("polite free user", 60),
        ("pro script", 600),
        ("boundary burster", 20),
        ("login guesser", 5),
    ] {
        let row = row(&plain(), name);
        assert_eq!(row.units, units, "{name} {row:?}");
        assert!(row.most <= units, "{name} {row:?}");
        assert_eq!(row.verdict, "held", "{name} {row:?}");
    }
}

#[test]
fn a_demo_begins_and_ends_with_what_a_fixed_window_would_have_admitted() {
    let text = plain();
    assert!(
        text.starts_with("Slidegate demo: 20 per 10 s means at most 20 in any 10 s.\n"),
        "{text}"
    );
    let (introduction, _) = text.split_once("clients").unwrap();
    assert!(introduction.contains("A fixed window") && introduction.contains("40 of 20"), "{text}");
    let (_, last) = text.split_once("a fixed window would have admitted ").expect(&text);
    let units = last.split(' ').next().unwrap().parse::<u32>().unwrap();
    assert!((21..=40).contains(&units), "{last}");
    assert!(last.ends_with("Slidegate admitted 20 of 20.\n"), "{last}");
}

#[test]
fn each_client_gets_what_its_limit_has() {
    let text = plain();
    let polite = row(&text, "polite free user");
    assert!(polite.sent > 0, "{polite:?}");
    assert_eq!((polite.admitted, polite.refused), (polite.sent, 0), "{polite:?}");
    let script = row(&text, "pro script");
    assert_eq!(script.admitted, 600, "{script:?}");
    assert_eq!(script.refused, script.sent - 600, "{script:?}");
    let burster = row(&text, "boundary burster");
    assert!(burster.sent >= 40 && burster.sent.is_multiple_of(40), "{burster:?}");
    assert!((20..=burster.sent / 2).contains(&burster.admitted), "{burster:?}");
    let guesser = row(&text, "login guesser");
    assert_eq!(guesser.admitted, 5, "{guesser:?}");
    assert!(guesser.refused > 0, "{guesser:?}");
}

#[test]
fn upstream_received_what_the_demo_admitted_and_nothing_else() {
    let text = plain();
    let clients = ["polite free user", "pro script", "boundary burster", "login guesser"];
    let rows = clients.map(|name| row(&text, name));
    let sent: u32 = rows.iter().map(|row| row.sent).sum();
    let admitted: u32 = rows.iter().map(|row| row.admitted).sum();
    let expected = format!("Of {sent} requests, {admitted} reached the API.");
    assert!(text.replace(',', "").contains(&expected.replace(',', "")), "{expected}\n{text}");
}

#[test]
fn a_piped_demo_is_plain_text_of_80_columns_with_a_line_every_five_seconds() {
    let text = plain();
    assert!(!text.contains('\x1b') && !text.contains('\r'));
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert_eq!(line, line.trim_end());
    }
    for start in ["    5 s  Of ", "   10 s  Of "] {
        let line = text.lines().find(|line| line.starts_with(start));
        assert!(line.is_some_and(|line| line.ends_with("reached the API.")), "{start}: {text}");
    }
}

#[test]
fn people_can_try_the_demo_while_it_runs_and_ctrl_c_ends_it_early() {
    let mut demo = Demo::spawn(&mut command(&["--seconds", "600"]));
    let text = demo.wait_for("grep rate_limit");
    let response = Client::new().get(url(&text, "/v1/reports")).send().unwrap();
    assert_eq!(response.status(), 200);
    let policies = response.headers()["ratelimit-policy"].to_str().unwrap();
    assert!(policies.contains("q=60;w=60"), "{policies}");
    demo.interrupt();
    let text = demo.end_with(0);
    assert!(text.contains("Every limit held"), "{text}");
    assert!(row(&text, "pro script").sent < 50_000, "{text}");
}

#[test]
fn a_demo_that_stays_up_goes_on_limiting() {
    let mut demo = Demo::spawn(&mut command(&["--keep", "--seconds", "1"]));
    let text = demo.wait_for("stays up until Ctrl-C: try the commands above.");
    assert!(text.contains("Every limit held"), "{text}");
    let client = Client::new();
    let login = url(&text, "/login");
    let statuses = [(); 7].map(|()| client.post(&login).send().unwrap().status().as_u16());
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429, 429]);
    let refused = client.post(&login).send().unwrap();
    assert!(refused.headers().contains_key("retry-after"), "{refused:?}");
    let metrics = client.get(url(&text, "/metrics")).send().unwrap().text().unwrap();
    assert!(metrics.contains("rate_limit_exceeded_total{policy=\"login\"}"), "{metrics}");
    assert!(demo.child.try_wait().unwrap().is_none());
    demo.interrupt();
    demo.end_with(0);
}

#[test]
fn two_demos_at_once_taken_ports_and_the_environment_do_no_harm() {
    // Whoever has them, they are taken.
    let _taken = [8080, 8081, 9090, 3000].map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    let mut first = command(&["--seconds", "2"]);
    first.env("RATE_LIMIT_ENABLED", "false").env("SLIDEGATE_CONFIG", "/does/not/exist");
    let mut demos = [first, command(&["--seconds", "2"])].map(|mut it| Demo::spawn(&mut it));
    let texts = demos.each_mut().map(|demo| demo.end_with(0));
    assert_ne!(url(&texts[0], "/v1/reports"), url(&texts[1], "/v1/reports"));
    for text in texts {
        assert!(text.contains("Every limit held"), "{text}");
    }
}

#[test]
fn a_terminal_sees_a_table_that_is_drawn_in_place_and_gets_its_cursor_back() {
    let mut demo = Demo::spawn(&mut on_a_terminal(&["--seconds", "2"]));
    let text = demo.end_with(0);
    let (_, shown) = text.split_once("\x1b[?25l").expect("the cursor is hidden");
    let (live, after) = shown.rsplit_once("\x1b[?25h").expect("the cursor is shown again");
    // The table has eight lines, and each time but the first the cursor goes up by as many.
    assert!(live.matches("\x1b[8A").count() >= 3, "{live:?}");
    for word in ["most in any window", "p99", "of 2 s, Ctrl-C ends it"] {
        assert!(live.contains(word), "{word}: {live:?}");
    }
    assert!(!after.contains("\x1b[?25l"), "{after:?}");
    assert!(after.contains("\x1b[32mheld\x1b[0m"), "{after:?}");
    assert!(after.contains("Every limit held"), "{after:?}");
}

#[test]
fn ctrl_c_on_a_terminal_gives_the_cursor_back() {
    let mut demo = Demo::spawn(on_a_terminal(&["--seconds", "600"]).env("NO_COLOR", "1"));
    demo.wait_for("Ctrl-C ends it");
    let mut keyboard = demo.child.stdin.take().unwrap();
    keyboard.write_all(b"\x03").unwrap();
    let text = demo.end_with(0);
    let (_, after) = text.rsplit_once("\x1b[?25h").expect("the cursor is shown again");
    assert!(after.contains("Every limit held"), "{after:?}");
    // Nobody asked for colours.
    assert!(!text.contains("\x1b[32m") && !text.contains("\x1b[1m"), "{text:?}");
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_gets_plain_lines() {
    let mut command = on_a_terminal(&["--seconds", "1"]);
    let text = Demo::spawn(command.env("TERM", "dumb").env("NO_COLOR", "1")).end_with(0);
    assert!(text.contains("Every limit held") && !text.contains('\x1b'), "{text:?}");
}

#[test]
fn a_demo_ends_when_its_output_is_closed() {
    let mut child = command(&["--seconds", "600"]).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("Slidegate demo"), "{first}");
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn help_of_demo_says_how_long_it_takes_and_how_it_ends() {
    let output = command(&["--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["[default: 30]", "slidegate demo --keep", "0  every limit held, also if Ctrl-C"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn demo_is_the_first_command_and_the_first_picture_of_the_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let (_, commands) = readme.split_once("```sh\n").expect("there is a command");
    assert!(commands.starts_with("cargo run --release -- demo "), "{commands}");
    let (_, picture) = readme.split_once("![").expect("there is a picture");
    let (_, path) = picture.split_once("](").unwrap();
    let (path, _) = path.split_once(')').unwrap();
    assert_eq!(path, "docs/demo.svg");
    // A picture of this very table, in which everything held.
    let picture = fs::read_to_string(root.join(path)).unwrap();
    let words: Vec<&str> = picture.split(['<', '>']).collect();
    let text = plain();
    let (_, table) = text.split_once("  client  ").expect("there is a table");
    let (table, _) = table.split_once("Most in any window").expect("there is an explanation");
    for heading in ["sent", "admitted", "refused", "p99", "polite", "script", "burster", "guesser"]
    {
        assert!(table.contains(heading) && words.contains(&heading), "{heading}");
    }
    assert_eq!(words.iter().filter(|word| **word == "held").count(), 4);
}

#[test]
fn a_demo_of_invalid_length_is_refused() {
    for seconds in ["0", "601", "soon"] {
        let output = command(&["--seconds", seconds]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{seconds}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("--seconds") && text.contains(seconds), "{text}");
    }
}
