//! `slidegate explain`, seen from outside.

use std::process::Output;

use crate::run_with;

const FILE: &str = r#"
[gateway]
upstream = "http://127.0.0.1:3000"
trusted_proxies = ["10.0.0.0/8"]
client_address = "x-forwarded-for"
user_header = "x-user-id"

[plans.free]
quotas = ["60/min", "10000/day"]
[plans.pro]
quotas = ["600/min", "100000/day"]

[[api_key]]
key = "k-pro"
plan = "pro"

[[policy]]
name = "flood"
scope = "local"
quotas = "50/s"

[[policy]]
name = "api"
identity = ["user", "api-key", "ip"]
plan = { header = "x-plan", default = "free" }

[[policy]]
name = "login"
match = { method = "POST", path = "/login" }
quotas = "5/min"

[exempt]
paths = "/healthz"

[blocked]
networks = "198.51.100.0/24"
"#;

fn explain(arguments: &[&str]) -> Output {
    run_with(FILE, &[&["explain", "--config", "-"], arguments].concat())
}

#[track_caller]
fn check(arguments: &[&str], expected: &str) {
    let output = explain(arguments);
    let printed = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{:?}", String::from_utf8(output.stderr));
    assert_eq!(printed, expected);
}

#[test]
fn explain_describes_a_request_with_an_api_key() {
    let identity = slidegate::Identity::api_key(b"k-pro");
    let header = ["--header", "x-api-key: k-pro"];
    check(
        &[&["--method", "POST", "--path", "/x", "--client", "203.0.113.7"], &header[..]].concat(),
        &format!(
            "request: POST /x\n\
             client: 203.0.113.7, as given\n\n\
             flood: takes 1 unit of 50/s from ip:203.0.113.7, in this process\n\
             api: takes 1 unit of 600/min, 100000/day from {identity}, plan pro, having no user\n\
             login: not for this path, only /login\n"
        ),
    );
}

#[test]
fn an_unknown_plan_is_named_with_the_default() {
    let lines = |plan: &[&str]| {
        let given = [&["--path", "/x", "--user", "42"], plan].concat();
        let output = explain(&given);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).expect("text")
    };
    let default = "api: takes 1 unit of 60/min, 10000/day from user:42, plan free";
    let printed = lines(&["--plan", "gold"]);
    let note = format!("{default} (the default, as there is no plan \"gold\")\n");
    assert!(printed.contains(&note), "{printed}");
    let by_header = ["--peer", "10.0.0.1", "--header", "x-plan: Pro"];
    let printed = lines(&by_header);
    assert!(printed.contains("plan free (the default, as there is no plan \"Pro\")"), "{printed}");
    for known in [&[][..], &["--plan", "free"], &["--plan", ""], &["--header", "x-plan: gold"]] {
        let printed = lines(known);
        assert!(printed.contains(&format!("{default}\n")), "{known:?}: {printed}");
    }
}

#[test]
fn explain_describes_a_request_through_a_trusted_proxy() {
    check(
        &[
            "--path",
            "/",
            "--peer",
            "10.0.0.1",
            "--header",
            "X-Forwarded-For: 203.0.113.7",
            "--header",
            "x-plan: pro",
        ],
        "request: GET /\n\
         client: 203.0.113.7, by x-forwarded-for of the trusted proxy 10.0.0.1\n\n\
         flood: takes 1 unit of 50/s from ip:203.0.113.7, in this process\n\
         api: takes 1 unit of 600/min, 100000/day from ip:203.0.113.7, plan pro, having no user, api-key\n\
         login: not for this method, only POST\n",
    );
}

#[test]
fn explain_describes_a_request_with_forged_headers() {
    check(
        &[
            "--path",
            "/",
            "--peer",
            "192.0.2.1",
            "--header",
            "x-forwarded-for: 203.0.113.7",
            "--header",
            "x-plan: pro",
        ],
        "request: GET /\n\
         client: 192.0.2.1, the peer; its x-forwarded-for is ignored: it is not a trusted proxy\n\n\
         flood: takes 1 unit of 50/s from ip:192.0.2.1, in this process\n\
         api: takes 1 unit of 60/min, 10000/day from ip:192.0.2.1, plan free, having no user, api-key\n\
         login: not for this method, only POST\n",
    );
}

#[test]
fn explain_takes_what_an_application_knows() {
    check(
        &[
            "--method",
            "POST",
            "--path",
            "/login?next=/",
            "--user",
            "42",
            "--plan",
            "pro",
            "--cost",
            "6",
        ],
        "request: POST /login?next=/\n\
         client: unknown, as neither --client nor --peer says\n\n\
         flood: takes 1 unit of 50/s from anonymous, having no ip, in this process\n\
         api: takes 6 units of 600/min, 100000/day from user:42, plan pro\n\
         login: refuses; the request costs more than its quotas allow\n",
    );
}

