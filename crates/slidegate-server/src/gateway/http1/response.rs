//! The head of a response.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use hyper::ext::ReasonPhrase;
use smallvec::SmallVec;

use crate::http1::{Malformed, is_hop_by_hop, named_by_connection, tokens};

/// The head of a response, and what it says of the rest.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) response: Response<()>,
    pub(super) length: Length,
    /// Whether the connection can be used again.
    pub(super) stays: bool,
    /// How long upstream says that it keeps the connection when it is idle.
    pub(super) kept_for: Option<Duration>,
}

/// How long a response's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Bytes(u64),
    Chunked,
    UntilClosed,
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const LONGEST_HEAD: usize = 256 * 1024;
const MOST_FIELDS: usize = 256;
/// Heads before the one of the response.
const MOST_EARLY: u32 = 64;
/// More than a gateway adds.
const ROOM_FOR_OURS: usize = 8;

/// Where a name and a value are.
type Field = (Range<usize>, Range<usize>);

/// A head as it was parsed, by its places in the bytes.
struct Parsed {
    length: usize,
    /// Of HTTP 1.
    minor: u8,
    status: StatusCode,
    reason: Option<Range<usize>>,
    fields: SmallVec<[Field; 24]>,
}

/// Takes the head of the response to such a request, once it is there. Those that only tell of one to
/// come are passed over.
pub(super) fn take(
    bytes: &mut BytesMut,
    method: &Method,
    early: &mut u32,
) -> Result<Option<Head>, Malformed> {
    while !bytes.is_empty() {
        let Some(parsed) = parse(bytes)? else { return Ok(None) };
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
        return understand(&parsed, &head, method).map(Some);
    }
    Ok(None)
}

fn parse(bytes: &[u8]) -> Result<Option<Parsed>, Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    match parser.parse_response_with_uninit_headers(&mut response, bytes, &mut fields) {
        Ok(httparse::Status::Partial) if bytes.len() <= LONGEST_HEAD => Ok(None),
        Ok(httparse::Status::Complete(length)) => {
            let place = |part: &[u8]| {
                let start = part.as_ptr() as usize - bytes.as_ptr() as usize;
                start..start + part.len()
            };
            let status = StatusCode::from_u16(response.code.ok_or(Malformed)?);
            let status = status.map_err(|_| Malformed)?;
            let reason = response
                .reason
                .filter(|reason| !reason.is_empty() && Some(*reason) != status.canonical_reason());
            let field =
                |field: &httparse::Header<'_>| (place(field.name.as_bytes()), place(field.value));
            Ok(Some(Parsed {
                length,
                minor: response.version.ok_or(Malformed)?,
                status,
                reason: reason.map(|reason| place(reason.as_bytes())),
                fields: response.headers.iter().map(field).collect(),
            }))
        }
        _ => Err(Malformed),
    }
}

fn understand(parsed: &Parsed, bytes: &Bytes, method: &Method) -> Result<Head, Malformed> {
    let mut response = Response::new(());
    *response.status_mut() = parsed.status;
    let mut headers = HeaderMap::with_capacity(parsed.fields.len() + ROOM_FOR_OURS);
    // What is for this connection only. Apart, it needs not be looked for and taken out again.
    let mut own = HeaderMap::new();
    for (name, value) in &parsed.fields {
        let name = HeaderName::from_bytes(&bytes[name.clone()]).map_err(|_| Malformed)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice(value.clone()));
        let fields = if is_hop_by_hop(&name) { &mut own } else { &mut headers };
        fields.append(name, value.map_err(|_| Malformed)?);
    }
    for name in named_by_connection(&own) {
        headers.remove(name);
    }
    let (length, stays) = framing(parsed, &own, &mut headers, method)?;
    let kept_for = keep_alive(&own);
    if parsed.status == StatusCode::SWITCHING_PROTOCOLS
        && let Some(protocol) = own.remove(header::UPGRADE)
    {
        headers.insert(header::UPGRADE, protocol);
    }
    *response.headers_mut() = headers;
    if let Some(reason) = &parsed.reason
        && let Ok(reason) = ReasonPhrase::try_from(bytes.slice(reason.clone()))
    {
        response.extensions_mut().insert(reason);
    }
    Ok(Head { response, length, stays, kept_for })
}

/// How the body is framed, and whether the connection can be used again after it.
fn framing(
    parsed: &Parsed,
    own: &HeaderMap,
    headers: &mut HeaderMap,
    method: &Method,
) -> Result<(Length, bool), Malformed> {
    let says = |word: &str| tokens(own, &header::CONNECTION).any(|t| t.eq_ignore_ascii_case(word));
    let stays = !says("close") && (parsed.minor > 0 || says("keep-alive"));
    let length = content_length(headers)?;
    let is_chunked = is_chunked(parsed, own)?;
    if is_chunked {
        // It says more than the length does, which a gateway must not pass on.
        headers.remove(header::CONTENT_LENGTH);
    }
    let has_none = method == Method::HEAD
        || parsed.status.is_informational()
        || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&parsed.status);
    Ok(match length {
        _ if has_none => (Length::Bytes(0), stays),
        length if is_chunked => (Length::Chunked, stays && length.is_none()),
        Some(length) => (Length::Bytes(length), stays),
        None => (Length::UntilClosed, false),
    })
}

fn is_chunked(parsed: &Parsed, own: &HeaderMap) -> Result<bool, Malformed> {
    let mut codings = own.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None)
            if parsed.minor == 1 && coding.as_bytes().eq_ignore_ascii_case(b"chunked") =>
        {
            Ok(true)
        }
        // Any other coding would be lost on the way.
        _ => Err(Malformed),
    }
}

/// How long upstream says that it keeps an idle connection.
fn keep_alive(own: &HeaderMap) -> Option<Duration> {
    let words = tokens(own, &KEEP_ALIVE);
    let seconds = words.filter_map(|word| word.strip_prefix("timeout=")).next()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// The length that the head tells, in one way only.
fn content_length(headers: &mut HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    let length = digits(line).ok_or(Malformed)?;
    let mut is_single = true;
    for line in lines {
        is_single = false;
        if digits(line) != Some(length) {
            return Err(Malformed);
        }
    }
    if !is_single {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(Some(length))
}

fn digits(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<Head>, Malformed> {
        take(&mut BytesMut::from(text), &Method::GET, &mut 0)
    }

    fn framing_of(fields: &str) -> Option<(Length, bool)> {
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
        assert_eq!((head.length, head.stays), (Length::Bytes(2), true));
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
        assert_eq!(framing_of("Content-Length: 5\r\n"), Some((Length::Bytes(5), true)));
        assert_eq!(framing_of("Transfer-Encoding: Chunked\r\n"), Some((Length::Chunked, true)));
        assert_eq!(framing_of(""), Some((Length::UntilClosed, false)));
        let close = "Connection: x, Close\r\nContent-Length: 5\r\n";
        assert_eq!(framing_of(close), Some((Length::Bytes(5), false)));
        let twice = "Content-Length: 5\r\nContent-Length: 5\r\n";
        assert_eq!(framing_of(twice), Some((Length::Bytes(5), true)));
        let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(framing_of(both), Some((Length::Chunked, false)), "and it is not used again");
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
        assert_eq!(head.length, Length::Bytes(0));
        assert_eq!(head.response.headers()["content-length"], "5");
        for status in ["204 No Content", "304 Not Modified"] {
            let text = format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n");
            assert_eq!(self::head(&text).unwrap().unwrap().length, Length::Bytes(0));
        }
    }
}
