//! The head of a request.

use std::mem::MaybeUninit;

use ::http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use bytes::{Buf, Bytes, BytesMut};

use crate::http1::{self, ByteSpan, FieldSpans, words};
use crate::listener::body::RequestBody;

/// What the head of a request says of the rest.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParsedHead {
    pub(super) length: RequestLength,
    pub(super) terms: Terms,
    /// Whether the client sends its body only after a word of ours.
    pub(super) expects_word: bool,
    pub(super) wants_upgrade: bool,
}

/// How long a request's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestLength {
    Bytes(u64),
    Chunked,
}

/// What a client has said of the answer that it can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// Whether it is to have a head only.
    pub(super) is_head: bool,
    /// Whether it speaks HTTP/1.0, which has no chunks.
    pub(super) is_old: bool,
    /// Whether the connection can be used again.
    pub(super) keeps: bool,
    pub(super) takes_trailers: bool,
}

/// What is wrong with a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MalformedRequest {
    Malformed,
    TooLarge,
}

impl MalformedRequest {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }
    }
}

/// As many as hyper takes.
const MOST_FIELDS: usize = 100;

/// A head as it was parsed, by its places in the bytes.
struct ParseOutcome {
    length: usize,
    method: Method,
    target: ByteSpan,
    /// Of HTTP 1.
    minor: u8,
}

/// Takes the head of a request, once it is there, and puts it into one that has nothing yet, because
/// it is large to hand over. It may have so many bytes.
pub(super) fn take(
    bytes: &mut BytesMut,
    most: usize,
    request: &mut Request<RequestBody>,
) -> Result<Option<ParsedHead>, MalformedRequest> {
    let mut fields = FieldSpans::new();
    match parse(bytes, &mut fields)? {
        Some(parsed) if parsed.length <= most => {
            let bytes = bytes.split_to(parsed.length).freeze();
            understand(parsed, &fields, bytes, request).map(Some)
        }
        None if bytes.len() <= most => Ok(None),
        _ => Err(MalformedRequest::TooLarge),
    }
}

fn parse(bytes: &[u8], places: &mut FieldSpans) -> Result<Option<ParseOutcome>, MalformedRequest> {
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(length)) => {
            for field in request.headers.iter() {
                let name = ByteSpan::of(field.name.as_bytes(), bytes);
                places.push((name, ByteSpan::of(field.value, bytes)));
            }
            let method = request.method.and_then(|name| Method::from_bytes(name.as_bytes()).ok());
            Ok(Some(ParseOutcome {
                length,
                method: method.ok_or(MalformedRequest::Malformed)?,
                target: ByteSpan::of(
                    request.path.ok_or(MalformedRequest::Malformed)?.as_bytes(),
                    bytes,
                ),
                minor: request.version.ok_or(MalformedRequest::Malformed)?,
            }))
        }
        Err(httparse::Error::TooManyHeaders) => Err(MalformedRequest::TooLarge),
        Err(_) => Err(MalformedRequest::Malformed),
    }
}

/// What the fields say about the connection and the body.
#[derive(Debug, Default)]
struct RequestFields {
    length: Option<u64>,
    /// Whether chunks are the last coding, if there is a coding.
    chunked: Option<bool>,
    close: bool,
    keep_alive: bool,
    expects_word: bool,
    upgrade: bool,
    trailers: bool,
}

fn understand(
    parsed: ParseOutcome,
    fields: &FieldSpans,
    mut bytes: Bytes,
    request: &mut Request<RequestBody>,
) -> Result<ParsedHead, MalformedRequest> {
    request.headers_mut().reserve(fields.len());
    let mut said = RequestFields::default();
    for (name, value) in fields {
        let name = http1::name(&bytes[name.range()]).map_err(|_| MalformedRequest::Malformed)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice(value.range()));
        let value = value.map_err(|_| MalformedRequest::Malformed)?;
        said.hear(&name, &value).ok_or(MalformedRequest::Malformed)?;
        request.headers_mut().append(name, value);
    }
    let is_old = parsed.minor == 0;
    let length = match (said.chunked, said.length) {
        (None, length) => RequestLength::Bytes(length.unwrap_or(0)),
        (Some(true), _) if !is_old => RequestLength::Chunked,
        // Nobody could say where it ends.
        (Some(_), _) => return Err(MalformedRequest::Malformed),
    };
    // Who sends both may mean the one where somebody on the way meant the other.
    let is_clear = said.chunked.is_none() || said.length.is_none();
    let terms = Terms {
        is_head: parsed.method == Method::HEAD,
        is_old,
        keeps: is_clear && !said.close && (!is_old || said.keep_alive),
        takes_trailers: said.trailers,
    };
    // Nobody needs the rest any longer: a slice would be one more owner to count.
    bytes.truncate(parsed.target.range().end);
    bytes.advance(parsed.target.range().start);
    *request.method_mut() = parsed.method;
    *request.uri_mut() = Uri::from_maybe_shared(bytes).map_err(|_| MalformedRequest::Malformed)?;
    *request.version_mut() = if is_old { Version::HTTP_10 } else { Version::HTTP_11 };
    let expects_word = said.expects_word && !is_old;
    let wants_upgrade = said.upgrade && !is_old;
    Ok(ParsedHead { length, terms, expects_word, wants_upgrade })
}

