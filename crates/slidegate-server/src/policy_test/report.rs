//! What is printed of the cases of a file, as `cargo test` prints tests.

use std::fmt::Write as _;

use slidegate::policy::without_query;

use super::case_file::{CaseFile, PolicyCase};
use super::runner::CaseFailure;
use crate::terminal::{self, Paint, Tone};
use slidegate::limit::Period;

/// The report on a file, printed while its cases run.
pub(super) struct CaseReport<'f> {
    file: &'f CaseFile,
    paint: Paint,
    passed: usize,
    left_out: usize,
    failures: Vec<(&'f PolicyCase, CaseFailure<'f>)>,
}

impl<'f> CaseReport<'f> {
    pub(super) fn begin(
        file: &'f CaseFile,
        is_selected: impl Fn(&str) -> bool,
        paint: Paint,
    ) -> anyhow::Result<Self> {
        let wanted = file.cases.iter().filter(|case| is_selected(&case.name)).count();
        let heading = paint.tone(Tone::Strong, "Running");
        let (path, config) = (file.path.display(), file.config());
        let tests = if wanted == 1 { "test" } else { "tests" };
        terminal::show(&format!("{heading} {path} ({config})\n\nrunning {wanted} {tests}\n"))?;
        let left_out = file.cases.len() - wanted;
        Ok(Self { file, paint, passed: 0, left_out, failures: Vec::new() })
    }

    /// Adds a case that was run.
    pub(super) fn add(
        &mut self,
        case: &'f PolicyCase,
        result: Result<(), CaseFailure<'f>>,
    ) -> anyhow::Result<()> {
        let result = match result {
            Ok(()) => {
                self.passed += 1;
                self.paint.tone(Tone::Good, "ok")
            }
            Err(failure) => {
                self.failures.push((case, failure));
                self.paint.tone(Tone::Bad, "FAILED")
            }
        };
        terminal::show(&format!("test {} ... {result}\n", case.name))
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
        let result = match self.failures.is_empty() {
            true => self.paint.tone(Tone::Good, "ok"),
            false => self.paint.tone(Tone::Bad, "FAILED"),
        };
        let (passed, failed, left_out) = (self.passed, self.failures.len(), self.left_out);
        let _ = writeln!(
            text,
            "\ntest result: {result}. {passed} passed; {failed} failed; {left_out} filtered out\n"
        );
        terminal::show(&text)
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
