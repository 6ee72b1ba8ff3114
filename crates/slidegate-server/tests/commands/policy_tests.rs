//! `slidegate test`, seen from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use slidegate_testbed::Directory;

use crate::slidegate;

const CONFIG: &str = r#"
[gateway]
upstream = "http://127.0.0.1:3000"
trusted_proxies = ["10.0.0.0/8"]
client_address = "x-forwarded-for"
user_header = "x-user-id"

[store]
url = "redis://192.0.2.1:6379"

[plans.free]
quotas = ["60/min", "1000/day"]
[plans.pro]
quotas = "600/min"

[[api_key]]
key = "k-hunter2"
name = "acme"
plan = "pro"

[[policy]]
name = "api"
identity = ["user", "api-key", "ip"]
plan = { header = "x-plan", default = "free" }

[[policy]]
name = "login"
match = { method = "POST", path = "/login" }
identity = "ip"
quotas = "5/min"
ban = { after = "3/min", for = "1h" }

[[policy]]
name = "trial"
match = { path = "/search" }
quotas = "1/min"
shadow = true

[exempt]
paths = "/health"

[blocked]
networks = "198.51.100.0/24"
"#;

/// A configuration with cases beside it, in a directory that goes with the test.
struct Cases(Directory);

impl Cases {
    fn new(text: &str) -> Self {
        let directory = Directory::new();
        fs::write(directory.path().join("limits.toml"), CONFIG).unwrap();
        fs::write(directory.path().join("limits.test.toml"), text).unwrap();
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What a run prints on both of its outputs, and its exit code.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = slidegate(&["test"]);
        said(&command.args(arguments).current_dir(self.0.path()).output().unwrap())
    }

    #[track_caller]
    fn passes(&self) -> String {
        let (code, said) = self.run(&["limits.toml"]);
        assert_eq!(code, 0, "{said}");
        said
    }

    #[track_caller]
    fn fails(&self) -> String {
        let (code, said) = self.run(&["limits.toml"]);
        assert_eq!(code, 1, "{said}");
        said
    }
}

