//! `slidegate plan`: what a reload would change, and that the reload's own log says the same.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use slidegate_testbed::{Directory, Gateway, GatewayOptions, RedisServer, Upstream, wait_until};

use crate::options;
use crate::terminal::{Operator, errors, for_many_clients, passing, passing_at};

fn before(upstream: &Upstream) -> GatewayOptions {
    for_many_clients(upstream)
        .key("user_header", "\"x-user-id\"")
        .policy("api", "10/min", "")
        .policy("login", "100/min", "match = { path = \"/login\" }")
        .policy("old", "1000/min", "")
        .tables("[plans.free]\nquotas = [\"1000/min\"]")
        .policy("paid", "", "plan = \"free\"\nidentity = [\"user\", \"ip\"]")
}

fn after(upstream: &Upstream) -> GatewayOptions {
    for_many_clients(upstream)
        .key("user_header", "\"x-user-id\"")
        .policy("api", "6/min", "")
        .policy("login", "5/h", "match = { path = \"/login\" }")
        .policy("new", "1000/min", "")
        .tables("[plans.free]\nquotas = [\"900/min\", \"9000/day\"]")
        .policy("paid", "", "plan = \"free\"\nidentity = \"ip\"")
        .tables("[log]\naccess = true")
}

const CHANGES: [&str; 8] = [
    "policy api: quotas 10/min -> 6/min",
    "policy login: quotas 100/min -> 5/h",
    "policy new added",
    "policy old removed",
    "policy paid: identity user, ip -> ip",
    "plan free: quotas 1000/min -> 900/min, 9000/day",
    "client address x-forwarded-for -> peer",
    "how paths are read has changed",
];

const HISTORY: [&str; 6] = [
    "policy api: what was spent in 1min is kept",
    "policy login: 1h is a new window and starts anew",
    "policy new: new, so its accounts start empty; if it was renamed from old, what was spent under \
     that name is forgotten",
    "policy paid: identities that it did not count start anew",
    "plan free: what was spent in 1min is kept",
    "plan free: 1d is a new window and starts anew",
];

