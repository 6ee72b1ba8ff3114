//! `slidegate size`, seen from outside. How true it is: `gateway/size.rs`.

use crate::{run_with, slidegate};

const LOAD: [&str; 5] = ["size", "--requests", "200000/s", "--accounts", "5000000"];

/// What is printed on standard output, and on standard error, and the exit code.
fn size(arguments: &[&str], file: &str) -> (String, String, Option<i32>) {
    let output = run_with(file, &[&LOAD, arguments].concat());
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr), output.status.code())
}

const FILE: &str = r#"
[gateway]
upstream = "http://127.0.0.1:3000"

[store]
url = "redis://10.0.2.5:6379"

[plans.free]
quotas = "60/min"

[plans.pro]
quotas = "6000/min"

[[policy]]
name = "api"
identity = ["api-key", "ip"]
plan = "free"

[[policy]]
name = "login"
quotas = "5/min"
consistency = "async"

[[policy]]
name = "address"
scope = "local"
quotas = "50/s"
"#;

#[test]
fn it_prints_machines_and_what_it_assumes() {
    let (text, errors, code) = size(&["--quota", "1000/min", "--consistency", "async"], "");
    assert_eq!(code, Some(0), "{errors}");
    for name in ["load", "policy", "refused", "gateways", "redis", "calls", "network", "memory"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
    assert!(text.contains("leases of 2s"), "{text}");
    assert!(text.contains("Assumed: every request counts"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
}

#[test]
fn policies_of_a_file_are_sized_together_or_alone() {
    let (text, errors, _) = size(&["-"], FILE);
    assert!(text.contains("api: by plan") && text.contains("login: 5/min"), "{text}{errors}");
    assert!(!text.contains("address:"), "a local policy asks nobody: {text}");
    let (text, ..) = size(&["-", "--policy", "login"], FILE);
    assert!(!text.contains("api: by plan") && text.contains("login: 5/min"), "{text}");
}

#[test]
fn what_cannot_be_sized_is_an_error_that_names_it() {
    for (arguments, file, expected) in [
        (
            &["-", "--policy", "nobody"][..],
            FILE,
            "--policy \"nobody\": there is no such policy; there are api, login",
        ),
        (&["-", "--policy", "address"], FILE, "--policy \"address\": it is local"),
        (&["-"], &FILE.replace("url = \"redis", "# \"")[..], "store.url: missing"),
        (&["--quota", "9"], "", "'9' for '--quota"),
        (&["--quota", "9/s", "--skew", "9"], "", "expected a number from 0 to 3"),
        (&["--quota", "9/s", "--round-trip-ms", "0"], "", "expected a number from 0.01 to 10000"),
        (&[], "", "<FILE|--quota"),
    ] {
        let (text, errors, code) = size(arguments, file);
        assert!(errors.contains(expected), "{arguments:?}: {errors}{text}");
        assert_ne!(code, Some(0), "{arguments:?}");
    }
    let mut output =
        slidegate(&["size", "--requests", "many", "--accounts", "1", "--quota", "9/s"]);
    let errors = output.output().expect("it ends").stderr;
    assert!(String::from_utf8_lossy(&errors).contains("expected a rate such as 200000/s"));
}
