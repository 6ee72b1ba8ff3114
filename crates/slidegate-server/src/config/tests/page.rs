//! The pages: every block of TOML in them is a configuration, loads, and is good by the schema.

use std::fs;
use std::path::Path;

use super::schema;
use crate::config::{File, Sources, load};

/// Its blocks are cases for `slidegate test`, which `tests/commands/policy_tests.rs` runs.
const CASES: &str = "policy-tests.md";

#[test]
fn every_example_of_the_pages_loads() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(repository.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let pages = pages.filter(|path| !path.ends_with(CASES)).chain([repository.join("README.md")]);
    let pages: Vec<String> = pages.map(|path| fs::read_to_string(path).unwrap()).collect();
    let blocks = pages.iter().flat_map(|page| page.split("```toml\n").skip(1));
    let blocks: Vec<&str> = blocks.collect();
    assert!(blocks.len() > 40, "the pages have examples");
    for block in blocks {
        let (text, _) = block.split_once("```").expect("a block that ends");
        // Files that an example names are on the reader's machine.
        let file = File::Text { name: "page.md".to_owned(), text: text.to_owned() };
        let sources = Sources { file: Some(file), skip_files: true, ..Sources::default() };
        if let Err(problems) = load(&sources) {
            panic!("{problems}\n{text}");
        }
        assert_eq!(schema::problems(text), [""; 0], "{text}");
    }
}