fn said(output: &Output) -> (i32, String) {
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

#[test]
fn every_kind_of_expectation_can_be_met() {
    let said = Cases::new(
        r#"
[[case]]
name = "five logins a minute, then a ban"
request = { method = "POST", path = "/login", client = "203.0.113.7" }
[[case.step]]
times = 5
every = "1s"
expect = { verdict = "allow", policy = "login" }
[[case.step]]
expect = { verdict = "deny", policy = "login", remaining = 0, retry_after = "55s" }
[[case.step]]
at = "10s"
times = 2
expect = { verdict = "deny" }
[[case.step]]
at = "11s"
expect = { verdict = "block", reason = "banned", policy = "login", retry_after = "3599s" }
[[case.step]]
at = "2h"
expect = { verdict = "allow", policy = "login", remaining = 4 }

[[case]]
name = "another case has empty accounts"
request = { method = "POST", path = "/login", client = "203.0.113.7", cost = 5 }
[[case.step]]
expect = { verdict = "allow", remaining = 0 }
[[case.step]]
request = { cost = 6 }
expect = { verdict = "block", reason = "cost", policy = false }

[[case]]
name = "a day passes in no time"
request = { path = "/", user = "42" }
[[case.step]]
times = 1000
every = "2s"
expect = { verdict = "allow", policy = "api" }
[[case.step]]
at = "23h"
expect = { verdict = "deny", policy = "api", remaining = 0, retry_after = "1h" }
[[case.step]]
at = "30d"
expect = { verdict = "allow", policy = "api", remaining = 59 }

[[case]]
name = "plans: the application's, the key's, a trusted header's"
[[case.step]]
request = { path = "/", user = "1", plan = "pro" }
expect = { policy = "api", remaining = 599 }
[[case.step]]
request = { path = "/", headers = { x-api-key = "k-hunter2" } }
expect = { policy = "api", remaining = 599 }
[[case.step]]
request = { path = "/", peer = "10.0.0.1", headers = { x-forwarded-for = "203.0.113.7", x-plan = "pro" } }
expect = { policy = "api", remaining = 599 }
[[case.step]]
request = { path = "/", peer = "203.0.113.8", headers = { x-plan = "pro" } }
expect = { policy = "api", remaining = 59 }

[[case]]
name = "blocked, exempt, watched and malformed"
[[case.step]]
request = { path = "/", client = "198.51.100.9" }
expect = { verdict = "block", reason = "listed", policy = false }
[[case.step]]
request = { path = "/health", client = "203.0.113.7" }
times = 100
expect = { verdict = "allow", policy = false }
[[case.step]]
request = { path = "/search", client = "203.0.113.7" }
times = 3
expect = { verdict = "allow", policy = "trial", remaining = 0 }
[[case.step]]
request = { path = "/", peer = "10.0.0.1", headers = { x-user-id = ["1", "2"] } }
expect = { verdict = "bad-request", policy = false }
"#,
    )
    .passes();
    assert!(said.contains("\nrunning 5 tests\n"), "{said}");
    assert!(said.contains("\ntest a day passes in no time ... ok\n"), "{said}");
    assert!(said.contains("\ntest result: ok. 5 passed; 0 failed; 0 filtered out\n"), "{said}");
}

#[test]
fn a_failure_says_what_was_decided_and_why() {
    let cases = Cases::new(
        r#"
[[case]]
name = "good"
request = { path = "/", client = "203.0.113.7" }
expect = { verdict = "allow" }

[[case]]
name = "six logins"
request = { method = "POST", path = "/login?token=hunter2", client = "203.0.113.7", headers = { cookie = "hunter2", x-api-key = "k-hunter2" } }
[[case.step]]
times = 10
every = "1s"
expect = { verdict = "allow", policy = "login" }

[[case]]
name = "wrong numbers"
request = { path = "/search", client = "203.0.113.7", headers = { authorization = "Bearer hunter2", x-api-key = "sk-hunter2" } }
[[case.step]]
expect = { verdict = "allow" }
[[case.step]]
expect = { verdict = "allow", policy = "api", remaining = 3, retry_after = "2s" }
"#,
    );
    let said = cases.fails();
    let expected = "\
running 3 tests
test good ... ok
test six logins ... FAILED
test wrong numbers ... FAILED

failures:

---- six logins ----
limits.test.toml:10: step 1, request 6 of 10, at 5s: POST /login
expected: allow, policy login
decided:  deny, retry_after 55s
    api: 595 of 600/min remaining for api-key:acme, plan pro
    login: 0 of 5/min remaining for ip:203.0.113.7: denied
not as expected: verdict
explained:
    api: takes 1 unit of 600/min from api-key:acme, plan pro, having no user
    login: takes 1 unit of 5/min from ip:203.0.113.7, bans for 1h after 3 denials in 1min
    trial: not for this path, only /search

---- wrong numbers ----
limits.test.toml:20: step 2, at 0s: GET /search
expected: allow, policy api, remaining 3, retry_after 2s
decided:  allow
    api: 58 of 60/min, 998 of 1000/day remaining for ip:203.0.113.7, plan free
    trial: 0 of 1/min remaining for ip:203.0.113.7: would deny (shadow)
not as expected: remaining, retry_after
explained:
    api: takes 1 unit of 60/min, 1000/day from ip:203.0.113.7, plan free, having no user, api-key (the API key is unknown)
";
    let (_, after) = said.split_once("\n\n").unwrap();
    assert!(after.starts_with(expected), "{after}\n--- is not ---\n{expected}");
    let end = "\nfailures:\n    six logins\n    wrong numbers\n\ntest result: FAILED. 1 passed; 2 failed; 0 filtered out\n\nslidegate: 2 of 3 tests failed\n";
    assert!(said.ends_with(end), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    let (code, said) = cases.run(&["limits.toml", "--filter", "good"]);
    assert!(code == 0 && said.contains("1 passed; 0 failed; 2 filtered out"), "{said}");
    let (code, said) = cases.run(&["limits.toml", "--filter", "no such"]);
    assert!(code == 1 && said.contains("--filter \"no such\": no case has this"), "{said}");
}

#[test]
fn every_mistake_in_a_case_file_is_reported_with_its_line() {
    let said = Cases::new(
        r#"confg = "x.toml"
[[case]]
name = "same"
requst = { path = "/" }
[[case.step]]
at = "10s"
times = 1000001
every = "1s"
request = { path = "login", client = "localhost", headers = { "x y" = "hunter2", x-api-key = 5, a = "\u0000hunter2" } }
expect = { verdict = "denied", policy = "logn", remaining = -1, retry_after = "soon", reason = "x", hat = 1 }
[[case.step]]
at = "5s"
request = { path = "/" }
expect = {}
[[case]]
name = "same"
request = { path = "/", cost = 0, method = "G T" }
[[case]]
name = "long"
request = { path = "/" }
times = 1000000
every = "300d"
expect = { verdict = "deny" }
[[case]]
request = { path = "/" }
every = "1s"
expect = { policy = true }
[[case]]
name = "shows nothing"
request = { path = "/" }
[[case.step]]
times = 60
[[case.step]]
at = "1min"
"#,
    )
    .fails();
    for expected in [
        ":1: confg: unknown key: did you mean config?",
        ":4: case[0].requst: unknown key: did you mean request?",
        ":7: case[0].step[0].times = 1000001: expected a whole number from 1 to 1000000",
        ":9: case[0].step[0].request.client = \"localhost\": expected an IP address",
        ":9: case[0].step[0].request.headers.\"x y\" = (hidden): expected the name of a header",
        ":9: case[0].step[0].request.headers.a = (hidden): expected visible text",
        ":9: case[0].step[0].request.headers.x-api-key = (hidden): expected a string",
        ":9: case[0].step[0].request.path = \"login\": expected a path that starts with /",
        ":10: case[0].step[0].expect.hat: unknown key: expected policy, reason, remaining,",
        ":10: case[0].step[0].expect.policy = \"logn\": expected api, login or trial",
        ":10: case[0].step[0].expect.reason = \"x\": expected listed, cost or banned",
        ":10: case[0].step[0].expect.remaining = -1: expected a whole number from 0",
        ":10: case[0].step[0].expect.retry_after = \"soon\": expected a length of time",
        ":10: case[0].step[0].expect.verdict = \"denied\": expected allow, deny, block or bad-req",
        ":12: case[0].step[1].at = \"5s\": in the past: the step before is at 10s",
        ":14: case[0].step[1].expect = (a table): expected at least one of verdict, reason,",
        ":16: case[1].name = \"same\": another case has this name",
        ":15: case[1].expect: missing: expected what is decided",
        ":17: case[1].request.cost = 0: expected a whole number from 1",
        ":17: case[1].request.method = \"G T\": expected a method",
        ":21: case[2].times = 1000000: a case lasts at most 3660d",
        ":24: case[3].name: missing: expected what the case shows",
        ":26: case[3].every = \"1s\": expected `times` too",
        ":27: case[3].expect.policy = true: expected the name of a policy, or false for none",
        ":33: case[4].step[1].expect: missing: expected what is decided, such as { verdict = \"deny\" }, in at least one step",
    ] {
        assert!(said.contains(&format!("\nlimits.test.toml{expected}")), "{expected}: {said}");
    }
    assert!(said.starts_with("slidegate: 25 problems:\n") && !said.contains("hunter2"), "{said}");
}

#[test]
fn a_configuration_is_beside_the_cases_or_named() {
    let text =
        "[[case]]\nname = \"one\"\nrequest = { path = \"/\" }\nexpect = { policy = \"api\" }\n";
    let cases = Cases::new(text);
    let named = format!("config = \"sub/other.toml\"\n{text}");
    fs::create_dir(cases.path("sub")).unwrap();
    fs::write(cases.path("sub/other.toml"), CONFIG.replace("\"api\"", "\"rest\"")).unwrap();
    fs::write(cases.path("named.test.toml"), &named).unwrap();
    fs::write(cases.path("cases.toml"), text).unwrap();
    for arguments in [
        &["limits.test.toml"][..],
        &["limits.toml"],
        &["--config", "limits.toml"],
        &["cases.toml", "--config", "limits.toml"],
    ] {
        let (code, said) = cases.run(arguments);
        assert!(code == 0 && said.contains("1 passed") && said.contains("(limits.toml)"), "{said}");
    }
    for (arguments, code, expected) in [
        (&["named.test.toml"][..], 1, ": case[0].expect.policy = \"api\": expected rest, login"),
        (&["limits.toml", "absent.toml"], 1, "absent.test.toml: cannot be read: No such file"),
        (&["cases.toml", "--config", "absent.toml"], 1, "absent.toml: cannot be read"),
        (&["limits.toml", "--config", "limits.toml"], 1, "limits.toml:2: gateway: unknown key"),
        (&[], 2, "<FILE>..."),
    ] {
        let (exit, said) = cases.run(arguments);
        assert!(exit == code && said.contains(expected), "{arguments:?}: {said}");
        assert!(!said.contains("running"), "nothing runs: {said}");
    }
    let bad = CONFIG.replace("5/min", "5/fortnight");
    fs::write(cases.path("limits.toml"), bad).unwrap();
    let said = cases.fails();
    assert!(said.contains("limits.toml:") && said.contains("5/fortnight"), "{said}");
}

#[test]
fn a_file_without_cases_is_wrong() {
    for (text, expected) in [
        (
            "# nothing yet\n",
            "slidegate: limits.test.toml: case: missing: expected at least one [[case]]",
        ),
        ("case = 5\n", "slidegate: limits.test.toml:1: case = 5: expected a table"),
        ("[[case]]\nname = 'a\n", "slidegate: limits.test.toml:2: this is not TOML"),
        (
            "[[case]]\nname = 'a'\nstep = []\n",
            "slidegate: limits.test.toml:3: case[0].step = (a list)",
        ),
    ] {
        let said = Cases::new(text).fails();
        assert!(said.starts_with(expected), "{said}");
    }
}

#[test]
fn docs_show_what_policy_tests_print() {
    let page = include_str!("../../../../docs/policy-tests.md");
    let block = |kind: &str, part: &str| {
        let fence = format!("```{kind}\n");
        let blocks = page.split(&fence).skip(1);
        let mut blocks = blocks.map(|rest| rest.split("```").next().unwrap());
        let found = blocks.find(|block| block.contains(part));
        found.unwrap()
    };
    let cases = Cases::new("");
    fs::write(cases.path("slidegate.test.toml"), block("toml", "[[case]]")).unwrap();
    let config = |quota: &str| {
        let login = "name = 'login'\nmatch = { method = 'POST', path = '/login' }\nidentity = 'ip'";
        let text = format!("exempt.paths = '/healthz'\n[[policy]]\n{login}\nquotas = '{quota}'\n");
        fs::write(cases.path("slidegate.toml"), text).unwrap();
    };
    config("5/min");
    let (code, said) = cases.run(&["slidegate.toml"]);
    let shown = block("console", "running 2 tests");
    assert_eq!(
        (code, format!("$ slidegate test slidegate.toml\n{said}").trim()),
        (0, shown.trim())
    );
    config("3/min");
    let (code, said) = cases.run(&["slidegate.toml"]);
    assert!(code == 1 && said.contains(block("console", "---- five logins")), "{said}");
}

#[test]
fn shipped_configurations_decide_as_their_cases_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let configs = fs::read_dir(root.join("examples/configs")).unwrap();
    let mut files: Vec<PathBuf> = configs.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.to_str().unwrap().ends_with(".test.toml"));
    assert_eq!(files.len(), 6);
    files.push(root.join("packaging/slidegate.toml"));
    let (code, said) = said(&slidegate(&["test"]).args(&files).output().unwrap());
    assert_eq!(code, 0, "{said}");
    assert_eq!(said.matches("test result: ok. ").count(), files.len(), "{said}");
}

