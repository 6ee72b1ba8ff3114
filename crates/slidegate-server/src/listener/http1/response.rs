//! A response as it goes to the client.

use std::collections::HashSet;
use std::error::Error;
use std::io::Write;

use ::http::{HeaderMap, HeaderName, Response, StatusCode};
use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::ext::ReasonPhrase;
use slidegate::Clock;
use slidegate::limit::SystemClock;
use tokio::io::{AsyncRead, AsyncWrite};

use super::date;
use super::request::{MalformedRequest, Terms};
use super::wire::Wire;
use crate::http1::announced_trailers;

/// A response whose head is written.
#[derive(Debug)]
pub(super) struct ResponseWriter {
    framing: ResponseFraming,
    /// Whether the client knows that another request can follow.
    pub(super) keeps: bool,
}

/// How the client knows where the body ends.
#[derive(Debug, PartialEq, Eq)]
enum ResponseFraming {
    /// After this many bytes more.
    Length(u64),
    /// By the last chunk, after which come these trailers.
    Chunks { announced: HashSet<HeaderName> },
    /// By the end of the connection.
    UntilClosed,
    /// All is written.
    Nothing,
}

/// A body that is not as long as its head says.
#[derive(Debug, thiserror::Error)]
#[error("the response does not have the length that it says")]
pub(super) struct WrongLength;

type WriteError = Box<dyn Error + Send + Sync>;

/// Writes a response's head. Another request may follow if both sides wish it.
pub(super) fn begin<B: Body>(
    response: &Response<B>,
    terms: Terms,
    keeps: bool,
    clock: &SystemClock,
    bytes: &mut Vec<u8>,
) -> ResponseWriter {
    let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let (mut length, mut has_date, mut says_close) = (None, false, false);
    write_status(response, terms.is_old, bytes);
    for (name, value) in response.headers() {
        let name = name.as_str();
        match name {
            // The connection's own affair.
            "connection" if !is_switching => {
                says_close |= value.as_bytes().eq_ignore_ascii_case(b"close");
                continue;
            }
            "transfer-encoding" => continue,
            // There is none to be told of.
            "content-length" if response.status() == StatusCode::NO_CONTENT => continue,
            "content-length" => length = value.to_str().ok().and_then(|text| text.parse().ok()),
            "date" => has_date = true,
            _ => {}
        }
        put(bytes, name, value.as_bytes());
    }
    let framing = ResponseFraming::of(response, length, terms);
    if length.is_none() {
        framing.write(terms.is_head, bytes);
    }
    if !has_date {
        write_date(clock, bytes);
    }
    let keeps = keeps && terms.keeps && framing != ResponseFraming::UntilClosed && !says_close;
    write_end(keeps || is_switching, terms.is_old, bytes);
    let is_all = terms.is_head || framing == ResponseFraming::Length(0);
    let framing = if is_all { ResponseFraming::Nothing } else { framing };
    ResponseWriter { framing, keeps: keeps || is_switching }
}

/// Writes a whole response to what is no request.
pub(super) fn refuse(flaw: MalformedRequest, clock: &SystemClock, bytes: &mut Vec<u8>) {
    let mut response = Response::new(http_body_util::Empty::<Bytes>::new());
    *response.status_mut() = flaw.status();
    let terms = Terms { is_head: false, is_old: false, keeps: false, takes_trailers: false };
    begin(&response, terms, false, clock, bytes);
}

impl ResponseWriter {
    /// Whether nothing more is to be written.
    pub(super) fn has_ended(&self) -> bool {
        self.framing == ResponseFraming::Nothing
    }

