//! The command's output, and its forms.

use serde_json::{Value, json};
use slidegate::Identity;

use super::{Files, ONE_A_MINUTE, combined, log_at};

const TWO_POLICIES: &str = r#"
[[policy]]
name = "api"
quotas = ["3/min", "100/h"]

[[policy]]
name = "watched"
identity = ["everyone"]
shadow = true
quotas = ["4/min"]
"#;

fn busy_log() -> String {
    log_at("203.0.113.7", &[0, 1, 2, 3, 4, 5, 61, 62]) + &log_at("198.51.100.1", &[30, 90])
}

#[test]
fn results_are_reported_policy_by_policy() {
    let files = Files::with_config(TWO_POLICIES);
    files.write("access.log", busy_log());
    let expected = "\
candidate.toml with access.log
10 requests in 10 lines, 2026-10-10T13:00:00.000Z to 2026-10-10T13:01:30.000Z
3 of 10 requests would be refused (30.0%)
! times are whole seconds: a window may in truth have had up to one second's requests more

api
  refused        3 of 10 requests (30.0%), 1 of 2 identities (50.0%)
  worst minute   2026-10-10T13:00:00.000Z: 3 of 7 requests
  refused most   ip:203.0.113.7                                     3 of 8
  units that refuse none of:              99%       99.9%         all   identities
  3/min                                     6           6           6   2
    busiest: 6 of ip:203.0.113.7 until 2026-10-10T13:00:05.000Z
  100/h                                     8           8           8   2
    busiest: 8 of ip:203.0.113.7 until 2026-10-10T13:01:02.000Z

watched (shadow: refuses no requests)
  refused        0 of 10 requests (0%), 0 of 1 identity (0%)
  units that refuse none of:              99%       99.9%         all   identities
  4/min                                     7           7           7   1
    busiest: 7 of everyone until 2026-10-10T13:00:30.000Z
    over this quota, but refused first by api (3 requests): 1 identity
";
    assert_eq!(files.text(&["access.log"]), expected);
}

#[test]
fn a_shadow_policy_reports_what_it_would_refuse() {
    let files = Files::with_config(&TWO_POLICIES.replace("\"3/min\", ", ""));
    files.write("access.log", busy_log());
    let report = files.json(&["access.log"]);
    assert_eq!(report["refused"], 0);
    assert_eq!(report["policies"][1]["shadow"], true);
    assert_eq!(report["policies"][1]["refused"], 3);
}

#[test]
fn a_share_that_is_too_large_fails() {
    let files = Files::with_config(TWO_POLICIES);
    files.write("access.log", busy_log());
    let error = files.failure(1, &["--fail-above", "29.9%", "access.log"]);
    assert_eq!(error, "slidegate: 30.0% of the requests would be refused, more than 29.9%\n");
    files.text(&["--fail-above", "30%", "access.log"]);
    files.write("empty.log", "");
    let error = files.failure(1, &["--fail-above", "30%", "empty.log"]);
    assert_eq!(error, "slidegate: --fail-above: the logs have no request\n");
    for wrong in ["0.1", "101%", "-1%", "x%"] {
        let error = files.failure(2, &[&format!("--fail-above={wrong}"), "access.log"]);
        assert!(error.contains("expected a percentage from 0% to 100%"), "{error}");
    }
}

#[test]
fn two_configurations_are_compared() {
    let files = Files::with_config(TWO_POLICIES);
    files.write("access.log", busy_log() + &log_at("192.0.2.1", &[0, 1, 2]));
    files.write(
        "current.toml",
        "[[policy]]\nname = \"old\"\nquotas = [\"6/h\"]\n[blocked]\nnetworks = [\"192.0.2.0/24\"]\n",
    );
    let report = files.json(&["--against", "current.toml", "access.log"]);
    let against = &report["against"];
    // The old one refuses the seventh and eighth of the busy one, and all of the blocked network.
    assert_eq!(against["refused"], 5);
    assert_eq!(against["only_candidate"]["requests"], 3);
    let most = &against["only_candidate"]["most"];
    assert_eq!(
        (&most[0]["policy"], &most[0]["identity"]),
        (&"api".into(), &"ip:203.0.113.7".into())
    );
    assert_eq!(against["only_other"]["requests"], 5);
    let most = against["only_other"]["most"].as_array().unwrap();
    let most: Vec<_> = most.iter().map(|own| (&own["policy"], &own["requests"])).collect();
    assert_eq!(most, [(&"blocked".into(), &3.into()), (&"old".into(), &2.into())]);
    let text = files.text(&["--against", "current.toml", "access.log"]);
    assert!(text.contains("only by current.toml: 5 requests (38.5%) of 2 identities"), "{text}");
}

