//! A request as it goes to upstream.

use std::collections::HashSet;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, Request, header};
use http_body::{Body, Frame};

use crate::gateway::body::{BodyError, Timed};
use crate::gateway::head;
use crate::gateway::proxy_headers::{HeaderSink, ProxyHeaders};

/// The body of a request that is being sent.
#[derive(Debug)]
pub(super) struct RequestWriter {
    body: Timed,
    framing: RequestFraming,
    ended: bool,
}

/// How upstream knows where the body ends.
#[derive(Debug)]
enum RequestFraming {
    /// After this many bytes more.
    Length(u64),
    /// By the last chunk, after which come such trailers as were announced.
    Chunks { announced: HashSet<HeaderName> },
}

/// Writes a request's head.
pub(super) fn write_head(
    request: &Request<Timed>,
    proxy_headers: &ProxyHeaders,
    upstream: &Authority,
    bytes: &mut Vec<u8>,
) {
    bytes.extend_from_slice(request.method().as_str().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(request.uri().path().as_bytes());
    if let Some(query) = request.uri().query() {
        bytes.push(b'?');
        bytes.extend_from_slice(query.as_bytes());
    }
    bytes.extend_from_slice(b" HTTP/1.1\r\n");
    let host = proxy_headers.host(request, upstream);
    bytes.put(&header::HOST, |value| value.extend_from_slice(host));
    proxy_headers.write(request, bytes);
    match length_of(request.body()) {
        None => bytes.put(&header::TRANSFER_ENCODING, |value| value.extend_from_slice(b"chunked")),
        Some(0) if !says_nothing(request) => {}
        Some(length) => bytes.put(&header::CONTENT_LENGTH, |value| {
            value.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        }),
    }
    bytes.extend_from_slice(b"\r\n");
}

/// How long a body is, if it is known.
fn length_of(body: &Timed) -> Option<u64> {
    if body.is_end_stream() { Some(0) } else { body.size_hint().exact() }
}

/// Whether a request without a body has to say so.
fn says_nothing(request: &Request<Timed>) -> bool {
    let has_usually_one = [Method::POST, Method::PUT, Method::PATCH].contains(request.method());
    has_usually_one || request.headers().contains_key(header::CONTENT_LENGTH)
}

impl RequestWriter {
    /// The body of a request whose head has been written.
    pub(super) fn new(request: Request<Timed>) -> Self {
        let (head, body) = request.into_parts();
        let framing = match length_of(&body) {
            Some(length) => RequestFraming::Length(length),
            None => RequestFraming::Chunks { announced: head::announced_trailers(&head.headers) },
        };
        Self { body, framing, ended: false }
    }

    /// Whether nothing more is to be written.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Writes the next piece.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Vec<u8>,
    ) -> Poll<Result<(), BodyError>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()?;
        Poll::Ready(match frame.map(Frame::into_data) {
            None => self.end(&HeaderMap::new(), bytes),
            Some(Ok(data)) => self.write(&data, bytes),
            Some(Err(frame)) => self.end(&frame.into_trailers().unwrap_or_default(), bytes),
        })
    }

    fn write(&mut self, data: &[u8], bytes: &mut Vec<u8>) -> Result<(), BodyError> {
        match &mut self.framing {
            RequestFraming::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(BodyError::Length)?;
                self.ended = *left == 0;
                bytes.extend_from_slice(data);
            }
            // It would be the last.
            RequestFraming::Chunks { .. } if data.is_empty() => {}
            RequestFraming::Chunks { .. } => {
                write!(bytes, "{:x}\r\n", data.len()).expect("a buffer takes all");
                bytes.extend_from_slice(data);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }

    fn end(&mut self, trailers: &HeaderMap, bytes: &mut Vec<u8>) -> Result<(), BodyError> {
        match &self.framing {
            RequestFraming::Length(0) => {}
            RequestFraming::Length(_) => return Err(BodyError::Length),
            RequestFraming::Chunks { announced } => {
                bytes.extend_from_slice(b"0\r\n");
                for (name, value) in trailers {
                    if announced.contains(name) {
                        bytes.put(name, |written| written.extend_from_slice(value.as_bytes()));
                    }
                }
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.ended = true;
        Ok(())
    }
}
