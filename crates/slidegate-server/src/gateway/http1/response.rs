//! The head of a response.

use std::mem::MaybeUninit;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use hyper::ext::ReasonPhrase;

use crate::http1::{self, ByteSpan, FieldSpans, Malformed, is_hop_by_hop, words};

/// The head of a response, and what it says of the rest.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) response: Response<()>,
    pub(super) length: ResponseLength,
    /// Whether the connection can be used again.
    pub(super) stays: bool,
    /// How long upstream says that it keeps the connection when it is idle.
    pub(super) kept_for: Option<Duration>,
}

/// How long a response's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseLength {
    Bytes(u64),
    Chunked,
    UntilClosed,
}

const LONGEST_HEAD: usize = 256 * 1024;
const MOST_FIELDS: usize = 256;
/// Heads before the one of the response.
const MOST_EARLY: u32 = 64;

/// A head as it was parsed, by its places in the bytes.
struct ParsedResponse {
    length: usize,
    /// Of HTTP 1.
    minor: u8,
    status: StatusCode,
    reason: Option<ByteSpan>,
}

/// Takes the head of the response to such a request, once it is there. Those that only tell of one to
/// come are passed over.
pub(super) fn take(
    bytes: &mut BytesMut,
    method: &Method,
    early: &mut u32,
) -> Result<Option<ResponseHead>, Malformed> {
    let mut fields = FieldSpans::new();
    while !bytes.is_empty() {
        fields.clear();
        let Some(parsed) = parse(bytes, &mut fields)? else { return Ok(None) };
        let status = parsed.status;
        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            *early += 1;
            if *early > MOST_EARLY {
                return Err(Malformed);
            }
            bytes.advance(parsed.length);
            continue;
        }
        let head = bytes.split_to(parsed.length).freeze();
        return understand(&parsed, &fields, &head, method).map(Some);
    }
    Ok(None)
}

fn parse(bytes: &[u8], places: &mut FieldSpans) -> Result<Option<ParsedResponse>, Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    match parser.parse_response_with_uninit_headers(&mut response, bytes, &mut fields) {
        Ok(httparse::Status::Partial) if bytes.len() <= LONGEST_HEAD => Ok(None),
        Ok(httparse::Status::Complete(length)) => {
            let status = StatusCode::from_u16(response.code.ok_or(Malformed)?);
            let status = status.map_err(|_| Malformed)?;
            let reason = response
                .reason
                .filter(|reason| !reason.is_empty() && Some(*reason) != status.canonical_reason());
            places.extend(response.headers.iter().map(|field| {
                (ByteSpan::of(field.name.as_bytes(), bytes), ByteSpan::of(field.value, bytes))
            }));
            Ok(Some(ParsedResponse {
                length,
                minor: response.version.ok_or(Malformed)?,
                status,
                reason: reason.map(|reason| ByteSpan::of(reason.as_bytes(), bytes)),
            }))
        }
        _ => Err(Malformed),
    }
}

/// What the fields say that are for this connection only, or about the body.
#[derive(Debug, Default)]
struct ResponseFields {
    length: Option<u64>,
    has_several_lengths: bool,
    is_chunked: bool,
    close: bool,
    keep_alive: bool,
    kept_for: Option<Duration>,
    upgrade: Option<HeaderValue>,
    /// Other fields that are for this connection only.
    named: Vec<HeaderName>,
}

fn understand(
    parsed: &ParsedResponse,
    fields: &FieldSpans,
    bytes: &Bytes,
    method: &Method,
) -> Result<ResponseHead, Malformed> {
    let mut response = Response::new(());
    *response.status_mut() = parsed.status;
    let headers = response.headers_mut();
    headers.reserve(fields.len());
    let mut said = ResponseFields::default();
    for (name, value) in fields {
        let name = http1::name(&bytes[name.range()])?;
        let value = HeaderValue::from_maybe_shared(bytes.slice(value.range()));
        let value = value.map_err(|_| Malformed)?;
        if said.hear(&name, &value)? {
            headers.append(name, value);
        }
    }
    for name in &said.named {
        headers.remove(name);
    }
    if let (true, Some(length)) = (said.has_several_lengths, said.length) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    if said.is_chunked {
        if parsed.minor == 0 {
            return Err(Malformed);
        }
        // It says more than the length does, which a gateway must not pass on.
        headers.remove(header::CONTENT_LENGTH);
    }
    if parsed.status == StatusCode::SWITCHING_PROTOCOLS
        && let Some(protocol) = said.upgrade.take()
    {
        headers.insert(header::UPGRADE, protocol);
    }
    if let Some(reason) = parsed.reason
        && let Ok(reason) = ReasonPhrase::try_from(bytes.slice(reason.range()))
    {
        response.extensions_mut().insert(reason);
    }
    let (length, stays) = said.framing(parsed, method);
    Ok(ResponseHead { response, length, stays, kept_for: said.kept_for })
}