/// The new configuration, written beside the one in force.
fn write_new(gateway: &Gateway, upstream: &Upstream) -> String {
    let text = after(upstream).text();
    let text = text.replace("\"x-forwarded-for\"", "\"peer\"\nignore_case = false");
    let file = gateway.directory().join("planned.toml");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn lines(plan: &Value, member: &str) -> Vec<String> {
    let list = plan[member].as_array().unwrap();
    list.iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_plan_says_what_the_reload_and_its_log_do() {
    let upstream = Upstream::simple();
    let gateway = before(&upstream).start();
    let operator = Operator::of(&gateway);
    assert_eq!(passing(&gateway, "10.0.0.1", 8), 8);
    assert_eq!(passing(&gateway, "10.0.0.2", 12), 10);
    assert_eq!(passing(&gateway, "10.0.0.3", 5), 5);
    assert_eq!(passing_at(&gateway, "/login", "10.0.0.4", 8), 8);
    let file = write_new(&gateway, &upstream);

    let plan = operator.json(&["plan", "--config", &file]);
    assert_eq!(lines(&plan, "changes"), CHANGES);
    assert_eq!(lines(&plan, "history"), HISTORY);
    assert_eq!(lines(&plan, "restart"), ["log"]);
    let accounts = &plan["accounts"];
    let over = accounts["over"].as_array().unwrap();
    let of = |identity: &str| over.iter().find(|account| account["identity"] == identity);
    assert_eq!(over.len(), 3, "{accounts}");
    let [one, two, four] =
        ["ip:10.0.0.1", "ip:10.0.0.2", "ip:10.0.0.4"].map(|who| of(who).unwrap());
    for (account, spent) in [(one, 8), (two, 10), (four, 8)] {
        assert_eq!(account["policy"], "api", "the window of login starts anew: {account}");
        assert_eq!(account["spent"], spent, "{account}");
        assert_eq!((&account["units"], &account["units_before"]), (&6.into(), &10.into()));
        assert_eq!(account["quota"], "6/min");
    }
    assert!(accounts["sampled"].as_u64().unwrap() >= 4, "{accounts}");

    let text = operator.run(&["plan", "--config", &file]);
    let changes = CHANGES
        .iter()
        .chain(&HISTORY)
        .chain(&["[log]", "ip:10.0.0.1 under api: 8 spent, 6/min allowed, 10 before"]);
    for line in changes {
        assert!(text.contains(&format!("\n  {line}\n")), "{line}: {text}");
    }
    assert!(text.contains("\nover the new quotas: 3 of "), "{text}");

    assert_eq!(passing(&gateway, "10.0.0.1", 4), 2, "nothing has changed");
    assert!(!gateway.output().contains("reloaded"), "{}", gateway.output());
    gateway.reconfigure(&fs::read_to_string(&file).unwrap());
    gateway.signal("HUP");
    let last =
        "reloaded: over the new quota: ip:10.0.0.4 under api: 8 spent, 6/min allowed, 10 before";
    wait_until("the log of the accounts", || gateway.output().contains(last));
    let log = gateway.output();
    for line in CHANGES.iter().chain(&HISTORY) {
        assert!(log.contains(&format!("reloaded: {line}")), "{line}: {log}");
    }
    assert!(log.contains("[log] has changed; restart to apply it"), "{log}");
    assert!(log.contains("reloaded: over the new quotas: 3 of "), "{log}");
    assert!(log.contains("ip:10.0.0.1 under api: 10 spent, 6/min allowed"), "{log}");
    let again = operator.run(&["plan", "--config", &file]);
    assert!(again.starts_with("no change of policies\n"), "{again}");
}

#[test]
fn a_plan_of_plans_goes_by_that_of_the_key_and_by_grants() {
    let upstream = Upstream::simple();
    let setup = |plan: &str| {
        let free = format!("[plans.free]\nquotas = \"4/min\"\n[plans.{plan}]\nquotas = \"20/min\"");
        let keys = ["one", "two"].map(|name| {
            format!("[[api_key]]\nkey = \"k-{name}\"\nname = \"{name}\"\nplan = \"{plan}\"\n")
        });
        let api = "identity = \"api-key\"\nplan = \"free\"";
        for_many_clients(&upstream).tables(&free).tables(&keys.concat()).policy("api", "", api)
    };
    let gateway = setup("pro").start();
    let operator = Operator::of(&gateway);
    for key in ["one", "two"] {
        let mut wire = gateway.wire();
        let header = format!("X-API-Key: k-{key}\r\n");
        assert!((0..12).all(|_| wire.get("/", &header).status() == 200));
    }
    operator.run(&["grant", "api-key:two", "10", "--for", "1h", "--reason", "a test"]);
    let text = setup("pro").text().replace("plan = \"pro\"", "plan = \"free\"");
    let file = gateway.directory().join("new.toml");
    fs::write(&file, &text).unwrap();
    let plan = operator.json(&["plan", "--config", file.to_str().unwrap()]);
    assert_eq!(lines(&plan, "changes"), ["API keys with another plan: 2"]);
    let over = plan["accounts"]["over"].as_array().unwrap();
    let [one] = &over[..] else { panic!("the grant is enough for the other: {plan}") };
    assert_eq!((&one["identity"], &one["plan"]), (&"api-key:one".into(), &"free".into()));
    assert_eq!((&one["spent"], &one["units"]), (&12.into(), &4.into()));
    let said = operator.run(&["plan", "--config", file.to_str().unwrap()]);
    assert!(said.contains("api-key:one under api, plan free: 12 spent, 4/min allowed"), "{said}");
    assert!(!said.contains("k-one") && !gateway.output().contains("k-one"), "{said}");
}

#[test]
fn a_key_replaced_under_its_name_is_reported_by_plan_and_log() {
    let upstream = Upstream::simple();
    let setup = |secret: &str| {
        let keys = ["acme", "globex"].map(|name| {
            format!("[[api_key]]\nkey = \"{secret}-{name}\"\nname = \"{name}\"\nplan = \"pro\"\n")
        });
        let api = "identity = \"api-key\"\nplan = \"pro\"";
        let plan = "[plans.pro]\nquotas = \"20/min\"";
        for_many_clients(&upstream).tables(plan).tables(&keys.concat()).policy("api", "", api)
    };
    let gateway = setup("hunter1").start();
    let operator = Operator::of(&gateway);
    let text = setup("hunter1").text().replace("hunter1-globex", "hunter2-globex");
    let file = gateway.directory().join("new.toml");
    fs::write(&file, &text).unwrap();
    let plan = operator.json(&["plan", "--config", file.to_str().unwrap()]);
    assert_eq!(lines(&plan, "changes"), ["API keys added: 1", "API keys removed: 1"]);
    let anew = "API keys with their old name and a new digest: globex: their accounts, bans and \
                grants start anew";
    assert_eq!(lines(&plan, "history"), [anew]);
    gateway.reconfigure(&text);
    gateway.signal("HUP");
    wait_until("the log", || gateway.output().contains(&format!("reloaded: {anew}")));
    assert!(!gateway.output().contains("hunter"), "{}", gateway.output());
}

#[test]
fn accounts_in_redis_are_read_there_and_leases_end_with_theirs() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let store = format!("[store]\nurl = {:?}\ndeadline = \"2s\"", redis.url());
    let setup = |quota: &str, keys: &str| {
        for_many_clients(&upstream).tables(&store).policy("api", quota, keys)
    };
    let gateway = setup("10/min", "").start();
    let operator = Operator::of(&gateway);
    assert_eq!(passing(&gateway, "10.0.0.1", 9), 9);
    let plan = |text: String| {
        let file = gateway.directory().join("planned.toml");
        fs::write(&file, text).unwrap();
        operator.json(&["plan", "--config", file.to_str().unwrap()])
    };
    let lower = plan(setup("4/min", "").text());
    assert_eq!(lower["accounts"]["over"][0]["spent"], 9, "{lower}");
    let raised = plan(setup("20/min", "").text());
    assert_eq!(raised["accounts"]["over"], Value::Array(Vec::new()));
    let leased = plan(setup("4/min", "consistency = \"async\"").text());
    assert_eq!(leased["accounts"]["over"], Value::Array(Vec::new()), "{leased}");
    let anew = ["policy api: all accounts start anew, in other ledgers"];
    assert_eq!(lines(&leased, "history"), anew);
    let elsewhere = plan(setup("10/min", "").text().replace("\"2s\"", "\"3s\""));
    assert_eq!(lines(&elsewhere, "restart"), ["store"]);
}

#[test]
fn a_bad_file_is_reported_as_by_check_and_changes_nothing() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let gateway = before(&upstream).start();
    let operator = Operator::of(&gateway);
    let file = directory.file("bad.toml");
    let secret = "[decisions]\nlisten = \"127.0.0.1:0\"\ntoken = [\"hunter2\"]";
    let bad = before(&upstream).tables(secret).text().replace("10/min", "10/fortnight");
    fs::write(&file, bad.replace("[admin]", "[admn]\nx = 1\n[admin]")).unwrap();
    let path = file.to_str().unwrap();
    let said = operator.fail(&["plan", "--config", path]);
    let check = operator.command(&["check", path]).output().unwrap();
    assert_eq!(said, errors(&check), "the same words");
    assert!(said.starts_with("slidegate: 3 problems:\n") && said.contains("admn"), "{said}");
    assert!(!said.contains("hunter2") && !gateway.output().contains("hunter2"), "{said}");
    assert_eq!(passing(&gateway, "10.0.0.1", 12), 10);
    assert_eq!(gateway.metric("slidegate_config_reloads_total", "failed"), 0.0);

    let good = before(&upstream).text();
    let said = operator.run_with(&good, &["plan", "--config", "-"]);
    assert_eq!(said, "no change of policies\n");
    let said = operator.run_with(&good, &["plan", "--config", "-"]);
    assert!(!said.contains("restart"), "{said}");
    let said = operator.fail(&["plan", "--config", directory.file("absent").to_str().unwrap()]);
    assert!(said.contains("absent: cannot be read: No such file"), "{said}");
    for (body, status, expected) in [
        ("[]", 400, "expected an object, not a list"),
        ("{\"confg\": \"\"}", 400, "confg: unknown field"),
        ("{\"config\": \"[gateway\"}", 400, "config:1: this is not TOML"),
        (&format!("{{\"config\": \"#{}\"}}", "x".repeat(1024 * 1024)), 400, "1048576 bytes"),
        (&format!("{{\"config\": \"#{}\"}}", "x".repeat(3 * 1024 * 1024)), 413, "2097152 bytes"),
    ] {
        let (answered, problem) = operator.ask("POST", "/v1/plan", body);
        assert_eq!(answered, status, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(expected), "{problem}");
    }
}

