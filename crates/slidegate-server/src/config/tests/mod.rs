//! What is loaded from what, and what is wrong with the rest.

mod bad;
mod files;
mod fuzz;
mod keys;
mod lints;
mod networks;
mod page;
mod precedence;
mod schema;

use slidegate::Policies;
use slidegate_tower::{ClientAddress, Responder};

use crate::config::sources::Environment;
use crate::config::{ConfigSummary, File, Flags, LimiterConfig, Loaded, Sources, load};

/// What a file by itself comes to.
fn file(text: &str) -> Result<Loaded, String> {
    with(text, Flags::default(), &[])
}

fn with(text: &str, flags: Flags, variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let file = File::Text { name: "test.toml".to_owned(), text: text.to_owned() };
    let environment = Environment::of(variables.iter().copied());
    let sources = Sources { file: Some(file), flags, environment, skip_files: false };
    let loaded = load(&sources).map_err(|problems| problems.to_string());
    if loaded.is_ok() {
        assert_eq!(
            schema::problems(text),
            [""; 0],
            "good for the reader, but not for the schema: {text}"
        );
    }
    loaded
}

impl LimiterConfig {
    /// Rules that are otherwise as by default.
    pub(crate) fn new(
        policies: Policies,
        responder: Responder,
        client_address: ClientAddress,
    ) -> Self {
        let summary = ConfigSummary::default();
        Self { policies, responder, client_address, standing: None, enforced: true, summary }
    }
}

impl Environment {
    fn of<'v>(variables: impl IntoIterator<Item = (&'v str, &'v str)>) -> Self {
        let variables = variables.into_iter();
        Self(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}
