//! The page on configuration: every block of TOML in it is loaded.

use super::file;

const PAGE: &str = include_str!("../../../../../docs/configuration.md");

#[test]
fn every_example_of_the_page_loads() {
    let blocks: Vec<&str> = PAGE.split("```toml\n").skip(1).collect();
    assert!(blocks.len() > 10, "the page has examples");
    for block in blocks {
        let (text, _) = block.split_once("```").expect("a block that ends");
        if let Err(problems) = file(text) {
            panic!("{problems}\n{text}");
        }
    }
}