#[test]
fn a_plan_needs_the_token_and_goes_by_the_servers_environment_and_files() {
    let upstream = Upstream::simple();
    let directory = Directory::new();
    let setup = before(&upstream);
    let options = options()
        .variable("SLIDEGATE_ADMIN_TOKEN", "hunter2")
        .variable("RATE_LIMIT_POLICY", "api")
        .variable("RATE_LIMIT_MAX", "7");
    let gateway = setup.start_with(options);
    let operator = Operator::of(&gateway);
    // The keys are where the server's own file is, and nowhere else.
    fs::write(gateway.directory().join("keys.csv"), "key,plan\nhunter3,free\n").unwrap();
    let file = directory.file("new.toml");
    let text = format!("keys_file = \"keys.csv\"\n{}", setup.text().replace("10/min", "99/min"));
    fs::write(&file, text).unwrap();
    let run = |token: &str| {
        let mut command = operator.command(&["plan", "--config", file.to_str().unwrap()]);
        let output = command.env("SLIDEGATE_ADMIN_TOKEN", token).output().unwrap();
        let said = errors(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains("hunter"), "{said}");
        (output.status.code().unwrap(), said)
    };
    assert_eq!(run("wrong").0, 1);
    let (code, said) = run("hunter2");
    assert!(code == 0 && said.contains("  API keys added: 1\n"), "{said}");
    assert!(!said.contains("policy api"), "the variable still sets its quota: {said}");
}