#[test]
fn explain_takes_a_user_that_a_proxy_names() {
    let named = ["--path", "/", "--header", "X-User-Id: 42", "--peer"];
    for (peer, identity) in [
        ("10.0.0.1", "user:42, plan free"),
        ("192.0.2.1", "ip:192.0.2.1, plan free, having no user, api-key"),
    ] {
        let printed = String::from_utf8(explain(&[&named[..], &[peer]].concat()).stdout).unwrap();
        let line = format!("api: takes 1 unit of 60/min, 10000/day from {identity}\n");
        assert!(printed.contains(&line), "{printed}");
    }
    let twice = explain(&[&named[..], &["10.0.0.1", "--header", "x-user-id: 43"]].concat());
    let printed = String::from_utf8(twice.stdout).unwrap();
    assert!(
        printed.contains("it is refused with 400: the header x-user-id is there more"),
        "{printed}"
    );
}

#[test]
fn explain_reads_a_path_that_is_written_in_a_roundabout_way() {
    check(
        &["--method", "POST", "--path", "/a/..//%6cogin?x=1", "--client", "203.0.113.7"],
        "request: POST /a/..//%6cogin?x=1\n\
         path: also read as //login, /a/..//login, /a/../login, /login\n\
         client: 203.0.113.7, as given\n\n\
         flood: takes 1 unit of 50/s from ip:203.0.113.7, in this process\n\
         api: takes 1 unit of 60/min, 10000/day from ip:203.0.113.7, plan free, having no user, api-key\n\
         login: takes 1 unit of 5/min from ip:203.0.113.7\n",
    );
}

#[test]
fn explain_describes_exempt_and_blocked_requests() {
    let printed = |arguments: &[&str]| String::from_utf8(explain(arguments).stdout).unwrap();
    assert!(printed(&["--path", "/healthz"]).ends_with("\n\nexempt for its path\n"));
    let blocked = printed(&["--path", "/healthz", "--client", "198.51.100.9"]);
    assert!(blocked.ends_with("\n\nblocked for network 198.51.100.0/24\n"), "{blocked}");
}

/// A name, a digest in either case and the key itself list the same key, and a name or a digest that
/// is sent as a key lists nothing.
#[test]
fn keys_are_listed_by_name_by_digest_and_as_they_are() {
    let digest = slidegate::Identity::api_key(b"globex-key").value().to_owned();
    let keys = "[plans.free]\nquotas = '60/min'\n\
                [[api_key]]\nname = 'globex'\nkey = 'globex-key'\nplan = 'free'\n\
                [[api_key]]\nname = 'acme'\nkey = 'acme-key'\nplan = 'free'\n\
                [[policy]]\nname = 'api'\nidentity = ['api-key', 'ip']\nplan = 'free'\n";
    let explained = |file: &str, key: &str| {
        let header = format!("x-api-key: {key}");
        let request = ["explain", "--config", "-", "--path", "/", "--client", "203.0.113.7"];
        let output = run_with(file, &[&request[..], &["--header", &header]].concat());
        String::from_utf8(output.stdout).expect("text")
    };
    for listed in ["globex", &digest, &digest.to_ascii_uppercase(), "globex-key"] {
        for (list, expected) in [
            (
                format!("[blocked]\napi_keys = '{listed}'"),
                "\nblocked for identity api-key:globex\n",
            ),
            (
                format!("[exempt]\napi_keys = ['{listed}']"),
                "\nexempt for identity api-key:globex\n",
            ),
            (
                format!("exempt = {{ api_keys = '{listed}' }}"),
                "\napi: exempt for identity api-key:globex\n",
            ),
        ] {
            let file = format!("{keys}{list}\n");
            let printed = explained(&file, "globex-key");
            assert!(printed.contains(expected), "{list}: {printed}");
            for other in ["acme-key", "globex", &digest] {
                let printed = explained(&file, other);
                assert!(printed.contains("api: takes 1 unit"), "{list}, {other}: {printed}");
            }
        }
    }
}

#[test]
fn explain_names_a_policy_that_skips_anonymous_requests() {
    let file = FILE.replace(
        "identity = [\"user\", \"api-key\", \"ip\"]",
        "identity = [\"user\", \"api-key\"]\nanonymous = \"skip\"",
    );
    let skipped = "api: not for anonymous requests; this one has no user, api-key";
    for (given, expected) in [
        (&[][..], format!("\n{skipped}\n")),
        (&["--header", "x-api-key: junk"], format!("\n{skipped} (the API key is unknown)\n")),
        (&["--user", "42"], "\napi: takes 1 unit".to_owned()),
    ] {
        let request = ["explain", "--config", "-", "--path", "/", "--client", "203.0.113.7"];
        let output = run_with(&file, &[&request[..], given].concat());
        let printed = String::from_utf8(output.stdout).expect("text");
        assert!(printed.contains(&expected), "{given:?}: {printed}");
    }
}

