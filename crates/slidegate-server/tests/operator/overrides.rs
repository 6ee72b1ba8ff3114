//! What an operator does to accounts, in one process.

use serde_json::json;
use slidegate_testbed::{Upstream, wait_until};

use crate::terminal::{Operator, for_many_clients, passes, passing, passing_at};

const CLIENT: &str = "10.0.0.1";
const IDENTITY: &str = "ip:10.0.0.1";

#[test]
fn a_reset_forgets_what_was_spent_under_one_policy_or_under_all() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream)
        .policy("api", "3/h", "")
        .policy("login", "2/h", "match = { path = \"/login\" }")
        .start();
    let operator = Operator::of(&gateway);
    assert_eq!(passing_at(&gateway, "/login", CLIENT, 5), 2);
    assert_eq!(passing(&gateway, CLIENT, 5), 1);
    operator.run(&["reset", IDENTITY, "--policy", "login", "--reason", "a test"]);
    assert_eq!(passing_at(&gateway, "/login", CLIENT, 5), 0, "the other policy still denies");
    let said = operator.run(&["reset", IDENTITY, "--reason", "a test"]);
    assert_eq!(said, "reset ip:10.0.0.1 under api; it had spent nothing under login\n");
    assert_eq!(passing_at(&gateway, "/login", CLIENT, 5), 2);
    assert_eq!(passing(&gateway, "10.0.0.2", 5), 3, "others are others");
}

#[test]
fn a_reset_of_an_identity_with_nothing_spent_says_so() {
    let upstream = Upstream::simple();
    let plans = "[plans.free]\nquotas = \"5/min\"\n[plans.pro]\nquotas = \"50/h\"\n";
    let gateway = for_many_clients(&upstream)
        .policy(
            "api",
            "3/h",
            "match = { path = \"/api\" }\nban = { after = \"1/h\", for = \"1h\" }",
        )
        .tables(plans)
        .policy(
            "plans",
            "",
            "match = { path = \"/plans\" }\nplan = { header = \"x-plan\", default = \"free\" }",
        )
        .start();
    let operator = Operator::of(&gateway);
    let reset = || operator.run(&["reset", IDENTITY, "--reason", "a test"]);
    let nothing = "nothing to reset: ip:10.0.0.1 has spent nothing under api, plans\n";
    assert_eq!(reset(), nothing, "never seen");
    let path = "/v1/accounts/ip:10.0.0.1/reset";
    let (status, answer) = operator.ask("POST", path, "{\"reason\":\"a test\"}");
    assert_eq!((status, &answer["policies"]), (200, &json!(["api", "plans"])));
    assert_eq!(answer["nothing_spent"], json!(["api", "plans"]));

    // A window of a plan that is not the default.
    let pro = "X-Forwarded-For: 10.0.0.1\r\nX-Plan: pro\r\n";
    assert_eq!(gateway.get("/plans", pro).status(), 200);
    let outcome = operator.json(&["reset", IDENTITY, "--reason", "a test"]);
    assert_eq!(outcome["nothing_spent"], json!(["api"]), "{outcome}");
    assert_eq!(reset(), nothing);

    assert_eq!(passing_at(&gateway, "/api", CLIENT, 4), 3);
    assert!(
        gateway
            .get("/api", "X-Forwarded-For: 10.0.0.1\r\n")
            .text()
            .contains("#abnormal-usage-detected")
    );
    assert_eq!(reset(), "reset ip:10.0.0.1 under api; it had spent nothing under plans\n");
    assert_eq!(reset(), nothing);
    let typo = operator.run(&["reset", "user:4Z", "--policy", "api", "--reason", "a typing error"]);
    assert_eq!(typo, "nothing to reset: user:4Z has spent nothing under api\n");
}

#[test]
fn a_grant_is_so_many_units_more_until_its_time_and_a_second_takes_its_place() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream).policy("api", "2/h", "").start();
    let operator = Operator::of(&gateway);
    assert_eq!(passing(&gateway, CLIENT, 5), 2);
    operator.run(&["grant", IDENTITY, "3", "--for", "1h", "--reason", "a test"]);
    assert_eq!(passing(&gateway, CLIENT, 5), 3);
    let said = operator.run(&["grant", IDENTITY, "4", "--for", "1h", "--reason", "a test"]);
    assert!(said.contains("in place of the one of 3 units until "), "{said}");
    assert_eq!(passing(&gateway, CLIENT, 5), 1, "four in place of three");
    assert_eq!(passing(&gateway, "10.0.0.2", 5), 2, "others are others");
    let found = operator.json(&["inspect", IDENTITY]);
    assert_eq!(found["accounts"][0]["quotas"][0]["granted"], 4);

    let other = "ip:10.0.0.3";
    operator.run(&["grant", other, "1000", "--for", "1s", "--reason", "a test"]);
    wait_until("its end", || !passes(&gateway, "10.0.0.3"));
}