/// A block of docs/how-to.md.
fn recipe(part: &str) -> &'static str {
    let page = include_str!("../../../../docs/how-to.md");
    let blocks = page.split("```").skip(1).step_by(2);
    let mut bodies = blocks.filter_map(|block| Some(block.split_once('\n')?.1));
    bodies.find(|block| block.contains(part)).unwrap()
}

#[test]
fn the_recipe_for_a_login_is_the_example_with_cases() {
    let example = include_str!("../../../../examples/configs/login.toml");
    let uncommented = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.collect::<Vec<_>>().join("\n").trim().to_owned()
    };
    assert_eq!(uncommented(example), uncommented(recipe("name = \"login\"")));
}

#[test]
fn what_a_response_says_is_settled_before_the_next_step() {
    let cases = Cases::new(
        r#"
[[case]]
name = "failed logins count, and good ones do not"
request = { method = "POST", path = "/login", client = "203.0.113.7" }
[[case.step]]
times = 100
expect = { verdict = "allow", remaining = 2 }
[[case.step]]
times = 1
status = 401
expect = { verdict = "allow", remaining = 1 }
[[case.step]]
status = 499
expect = { verdict = "allow", remaining = 0 }
[[case.step]]
at = "1s"
expect = { verdict = "deny", retry_after = "59s" }

[[case]]
name = "a response that costs more than all closes the account for one window"
request = { path = "/chat", client = "203.0.113.7" }
[[case.step]]
response_cost = 30
expect = { verdict = "allow", remaining = 70 }
[[case.step]]
response_cost = 0
expect = { verdict = "allow", remaining = 70 }
[[case.step]]
status = 503
response_cost = 50
expect = { verdict = "allow", remaining = 70 }
[[case.step]]
at = "10s"
response_cost = 5000
expect = { verdict = "allow", remaining = 0 }
[[case.step]]
at = "69s"
expect = { verdict = "deny", remaining = 0, retry_after = "1s" }
[[case.step]]
at = "70s"
expect = { verdict = "allow", remaining = 90 }
"#,
    );
    let config = r#"
[gateway]
upstream = "http://127.0.0.1:3000"
[[policy]]
name = "login"
match = { method = "POST", path = "/login" }
quotas = "2/min"
count = { status = [401, 403] }
[[policy]]
name = "tokens"
match = { path = "/chat" }
quotas = "100/min"
refund = { status = "5xx" }
cost = { response_json = "usage.total_tokens", hold = 10 }
"#;
    fs::write(cases.path("limits.toml"), config).unwrap();
    cases.passes();
}

