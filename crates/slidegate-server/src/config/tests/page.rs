//! The pages on configuration and Envoy: every block of TOML in them is loaded.

use super::file;

const PAGES: [&str; 2] = [
    include_str!("../../../../../docs/configuration.md"),
    include_str!("../../../../../docs/envoy.md"),
];

#[test]
fn every_example_of_the_pages_loads() {
    let blocks = PAGES.iter().flat_map(|page| page.split("```toml\n").skip(1));
    let blocks: Vec<&str> = blocks.collect();
    assert!(blocks.len() > 10, "the page has examples");
    for block in blocks {
        let (text, _) = block.split_once("```").expect("a block that ends");
        if let Err(problems) = file(text) {
            panic!("{problems}\n{text}");
        }
    }
}
