//! What is loaded from what, and what is wrong with the rest.

mod bad;
mod files;
mod keys;
mod lints;
mod page;
mod precedence;

use crate::config::{Environment, File, Flags, Loaded, Sources, load};

/// What a file by itself comes to.
fn file(text: &str) -> Result<Loaded, String> {
    with(text, Flags::default(), &[])
}

fn with(text: &str, flags: Flags, variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let file = File::Text { name: "test.toml".to_owned(), text: text.to_owned() };
    let environment = Environment::of(variables.iter().copied());
    let sources = Sources { file: Some(file), flags, environment };
    load(&sources).map_err(|problems| problems.to_string())
}
