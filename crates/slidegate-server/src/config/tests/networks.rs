//! Files of networks: what is read from them, and what is wrong with the rest.

use slidegate::Facts;
use slidegate_testbed::Directory;

use super::file;
use crate::config::Loaded;

const POLICY: &str = "[[policy]]\nname = 'api'\nquotas = '1/s'\n";

fn load(list: &str, text: &[u8]) -> (Result<Loaded, String>, String) {
    let directory = Directory::new();
    let path = directory.path().join("networks.txt");
    std::fs::write(&path, text).unwrap();
    let loaded = file(&format!("[{list}]\nnetworks_file = {path:?}\n{POLICY}"));
    (loaded, path.to_str().unwrap().to_owned())
}

/// What is wrong, with `@` for the file.
fn problem(text: &[u8]) -> String {
    let (loaded, path) = load("blocked", text);
    loaded.map(|_| ()).unwrap_err().replace(&path, "@")
}

#[test]
fn networks_of_a_file_are_listed() {
    let text = b"# scanners\n203.0.113.0/24\n\n  198.51.100.7   # a note\r\n2001:db8::/32\n";
    let (loaded, path) = load("blocked", text);
    let loaded = loaded.unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let watched: Vec<_> = loaded.config.data_files.iter().map(|file| &file.path).collect();
    assert_eq!(watched, [path.as_ref() as &std::path::Path]);
    let policies = &loaded.config.limiter.policies;
    for (client, is_blocked) in [
        ("203.0.113.9", true),
        ("198.51.100.7", true),
        ("::ffff:198.51.100.7", true),
        ("198.51.100.8", false),
        ("2001:db8::1", true),
        ("2001:db9::1", false),
    ] {
        let facts = Facts::new(&http::Method::GET, "/").client(client.parse().unwrap());
        assert_eq!(policies.matching(&facts).next().is_none(), is_blocked, "{client}");
    }
}

#[test]
fn bad_lines_are_reported_where_they_are() {
    let bad = problem(b"10.0.0.0/8\nexample.com\n10.0.0.1/8\n");
    assert!(bad.contains("@:2: expected a network such as 10.0.0.0/8"), "{bad}");
    assert!(bad.contains("@:3: expected a network") && !bad.contains("example"), "{bad}");
    let many = problem("x\n".repeat(1000).as_bytes());
    assert!(many.contains("@:20: ") && !many.contains("@:21: "), "{many}");
    assert!(many.contains("more lines of the file are not networks"), "{many}");
    let binary = problem(b"\xff\xfe");
    assert!(binary.contains("the file is not UTF-8 text"), "{binary}");
    let missing = file(&format!("[blocked]\nnetworks_file = '/does/not/exist'\n{POLICY}"));
    let missing = missing.map(|_| ()).unwrap_err();
    assert!(missing.contains("networks_file = \"/does/not/exist\": the file cannot be read"));
}

#[test]
fn a_file_that_lists_every_address_is_a_warning() {
    for (list, text) in [("exempt", "0.0.0.0/0\n"), ("blocked", "10.0.0.0/8\n::/0\n")] {
        let warnings = load(list, text.as_bytes()).0.unwrap().warnings;
        let text = warnings.iter().map(ToString::to_string).collect::<String>();
        assert!(text.contains("the list contains every address"), "{text}");
    }
}

#[test]
fn a_million_networks_are_listed() {
    let lines = (0..1_000_000_u32).map(|n| format!("{}/32\n", std::net::Ipv4Addr::from(n * 3)));
    let text = lines.collect::<String>();
    let loaded = load("blocked", text.as_bytes()).0.unwrap();
    let policies = &loaded.config.limiter.policies;
    let blocked = |client: u32| {
        let client = std::net::Ipv4Addr::from(client).into();
        let facts = Facts::new(&http::Method::GET, "/").client(client);
        policies.matching(&facts).next().is_none()
    };
    assert!(blocked(300) && blocked(2_999_997) && !blocked(301));
}