impl ResponseFields {
    /// Takes note of a field. Returns whether it is also for others.
    fn hear(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<bool, Malformed> {
        match name.as_str() {
            "content-length" => {
                let length = http1::length(value).ok_or(Malformed)?;
                let before = self.length.replace(length);
                if before.is_some_and(|before| before != length) {
                    return Err(Malformed);
                }
                self.has_several_lengths |= before.is_some();
                return Ok(true);
            }
            "transfer-encoding" => {
                // Any other coding would be lost on the way.
                if self.is_chunked || !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed);
                }
                self.is_chunked = true;
            }
            "connection" => words(value).for_each(|word| self.hear_option(word)),
            "keep-alive" => {
                let seconds = words(value).find_map(|word| word.strip_prefix("timeout="));
                let seconds = seconds.and_then(|seconds| seconds.parse().ok());
                self.kept_for = self.kept_for.or(seconds.map(Duration::from_secs));
            }
            "upgrade" => self.upgrade = Some(value.clone()),
            _ => return Ok(!is_hop_by_hop(name)),
        }
        Ok(false)
    }

    /// Takes note of a word of `Http1Connection`.
    fn hear_option(&mut self, word: &str) {
        if word.eq_ignore_ascii_case("close") {
            self.close = true;
        } else if word.eq_ignore_ascii_case("keep-alive") {
            self.keep_alive = true;
        } else if let Ok(name) = word.parse()
            // It is never for one connection, whatever somebody says.
            && name != header::CONTENT_LENGTH
        {
            self.named.push(name);
        }
    }

    /// How the body is framed, and whether the connection can be used again after it.
    fn framing(&self, parsed: &ParsedResponse, method: &Method) -> (ResponseLength, bool) {
        let stays = !self.close && (parsed.minor > 0 || self.keep_alive);
        let has_none = method == Method::HEAD
            || parsed.status.is_informational()
            || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&parsed.status);
        match self.length {
            _ if has_none => (ResponseLength::Bytes(0), stays),
            length if self.is_chunked => (ResponseLength::Chunked, stays && length.is_none()),
            Some(length) => (ResponseLength::Bytes(length), stays),
            None => (ResponseLength::UntilClosed, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<ResponseHead>, Malformed> {
        take(&mut BytesMut::from(text), &Method::GET, &mut 0)
    }

    fn framing_of(fields: &str) -> Option<(ResponseLength, bool)> {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let head = head(&text).ok()?.expect("it is complete");
        Some((head.length, head.stays))
    }

    #[test]
    fn a_head_is_taken_when_it_is_there_and_the_rest_is_left() {
        let text = "HTTP/1.1 418 Short and stout\r\nX-Own: one\r\nx-own: two\r\nContent-Length: 2\r\n\r\nok";
        for length in 0..text.len() - 2 {
            let mut bytes = BytesMut::from(&text[..length]);
            assert!(take(&mut bytes, &Method::GET, &mut 0).unwrap().is_none());
            assert_eq!(bytes.len(), length);
        }
        let mut bytes = BytesMut::from(text);
        let head = take(&mut bytes, &Method::GET, &mut 0).unwrap().unwrap();
        assert_eq!(&bytes[..], b"ok");
        assert_eq!(head.response.status(), 418);
        let own: Vec<_> = head.response.headers().get_all("x-own").iter().collect();
        assert_eq!(own, ["one", "two"]);
        let reason = head.response.extensions().get::<ReasonPhrase>().unwrap();
        assert_eq!(reason.as_bytes(), b"Short and stout");
        assert_eq!((head.length, head.stays), (ResponseLength::Bytes(2), true));
    }

    #[test]
    fn what_comes_before_the_response_is_passed_over() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(head(text).unwrap().unwrap().response.status(), 204);
        assert!(head("HTTP/1.1 100 Continue\r\n\r\n").unwrap().is_none());
        assert!(
            head(&"HTTP/1.1 100 Continue\r\n\r\n".repeat(100)).is_err(),
            "there is an end to it"
        );
        let switched = head("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
        assert_eq!(switched.unwrap().unwrap().response.status(), 101);
    }

    #[test]
    fn a_body_ends_where_the_head_says() {
        assert_eq!(framing_of("Content-Length: 5\r\n"), Some((ResponseLength::Bytes(5), true)));
        assert_eq!(
            framing_of("Transfer-Encoding: Chunked\r\n"),
            Some((ResponseLength::Chunked, true))
        );
        assert_eq!(framing_of(""), Some((ResponseLength::UntilClosed, false)));
        let close = "Connection: x, Close\r\nContent-Length: 5\r\n";
        assert_eq!(framing_of(close), Some((ResponseLength::Bytes(5), false)));
        let twice = "Content-Length: 5\r\nContent-Length: 5\r\n";
        assert_eq!(framing_of(twice), Some((ResponseLength::Bytes(5), true)));
        let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(
            framing_of(both),
            Some((ResponseLength::Chunked, false)),
            "and it is not used again"
        );
        let old = "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n";
        assert!(!head(&format!("{old}\r\n")).unwrap().unwrap().stays);
        assert!(head(&format!("{old}Connection: keep-alive\r\n\r\n")).unwrap().unwrap().stays);
        let both = format!("{old}Connection: close, keep-alive\r\n\r\n");
        assert!(!head(&both).unwrap().unwrap().stays);
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_malformed() {
        for fields in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "X: a\r\n b\r\n",
            "X : a\r\n",
            "X: a\0b\r\n",
        ] {
            assert_eq!(framing_of(fields), None, "{fields:?}");
        }
        assert!(head("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(head("SMTP ready\r\n\r\n").is_err());
        assert!(head(&format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(LONGEST_HEAD))).is_err());
    }

    #[test]
    fn some_responses_have_no_body_whatever_they_say() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let head = take(&mut BytesMut::from(text), &Method::HEAD, &mut 0).unwrap().unwrap();
        assert_eq!(head.length, ResponseLength::Bytes(0));
        assert_eq!(head.response.headers()["content-length"], "5");
        for status in ["204 No Content", "304 Not Modified"] {
            let text = format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n");
            assert_eq!(self::head(&text).unwrap().unwrap().length, ResponseLength::Bytes(0));
        }
    }
}
