//! Which commands a server has seen, and how often.

use std::collections::BTreeMap;

use crate::server::RedisServer;

/// Calls per command, from `INFO commandstats`.
///
/// Names are in lower case, those of subcommands in the form `cluster|slots`. What a script calls
/// counts as well. `INFO` itself is left out, for it is how the counts are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandCounts {
    calls: BTreeMap<String, u64>,
}

impl CommandCounts {
    /// Everything that these servers have seen since each of them started.
    #[must_use]
    pub fn of<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> Self {
        let mut counts = Self::default();
        for server in servers {
            counts.add(&server.command(&["INFO", "commandstats"]).text());
        }
        counts
    }

    /// What came after `earlier`; commands without a call since are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let later = self.calls.iter().filter_map(|(command, calls)| {
            let more = calls.checked_sub(earlier.calls(command));
            let more = more.expect("counts only fall when a server restarts in between");
            (more > 0).then(|| (command.clone(), more))
        });
        Self { calls: later.collect() }
    }

    /// Calls of one command.
    #[must_use]
    pub fn calls(&self, command: &str) -> u64 {
        self.calls.get(command).copied().unwrap_or(0)
    }

    /// Calls of all commands.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.calls.values().sum()
    }

    /// Every command with its calls, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.calls.iter().map(|(command, calls)| (command.as_str(), *calls))
    }

    fn add(&mut self, commandstats: &str) {
        for (command, calls) in commandstats.lines().filter_map(parse) {
            if command != "info" {
                *self.calls.entry(command.to_owned()).or_default() += calls;
            }
        }
    }
}

/// A line such as `cmdstat_get:calls=2,usec=5,usec_per_call=2.50,rejected_calls=0,failed_calls=0`.
fn parse(line: &str) -> Option<(&str, u64)> {
    let (command, values) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let calls = values.strip_prefix("calls=")?.split(',').next()?;
    Some((command, calls.parse().ok()?))
}
