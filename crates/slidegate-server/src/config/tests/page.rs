//! The pages on configuration, customers, recipes and Envoy: every block of TOML in them is loaded.

use crate::config::{File, Sources, load};

const PAGES: [&str; 5] = [
    include_str!("../../../../../docs/configuration.md"),
    include_str!("../../../../../docs/customers.md"),
    include_str!("../../../../../docs/envoy.md"),
    include_str!("../../../../../docs/how-to.md"),
    include_str!("../../../../../docs/migrate.md"),
];

#[test]
fn every_example_of_the_pages_loads() {
    let blocks = PAGES.iter().flat_map(|page| page.split("```toml\n").skip(1));
    let blocks: Vec<&str> = blocks.collect();
    assert!(blocks.len() > 10, "the page has examples");
    for block in blocks {
        let (text, _) = block.split_once("```").expect("a block that ends");
        // Files that an example names are on the reader's machine.
        let file = File::Text { name: "page.md".to_owned(), text: text.to_owned() };
        let sources = Sources { file: Some(file), skip_files: true, ..Sources::default() };
        if let Err(problems) = load(&sources) {
            panic!("{problems}\n{text}");
        }
    }
}
