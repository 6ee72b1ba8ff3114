//! What is printed of the cases of a file, as `cargo test` prints tests.

use std::fmt::Write as _;

use slidegate::policy::without_query;

use super::case_file::{CaseFile, PolicyCase};
use super::runner::CaseFailure;
use crate::terminal::{BAD, GOOD, STRONG, show_styled};
use slidegate::limit::Period;

/// The report on a file, printed while its cases run.
pub(super) struct CaseReport<'f> {
    file: &'f CaseFile,
    passed: usize,
    left_out: usize,
    failures: Vec<(&'f PolicyCase, CaseFailure<'f>)>,
}

impl<'f> CaseReport<'f> {
    pub(super) fn begin(
        file: &'f CaseFile,
        is_selected: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Self> {
        let wanted = file.cases.iter().filter(|case| is_selected(&case.name)).count();
        let (path, config) = (file.path.display(), file.config());
        let tests = if wanted == 1 { "test" } else { "tests" };
        let heading = format!("{STRONG}Running{STRONG:#} {path} ({config})");
        show_styled(&format!("{heading}\n\nrunning {wanted} {tests}\n"))?;
        let left_out = file.cases.len() - wanted;
        Ok(Self { file, passed: 0, left_out, failures: Vec::new() })
    }

    /// Adds a case that was run.
    pub(super) fn add(
        &mut self,
        case: &'f PolicyCase,
        result: Result<(), CaseFailure<'f>>,
    ) -> anyhow::Result<()> {
        let (style, word) = match result {
            Ok(()) => {
                self.passed += 1;
                (GOOD, "ok")
            }
            Err(failure) => {
                self.failures.push((case, failure));
                (BAD, "FAILED")
            }
        };
        show_styled(&format!("test {} ... {style}{word}{style:#}\n", case.name))
    }

    pub(super) fn ran(&self) -> usize {
        self.passed + self.failures.len()
    }

    pub(super) fn failed(&self) -> usize {
        self.failures.len()
    }

    /// Prints what failed and why, and how many passed.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        let mut text = String::new();
        if !self.failures.is_empty() {
            text += "\nfailures:\n";
            for (case, failure) in &self.failures {
                let _ = write!(text, "\n---- {} ----\n{}", case.name, self.describe(failure));
            }
            text += "\nfailures:\n";
            for (case, _) in &self.failures {
                let _ = writeln!(text, "    {}", case.name);
            }
        }
        let (style, word) = match self.failures.is_empty() {
            true => (GOOD, "ok"),
            false => (BAD, "FAILED"),
        };
        let (passed, failed, left_out) = (self.passed, self.failures.len(), self.left_out);
        let _ = writeln!(
            text,
            "\ntest result: {style}{word}{style:#}. {passed} passed; {failed} failed; {left_out} \
             filtered out\n"
        );
        show_styled(&text)
    }

    fn describe(&self, failure: &CaseFailure<'_>) -> String {
        let CaseFailure { step, number, repetition, .. } = failure;
        let mut text = format!("{}:{}: step {number}", self.file.path.display(), step.line);
        if step.times > 1 {
            let _ = write!(text, ", request {repetition} of {}", step.times);
        }
        let request = &step.request;
        // A query may have a secret.
        let (method, path) = (&request.method, without_query(&request.path));
        let _ = writeln!(text, ", at {}: {method} {path}", Period(failure.at));
        let _ = writeln!(text, "expected: {}", step.expect);
        for (i, line) in failure.decided.iter().enumerate() {
            let _ = match i {
                0 => writeln!(text, "decided:  {line}"),
                _ => writeln!(text, "    {line}"),
            };
        }
        let _ = writeln!(text, "not as expected: {}", failure.differences.join(", "));
        text += "explained:\n";
        for line in failure.explanation.lines() {
            let _ = writeln!(text, "    {line}");
        }
        text
    }
}
