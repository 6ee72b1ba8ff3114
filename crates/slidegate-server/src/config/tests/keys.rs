//! Files of API keys: what is read from them, and what is wrong with the rest.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use slidegate::policy::{KeyHash, UnknownKeys};
use slidegate::{Facts, Gate, Identity, MemoryStore};

use super::file;
use crate::config::Loaded;

const PLANS: &str = "[plans.free]\nquotas = '1/s'\n[[policy]]\nname = 'api'\nplan = 'free'\n\
                     identity = ['api-key', 'ip']\n";

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A file in a folder of its own, gone on drop.
struct Keys(PathBuf);

impl Keys {
    fn new(name: &str, text: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("slidegate-keys-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(name), text).unwrap();
        Self(folder.join(name))
    }

    fn load(&self, rest: &str) -> Result<Loaded, String> {
        file(&format!("keys_file = {:?}\n{PLANS}{rest}", self.0))
    }

    /// What is wrong, with `@` for the file.
    fn problem(&self, rest: &str) -> String {
        let problem = self.load(rest).map(|_| ()).unwrap_err();
        problem.replace(self.0.to_str().unwrap(), "@")
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

#[test]
fn an_instant_is_a_string_or_a_date_of_toml() {
    let key = "[[api_key]]\nkey = 'one'\nplan = 'free'\nexpires";
    let load = |expires: &str| file(&format!("{PLANS}{key} = {expires}\n")).map(drop);
    assert_eq!(load("'2027-01-01T00:00:00Z'"), Ok(()));
    assert_eq!(load("2027-01-01T00:00:00Z"), Ok(()));
    let problem = load("2027-01-01").unwrap_err();
    assert!(problem.contains("expires = 2027-01-01: expected an instant such as"), "{problem}");
}

#[test]
fn keys_and_digests_are_read_in_any_order_of_columns() {
    let digest = Identity::api_key(b"two").value().to_owned();
    let upper = digest.to_ascii_uppercase();
    for (name, text) in [
        ("a.csv", format!("plan,name,key,digest\nfree,acme,one,\n\nfree,,,{digest}\n")),
        ("b.csv", format!("# ours\nkey , digest, plan\n\"one\",,free\n, {upper} ,free\n")),
        (
            "c.toml",
            format!(
                "[[api_key]]\nkey = 'one'\nplan = 'free'\n\
                 [[api_key]]\ndigest = '{digest}'\nplan = 'free'\n"
            ),
        ),
    ] {
        let loaded = Keys::new(name, &text).load("").unwrap();
        let mut keys: Vec<_> =
            loaded.config.limiter.policies.plan_keys().map(|(key, _)| *key).collect();
        keys.sort();
        let mut expected = [Identity::api_key(b"one"), Identity::api_key(b"two")];
        expected.sort();
        assert_eq!(keys, expected, "{name}");
    }
    let empty = Keys::new("none.csv", "key,plan\n").load("").unwrap();
    assert_eq!(
        empty.config.limiter.summary.unknown_keys,
        UnknownKeys::Ignore,
        "an empty table is a table"
    );
}

/// The identity that a request with this key counts for.
fn identity(gate: &Gate, key: &str) -> String {
    let headers = HeaderMap::from_iter([(X_API_KEY, HeaderValue::from_str(key).unwrap())]);
    let facts = Facts::new(&Method::GET, "/").headers(&headers).client([10, 0, 0, 1].into());
    gate.decide_now(&facts).unwrap().policies()[0].identity.to_string()
}

#[test]
fn digests_of_sha256_are_known_by_their_length_or_the_column_hash() {
    let (own, sha256) = (KeyHash::Slidegate.hex(b"own"), KeyHash::Sha256.hex(b"sha"));
    let upper = sha256.to_ascii_uppercase();
    for (name, text) in [
        ("length.csv", format!("customer,digest\nacme,{own}\nacme,{upper}\n")),
        ("hash.csv", format!("customer,digest,hash\nacme,{own},slidegate\nacme,{sha256},sha256\n")),
        ("some.csv", format!("customer,hash,digest\nacme,,{own}\nacme,sha256,{sha256}\n")),
    ] {
        let loaded = Keys::new(name, &text).load("").unwrap();
        assert_eq!(loaded.warnings.len(), 0, "{name}: {:?}", loaded.warnings);
        let gate = Gate::new(loaded.config.limiter.policies, MemoryStore::new());
        let known = ["own", "sha", "other"].map(|key| identity(&gate, key));
        assert_eq!(known, ["customer:acme", "customer:acme", "ip:10.0.0.1"], "{name}");
    }
    for (hash, digest, expected) in [
        ("sha256", &own, "which has 64 hexadecimal digits"),
        ("slidegate", &sha256, "which has 32 hexadecimal digits"),
        ("md5", &own, "hash = \"md5\": "),
    ] {
        let text = format!("customer,digest,hash\nacme,{digest},{hash}\n");
        let problem = Keys::new("k.csv", &text).problem("");
        assert!(problem.starts_with("@:2: ") && problem.contains(expected), "{problem}");
        assert!(!problem.contains(digest), "{problem}");
    }
}

#[test]
fn what_is_wrong_has_the_line_in_the_file_of_keys_and_no_key() {
    let columns = "expected a first line with the columns plan or customer, key or digest, and perhaps name, hash and expires";
    for (name, text, expected) in [
        ("k.csv", "", format!("@:1: {columns}")),
        ("k.csv", "hunter2,free\n", format!("@:1: {columns}")),
        ("k.csv", "kye,plan\nhunter2,free", "@:1: unknown column: did you mean key?".to_owned()),
        ("k.csv", "key,plan,plan\n", "@:1: the column plan is there twice".to_owned()),
        ("k.csv", "key,name\nhunter2,a\n", format!("@:1: {columns}")),
        (
            "k.csv",
            "key,plan\nhunter2\n",
            "@:2: expected 2 values, as in the first line, not 1".into(),
        ),
        ("k.csv", "key,plan\nhunter2,\n", "@:2: plan: missing: expected the name of a plan".into()),
        ("k.csv", "key,digest,plan\n,,free\n", "@:2: expected either a key or a digest".into()),
        (
            "k.csv",
            "digest,plan\nhunter2,free\n",
            "@:2: expected the digest of an API key, which has 32 hexadecimal digits".into(),
        ),
        (
            "k.csv",
            "key,plan\nok,free\n\nhunter2,gold\n",
            "@:4: plan = \"gold\": there is no such plan; there is free".into(),
        ),
        (
            "k.csv",
            "key,plan\nhunter2,free\nhunter2,free\n",
            "@:3: this API key already has a plan".into(),
        ),
        (
            "k.csv",
            "name,key,plan\na,hunter1,free\na,hunter2,free\n",
            "@:3: name = \"a\": another API key has this name".into(),
        ),
        (
            "k.toml",
            "[[api_key]]\nplan = 'free'\ndigest = 'hunter2'\n",
            "@:3: api_key[0].digest = (hidden): expected the digest of an API key".into(),
        ),
        (
            "k.toml",
            "[[api_key]]\nplan = 'free'\nkey = 'hunter2'\ndigest = 'hunter2'\n",
            "@:4: api_key[0].digest = (hidden): a key is given already: expected one of".into(),
        ),
        ("k.toml", "[[key]]\n", "@:1: key: unknown key: expected api_key".into()),
        (
            "k.txt",
            "hunter2",
            "test.toml:1: keys_file = \"@\": expected a file whose name ends in .csv or .toml"
                .into(),
        ),
    ] {
        let problem = Keys::new(name, text).problem("");
        assert!(problem.starts_with(&expected), "{text}\n  said {problem}\n  not  {expected}");
        assert_eq!(problem.lines().count(), 1, "one cause, one problem: {problem}");
        assert!(!problem.contains("hunter"), "{problem}");
    }
    let missing = file("keys_file = '/does/not/exist.csv'").map(|_| ()).unwrap_err();
    let expected =
        "test.toml:1: keys_file = \"/does/not/exist.csv\": the file cannot be read: No such";
    assert!(missing.starts_with(expected), "{missing}");
    let both = "[[api_key]]\nkey = 'one'\nplan = 'free'\n";
    let problem = Keys::new("k.csv", "key,plan\none,free\n").problem(both);
    assert!(problem.starts_with("@:2: this API key already has a plan"), "{problem}");
}

#[test]
fn all_problems_of_both_files_are_reported_at_once() {
    let keys = Keys::new("k.csv", "key,plan\na,gold\nb,\nc,free\nd,silver\n");
    let problems = keys.problem("[log]\nlevel = 'warning'\n");
    assert!(problems.starts_with("4 problems:\n"), "{problems}");
    for place in ["\n@:2: plan", "\n@:3: plan", "\n@:5: plan", "\ntest.toml:"] {
        assert!(problems.contains(place), "{place}: {problems}");
    }
}

#[test]
fn a_configuration_that_is_not_toml_does_not_hide_what_is_wrong_with_the_keys() {
    let problems = Keys::new("k.csv", "key,plan\na,\n").problem("x = \n");
    assert!(problems.starts_with("2 problems:\n"), "{problems}");
    assert!(problems.contains("@:2: plan: missing"), "{problems}");
}

#[test]
fn many_keys_in_the_configuration_are_one_warning() {
    let keys: String =
        (0..50).map(|n| format!("[[api_key]]\nkey = 'k-{n}'\nplan = 'free'\n")).collect();
    let loaded = file(&format!("{PLANS}{keys}")).unwrap();
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("api_key[0]: a secret in the file, and 49 more"), "{warnings:?}");
}
