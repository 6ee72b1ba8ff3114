//! Any text as a configuration file.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::Method;
use slidegate::{Facts, MemoryStore};

use crate::config::{ConfigErrors, File, Loaded, Sources, load};
use crate::live_config::LiveConfig;

const MARK: &str = "hunter2hunter2hunter2hunter2hunter2";

/// Secrets of every kind, after whatever the input is.
const SECRETS: &str = r#"
[admin]
token = "hunter2hunter2hunter2hunter2hunter2"
[decisions]
token = "hunter2hunter2hunter2hunter2hunter2"
[resp]
token = "hunter2hunter2hunter2hunter2hunter2"
[store]
redis = "redis://:hunter2hunter2hunter2hunter2hunter2@127.0.0.1"
[key_source]
url = "postgres://u:hunter2hunter2hunter2hunter2hunter2@db/x"
[[api_key]]
name = "k"
key = "hunter2hunter2hunter2hunter2hunter2"
"#;

/// Files that it names are not read: they are those of the machine.
fn read(text: &str) -> Result<Loaded, ConfigErrors> {
    let file = File::Text { name: "test.toml".to_owned(), text: text.to_owned() };
    load(&Sources { file: Some(file), skip_files: true, ..Sources::default() })
}

#[test]
fn config() {
    slidegate_fuzz::check("config", |input| {
        let text = String::from_utf8_lossy(input);
        match read(&text) {
            Ok(loaded) => {
                check_warnings(&loaded, &text);
                check_decides(loaded);
            }
            Err(errors) => check_errors(&errors, &text),
        }
        let with_secrets = format!("{text}\n{SECRETS}");
        let (shown, debugged) = match read(&with_secrets) {
            Ok(loaded) => (format!("{:?}", loaded.warnings), format!("{:?}", loaded.config)),
            Err(errors) => (errors.to_string(), format!("{errors:?}")),
        };
        // The text may hold it itself, where it is no secret.
        if !text.contains("hunter2") {
            assert!(!shown.contains(MARK), "{shown}");
            assert!(!debugged.contains(MARK), "{debugged}");
        }
    });
}

/// Each names a line that there is, or a key that there is not.
fn check_errors(errors: &ConfigErrors, text: &str) {
    let texts = errors.texts();
    assert!(!texts.is_empty());
    for error in &texts {
        check_location(error, text);
    }
    assert_eq!(Some(errors), read(text).as_ref().err(), "another error the second time");
}

fn check_warnings(loaded: &Loaded, text: &str) {
    loaded.warnings.iter().for_each(|warning| check_location(&warning.to_string(), text));
}

fn check_location(problem: &str, text: &str) {
    let (place, rest) = problem.split_once(": ").unwrap_or((problem, ""));
    assert!(!rest.is_empty(), "{problem}");
    if place == "default" || place == "test.toml" {
        return;
    }
    let line = place.strip_prefix("test.toml:").and_then(|line| line.parse::<usize>().ok());
    let lines = text.matches('\n').count() + 1;
    assert!(line.is_some_and(|line| (1..=lines).contains(&line)), "{problem}");
}

/// A configuration that is accepted can decide.
fn check_decides(loaded: Loaded) {
    let live = LiveConfig::of(loaded.config.limiter, MemoryStore::builder().capacity(10).build());
    let facts = Facts::new(&Method::GET, "/api/x").client("203.0.113.7".parse().unwrap());
    if live.gate().check(&facts).is_ok() {
        let decision = pin!(live.gate().decide(&facts));
        let decided = decision.poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(decided, Poll::Ready(Ok(_))), "{decided:?}");
    }
}
