//! `slidegate demo`, seen from outside.

use std::process::Command;

/// A row of the final table.
#[derive(Debug, PartialEq)]
struct Row {
    customer: String,
    limiter: &'static str,
    /// Sent, admitted, refused, admitted in the worst 60 seconds, quota.
    figures: [u32; 5],
    verdict: String,
}

fn demo() -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slidegate"));
    let output = command.arg("demo").output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    String::from_utf8(output.stdout).expect("the demo is text")
}

fn table(text: &str) -> Vec<Row> {
    let (_, table) = text.split_once("verdict\n").expect("the table has headings");
    let mut rows: Vec<Row> = Vec::new();
    for line in table.lines().skip(1).take_while(|line| !line.is_empty()) {
        let above = rows.last().map(|row| row.customer.clone());
        rows.push(row(line, above));
    }
    rows
}

/// A row that names no customer is about the one above.
fn row(line: &str, above: Option<String>) -> Row {
    let limiters = ["Fixed window", "Slidegate"];
    let limiter = limiters.into_iter().find(|name| line.contains(name)).expect("a limiter");
    let (name, rest) = line.split_once(limiter).expect("the line has it");
    let customer = match name.trim() {
        "" => above.expect("the first row names its customer"),
        name => name.to_owned(),
    };
    let mut words = rest.split_whitespace();
    let mut figure = || words.next()?.replace(',', "").parse().ok();
    let figures = [(); 5].map(|()| figure().expect("five figures"));
    Row { customer, limiter, figures, verdict: words.collect::<Vec<_>>().join(" ") }
}

#[test]
fn shows_both_scenes_and_the_table() {
    let text = demo();
    for heading in
        ["1. A burst around the minute", "2. The 50,000-request script", "3. The worst 60 seconds"]
    {
        assert!(text.contains(heading), "{heading}\n{text}");
    }
    let customers: Vec<_> = table(&text).into_iter().map(|row| row.customer).collect();
    let expected = ["burster", "script", "ann", "bob", "cho"].map(|name| [name; 2]).concat();
    assert_eq!(customers, expected);
}

#[test]
fn slidegate_holds_every_quota() {
    let rows = table(&demo());
    for row in rows.iter().filter(|row| row.limiter == "Slidegate") {
        let [_, _, _, worst, quota] = row.figures;
        assert!(worst <= quota, "{row:?}");
        assert_eq!(row.verdict, "held", "{row:?}");
    }
}

#[test]
fn around_the_minute_the_fixed_window_admits_twice_the_quota_and_slidegate_does_not() {
    let rows = table(&demo());
    assert_eq!(rows[0].figures, [300, 200, 100, 200, 100]);
    assert_eq!(rows[0].verdict, "EXCEEDED (x2.00)");
    assert_eq!(rows[1].figures, [300, 200, 100, 100, 100]);
}

#[test]
fn the_script_is_held_by_slidegate_alone() {
    let rows = table(&demo());
    assert_eq!(rows[2].figures, [50_000, 6_000, 44_000, 1_188, 600]);
    assert_eq!(rows[2].verdict, "EXCEEDED (x1.98)");
    assert_eq!(rows[3].figures, [50_000, 6_000, 44_000, 600, 600]);
}

#[test]
fn who_keeps_to_the_plan_is_never_refused() {
    for row in table(&demo()).iter().skip(4) {
        let [sent, admitted, refused, _, _] = row.figures;
        assert!(sent > 0, "{row:?}");
        assert_eq!((admitted, refused), (sent, 0), "{row:?}");
    }
}

#[test]
fn is_plain_text_of_80_columns_when_piped() {
    let text = demo();
    assert!(!text.contains('\x1b'));
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert_eq!(line, line.trim_end());
    }
}

#[test]
fn is_the_same_every_time() {
    assert_eq!(demo(), demo());
}