#[test]
fn a_grant_asks_which_of_several_quotas_it_raises() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream)
        .policy("api", "2/h", "")
        .policy("daily", "5/day", "match = { path = \"/daily\" }")
        .start();
    let operator = Operator::of(&gateway);
    let grant = |units, more: &[&'static str]| {
        [&["grant", IDENTITY, units, "--for", "1h", "--reason", "a test"], more].concat()
    };
    for more in [&[][..], &["--quota", "min"]] {
        let said = operator.fail(&grant("3", more));
        assert!(said.contains("quota: expected the one to raise: h (2/h), day (5/day), or all"));
    }
    let said = operator.fail(&grant("3", &["--quota", "fortnight"]));
    assert!(said.contains("quota: expected the window of a quota"), "{said}");
    assert_eq!(operator.overrides(), [""; 0], "nothing was granted");
    operator.run(&grant("1", &["--policy", "api"]));

    let said = operator.run(&grant("3", &["--quota", "1d"]));
    assert!(said.starts_with("ip:10.0.0.1 has 3 more units in the quota per day under every "));
    let quotas = || {
        let found = operator.json(&["inspect", IDENTITY]);
        [0, 1].map(|i| found["accounts"][i]["quotas"][0].clone())
    };
    let shown = quotas().map(|quota| (quota["quota"].clone(), quota["granted"].clone()));
    assert_eq!(shown, [(json!("3/h"), json!(1)), (json!("8/day"), json!(3))]);
    assert_eq!(passing(&gateway, CLIENT, 9), 3, "the hour has what was granted to it alone");
    let inspected = operator.run(&["inspect", IDENTITY]);
    assert!(inspected.contains("3 of 8/day granted"), "{inspected}");

    let said = operator.run(&grant("4", &["--quota", "all"]));
    assert!(said.contains("4 more units in each quota under every policy"), "{said}");
    assert!(said.contains("also in force: ip:10.0.0.1 has 3 more units in the quota per day"));
    assert_eq!(quotas().map(|quota| quota["units"].clone()), [json!(7), json!(12)]);
    let listed = operator.json(&["overrides"]);
    let listed: Vec<_> = listed["overrides"].as_array().unwrap().iter().collect();
    assert_eq!(listed.iter().map(|one| &one["quota"]).collect::<Vec<_>>(), ["all", "day", "all"]);
    let table = operator.run(&["overrides"]);
    assert!(table.contains("QUOTA") && table.contains("  day  "), "{table}");
}

#[test]
fn exempt_identities_pass_uncounted_and_banned_ones_are_refused_until_it_is_over() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream).policy("api", "2/h", "").start();
    let operator = Operator::of(&gateway);
    operator.run(&["exempt", IDENTITY, "--for", "1h", "--reason", "a load test"]);
    assert_eq!(passing(&gateway, CLIENT, 20), 20);
    let said = operator.run(&["ban", IDENTITY, "--for", "1h", "--reason", "too much"]);
    assert!(said.contains("also in force: ip:10.0.0.1 is exempt under every policy"), "{said}");
    let answer = gateway.get("/", "X-Forwarded-For: 10.0.0.1\r\n");
    assert_eq!(answer.problem(), 403);
    let wait: u64 = answer.value("retry-after").unwrap().parse().unwrap();
    assert!((3000..=3600).contains(&wait), "{wait}");
    assert!(passes(&gateway, "10.0.0.2"), "others are others");

    let ids = operator.overrides();
    assert_eq!(ids.len(), 2);
    let lifted =
        ids.iter().map(|id| operator.run(&["lift", id, "--reason", "over"])).collect::<String>();
    assert!(
        lifted.contains("lifted the exemption of ") && lifted.contains("lifted the ban of "),
        "{lifted}"
    );
    assert_eq!(operator.overrides(), [""; 0]);
    assert_eq!(passing(&gateway, CLIENT, 5), 2, "nothing was counted meanwhile");

    operator.run(&["ban", "10.0.0.9", "--for", "5s", "--reason", "for a moment"]);
    assert!(!passes(&gateway, "10.0.0.9"));
    wait_until("its end", || passes(&gateway, "10.0.0.9"));
    assert_eq!(operator.overrides(), [""; 0], "what is over is in force no more");
}

#[test]
fn networks_policies_and_instants_can_be_named() {
    let upstream = Upstream::simple();
    let gateway = for_many_clients(&upstream)
        .policy("api", "1000/h", "")
        .policy("login", "1000/h", "match = { path = \"/login\" }")
        .start();
    let operator = Operator::of(&gateway);
    operator.run(&["ban", "10.7.0.0/16", "--for", "1h", "--reason", "a test"]);
    assert!(!passes(&gateway, "10.7.3.4") && passes(&gateway, "10.8.3.4"));
    let found = operator.json(&["inspect", "10.7.3.4"]);
    assert_eq!(found["overrides"][0]["identity"], "ip:10.7.0.0/16");
    for arguments in [
        &["reset", "10.7.0.0/16", "--reason", "a test"][..],
        &["grant", "10.7.0.0/16", "5", "--for", "1h", "--reason", "a test"],
        &["ban", "10.7.0.0/16", "--policy", "api", "--for", "1h", "--reason", "a test"],
    ] {
        let said = operator.fail(arguments);
        assert!(said.contains("identity: expected one address"), "{said}");
    }
    operator.run(&["grant", "2001:db8::/64", "5", "--for", "1h", "--reason", "as it is counted"]);
    let year = 366 * 24 * 3600;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let far = 1970 + (now + year) / 31_556_952;
    let until = format!("{far}-01-01T00:00:00Z");
    let arguments = ["ban", IDENTITY, "--policy", "login", "--until", &until, "--reason", "a test"];
    let taken = operator.json(&arguments);
    assert_eq!(taken["override"]["until"], format!("{far}-01-01T00:00:00.000Z"));
    assert_eq!(taken["override"]["policy"], "login");
    assert_eq!(passing_at(&gateway, "/login", CLIENT, 1), 0);
    assert!(passes(&gateway, CLIENT), "the other policy does not know of it");
    let reset = operator.run(&["reset", IDENTITY, "--reason", "a test"]);
    assert!(reset.starts_with("reset ip:10.0.0.1"), "{reset}");
    assert_eq!(passing_at(&gateway, "/login", CLIENT, 1), 0, "a reset lifts no override");
}