#[test]
fn a_response_has_a_status_and_whole_units() {
    let cases = Cases::new(
        "[[case]]\nname = \"a\"\nrequest = { path = \"/\" }\nexpect = { verdict = \"allow\" }\n\
         status = 99\nresponse_cost = -1\n\
         [[case]]\nname = \"b\"\nrequest = { path = \"/\" }\nexpect = { verdict = \"allow\" }\n\
         status = \"5xx\"\n",
    );
    let said = cases.fails();
    for expected in [
        ":5: case[0].status = 99: expected a whole number from 100 to 599",
        ":6: case[0].response_cost = -1: expected a whole number from 0",
        ":11: case[1].status = \"5xx\": expected a whole number",
    ] {
        assert!(said.contains(&format!("limits.test.toml{expected}")), "{expected}: {said}");
    }
}

#[test]
fn a_customer_that_sends_83_a_second_has_its_plan_and_the_keys_of_the_page() {
    let cases = Cases::new("");
    fs::write(cases.path("plans.toml"), recipe("[plans.pro]")).unwrap();
    let text = r#"
[[case]]
name = "600 a minute"
request = { path = "/", client = "203.0.113.7", headers = { x-api-key = "k-123" } }
[[case.step]]
times = 600
every = "12ms"
expect = { verdict = "allow", policy = "api" }
[[case.step]]
times = 4400
every = "12ms"
expect = { verdict = "deny", policy = "api" }
[[case.step]]
times = 600
every = "12ms"
expect = { verdict = "allow", policy = "api" }
"#;
    fs::write(cases.path("plans.test.toml"), text).unwrap();
    let (code, said) = cases.run(&["plans.toml"]);
    assert!(code == 1 && said.contains("keys.csv"), "there is no file of keys yet: {said}");
    let (code, said) = cases.run(&["--skip-files", "plans.toml"]);
    assert!(code == 1 && said.contains("60/min"), "no key is known: {said}");
    fs::write(cases.path("keys.csv"), recipe("name,digest,plan")).unwrap();
    let (code, said) = cases.run(&["plans.toml"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn claims_name_users_customers_and_plans_as_tokens_do() {
    let config = "[gateway]\nupstream = \"http://127.0.0.1:3000\"\n\
                  [plans.free]\nquotas = \"1/min\"\n[plans.pro]\nquotas = \"2/min\"\n\
                  [[jwt]]\nissuer = \"a\"\njwks = \"https://a/jwks\"\naudience = \"api\"\n\
                  algorithms = [\"ES256\"]\nuser = \"sub\"\ncustomer = \"org.id\"\nplan = \"plan\"\n\
                  [[policy]]\nname = \"api\"\nidentity = [\"customer\", \"ip\"]\nplan = \"free\"\n";
    let directory = Directory::new();
    directory.write("slidegate.toml", config);
    let run = |cases: &str| {
        let path = directory.write("slidegate.test.toml", cases);
        said(&slidegate(&["test", path.to_str().unwrap()]).output().unwrap())
    };
    let case = |claims: &str, verdict: &str| {
        format!(
            "[[case]]\nname = \"an organisation\"\n\
             request = {{ path = \"/\", client = \"203.0.113.7\", claims = {claims} }}\n\
             [[case.step]]\ntimes = 2\nevery = \"1s\"\n[[case.step]]\n\
             expect = {{ verdict = \"{verdict}\" }}\n"
        )
    };
    let claims = "{ iss = \"a\", sub = \"ann\", org = { id = 7 }, plan = \"pro\" }";
    let (code, text) = run(&case(claims, "deny"));
    assert_eq!(code, 0, "{text}");
    let (code, text) = run(&case(claims, "allow"));
    assert!(code == 1 && text.contains("customer:7"), "{code} {text}");
    let (code, text) = run(&case("{ iss = \"b\", sub = \"ann\" }", "deny"));
    let expected =
        "case[0].request.claims = \"b\": no [[jwt]] of the configuration has this issuer";
    assert!(code == 1 && text.contains(expected), "{code} {text}");
}
