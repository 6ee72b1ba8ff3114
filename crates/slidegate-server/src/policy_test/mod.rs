//! `slidegate test`: policies held against written cases, in virtual time.

mod case_file;
mod expectation;
mod report;
mod runner;

use std::path::{Path, PathBuf};

use anyhow::bail;

use self::case_file::CaseFile;
use self::report::CaseReport;
use crate::config::{Flags, Sources};

pub(crate) const AFTER_HELP: &str = "\
Cases stand beside a configuration: those of slidegate.toml in slidegate.test.toml, unless the key
`config` there names another file. The configuration is read as `serve` reads it, with the
environment. Time is virtual and accounts are in memory, so a case of days takes no time and needs
no server and no Redis. Each case begins with empty accounts.

  [[case]]
  name = \"five logins a minute\"
  request = { method = \"POST\", path = \"/login\", client = \"203.0.113.7\" }

  [[case.step]]
  times = 5
  every = \"1s\"
  expect = { verdict = \"allow\" }

  [[case.step]]
  at = \"10s\"
  expect = { verdict = \"deny\", policy = \"login\", remaining = 0, retry_after = \"50s\" }

Exit codes:
  0  all cases pass
  1  a case fails, or a file is wrong
  2  the command line is wrong

Examples:
  slidegate test slidegate.toml
  slidegate test examples/configs/*.test.toml
  slidegate test slidegate.toml --filter login
  slidegate test cases.toml --config new.toml      the same cases with another configuration";

/// Arguments of `slidegate test`.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArguments {
    /// Case files NAME.test.toml, or configurations NAME.toml that have one beside them
    #[arg(value_name = "FILE", required_unless_present = "config")]
    files: Vec<PathBuf>,

    /// The configuration for all cases, or - for standard input; every FILE is a case file then
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Run only the cases that have this text in their name
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// Leave out the files that a configuration names, which may be on another machine: none of the API
    /// keys in them is known
    #[arg(long)]
    skip_files: bool,
}

/// Runs the cases; an error if one fails or a file is wrong.
pub(crate) fn run(arguments: &TestArguments) -> anyhow::Result<()> {
    let files = arguments.read_files()?;
    let is_selected = |name: &str| arguments.filter.as_ref().is_none_or(|text| name.contains(text));
    let (mut ran, mut failed) = (0, 0);
    for file in &files {
        let mut report = CaseReport::begin(file, is_selected)?;
        for case in file.cases.iter().filter(|case| is_selected(&case.name)) {
            report.add(case, case.run(file.load()?))?;
        }
        (ran, failed) = (ran + report.ran(), failed + report.failed());
        report.finish()?;
    }
    match (ran, failed, &arguments.filter) {
        (0, _, Some(text)) => bail!("--filter {text:?}: no case has this in its name"),
        (_, 0, _) => Ok(()),
        _ => bail!("{failed} of {ran} tests failed"),
    }
}

impl TestArguments {
    /// Reads all files; the error has the problems of all of them.
    fn read_files(&self) -> anyhow::Result<Vec<CaseFile>> {
        let config = self.config.as_deref();
        let sources = config.map(|path| Sources::of_command(Some(path), Flags::default()));
        let sources = sources.transpose()?;
        let (mut files, mut problems) = (Vec::new(), Vec::new());
        if self.files.is_empty() && config.is_some_and(|path| path.as_os_str() == "-") {
            bail!("--config -: expected a case file too, as standard input has none beside it");
        }
        for path in self.case_files() {
            match CaseFile::read(&path, sources.clone(), self.skip_files) {
                Ok(file) => files.push(file),
                Err(error) => problems.push(format!("{error:#}")),
            }
        }
        match problems.is_empty() {
            true => Ok(files),
            false => bail!(problems.join("\n")),
        }
    }

    fn case_files(&self) -> Vec<PathBuf> {
        match &self.config {
            Some(config) if self.files.is_empty() => vec![beside(config)],
            Some(_) => self.files.clone(),
            None => self.files.iter().map(|file| beside(file)).collect(),
        }
    }
}

/// The case file of a configuration; a case file is its own.
fn beside(path: &Path) -> PathBuf {
    let is_case_file = path.as_os_str().as_encoded_bytes().ends_with(b".test.toml");
    if is_case_file { path.to_owned() } else { path.with_extension("test.toml") }
}
