//! Logs: decompressed and read line by line.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::rc::Rc;

use serde::Serialize;

use crate::decompress::decompressed;
use crate::entry::{BadLine, LogEntry};
use crate::format::{FormatRequest, LineKind, LogParser, csv_record};
use crate::time::TimeReader;

/// A longer line is a bad one.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// What the format is found by.
const BEGINNING_BYTES: u64 = 64 * 1024;
const BUFFER_BYTES: usize = 256 * 1024;
/// How many bad lines are shown, and how much of each.
const MAX_SHOWN: usize = 5;
const SHOWN_CHARS: usize = 80;

/// An access log: plain text, or compressed by gzip or zstd.
pub struct AccessLog {
    name: String,
    reader: Box<dyn Read>,
}

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It cannot be opened, or not even its beginning can be read.
    #[error("{name} cannot be read")]
    Unreadable {
        /// The name of the log.
        name: String,
        /// What the operating system or the decompressor says.
        source: io::Error,
    },
    /// Its lines cannot be parsed.
    #[error("{name}: {problem}")]
    Format {
        /// The name of the log.
        name: String,
        /// Why its format is not known, or which field is missing.
        problem: String,
    },
}

impl AccessLog {
    /// A log from any reader. Reports call it by this name.
    pub fn new(name: impl Into<String>, reader: impl Read + 'static) -> Self {
        Self { name: name.into(), reader: Box::new(reader) }
    }

    /// Opens a file, and names the log by its path.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Self::new(name, file)),
            Err(source) => Err(LogError::Unreadable { name, source }),
        }
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One log, which is read from its beginning to its end.
pub(crate) struct LogInput {
    pub(crate) name: String,
    records: Records,
    pub(crate) times: TimeReader,
}

struct Records {
    reader: BufReader<Box<dyn Read>>,
    parser: LogParser,
    line: Vec<u8>,
    number: u64,
}

/// What was in the logs beside requests.
#[derive(Debug, Default, Serialize)]
pub(crate) struct LineCounts {
    /// All lines but empty ones.
    pub(crate) lines: u64,
    pub(crate) bad_lines: u64,
    /// The first few of them.
    pub(crate) first_bad_lines: Vec<BadLineView>,
    /// Lines about something else than a request.
    pub(crate) other_lines: u64,
    /// Logs that could not be read to their end.
    pub(crate) cut_short: Vec<String>,
}

/// A bad line.
#[derive(Debug, Serialize)]
pub(crate) struct BadLineView {
    pub(crate) log: String,
    pub(crate) line: u64,
    pub(crate) problem: String,
    /// Its beginning, unless it may have a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

/// How many bytes of all files have been read, before they are decompressed.
pub(crate) type BytesRead = Rc<Cell<u64>>;

struct CountedFile<R> {
    inner: R,
    bytes: BytesRead,
}

impl<R: Read> Read for CountedFile<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes.set(self.bytes.get() + count as u64);
        Ok(count)
    }
}

/// What remains of a file that cannot be read any further.
struct BrokenInput(Option<io::Error>);

impl Read for BrokenInput {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl LogInput {
    /// Reads the beginning of a log, and finds its format.
    pub(crate) fn new(
        log: AccessLog,
        request: &FormatRequest<'_>,
        bytes: &BytesRead,
    ) -> Result<Self, LogError> {
        let AccessLog { name, reader } = log;
        let file = CountedFile { inner: reader, bytes: Rc::clone(bytes) };
        let (beginning, reader) = match Self::read_beginning(file) {
            Ok(opened) => opened,
            Err(source) => return Err(LogError::Unreadable { name, source }),
        };
        let parser = match beginning.trim_ascii().is_empty() {
            true => Ok(LogParser::default()),
            false => LogParser::new(request, &beginning),
        };
        match parser {
            Ok(parser) => {
                let records = Records::new(parser, reader);
                Ok(Self { name, records, times: TimeReader::default() })
            }
            Err(problem) => Err(LogError::Format { name, problem }),
        }
    }