#[test]
fn beside_another_configuration_only_new_refusals_can_be_too_many() {
    // Each refuses most of the busy one's requests; only the candidate refuses its fourth.
    let files = Files::with_config("[[policy]]\nname = \"api\"\nquotas = [\"3/min\"]\n");
    files.write("stricter.toml", "[[policy]]\nname = \"api\"\nquotas = [\"2/min\"]\n");
    files.write("looser.toml", "[[policy]]\nname = \"api\"\nquotas = [\"4/min\"]\n");
    files.write("access.log", log_at("203.0.113.7", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
    let against = |file, most| ["--against", file, "--fail-above", most, "access.log"];
    let text = files.text(&against("stricter.toml", "0%"));
    assert!(text.contains("7 of 10 requests would be refused (70.0%)"), "{text}");
    files.text(&against("looser.toml", "10%"));
    let error = files.failure(1, &against("looser.toml", "9.9%"));
    let expected = "slidegate: 10.0% of the requests would be refused by candidate.toml and not by \
                    looser.toml, more than 9.9%\n";
    assert_eq!(error, expected);
    let report = files.json(&["--against", "looser.toml", "access.log"]);
    assert_eq!(report["against"]["only_candidate"]["share"], 0.1);
    assert_eq!(report["against"]["only_other"]["share"], 0.0);
}

#[test]
fn a_count_of_one_is_singular() {
    let files = Files::with_config(ONE_A_MINUTE);
    files.write("current.toml", "[[policy]]\nname = \"api\"\nquotas = [\"2/min\"]\n");
    files.write("one.log", log_at("203.0.113.7", &[0]));
    files.write("two.log", log_at("203.0.113.7", &[0, 1]));
    let arguments = |log| {
        ["--against", "current.toml", "--sweep", "api=1/min..2/min", "--html", "page.html", log]
    };
    let texts = [files.text(&arguments("one.log")), files.read("page.html")];
    assert!(texts[0].contains("\n1 request in 1 line, "), "{}", texts[0]);
    assert!(texts[0].contains("0 of 1 request would be refused"), "{}", texts[0]);
    let others = [files.text(&arguments("two.log")), files.read("page.html")];
    assert!(others[0].contains("1 request (50.0%) of 1 identity\n"), "{}", others[0]);
    assert!(others[0].contains("0 requests (0%) of 0 identities\n"), "{}", others[0]);
    let plurals = ["requests", "identities", "lines", "units"];
    // Numbers and what they count are in one block of the page.
    let blocks = ["p", "div", "li", "h2", "h3", "figcaption", "td", "th", "text", "title"];
    let one_a_line = |text: &String| {
        let ends = blocks.iter().map(|block| format!("</{block}>"));
        ends.fold(text.clone(), |text, end| text.replace(&end, "\n"))
    };
    let pages: Vec<String> = texts.iter().chain(&others).map(one_a_line).collect();
    for line in pages.iter().flat_map(|text| text.lines()) {
        // A line of the page without its tags.
        let words = line.split('<').filter_map(|part| part.rsplit('>').next());
        let words: Vec<&str> = words.flat_map(str::split_whitespace).collect();
        let is_wrong = |pair: &[&str]| {
            pair[0] == "1" && plurals.iter().any(|plural| pair[1].starts_with(plural))
        };
        assert!(!words.windows(2).any(is_wrong), "{line}");
    }
}

#[test]
fn a_sweep_is_as_many_replays() {
    let files = Files::with_config(TWO_POLICIES);
    files.write("access.log", busy_log());
    let report = files.json(&["--sweep", "api=1/min..8/min", "access.log"]);
    let steps = report["sweep"]["steps"].as_array().unwrap();
    let units: Vec<u64> = steps.iter().map(|step| step["units"].as_u64().unwrap()).collect();
    assert_eq!(units, [1, 2, 3, 4, 5, 6, 7, 8]);
    for step in steps {
        let quota = step["quota"].as_str().unwrap();
        let single = Files::with_config(&TWO_POLICIES.replace("3/min", quota));
        single.write("access.log", busy_log());
        let api = single.json(&["access.log"])["policies"][0].take();
        assert_eq!(
            (&step["refused"], &step["identities_refused"]),
            (&api["refused"], &api["identities_refused"]),
            "{quota}"
        );
    }
    let text = files.text(&["--sweep", "api=1/min..8/min", "access.log"]);
    assert!(text.contains("sweep of api\n  1/min"), "{text}");
    let steps =
        files.json(&["--sweep", "api=10/min..1000/min", "access.log"])["sweep"]["steps"].take();
    assert_eq!(steps.as_array().map(Vec::len), Some(16));
    assert_eq!((&steps[0]["units"], &steps[15]["units"]), (&10.into(), &1000.into()));
}

#[test]
fn what_another_policy_refuses_first_is_explained() {
    let files = Files::with_config(
        "[[policy]]\nname = \"api\"\nquotas = [\"6/min\"]\n\
         [[policy]]\nname = \"search\"\nmatch = { path = \"/search\" }\nquotas = [\"2/min\"]\n",
    );
    let search = |second| combined("203.0.113.7", second, "GET /search HTTP/1.1");
    files.write("access.log", (0..36).map(search).collect::<String>());
    let arguments = ["--sweep", "api=1/min..40/min", "--html", "page.html", "access.log"];
    let text = files.text(&arguments);
    let expected = "
api
  refused        0 of 36 requests (0%), 0 of 1 identity (0%)
  units that refuse none of:              99%       99.9%         all   identities
  6/min                                    36          36          36   1
    busiest: 36 of ip:203.0.113.7 until 2026-10-10T13:00:35.000Z
    over this quota, but refused first by search (34 requests): 1 identity
";
    assert!(text.contains(expected), "{text}");
    let report = files.json(&arguments);
    let [api, search] = [0, 1].map(|policy| &report["policies"][policy]["quotas"][0]);
    let by_search = json!({ "identities": 1, "by": [{ "policy": "search", "requests": 34 }] });
    assert_eq!((&api["identities_above"], &api["refused_first"]), (&1.into(), &by_search));
    let none = json!({ "identities": 0, "by": [] });
    assert_eq!((&search["identities_above"], &search["refused_first"]), (&1.into(), &none));
    // Up to 2/min it is refused by api too, and above 36/min it does not ask for more.
    for step in report["sweep"]["steps"].as_array().unwrap() {
        let expected = match step["units"].as_u64().unwrap() {
            3..36 => &by_search,
            _ => &none,
        };
        assert_eq!(&step["refused_first"], expected, "{step}");
        let is_told = text.lines().any(|line| {
            line.trim_start().starts_with(&format!("{} ", step["quota"].as_str().unwrap()))
                && line.ends_with("0 (0%), 0 identities, 1 refused first by search")
        });
        assert_eq!(is_told, *expected == by_search, "{step}: {text}");
    }
    let page = files.read("page.html");
    let rows = page.matches("<td>1: search (34 requests)</td>").count();
    let steps = text.matches("1 refused first by search").count();
    assert_eq!(rows, 1 + steps, "the quota and the steps: {page}");
}

#[test]
fn a_key_that_was_not_issued_is_refused_before_policies() {
    let files = Files::with_config(
        "unknown_keys = \"refuse\"\n\
         [[policy]]\nname = \"api\"\nidentity = [\"api-key\", \"ip\"]\nquotas = [\"1/min\"]\n\
         [plans.free]\nquotas = [\"1/min\"]\n\
         [[api_key]]\nname = \"issued\"\nkey = \"issued-0123456789\"\nplan = \"free\"\n",
    );
    files.write("log.csv", "time,client,path,api_key\n100,203.0.113.7,/,x\n101,203.0.113.7,/,x\n");
    let report = files.json(&["log.csv"]);
    assert_eq!(report["refused"], 2);
    let expected = json!({ "identities": 1, "by": [{ "policy": "unknown_keys", "requests": 2 }] });
    assert_eq!(report["policies"][0]["quotas"][0]["refused_first"], expected);
}

#[test]
fn a_request_that_costs_more_than_another_quota_is_refused_in_a_sweep_too() {
    let config = "[[policy]]\nname = \"api\"\nquotas = [\"9/min\", \"2/s\"]\n";
    let files = Files::with_config(config);
    files.write("requests.csv", "time,client,path,cost\n2026-10-10T13:00:00Z,203.0.113.7,/,3\n");
    let report = files.json(&["--sweep", "api=5/min..9/min", "requests.csv"]);
    let steps = report["sweep"]["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["refused"] == report["refused"]), "{report}");
    assert_eq!(report["refused"], 1);
}

#[test]
fn a_sweep_that_cannot_be_says_why() {
    let files = Files::with_config(&format!(
        "{TWO_POLICIES}\n[plans.free]\nquotas = [\"5/min\"]\n[[policy]]\nname = \"planned\"\nplan = \"free\"\n"
    ));
    files.write("access.log", busy_log());
    for (sweep, code, problem) in [
        (
            "nobody=1/min..2/min",
            1,
            "there is no policy \"nobody\"; there are api, watched, planned",
        ),
        ("planned=1/min..2/min", 1, "policy \"planned\" uses plans and has no quotas"),
        (
            "api=1/s..2/s",
            1,
            "policy \"api\" has 3/min and 100/h: expected the window of one of them",
        ),
        ("api=1/s", 2, "expected a policy and two quotas, such as api=10/min..1000/min"),
        ("api=2/s..1/s", 2, "of one window and the smaller first"),
        ("api=1/s..2/fortnight", 2, "\"fortnight\" is not a window"),
    ] {
        let error = files.failure(code, &["--sweep", sweep, "access.log"]);
        assert!(error.contains(problem), "{sweep}: {error}");
    }
}

#[test]
fn bans_costs_and_bad_requests_are_as_in_production() {
    let files = Files::with_config(
        "[[policy]]\nname = \"api\"\nidentity = [\"user\"]\nquotas = [\"5/min\"]\n\
         ban = { after = \"2/min\", for = \"10min\" }\n",
    );
    let log = "time,user,method,path,cost\n\
               100,ada,GET,/,5\n\
               101,ada,GET,/,1\n\
               102,ada,GET,/,1\n\
               300,ada,GET,/,1\n\
               300,bob,GET,/,6\n\
               301,bob,get,/,1\n\
               302,bob,GET,/,0\n";
    files.write("log.csv", log);
    let report = files.json(&["log.csv"]);
    // Two are denied, which is a ban; the fourth is refused for it. Bob asks for more than there ever is.
    assert_eq!((report["refused"].as_u64(), report["bad_requests"].as_u64()), (Some(4), Some(1)));
    assert_eq!(report["bad_lines"], 1);
    let api = &report["policies"][0];
    let refused: Vec<_> = api["most_refused"].as_array().unwrap().iter().collect();
    assert_eq!((&refused[0]["identity"], &refused[0]["refused"]), (&"user:ada".into(), &3.into()));
    assert_eq!((&refused[1]["identity"], &refused[1]["refused"]), (&"user:bob".into(), &1.into()));
    assert_eq!(api["quotas"][0]["never_refused"]["all"], 7, "had nothing been refused");
}

#[test]
fn secrets_are_nowhere_in_the_output() {
    let files = Files::with_config(
        "[[policy]]\nname = \"api\"\nidentity = [\"api-key\", \"authorization\"]\nquotas = [\"1/min\"]\n",
    );
    let log = "time,path,api_key,authorization\n\
               100,/,hunter2,\n\
               101,/?key=hunter2,hunter2,\n\
               102,/,,Bearer hunter2\n\
               103,/,,Bearer hunter2\n\
               hunter2,/,hunter2,\n";
    files.write("log.csv", log);
    let arguments = ["--html", "page.html", "--sweep", "api=1/min..2/min", "log.csv"];
    let key = Identity::api_key(b"hunter2").to_string();
    let text = files.text(&arguments);
    let json = files.json(&arguments).to_string();
    for output in [text, json, files.read("page.html")] {
        assert!(output.contains(&key), "{output}");
        assert!(!output.contains("hunter2"), "{output}");
    }
}

#[test]
fn a_wrong_configuration_is_reported_as_everywhere() {
    let files = Files::with_config("[[policy]]\nname = \"api\"\nquotas = [\"many/min\"]\n");
    files.write("access.log", busy_log());
    let error = files.failure(1, &["access.log"]);
    assert!(error.contains("candidate.toml:3") && error.contains("many"), "{error}");
    files.write("candidate.toml", ONE_A_MINUTE);
    let error = files.failure(1, &["--against", "missing.toml", "access.log"]);
    assert!(error.contains("missing.toml"), "{error}");
    let report: Value = files.json(&["access.log"]);
    assert_eq!(report["config"], "candidate.toml");
}