#[test]
fn without_a_token_a_plan_reveals_nothing_of_other_files() {
    let (upstream, directory) = (Upstream::simple(), Directory::new());
    let in_force = directory.file("keys.csv");
    let before = |keys: &Path| format!("keys_file = {keys:?}\n{}", before(&upstream).text());
    fs::write(&in_force, "key,plan\nhunter2,free\n").unwrap();
    let gateway = Gateway::from(options().configuration(&before(&in_force)).start());
    let operator = Operator::of(&gateway);
    let plan = |text: &str| {
        let (status, answer) =
            operator.ask("POST", "/v1/plan", &json!({ "config": text }).to_string());
        (status, answer.to_string())
    };
    let (status, answer) = plan(&before(&in_force));
    assert_eq!(status, 200, "{answer}");

    // The same of what is there and what is not, and a pipe holds nothing up.
    let secret = directory.file("secret.csv");
    fs::write(&secret, "key,plan\nhunter2,hunter3\n").unwrap();
    let pipe = directory.file("pipe.csv");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [&secret, &pipe, &directory.file("absent.csv")] {
        let (status, answer) = plan(&before(path));
        assert_eq!(status, 400, "{answer}");
        assert!(answer.contains("the file is not read: without admin.token"), "{answer}");
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(!answer.replace(&name(path), "").contains("hunter"), "{answer}");
        let key = format!("[[api_key]]\nkey_file = {path:?}\nplan = \"free\"");
        let (status, answer) = plan(&(before(&in_force) + &key));
        assert!(status == 400 && answer.contains("the file is not read"), "{answer}");
    }
    // Nor of what is in a file that may be read, whatever the text is called and wherever its lines
    // are taken for others.
    let named = |name: &str, text: &str| {
        let body = json!({ "config": text, "name": name }).to_string();
        let (status, answer) = operator.ask("POST", "/v1/plan", &body);
        (status, answer.to_string())
    };
    let networks = format!("{}[blocked]\nnetworks_file = {in_force:?}\n", before(&in_force));
    for name in ["keys.csv", in_force.to_str().unwrap(), "new.toml"] {
        let (status, answer) = named(name, &networks);
        assert!(status == 400 && answer.contains("what is in it does not fit"), "{answer}");
        assert!(!answer.contains("hunter"), "{answer}");
    }
    // Nor of what is in a file that may be read.
    fs::write(&in_force, "key,plan\nhunter2,hunter3\n").unwrap();
    let (status, answer) = plan(&before(&in_force));
    assert!(status == 400 && answer.contains("what is in it does not fit"), "{answer}");
    assert!(!answer.contains("hunter"), "{answer}");
}