    /// The first lines, and all that there is.
    fn read_beginning(file: impl Read + 'static) -> io::Result<(Vec<u8>, Box<dyn Read>)> {
        let mut reader = decompressed(file)?;
        let mut beginning = Vec::new();
        match reader.by_ref().take(BEGINNING_BYTES).read_to_end(&mut beginning) {
            Err(error) if beginning.is_empty() => return Err(error),
            // What comes before the error counts.
            Err(error) => reader = Box::new(BrokenInput(Some(error))),
            Ok(_) => {}
        }
        // A line that is cut would be taken for a bad one.
        let is_all = (beginning.len() as u64) < BEGINNING_BYTES;
        let end = if is_all { None } else { memchr::memrchr(b'\n', &beginning) };
        let lines = beginning[..end.unwrap_or(beginning.len())].to_vec();
        Ok((lines, Box::new(Cursor::new(beginning).chain(reader))))
    }

    /// Reads up to the next request. False at the end.
    pub(crate) fn next(&mut self, entry: &mut LogEntry, counts: &mut LineCounts) -> bool {
        loop {
            let read = self.records.next(entry, &mut self.times);
            let (number, kind) = match read {
                Ok(Some(read)) => read,
                Ok(None) => return false,
                Err(error) => {
                    counts.cut_short.push(format!("{}: {error}", self.name));
                    return false;
                }
            };
            counts.lines += 1;
            match kind {
                Ok(LineKind::Request) => return true,
                Ok(LineKind::Other) => counts.other_lines += 1,
                Err(problem) => {
                    counts.bad_lines += 1;
                    if counts.first_bad_lines.len() < MAX_SHOWN {
                        counts.first_bad_lines.push(BadLineView {
                            log: self.name.clone(),
                            line: number,
                            problem: problem.to_string(),
                            text: self.records.shown(),
                        });
                    }
                }
            }
        }
    }
}

/// The number of a line, and whether it is a request.
type NumberedLine = (u64, Result<LineKind, BadLine>);

impl Records {
    fn new(parser: LogParser, reader: Box<dyn Read>) -> Self {
        let reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        Self { reader, parser, line: Vec::new(), number: 0 }
    }

    fn next(
        &mut self,
        entry: &mut LogEntry,
        times: &mut TimeReader,
    ) -> io::Result<Option<NumberedLine>> {
        let mut is_header = self.number == 0 && matches!(self.parser, LogParser::Csv(_));
        loop {
            if !read_line(&mut self.reader, &mut self.line)? {
                return Ok(None);
            }
            self.number += 1;
            let text = self.line.trim_ascii();
            if text.is_empty() || std::mem::take(&mut is_header) {
                continue;
            }
            let kind = match &self.parser {
                _ if text.len() > MAX_LINE_BYTES => {
                    Err(BadLine::from("expected at most 65536 bytes"))
                }
                LogParser::Lines(parser) => parser.read(text, entry, times),
                LogParser::Csv(columns) => {
                    let read = columns.read(&csv_record(text), entry, times);
                    read.map(|()| LineKind::Request)
                }
            };
            return Ok(Some((self.number, kind)));
        }
    }

    /// The beginning of the last line without its query, unless it may have a secret.
    fn shown(&self) -> Option<String> {
        let may_have_secrets = match &self.parser {
            LogParser::Lines(parser) => parser.may_have_secrets(),
            LogParser::Csv(columns) => columns.may_have_secrets,
        };
        if may_have_secrets {
            return None;
        }
        let text = String::from_utf8_lossy(self.line.trim_ascii());
        let text = text.split('?').next().unwrap_or_default();
        let visible = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
        Some(visible.take(SHOWN_CHARS).collect())
    }
}

/// Reads a line. One that is too long is cut, so that it is too long still. False at the end.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut limited = reader.by_ref().take(MAX_LINE_BYTES as u64 + 2);
    if limited.read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    while line.len() > MAX_LINE_BYTES && !line.ends_with(b"\n") {
        let rest = reader.fill_buf()?;
        if rest.is_empty() {
            break;
        }
        let end = memchr::memchr(b'\n', rest);
        let count = end.map_or(rest.len(), |end| end + 1);
        reader.consume(count);
        if end.is_some() {
            break;
        }
    }
    Ok(true)
}