impl RequestFields {
    /// Takes note of a field. None if it makes no sense.
    fn hear(&mut self, name: &HeaderName, value: &HeaderValue) -> Option<()> {
        match name.as_str() {
            "content-length" => {
                let length = http1::length(value)?;
                if self.length.replace(length).is_some_and(|before| before != length) {
                    return None;
                }
            }
            "transfer-encoding" => {
                let last = words(value).last();
                self.chunked = Some(last.is_some_and(|word| word.eq_ignore_ascii_case("chunked")));
            }
            "connection" => {
                for word in words(value) {
                    self.close |= word.eq_ignore_ascii_case("close");
                    self.keep_alive |= word.eq_ignore_ascii_case("keep-alive");
                }
            }
            "expect" => {
                self.expects_word = value.as_bytes().eq_ignore_ascii_case(b"100-continue");
            }
            "te" => {
                self.trailers |= words(value).any(|word| word.eq_ignore_ascii_case("trailers"));
            }
            "upgrade" => self.upgrade = true,
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 64 * 1024;

    fn head(text: &str) -> Result<Option<ParsedHead>, MalformedRequest> {
        take(&mut BytesMut::from(text), MOST, &mut Request::default())
    }

    /// The head of a POST with these fields, if it has one meaning.
    fn post(version: &str, fields: &str) -> Option<ParsedHead> {
        let head = head(&format!("POST /a?b HTTP/{version}\r\n{fields}\r\n"));
        head.map(|head| head.expect("it is complete")).ok()
    }

    #[test]
    fn a_head_is_taken_when_it_is_there_and_the_rest_is_left() {
        let text = "PUT /a%20b?c HTTP/1.1\r\nHost: h\r\nX-Own: one\r\nx-own: two\r\n\r\nrest";
        for length in 0..text.len() - 4 {
            let mut bytes = BytesMut::from(&text[..length]);
            assert!(take(&mut bytes, MOST, &mut Request::default()).unwrap().is_none());
            assert_eq!(bytes.len(), length);
        }
        let mut bytes = BytesMut::from(text);
        let mut request = Request::default();
        let ParsedHead { length, terms, .. } =
            take(&mut bytes, MOST, &mut request).unwrap().unwrap();
        assert_eq!(&bytes[..], b"rest");
        assert_eq!((request.method(), request.uri().path()), (&Method::PUT, "/a%20b"));
        assert_eq!(request.uri().query(), Some("c"));
        let own: Vec<_> = request.headers().get_all("x-own").iter().collect();
        assert_eq!(own, ["one", "two"]);
        assert_eq!(length, RequestLength::Bytes(0));
        assert!(terms.keeps && !terms.is_head && !terms.is_old && !terms.takes_trailers);
    }

    #[test]
    fn a_body_ends_where_the_head_says() {
        let length = |fields| post("1.1", fields).map(|head| head.length);
        assert_eq!(length("Content-Length: 5\r\n"), Some(RequestLength::Bytes(5)));
        assert_eq!(
            length("Content-Length: 5\r\nContent-Length: 5\r\n"),
            Some(RequestLength::Bytes(5))
        );
        assert_eq!(length("Transfer-Encoding: Chunked\r\n"), Some(RequestLength::Chunked));
        assert_eq!(length("Transfer-Encoding: gzip, chunked\r\n"), Some(RequestLength::Chunked));
        assert_eq!(length(""), Some(RequestLength::Bytes(0)));
        let both = post("1.1", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n").unwrap();
        assert_eq!((both.length, both.terms.keeps), (RequestLength::Chunked, false));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_malformed() {
        for fields in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: chunked, gzip\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "Transfer-Encoding: \r\n",
            "X: a\r\n b\r\n",
            "X : a\r\n",
            "X: a\0b\r\n",
            "X: a\rb\r\n",
        ] {
            assert!(post("1.1", fields).is_none(), "{fields:?}");
        }
        assert!(post("1.0", "Transfer-Encoding: chunked\r\n").is_none());
        for line in
            ["GET /", "GET  / HTTP/1.1", "GET / HTTP/1.2", "GET / HTTP/2.0", "G\0T / HTTP/1.1"]
        {
            let flaw = head(&format!("{line}\r\nHost: h\r\n\r\n")).err();
            assert_eq!(flaw, Some(MalformedRequest::Malformed), "{line:?}");
        }
    }

    #[test]
    fn a_head_has_an_end() {
        let many = "X: y\r\n".repeat(MOST_FIELDS + 1);
        let flaw = head(&format!("GET / HTTP/1.1\r\n{many}\r\n")).err();
        assert_eq!(flaw, Some(MalformedRequest::TooLarge));
        let long = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(MOST));
        assert_eq!(head(&long).err(), Some(MalformedRequest::TooLarge));
        assert_eq!(
            head(&format!("{long}\r\n\r\n")).err(),
            Some(MalformedRequest::TooLarge),
            "also if complete"
        );
    }

    #[test]
    fn a_client_says_how_it_goes_on() {
        let keeps = |version, fields| post(version, fields).unwrap().terms.keeps;
        assert!(keeps("1.1", "") && !keeps("1.0", ""));
        assert!(!keeps("1.1", "Connection: x, Close\r\n"));
        assert!(keeps("1.0", "Connection: Keep-Alive\r\n"));
        assert!(!keeps("1.0", "Connection: keep-alive\r\nConnection: close\r\n"));
        assert!(post("1.1", "Expect: 100-Continue\r\n").unwrap().expects_word);
        assert!(!post("1.0", "Expect: 100-continue\r\n").unwrap().expects_word);
        assert!(post("1.1", "Upgrade: x\r\n").unwrap().wants_upgrade);
        assert!(post("1.1", "TE: deflate, trailers\r\n").unwrap().terms.takes_trailers);
    }
}
