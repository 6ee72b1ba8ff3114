//! Reads costs from a body as it streams by, in bounded memory.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use http::{HeaderMap, header};
use slidegate::policy::JsonPath;
use smallvec::SmallVec;

use super::UnreadReason;
use super::json_member::units_at;

/// The most bytes of a document, or of one event of a stream, that are read.
const MAX_DOCUMENT: usize = 1024 * 1024;

/// The most bytes that a gzip stream is decompressed to, so that a small body does not take long.
const MAX_DECOMPRESSED: usize = 64 * 1024 * 1024;

/// Ends a stream of events in the form of OpenAI's API.
const DONE: &[u8] = b"[DONE]";

/// A body that is read as it streams by.
pub(super) enum BodyReader {
    Plain(Documents),
    Gzip(Box<MultiGzDecoder<Documents>>),
    /// No more of it can be read.
    Broken(Documents),
    /// It cannot be read.
    Unread(UnreadReason),
}

/// What was found in a body: for each path the last number.
pub(super) struct Found {
    pub(super) units: SmallVec<[Option<u32>; 1]>,
    /// Whether nothing more could have come.
    pub(super) is_whole: bool,
    /// Why a number is missing.
    pub(super) reason: UnreadReason,
}

/// The JSON documents in a body, and the numbers found in them so far.
pub(super) struct Documents {
    form: Form,
    paths: SmallVec<[JsonPath; 1]>,
    units: SmallVec<[Option<u32>; 1]>,
    /// The document or the line that has begun.
    begun: Vec<u8>,
    /// Whether it is too long, and the rest of it is skipped.
    is_skipped: bool,
    bytes: usize,
    is_compressed: bool,
    is_done: bool,
    reason: UnreadReason,
}

/// How documents are arranged in a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    One,
    /// One in each line.
    Lines,
    /// One in each line that begins with `data:`.
    Events,
}

impl BodyReader {
    /// A reader for a body with these headers.
    pub(super) fn new(headers: &HeaderMap, paths: SmallVec<[JsonPath; 1]>) -> Self {
        let text =
            |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
        let form = match media_type.to_ascii_lowercase().as_str() {
            "text/event-stream" => Form::Events,
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Form::Lines,
            json if json == "application/json" || json.ends_with("+json") => Form::One,
            _ => return Self::Unread(UnreadReason::ContentType),
        };
        let documents = Documents::new(form, paths);
        // What is not compressed is bounded by what upstream sends.
        match text(header::CONTENT_ENCODING).trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Self::Plain(documents),
            "gzip" | "x-gzip" => {
                let documents = Documents { is_compressed: true, ..documents };
                Self::Gzip(Box::new(MultiGzDecoder::new(documents)))
            }
            _ => Self::Unread(UnreadReason::Encoding),
        }
    }

    /// Reads the next bytes of the body.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let read = match self {
            Self::Plain(documents) => documents.write_all(bytes),
            Self::Gzip(decoder) => decoder.write_all(bytes),
            Self::Broken(_) | Self::Unread(_) => return,
        };
        // What was found before still counts.
        if let Self::Gzip(decoder) = self
            && read.is_err()
        {
            let mut documents = std::mem::take(decoder.get_mut());
            documents.reason = match documents.bytes > MAX_DECOMPRESSED {
                true => UnreadReason::TooLarge,
                false => UnreadReason::Malformed,
            };
            *self = Self::Broken(documents);
        }
    }

    /// What was found, when the body has ended or no more of it comes.
    pub(super) fn finish(self) -> Found {
        let documents = match self {
            Self::Plain(documents) => documents,
            Self::Gzip(mut decoder) => {
                // Writes out what it still has. An error means that the stream has no end.
                let _ = decoder.try_finish();
                std::mem::take(decoder.get_mut())
            }
            Self::Broken(Documents { units, reason, .. }) => {
                return Found { units, is_whole: false, reason };
            }
            Self::Unread(reason) => {
                return Found { units: SmallVec::new(), is_whole: false, reason };
            }
        };
        documents.finish()
    }
}

impl Default for Documents {
    fn default() -> Self {
        Self::new(Form::One, SmallVec::new())
    }
}

impl Documents {
    fn new(form: Form, paths: SmallVec<[JsonPath; 1]>) -> Self {
        Self {
            form,
            units: paths.iter().map(|_| None).collect(),
            paths,
            begun: Vec::new(),
            is_skipped: false,
            bytes: 0,
            is_compressed: false,
            is_done: false,
            reason: UnreadReason::Missing,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.is_skipped || self.begun.len() + bytes.len() > MAX_DOCUMENT {
            (self.is_skipped, self.reason) = (true, UnreadReason::TooLarge);
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.begun);
        if !std::mem::take(&mut self.is_skipped) {
            let document = match self.form {
                Form::Events => line.strip_prefix(b"data:").map(<[u8]>::trim_ascii),
                Form::Lines | Form::One => Some(line.trim_ascii()),
            };
            match document {
                None | Some(b"") => {}
                Some(DONE) => self.is_done = true,
                Some(document) => _ = self.read_document(document),
            }
        }
        self.begun = line;
        self.begun.clear();
    }

    /// Returns whether it is a whole document.
    fn read_document(&mut self, document: &[u8]) -> bool {
        let mut is_whole = true;
        for (path, units) in self.paths.iter().zip(&mut self.units) {
            match units_at(document, path) {
                Ok(None) => {}
                Ok(found) => *units = found,
                Err(_) => is_whole = false,
            }
        }
        if !is_whole {
            self.reason = UnreadReason::Malformed;
        }
        is_whole
    }

    fn finish(mut self) -> Found {
        let mut is_whole = self.is_done;
        if self.form != Form::One {
            // The last line need not end.
            self.end_line();
        } else if !self.is_skipped && !self.begun.is_empty() {
            let document = std::mem::take(&mut self.begun);
            is_whole = self.read_document(&document);
        }
        Found { units: self.units, is_whole, reason: self.reason }
    }
}

/// What a decoder writes to.
impl Write for Documents {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > MAX_DECOMPRESSED && self.is_compressed {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if self.form == Form::One {
            self.add(bytes);
            return Ok(bytes.len());
        }
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.add(&rest[..end]);
            self.end_line();
            rest = &rest[end + 1..];
        }
        self.add(rest);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
