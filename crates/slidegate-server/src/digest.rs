//! `slidegate digest`: the digests of API keys, as configurations and logs have them.

use std::fmt::Write as _;
use std::io::Read;

use anyhow::{Context, ensure};
use slidegate::Identity;

use crate::terminal;

pub(crate) const AFTER_HELP: &str = "\
The digest stands for the key in `[[api_key]]` and in a keys_file, and is what logs show of a key that
has no name. A key cannot be read back from it.

Examples:
  printf %s \"$KEY\" | slidegate digest
  slidegate digest < keys.txt                      a digest for each line";

/// Prints the digest of each line of standard input.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text).context("standard input cannot be read")?;
    terminal::show(&digests(&text)?)
}

fn digests(text: &str) -> anyhow::Result<String> {
    ensure!(!text.is_empty(), "expected an API key on standard input, or one on each line");
    let mut digests = String::new();
    for (i, key) in text.lines().enumerate() {
        ensure!(!key.trim().is_empty(), "line {}: expected an API key", i + 1);
        ensure!(key.trim() == key, "line {}: expected no space around the API key", i + 1);
        let _ = writeln!(digests, "{}", Identity::api_key(key.as_bytes()).value());
    }
    Ok(digests)
}
