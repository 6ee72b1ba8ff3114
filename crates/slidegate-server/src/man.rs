//! `slidegate man`: the manual pages, made of the definition of the command line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

pub(crate) const AFTER_HELP: &str = "\
There is a page for slidegate and one for each of its commands, such as slidegate-serve.1.

Examples:
  slidegate man ~/.local/share/man/man1            then: man slidegate-serve
  slidegate man /tmp/pages && man /tmp/pages/slidegate.1";

/// Arguments of `slidegate man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArguments {
    /// The directory for the pages; it is created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes the pages of a command and of all its subcommands.
pub(crate) fn run(arguments: &ManArguments, command: Command) -> anyhow::Result<()> {
    let directory = &arguments.directory;
    fs::create_dir_all(directory)
        .with_context(|| format!("{} cannot be created", directory.display()))?;
    let mut command = command.disable_help_subcommand(true);
    // Gives subcommands their full names.
    command.build();
    let version = command.get_version().unwrap_or_default().to_owned();
    write_pages(&command, &version, directory)
}

fn write_pages(command: &Command, version: &str, directory: &Path) -> anyhow::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand, version, directory)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = directory.join(format!("{name}.1"));
    // No date: a page belongs to a version. `Man::render_title` would put the version in its place.
    let title = format!(".TH {name} 1 \"\" \"slidegate {version}\" Slidegate\n");
    let page = page(title, command).context("a manual page cannot be rendered")?;
    fs::write(&path, page).with_context(|| format!("{} cannot be written", path.display()))
}

fn page(title: String, command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let mut page = title.into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    // `Man::render` would join the lines of tables and examples.
    if let Some(text) = command.get_after_help() {
        after_help(&text.to_string()).to_writer(&mut page)?;
    }
    Ok(page)
}

/// The text below the options: notes, and sections such as `Examples:` whose lines stay as they are.
fn after_help(text: &str) -> Roff {
    let mut page = Roff::new();
    for (i, block) in text.split("\n\n").enumerate() {
        let (first, rest) = block.split_once('\n').unwrap_or((block, ""));
        if let Some(heading) = first.strip_suffix(':') {
            page.control("SH", [heading.to_uppercase().as_str()]);
            page.control("nf", []);
            for line in rest.lines() {
                page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
            page.control("fi", []);
        } else {
            match i {
                0 => page.control("SH", ["NOTES"]),
                _ => page.control("PP", []),
            };
            page.text([roman(block)]);
        }
    }
    page
}
