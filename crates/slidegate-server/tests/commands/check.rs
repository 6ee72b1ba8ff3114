//! `slidegate check`, seen from outside.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use crate::{run_with, slidegate};

const GOOD: &str = r#"
[gateway]
upstream = "http://127.0.0.1:3000"

[store]
url = "redis://10.0.2.5:6379"

[plans.free]
quotas = ["60/min", "10000/day"]
upgrade_url = "https://app.example.com/upgrade"

[[policy]]
name = "api"
identity = ["api-key", "ip"]
plan = "free"

[[policy]]
name = "login"
match = { method = "POST", path = "/login" }
quotas = "5/min"
ban = { after = "20/min", for = "10min" }

[[policy]]
name = "address"
scope = "local"
quotas = "50/s"
"#;

/// Checks a text that comes from standard input.
fn check(text: &str, arguments: &[&str]) -> Output {
    run_with(text, &[&["check", "-"], arguments].concat())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

#[test]
fn keys_that_two_policies_would_share_are_an_error() {
    let template = "url = \"redis://10.0.2.5:6379\"\nkey_template = \"rl:<window>:<identity>\"";
    let bad = GOOD.replace("url = \"redis://10.0.2.5:6379\"", template);
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("shared-keys.toml");
    std::fs::write(&file, &bad).expect("a file");
    let serve = slidegate(&["serve", "--config", file.to_str().expect("a path")]).output();
    for output in [check(&bad, &[]), serve.expect("the binary ends")] {
        let printed = text(output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        let line = ":7: store.key_template: policies \"api\" and \"login\" would share Redis keys";
        assert!(printed.contains(line) && printed.contains("add <policy> to it"), "{printed}");
    }
}

#[test]
fn a_good_file_is_summarized_in_words() {
    let output = check(GOOD, &[]);
    let printed = text(output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    for line in [
        "  gateway    127.0.0.1:8080\n",
        "             / to http://127.0.0.1:3000/\n",
        "             10000 connections, 1000 of one address; 10000 requests in flight, 1000 of one \
         address\n",
        "             bodies of any size within 1h, at 100 bytes/s or more; tunnels idle for 1h\n",
        "  admin      127.0.0.1:9090\n",
        "  Redis at 10.0.2.5:6379, packed, deadline 50 ms\n",
        "  api: by plan (else free) per api-key, else ip\n",
        "  login: 5/min per ip on POST /login; bans for 10min after 20 denials in 1min\n",
        "  free: 60/min and 10000/day; upgrade at https://app.example.com/upgrade\n",
        "  an account of api, plan free: 51 kB here, 30 kB in Redis\n",
        "The configuration is good, with no warnings.\n",
    ] {
        assert!(printed.contains(line), "{line}\n{printed}");
    }
    assert!(!printed.contains("warnings\n  "), "{printed}");
}

#[test]
fn sources_of_customers_are_summarized_without_their_secrets() {
    let postgres = "[key_source]\nurl = \"postgres://slidegate:hunter2@10.0.2.7/app\"\n\
                    query = \"select digest, customer from api_keys\"\npoll = \"5s\"\n";
    let service = "[key_source]\nurl = \"https://keys.example.com/hunter2/{digest}\"\n";
    let issuer = "[[jwt]]\nissuer = \"https://auth.example.com/\"\naudience = \"api\"\n\
                  jwks = \"https://auth.example.com/hunter2.json\"\nalgorithms = [\"ES256\"]\n\
                  user = \"sub\"\nplan = \"app.plan\"\n";
    for (keys, line) in [
        (postgres, "keys are those of PostgreSQL at 10.0.2.7, asked for changes every 5s"),
        (service, "keys are looked up at keys.example.com"),
    ] {
        let output = check(&format!("{GOOD}{keys}{issuer}"), &[]);
        let printed = text(output.stdout);
        assert_eq!(output.status.code(), Some(0), "{printed}{}", text(output.stderr));
        let tokens = "tokens of https://auth.example.com/: user from sub, plan from app.plan";
        let section = format!("\ncustomers\n  {line}\n  {tokens}\n\n");
        assert!(printed.contains(&section), "{section}\n{printed}");
        assert!(!printed.contains("hunter2"), "{printed}");
    }
    let printed = text(check(GOOD, &[]).stdout);
    assert!(!printed.contains("\ncustomers\n"), "{printed}");
}

#[test]
fn a_wrong_file_exits_with_1_and_all_that_is_wrong() {
    let output = check("profile = 'loud'\n[log]\nformat = 'xml'\n", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert_eq!(
        text(output.stderr),
        "slidegate: 2 problems:\n\
         standard input:1: profile = \"loud\": expected development, staging, production or strict\n\
         standard input:3: log.format = \"xml\": expected auto, json or pretty\n"
    );
}

#[test]
fn warnings_are_shown_and_can_be_denied() {
    let file = "[[policy]]\nname = 'a'\nquotas = ['60/min', '50/day']\n";
    let output = check(file, &[]);
    assert_eq!(output.status.code(), Some(0));
    let printed = text(output.stdout);
    let warning = "standard input:3: policy[0].quotas[0]: 60/min never matters: 50/day is tighter";
    assert!(printed.contains(warning), "{printed}");
    assert!(printed.ends_with("The configuration is good, with 1 warning.\n"), "{printed}");
    let output = check(file, &["--deny-warnings"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(output.stdout).contains(warning));
    assert_eq!(text(output.stderr), "slidegate: 1 warning, and warnings are denied\n");
    assert_eq!(check(GOOD, &["--deny-warnings"]).status.code(), Some(0));
}

#[test]
fn what_is_not_understood_exits_with_2() {
    for arguments in [
        &["check"][..],
        &["check", "a", "b"],
        &["check", "a", "-c", "b"],
        &["check", "a", "--loudly"],
    ] {
        let output = slidegate(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn files_that_cannot_be_read_exit_with_1() {
    let folder = std::env::temp_dir().join(format!("slidegate-check-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    for (path, expected) in [
        (PathBuf::from("/does/not/exist.toml"), "cannot be read: No such file"),
        (folder.clone(), "cannot be read: "),
        (write("bytes.toml", b"[log]\n\xff\xfe"), "bytes.toml:2: this is not UTF-8 text"),
        (
            write("large.toml", &vec![b'#'; 2 << 20]),
            "large.toml: cannot be read: it is too large: expected at most 1048576 bytes",
        ),
    ] {
        let output = slidegate(&["check", path.to_str().unwrap()]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{path:?}");
        let printed = text(output.stderr);
        assert!(printed.contains(expected), "{printed}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn check_includes_the_environment() {
    let check = |variables: &[(&str, &str)]| {
        let mut command = slidegate(&["check", "-"]);
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        let output = command.output().unwrap();
        (output.status.code(), text(output.stdout) + &text(output.stderr))
    };
    let (code, printed) = check(&[("RATE_LIMIT_MAX", "nonsense"), ("REDIS_URL", "nonsense")]);
    assert_eq!(code, Some(1));
    assert!(
        printed.contains("RATE_LIMIT_MAX = \"nonsense\"") && printed.contains("REDIS_URL"),
        "{printed}"
    );
    let (code, printed) = check(&[("RATE_LIMIT_MAX", "7")]);
    assert!(code == Some(0) && printed.contains("default: 7/min per ip"), "{printed}");
    let (code, printed) = check(&[("RATE_LIMIT_ENABLED", "false")]);
    assert!(code == Some(0) && printed.contains("NO POLICY IS ENFORCED"), "{printed}");
}

/// What `serve` would refuse on this machine, and the error. `@` is a folder that is there.
const REFUSED: &[(&str, &str)] = &[
    (
        "[audit]\nevery_decision = true\nfile = '@/none/audit.jsonl'",
        ":3: audit.file = \"@/none/audit.jsonl\": cannot write @/none/audit.jsonl",
    ),
    ("[audit]\nfile = '@'", ":2: audit.file = \"@\": cannot open: Is a directory"),
    (
        "[store]\nsnapshot = { file = '@/none/accounts' }",
        ":2: store.snapshot.file = \"@/none/accounts\": cannot write @/none/accounts",
    ),
    (
        "[gateway]\nupstream = 'http://a'\ntls = { certificate = '@/none.pem', key = '@/empty.pem' }",
        ":3: gateway.tls: cannot read a certificate from @/none.pem: No such file",
    ),
    (
        "[gateway]\nupstream = 'http://a'\ntls = { certificate = '@/empty.pem', key = '@/empty.pem' }",
        ":3: gateway.tls: there is no certificate in @/empty.pem",
    ),
    (
        "[store]\nurl = 'rediss://a'\nca = '@/none.pem'",
        ":3: store.ca: cannot read @/none.pem: No such file",
    ),
    (
        "[log]\nlevel = 'warning'",
        ":2: log.level = \"warning\": \"warning\" is no level: expected off, error, warn, info, debug or \
         trace; did you mean warn?",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nmatch = { path = '/api/*' }",
        ":4: policy[0].match.path = \"/api/*\": * and : are no wildcards here: did you mean \
         \"/api/{*rest}\"?",
    ),
    (
        "[[policy]]\nname = 'api'\nquotas = '1/s'\nmatch = { method = 'GTE' }",
        ":4: policy[0].match.method = \"GTE\": one letter away from GET: did you mean \"GET\"?",
    ),
    (
        "[admin]\nlisten = '0.0.0.0:0'",
        ":2: admin.listen = \"0.0.0.0:0\": reachable from other hosts, but no token is set",
    ),
    (
        "[decisions]\nlisten = '0.0.0.0:0'",
        ":2: decisions.listen = \"0.0.0.0:0\": reachable from other hosts, but no token is set",
    ),
];

#[test]
fn what_serve_refuses_check_refuses_with_the_same_words() {
    let folder = std::env::temp_dir().join(format!("slidegate-refused-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("empty.pem"), "").unwrap();
    let here = |text: &str| text.replace('@', folder.to_str().unwrap());
    let path = folder.join("slidegate.toml");
    for (file, expected) in REFUSED {
        std::fs::write(&path, here(file)).unwrap();
        let said = ["check", "serve"].map(|command| {
            let output = slidegate(&[command, path.to_str().unwrap()]).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{command} {file}");
            text(output.stderr)
        });
        let expected = format!("slidegate: {}{}", path.display(), here(expected));
        assert!(said[0].starts_with(&expected), "{}\n{expected}", said[0]);
        assert_eq!(said[0], said[1]);
    }
    let all: Vec<&str> = [REFUSED[0].0, REFUSED[2].0, REFUSED[6].0, REFUSED[7].0].to_vec();
    std::fs::write(&path, here(&all.join("\n"))).unwrap();
    let output = slidegate(&["check", "-c", path.to_str().unwrap()]).output().unwrap();
    assert!(text(output.stderr).starts_with("slidegate: 4 problems:\n"), "all at once");
    let left: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "nothing is left behind: {left:?}");

    std::fs::write(&path, here(REFUSED[0].0)).unwrap();
    let elsewhere = slidegate(&["check", "--skip-files", path.to_str().unwrap()]).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}

/// Neither keys nor tokens have to be where a configuration is checked, tested or replayed.
#[test]
fn files_that_are_on_another_machine_can_be_left_out() {
    let folder = slidegate_testbed::Directory::new();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let config = write(
        "limits.toml",
        r#"
keys_file = "none.csv"
[gateway]
upstream = "http://127.0.0.1:3000"
[admin]
listen = "0.0.0.0:9090"
token_file = "none.token"
[plans.free]
quotas = "60/min"
[plans.pro]
quotas = "600/min"
[[api_key]]
key_file = "none-1.key"
plan = "pro"
[[api_key]]
key_file = "none-2.key"
plan = "free"
[[policy]]
name = "api"
identity = ["api-key", "ip"]
plan = "free"
[blocked]
api_keys = ["acme"]
"#,
    );
    let cases = "[[case]]\nname = 'a'\nrequest = { path = '/', client = '203.0.113.7' }\n\
                 times = 60\nexpect = { verdict = 'allow' }\n";
    let cases = write("limits.test.toml", cases);
    let line =
        "203.0.113.7 - - [18/Nov/2026:02:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n";
    let log = write("access.log", line);
    for command in [
        &["check", "--deny-warnings", &config][..],
        &["test", &cases],
        &["replay", "--config", &config, "--against", &config, &log],
    ] {
        let output = slidegate(command).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(text(output.stderr).contains("none.csv"), "{command:?}");
        let output = slidegate(command).arg("--skip-files").output().unwrap();
        let printed = text(output.stdout) + &text(output.stderr);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {printed}");
    }
}

#[test]
fn no_secret_is_ever_shown() {
    let good = r#"
        [admin]
        token = "hunter2"
        [store]
        url = "redis://:hunter2@10.0.2.5"
        [plans.p]
        quotas = "1/s"
        [[api_key]]
        key = "hunter2"
        plan = "p"
        [[policy]]
        name = "a"
        plan = "p"
        exempt = { authorizations = "hunter2" }
        [exempt]
        api_keys = ["hunter2"]
        headers = { x-tenant = "hunter2" }
    "#;
    let wrong = format!("{good}\n[log]\nformat = 3\n");
    let torn = format!("{good}\nx = 'hunter2\n");
    let misplaced = good.replace("token =", "tokn =").replace("key =", "ky =");
    let typed = good.replace("\"hunter2\"", "[[\"hunter2\"]]");
    for file in [good, &wrong, &torn, &misplaced, &typed] {
        let output = check(file, &[]);
        let printed = text(output.stdout) + &text(output.stderr);
        assert!(!printed.is_empty());
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}

#[test]
#[cfg(unix)]
fn a_file_with_secrets_that_everybody_may_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("slidegate-open-{}.toml", std::process::id()));
    std::fs::write(&path, "[admin]\ntoken = 'hunter2'\n").unwrap();
    for (mode, warned) in [(0o644, true), (0o640, false)] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let printed = text(slidegate(&["check", path.to_str().unwrap()]).output().unwrap().stdout);
        assert_eq!(
            printed.contains("every user of this machine may read the file"),
            warned,
            "{printed}"
        );
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_pattern_that_nothing_matches_is_an_error_with_one_that_does() {
    for (pattern, meant) in [("/a/../b", "/b"), ("/a//b", "/a/b"), ("/login?x", "/login")] {
        let output =
            check(&GOOD.replace("path = \"/login\"", &format!("path = \"{pattern}\"")), &[]);
        let printed = text(output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains(&format!("did you mean {meant:?}?")), "{printed}");
    }
    for pattern in ["/login/", "/Login", "/café", "/caf%c3%a9", "/a b"] {
        let output =
            check(&GOOD.replace("path = \"/login\"", &format!("path = \"{pattern}\"")), &[]);
        let printed = text(output.stdout);
        assert!(printed.contains("good, with no warnings"), "{pattern}: {printed}");
    }
}

#[test]
fn a_reading_that_is_switched_off_is_warned_of() {
    for key in [
        "ignore_case = false",
        "encoded_slashes = \"keep\"",
        "backslashes = \"keep\"",
        "path_parameters = \"keep\"",
    ] {
        let upstream = "upstream = \"http://127.0.0.1:3000\"";
        let file = GOOD.replace(upstream, &format!("{upstream}\n{key}"));
        let output = check(&file, &["--deny-warnings"]);
        assert_eq!(output.status.code(), Some(1), "{key}");
        assert!(text(output.stdout).contains("evades a policy for /login"), "{key}");
    }
}