#[test]
fn errors_of_explain_show_no_secret() {
    for (arguments, code, expected) in [
        (
            &["--path", "/", "--header", "hunter2"][..],
            1,
            "--header number 1: expected a header such as",
        ),
        (
            &["--path", "/", "--header", "a: b", "--header", "x y: hunter2"],
            1,
            "--header number 2: ",
        ),
        (&["--path", "/", "--client", "localhost"], 2, "--client"),
        (&["--path", "/", "--cost", "0"], 2, "--cost"),
        (&[], 2, "--path"),
    ] {
        let output = explain(arguments);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(expected), "{printed}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}

#[test]
fn a_malformed_request_is_explained_as_refused() {
    for (arguments, why) in [
        (&["--method", "post", "--path", "/login"][..], "differs from POST only in case"),
        (&["--path", "/login%00"], "control character"),
        (&["--path", "/", "--header", "x-plan: a", "--header", "x-plan: b"], "x-plan"),
    ] {
        let output = explain(arguments);
        let printed = String::from_utf8(output.stdout).expect("text");
        assert!(printed.contains("refused with 400") && printed.contains(why), "{printed}");
    }
}

/// A pattern with a slash at the end is for every spelling of its path.
#[test]
fn a_slash_at_the_end_of_a_pattern_is_no_difference() {
    let file = FILE.replace("path = \"/login\"", "path = \"/Login/\"");
    for path in [
        "/login",
        "/login/",
        "//login/",
        "/%6cogin/",
        "/login//",
        "/./login/",
        "/LOGIN",
        "/login#x",
        "/login\\",
        "/login%5c",
        "/login%2f",
        "/login;x",
        "/x%2f..%2flogin",
    ] {
        let arguments = ["explain", "--config", "-", "--method", "POST", "--path", path];
        let output = run_with(&file, &[&arguments[..], &["--client", "1.2.3.4"]].concat());
        let printed = String::from_utf8(output.stdout).expect("text");
        assert!(
            printed.contains("login: takes 1 unit of 5/min from ip:1.2.3.4"),
            "{path}: {printed}"
        );
    }
}

#[test]
fn what_is_no_path_is_refused_as_everywhere() {
    for path in ["login", "", "http://a/login"] {
        let output = explain(&["--path", path]);
        let printed = String::from_utf8(output.stdout).expect("text");
        let refused = "it is refused with 400: the path does not begin with a slash";
        assert!(printed.contains(refused), "{path}: {printed}");
    }
}

#[test]
fn explain_says_what_is_held_and_what_the_response_changes() {
    let config = "[gateway]\nupstream = \"http://127.0.0.1:3000\"\n\
                  [[policy]]\nname = \"login\"\nquotas = \"5/min\"\n\
                  count = { status = [401, 403, \"5xx\"] }\n\
                  [[policy]]\nname = \"tokens\"\nquotas = \"100000/min\"\nshadow = true\n\
                  refund = { status = [\"5xx\"] }\n\
                  cost = { response_json = \"usage.total_tokens\", hold = 1000 }\n";
    let request = ["explain", "--config", "-", "--path", "/", "--client", "203.0.113.7"];
    let output = run_with(config, &request);
    let printed = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "login: holds 1 unit of 5/min from ip:203.0.113.7 until the response; counts only \
         responses of 401, 403, 5xx\n",
        "tokens: holds 1000 units of 100000/min from ip:203.0.113.7 until the response, shadow; \
         refunds responses of 5xx; cost from usage.total_tokens of the response's body\n",
    ] {
        assert!(printed.contains(expected), "{printed}");
    }
}

#[test]
fn explain_verifies_a_token_whose_keys_are_in_a_file_and_never_prints_it() {
    let issuer = slidegate_testbed::TokenIssuer::new("one");
    let config = |jwks: &str| {
        format!(
            "[gateway]\nupstream = \"http://127.0.0.1:3000\"\n\
             [[jwt]]\nissuer = \"https://auth.example.com/\"\njwks = {jwks:?}\naudience = \"api\"\n\
             algorithms = [\"RS256\"]\nuser = \"sub\"\ncustomer = \"org\"\n\
             [[policy]]\nname = \"api\"\nidentity = [\"customer\", \"ip\"]\nquotas = \"5/min\"\n"
        )
    };
    let token = issuer.token(&serde_json::json!({
        "iss": "https://auth.example.com/", "aud": "api", "exp": 4_102_444_800_u64,
        "sub": "ann", "org": "acme",
    }));
    let explain = |config: &str, token: &str| {
        let header = format!("authorization: Bearer {token}");
        let arguments = ["explain", "--config", "-", "--path", "/", "--header", &header];
        let output = run_with(config, &arguments);
        let printed = String::from_utf8(output.stdout).expect("text");
        assert_eq!(output.status.code(), Some(0), "{:?}", String::from_utf8(output.stderr));
        assert!(!printed.contains(&token[..20]), "{printed}");
        printed
    };
    let in_file = config(issuer.key_file().to_str().unwrap());
    let printed = explain(&in_file, &token);
    let line = "token: valid, of https://auth.example.com/, user ann, customer acme\n";
    assert!(printed.contains(line), "{printed}");
    assert!(printed.contains("api: takes 1 unit of 5/min from customer:acme"), "{printed}");
    let printed = explain(&in_file, &format!("{}AAAA", &token[..token.len() - 4]));
    assert!(printed.contains("token: not valid, and ignored: its signature is wrong"), "{printed}");
    let printed = explain(&config("https://auth.example.com/jwks"), &token);
    assert!(printed.contains("token: keys behind a URL are not fetched here"), "{printed}");
}
