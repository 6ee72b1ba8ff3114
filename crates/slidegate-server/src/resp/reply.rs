//! Replies. Both versions of the protocol write the same but for maps.

use bytes::{BufMut, BytesMut};
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame;

/// The most characters of an error.
const MAX_ERROR_CHARS: usize = 512;

/// Replies that are yet to be written to a client.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) bytes: BytesMut,
    /// Whether the client speaks RESP3.
    pub(super) is_resp3: bool,
}

impl Replies {
    pub(super) fn frame(&mut self, frame: &BorrowedFrame<'_>) {
        let encoded = extend_encode_borrowed(&mut self.bytes, frame, false);
        encoded.expect("the buffer grows by what the frame takes");
    }

    pub(super) fn ok(&mut self) {
        self.simple("OK");
    }

    pub(super) fn simple(&mut self, text: &str) {
        self.frame(&BorrowedFrame::SimpleString(text.as_bytes()));
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.frame(&BorrowedFrame::BulkString(bytes));
    }

    pub(super) fn integer(&mut self, number: i64) {
        self.frame(&BorrowedFrame::Integer(number));
    }

    /// The reply to nearly every command.
    pub(super) fn integers(&mut self, numbers: [i64; 5]) {
        self.bytes.extend_from_slice(b"*5\r\n");
        self.append(numbers);
    }

    /// The reply to a command that holds: the same, and an id if something is held.
    pub(super) fn hold(&mut self, numbers: [i64; 5], id: Option<&str>) {
        self.bytes.extend_from_slice(b"*6\r\n");
        self.append(numbers);
        match id {
            Some(id) => self.bulk(id.as_bytes()),
            None if self.is_resp3 => self.bytes.extend_from_slice(b"_\r\n"),
            None => self.bytes.extend_from_slice(b"$-1\r\n"),
        }
    }

    /// By hand, because the codec takes a logarithm of each number to know its length.
    fn append(&mut self, numbers: [i64; 5]) {
        for number in numbers {
            self.bytes.put_u8(b':');
            self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// An error with a code before its text, such as `ERR`. There may be a client's text in it, so
    /// that it is kept on one line.
    pub(super) fn error(&mut self, text: &str) {
        let is_bad = |c: char| c.is_control();
        let text: String = text.chars().take(MAX_ERROR_CHARS).collect();
        self.frame(&BorrowedFrame::Error(&text.replace(is_bad, " ")));
    }

    pub(super) fn map(&mut self, entries: &[(&str, BorrowedFrame<'_>)]) {
        let flat = entries
            .iter()
            .flat_map(|(name, value)| [BorrowedFrame::BulkString(name.as_bytes()), value.clone()]);
        let flat: Vec<BorrowedFrame<'_>> = flat.collect();
        if !self.is_resp3 {
            return self.frame(&BorrowedFrame::Array(&flat));
        }
        self.bytes.extend_from_slice(format!("%{}\r\n", entries.len()).as_bytes());
        flat.iter().for_each(|frame| self.frame(frame));
    }
}