    /// Writes the next piece of the body, or its end.
    pub(super) fn write<S>(
        &mut self,
        frame: Option<Frame<Bytes>>,
        wire: &mut Wire<S>,
    ) -> Result<(), WriteError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match frame.map(Frame::into_data) {
            Some(Ok(data)) => self.write_data(&data, wire),
            Some(Err(frame)) => {
                self.end(&frame.into_trailers().unwrap_or_default(), &mut wire.unsent)
            }
            None => self.end(&HeaderMap::new(), &mut wire.unsent),
        }
    }

    fn write_data<S>(&mut self, data: &Bytes, wire: &mut Wire<S>) -> Result<(), WriteError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match &mut self.framing {
            ResponseFraming::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(WrongLength)?;
                if *left == 0 {
                    self.framing = ResponseFraming::Nothing;
                }
                wire.put(data);
            }
            ResponseFraming::UntilClosed => wire.put(data),
            // It would be the last.
            ResponseFraming::Chunks { .. } if data.is_empty() => {}
            ResponseFraming::Chunks { .. } => {
                let bytes = &mut wire.unsent;
                write!(bytes, "{:x}\r\n", data.len()).expect("a buffer takes all");
                bytes.extend_from_slice(data);
                bytes.extend_from_slice(b"\r\n");
            }
            ResponseFraming::Nothing => {}
        }
        Ok(())
    }

    fn end(&mut self, trailers: &HeaderMap, bytes: &mut Vec<u8>) -> Result<(), WriteError> {
        match &self.framing {
            ResponseFraming::Length(_) => return Err(WrongLength.into()),
            ResponseFraming::Chunks { announced } => {
                bytes.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.iter().filter(|(name, _)| announced.contains(*name)) {
                    put(bytes, name.as_str(), value.as_bytes());
                }
                bytes.extend_from_slice(b"\r\n");
            }
            ResponseFraming::UntilClosed | ResponseFraming::Nothing => {}
        }
        self.framing = ResponseFraming::Nothing;
        Ok(())
    }
}

impl ResponseFraming {
    fn of<B: Body>(response: &Response<B>, length: Option<u64>, terms: Terms) -> Self {
        if has_no_body(response.status()) {
            return Self::Nothing;
        }
        match length.or_else(|| response.body().size_hint().exact()) {
            Some(length) => Self::Length(length),
            None if terms.is_old => Self::UntilClosed,
            None if terms.takes_trailers => {
                Self::Chunks { announced: announced_trailers(response.headers()) }
            }
            None => Self::Chunks { announced: HashSet::new() },
        }
    }

    /// Writes the field that tells of it.
    fn write(&self, is_head: bool, bytes: &mut Vec<u8>) {
        match self {
            // It may be that nobody knows how long it would be.
            Self::Length(0) if is_head => {}
            Self::Length(length) => {
                put(bytes, "content-length", itoa::Buffer::new().format(*length).as_bytes());
            }
            Self::Chunks { .. } => put(bytes, "transfer-encoding", b"chunked"),
            Self::UntilClosed | Self::Nothing => {}
        }
    }
}

fn has_no_body(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

fn write_status<B>(response: &Response<B>, is_old: bool, bytes: &mut Vec<u8>) {
    let status = response.status();
    bytes.extend_from_slice(version(is_old));
    bytes.extend_from_slice(status.as_str().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(match response.extensions().get::<ReasonPhrase>() {
        Some(reason) => reason.as_bytes(),
        None => status.canonical_reason().unwrap_or_default().as_bytes(),
    });
    bytes.extend_from_slice(b"\r\n");
}

fn version(is_old: bool) -> &'static [u8] {
    if is_old { b"HTTP/1.0 " } else { b"HTTP/1.1 " }
}

/// Writes the end of a head: whether another request can follow, where that is not a matter of
/// course, and the empty line.
fn write_end(keeps: bool, is_old: bool, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(match (keeps, is_old) {
        (false, false) => b"connection: close\r\n\r\n",
        (true, true) => b"connection: keep-alive\r\n\r\n",
        _ => b"\r\n",
    });
}

fn write_date(clock: &SystemClock, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(b"date: ");
    date::write(clock.wall(), bytes);
    bytes.extend_from_slice(b"\r\n");
}

#[inline]
fn put(bytes: &mut Vec<u8>, name: &str, value: &[u8]) {
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(b": ");
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
}
