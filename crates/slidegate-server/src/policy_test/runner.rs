//! Runs a case, until a decision is not as expected.

use std::time::Duration;

use slidegate::Timestamp;
use slidegate_replay::Simulation;

use super::case_file::{CaseStep, PolicyCase};
use super::expectation::outcome_lines;
use crate::config::LimiterConfig;
use crate::explain;

/// More accounts than a file has room for requests.
const CAPACITY: usize = 100_000;

/// The first decision of a case that is not as expected.
#[derive(Debug)]
pub(super) struct CaseFailure<'c> {
    pub(super) step: &'c CaseStep,
    /// Which step of the case it is, counted from 1.
    pub(super) number: usize,
    /// Which repetition it is, counted from 1.
    pub(super) repetition: usize,
    pub(super) at: Duration,
    /// The keys that are not as expected.
    pub(super) differences: Vec<&'static str>,
    /// What was decided, and where each policy stands.
    pub(super) decided: Vec<String>,
    /// Which policies the request falls under, and why.
    pub(super) explanation: String,
}

impl PolicyCase {
    /// Runs all steps on empty accounts.
    pub(super) fn run(&self, limiter: LimiterConfig) -> Result<(), CaseFailure<'_>> {
        let simulation = Simulation::new(limiter.into(), CAPACITY);
        for (i, step) in self.steps.iter().enumerate() {
            for (j, at) in step.instants().enumerate() {
                let now = Timestamp::default() + at;
                let outcome = simulation.decide(now, &step.request, &step.response);
                let differences = step.expect.differences(&outcome);
                if differences.is_empty() {
                    continue;
                }
                let policies = simulation.policies();
                return Err(CaseFailure {
                    step,
                    number: i + 1,
                    repetition: j + 1,
                    at,
                    differences,
                    decided: outcome_lines(&outcome, &policies),
                    explanation: explain::explanation(
                        &policies,
                        simulation.client_address(),
                        &step.request,
                        None,
                    ),
                });
            }
        }
        Ok(())
    }
}
