//! Several logs as one, in the order of time.

use std::collections::VecDeque;

use slidegate::Timestamp;

use crate::entry::LogEntry;
use crate::input::{LineCounts, LogInput};

/// How many requests are held back, so that later lines can come before them.
const BUFFERED: usize = 8192;

/// The requests of several logs in the order of their times.
///
/// The log whose next request is the earliest is read first. Requests pass through a buffer that sorts
/// them, so that a line may be late by as many lines as the buffer has; later ones are counted and left
/// out. Requests of the same time stay in the order in which they were read.
pub(crate) struct LogMerge {
    logs: Vec<LogInput>,
    /// The next request of each log.
    heads: Vec<Option<Box<LogEntry>>>,
    buffer: VecDeque<Box<LogEntry>>,
    /// Entries to be filled again.
    #[expect(clippy::vec_box, reason = "entries go from list to list without being copied")]
    spare: Vec<Box<LogEntry>>,
    released: Timestamp,
    pub(crate) late_lines: u64,
    pub(crate) counts: LineCounts,
}

impl LogMerge {
    pub(crate) fn new(logs: Vec<LogInput>) -> Self {
        let mut merge = Self {
            heads: Vec::with_capacity(logs.len()),
            logs,
            buffer: VecDeque::with_capacity(BUFFERED),
            spare: Vec::new(),
            released: Timestamp::default(),
            late_lines: 0,
            counts: LineCounts::default(),
        };
        for index in 0..merge.logs.len() {
            let head = merge.read(index);
            merge.heads.push(head);
        }
        merge
    }

    /// The next request; none at the end.
    pub(crate) fn next(&mut self) -> Option<Box<LogEntry>> {
        while self.buffer.len() < BUFFERED {
            let Some(entry) = self.earliest() else { break };
            if entry.at < self.released {
                self.late_lines += 1;
                self.spare.push(entry);
                continue;
            }
            match self.buffer.back() {
                Some(last) if entry.at < last.at => {
                    let place = self.buffer.partition_point(|other| other.at <= entry.at);
                    self.buffer.insert(place, entry);
                }
                _ => self.buffer.push_back(entry),
            }
        }
        let entry = self.buffer.pop_front()?;
        self.released = entry.at;
        Some(entry)
    }

    /// Takes back an entry that has been dealt with.
    pub(crate) fn reuse(&mut self, entry: Box<LogEntry>) {
        self.spare.push(entry);
    }

    /// Whether all times are whole seconds.
    pub(crate) fn is_whole_seconds(&self) -> bool {
        self.logs.iter().all(|log| log.times.is_whole_seconds())
    }

    fn earliest(&mut self) -> Option<Box<LogEntry>> {
        let heads = self.heads.iter().enumerate();
        let heads = heads.filter_map(|(index, head)| Some((index, head.as_ref()?.at)));
        let (index, _) = heads.min_by_key(|(_, at)| *at)?;
        let next = self.read(index);
        std::mem::replace(&mut self.heads[index], next)
    }

    fn read(&mut self, log: usize) -> Option<Box<LogEntry>> {
        let mut entry = self.spare.pop().unwrap_or_default();
        if self.logs[log].next(&mut entry, &mut self.counts) {
            return Some(entry);
        }
        self.spare.push(entry);
        None
    }
}
