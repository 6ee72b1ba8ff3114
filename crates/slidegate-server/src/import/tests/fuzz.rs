//! Any text as a configuration of Envoy's rate limit service.

use crate::config::{File, Sources, load};
use crate::import::envoy_ratelimit::Import;

#[test]
fn envoy_ratelimit() {
    slidegate_fuzz::check("envoy_ratelimit", |input| {
        let text = String::from_utf8_lossy(input);
        let mut import = Import::default();
        if let Err(error) = import.add("config.yaml", &text) {
            assert!(error.to_string().starts_with("config.yaml: "), "{error}");
            return;
        }
        if !import.errors.is_empty() {
            let names_a_line = |error: &String| {
                let place =
                    error.strip_prefix("config.yaml:").and_then(|rest| rest.split_once(':'));
                place.is_some_and(|(line, _)| line.parse::<u64>().is_ok_and(|line| line > 0))
            };
            assert!(import.errors.iter().all(names_a_line), "{:?}", import.errors);
            return;
        }
        let _ = import.report();
        let toml = import.toml();
        let file = File::Text { name: "slidegate.toml".to_owned(), text: toml.clone() };
        let sources = Sources { file: Some(file), skip_files: true, ..Sources::default() };
        if let Err(errors) = load(&sources) {
            panic!("what was imported is refused: {errors}\n{toml}");
        }
    });
}
