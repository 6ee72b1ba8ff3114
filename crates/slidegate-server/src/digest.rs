//! `slidegate digest`: the digests of API keys, as configurations and logs have them.

use std::fmt::Write as _;
use std::io::Read;

use anyhow::{Context, ensure};
use slidegate::policy::KeyHash;

use crate::terminal;

pub(crate) const AFTER_HELP: &str = "\
The digest stands for the key in `[[api_key]]` and in a keys_file, and is what logs show of a key that
has no name. A key cannot be read back from it.

Examples:
  printf %s \"$KEY\" | slidegate digest
  slidegate digest < keys.txt                      a digest for each line
  slidegate digest --hash sha256 < keys.txt        as a table with sha256(key) has it";

/// Arguments of `slidegate digest`.
#[derive(Debug, clap::Args)]
pub(crate) struct DigestArguments {
    /// How to digest: slidegate, or sha256 as most tables have it
    #[arg(long, value_name = "HASH", default_value = "slidegate")]
    hash: KeyHash,
}

/// Prints the digest of each line of standard input.
pub(crate) fn run(arguments: &DigestArguments) -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text).context("standard input cannot be read")?;
    terminal::show(&digests(&text, arguments.hash)?)
}

fn digests(text: &str, hash: KeyHash) -> anyhow::Result<String> {
    ensure!(!text.is_empty(), "expected an API key on standard input, or one on each line");
    let mut digests = String::new();
    for (i, key) in text.lines().enumerate() {
        ensure!(!key.trim().is_empty(), "line {}: expected an API key", i + 1);
        ensure!(key.trim() == key, "line {}: expected no space around the API key", i + 1);
        let _ = writeln!(digests, "{}", hash.hex(key.as_bytes()));
    }
    Ok(digests)
}
