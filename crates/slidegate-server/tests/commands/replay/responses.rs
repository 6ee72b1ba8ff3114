//! What responses say about costs, as logs have it.

use super::{Files, ONE_A_MINUTE};

const LOGIN: &str = "[[policy]]\nname = \"login\"\nquotas = [\"2/min\"]\n\
                     count = { status = [401, \"5xx\"] }\n";

const TOKENS: &str = "[[policy]]\nname = \"tokens\"\nquotas = [\"100/min\"]\n\
                      cost = { response_json = \"usage.total_tokens\", hold = 10 }\n";

/// Requests of one client, a second apart, with these statuses.
fn statuses(statuses: &[&str]) -> String {
    let line = |(second, status): (usize, &&str)| {
        format!(
            "203.0.113.7 - - [10/Oct/2026:13:00:{second:02} +0000] \"POST /login HTTP/1.1\" {status} \
             12 \"-\" \"curl/8.5\"\n"
        )
    };
    statuses.iter().enumerate().map(line).collect()
}

#[test]
fn a_login_policy_counts_failed_logins_only() {
    let files = Files::with_config(LOGIN);
    files.write("good.log", statuses(&["200"; 50]));
    let report = files.json(&["good.log"]);
    assert_eq!(report["refused"], 0, "{report}");
    let policy = &report["policies"][0];
    assert_eq!(policy["requests_without_status"], 0, "{report}");
    // One unit has to be free while a login is in flight.
    assert_eq!(policy["quotas"][0]["never_refused"]["all"], 1, "{report}");

    // Two failures, and what comes within their minute is refused, good or not.
    files.write("failed.log", statuses(&["200", "401", "302", "502", "200", "401", "204"]));
    let report = files.json(&["failed.log", "--sweep", "login=1/min..4/min"]);
    assert_eq!(report["refused"], 3, "{report}");
    // Had nothing been refused: three failures, and the good login after them.
    assert_eq!(report["policies"][0]["quotas"][0]["never_refused"]["all"], 4, "{report}");
    let steps = report["sweep"]["steps"].as_array().unwrap();
    let refused: Vec<_> = steps.iter().map(|step| step["refused"].as_u64().unwrap()).collect();
    assert_eq!(refused, [5, 3, 1, 0], "{report}");

    // A client that left has guessed.
    files.write("left.log", statuses(&["499", "000", "200"]));
    assert_eq!(files.json(&["left.log"])["refused"], 1);
    let text = files.text(&["left.log"]);
    assert!(!text.contains("status"), "{text}");
}

#[test]
fn without_statuses_every_request_is_taken_as_counted() {
    let files = Files::with_config(&format!("{LOGIN}{ONE_A_MINUTE}"));
    let line =
        |second| format!("203.0.113.7 [10/Oct/2026:13:00:0{second} +0000] \"GET / HTTP/1.1\"\n");
    files.write("access.log", (0..4).map(line).collect::<String>());
    let format = r#"$remote_addr [$time_local] "$request""#;
    let text = files.text(&["--log-format", format, "access.log"]);
    let note = "login: the log has no status, so every request is taken as counted; --map \
                status=FIELD names the field";
    assert!(text.contains(note), "{text}");
    assert!(!text.contains("api: the log"), "{text}");
    assert!(text.contains("3 of 4 requests would be refused"), "{text}");

    files.write("some.log", statuses(&["200", "-", "200"]));
    let text = files.text(&["some.log"]);
    assert!(text.contains("login: requests without a status, taken as counted: 1"), "{text}");
}

#[test]
fn a_field_of_the_log_is_the_cost_of_the_response() {
    let files = Files::with_config(TOKENS);
    let line = |second: u32, tokens: &str| {
        format!(
            "{{\"at\":\"2026-10-10T13:00:{second:02}Z\",\"uri\":\"/chat\",\"code\":200,\
             \"usage\":{{\"total\":{tokens}}}}}\n"
        )
    };
    // 95 units are used when the third comes, which needs 10.
    let lines = [line(0, "80"), line(1, "15"), line(2, "1"), line(3, "0")];
    files.write("app.json", lines.concat());
    let fields = ["--map", "time=at", "--map", "path=uri", "--map", "status=code"];
    let cost = ["--map", "response-cost=usage.total"];
    let report = files.json(&[&fields[..], &cost, &["app.json"]].concat());
    assert_eq!(report["refused"], 2, "{report}");
    // Had nothing been refused: 96 and the 10 of the last.
    assert_eq!(report["policies"][0]["quotas"][0]["never_refused"]["all"], 106, "{report}");

    let text = files.text(&[&fields[..], &["app.json"]].concat());
    let note =
        "tokens: the log has no response-cost, so every request is taken to cost what is held";
    assert!(text.contains(note), "{text}");
    assert!(text.contains("0 of 4 requests would be refused"), "{text}");

    let lines = [line(0, "5000"), line(30, "\"many\""), line(59, "1")];
    files.write("app.json", lines.concat());
    let report = files.json(&[&fields[..], &cost, &["app.json"]].concat());
    assert_eq!(report["refused"], 2, "an overrun closes the account: {report}");
    assert_eq!(report["policies"][0]["requests_without_cost"], 1, "{report}");
}

#[test]
fn two_configurations_are_compared_by_what_each_counts() {
    let files = Files::with_config(LOGIN);
    files.write("all.toml", LOGIN.replace("count = ", "refund = "));
    files.write("access.log", statuses(&["200", "200", "200", "401", "401", "200"]));
    let report = files.json(&["access.log", "--against", "all.toml"]);
    let against = &report["against"];
    assert_eq!((&report["refused"], &against["refused"]), (&1.into(), &4.into()), "{report}");
    assert_eq!(against["only_other"]["requests"], 3, "{report}");
}
