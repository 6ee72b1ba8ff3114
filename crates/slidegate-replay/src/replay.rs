//! Runs a replay, from logs to a report.

use slidegate::Quota;

use crate::engine::ReplayEngine;
use crate::entry::FieldMapping;
use crate::format::{FormatChoice, FormatRequest, WantedHeaders};
use crate::input::{AccessLog, BytesRead, LogError, LogInput};
use crate::merge::LogMerge;
use crate::report::{ConfigNames, ReplayReport};
use crate::simulation::RuleSet;
use crate::sweep::Sweep;

/// How often the progress is reported.
const PROGRESS_LINES: u64 = 8192;

/// A replay of access logs: what rules would have done to their requests.
#[derive(Debug)]
pub struct Replay {
    names: ConfigNames,
    rules: RuleSet,
    against: Option<RuleSet>,
    sweep: Option<Sweep>,
    format: FormatChoice,
    mappings: Vec<FieldMapping>,
}

/// How far a replay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Lines of all logs that have been read, empty ones not counted.
    pub lines: u64,
    /// Bytes of all logs that have been read, before they are decompressed.
    pub bytes: u64,
}

impl Replay {
    /// A replay under these rules, which the report calls by this name.
    pub fn new(name: impl Into<String>, rules: RuleSet) -> Self {
        Self {
            names: ConfigNames { candidate: name.into(), other: None },
            rules,
            against: None,
            sweep: None,
            format: FormatChoice::default(),
            mappings: Vec::new(),
        }
    }

    /// Also reports which identities only one of the two sets of rules refuses.
    pub fn against(mut self, name: impl Into<String>, rules: RuleSet) -> Self {
        self.names.other = Some(name.into());
        self.against = Some(rules);
        self
    }

    /// Also reports how many requests a policy would refuse under other quotas. Each step is a quota,
    /// and the rules in which the policy has it; all quotas have the same window, and the smallest is
    /// the first. A step takes as much time and memory as the replay itself.
    pub fn sweep(
        mut self,
        policy: impl Into<String>,
        steps: impl IntoIterator<Item = (Quota, RuleSet)>,
    ) -> Self {
        self.sweep = Some(Sweep::new(policy.into(), steps));
        self
    }

    /// Sets the format of all logs; by default, the format of each is detected.
    pub fn format(mut self, format: FormatChoice) -> Self {
        self.format = format;
        self
    }

    /// Says what fields of the logs are for. A mapping outweighs what a field is usually for.
    pub fn mappings(mut self, mappings: impl IntoIterator<Item = FieldMapping>) -> Self {
        self.mappings.extend(mappings);
        self
    }

    /// Decides every request of the logs, which are merged by time. Calls `on_progress` every few
    /// thousand lines.
    ///
    /// # Errors
    /// If the beginning of a log cannot be read, or its format is not known. Of a log that cannot be
    /// read to its end, the report has what was read.
    pub fn run(
        self,
        logs: impl IntoIterator<Item = AccessLog>,
        mut on_progress: impl FnMut(Progress),
    ) -> Result<ReplayReport, LogError> {
        let mut wanted = WantedHeaders::of(&self.rules);
        if let Some(other) = &self.against {
            wanted = wanted.and(WantedHeaders::of(other));
        }
        let mut engine = ReplayEngine::new(self.rules, self.against, self.sweep);
        let request = FormatRequest {
            format: &self.format,
            mappings: &self.mappings,
            wanted: &wanted,
            policies: &engine.rules.policies,
        };
        let bytes = BytesRead::default();
        let logs = logs.into_iter().map(|log| LogInput::new(log, &request, &bytes));
        let logs = logs.collect::<Result<Vec<_>, _>>()?;
        let names = logs.iter().map(|log| log.name.clone()).collect();
        let mut merge = LogMerge::new(logs);
        let mut reported_lines = 0;
        while let Some(entry) = merge.next() {
            engine.decide(&entry);
            merge.reuse(entry);
            let lines = merge.counts.lines;
            if lines >= reported_lines + PROGRESS_LINES {
                reported_lines = lines;
                on_progress(Progress { lines, bytes: bytes.get() });
            }
        }
        engine.finish();
        Ok(ReplayReport::new(self.names, names, merge, engine))
    }
}
