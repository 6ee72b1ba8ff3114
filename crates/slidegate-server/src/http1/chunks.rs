//! A body in chunks, taken apart.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};

use super::{Malformed, name};

/// Where in a body of chunks the reader is.
#[derive(Debug, Default)]
pub(crate) struct Chunks(Next);

#[derive(Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Size,
    Data(u64),
    /// The line's end after the data.
    DataEnd,
    Trailers,
    Nothing,
}

/// What was found in the bytes at hand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    /// Too little to tell.
    More,
}

/// The line of a chunk's size, with extensions.
const LONGEST_SIZE_LINE: usize = 1024;
const LONGEST_TRAILERS: usize = 16 * 1024;
const MOST_TRAILERS: usize = 64;

impl Chunks {
    pub(crate) fn has_ended(&self) -> bool {
        self.0 == Next::Nothing
    }

    /// Takes the next part of the body from the bytes that came.
    pub(crate) fn take(&mut self, bytes: &mut BytesMut) -> Result<Found, Malformed> {
        loop {
            match self.0 {
                Next::Size => match httparse::parse_chunk_size(bytes) {
                    Ok(httparse::Status::Complete((length, size))) => {
                        // httparse takes no digits for a zero, and any byte for a part of an
                        // extension. To others a bare LF is the line's end.
                        let line = &bytes[..length - 2];
                        if !line.first().is_some_and(u8::is_ascii_hexdigit)
                            || line.iter().any(u8::is_ascii_control)
                        {
                            return Err(Malformed);
                        }
                        bytes.advance(length);
                        self.0 = if size == 0 { Next::Trailers } else { Next::Data(size) };
                    }
                    Ok(httparse::Status::Partial) if bytes.len() <= LONGEST_SIZE_LINE => {
                        return Ok(Found::More);
                    }
                    _ => return Err(Malformed),
                },
                Next::Data(left) => {
                    let length = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    if length == 0 {
                        return Ok(Found::More);
                    }
                    let left = left - length as u64;
                    self.0 = if left == 0 { Next::DataEnd } else { Next::Data(left) };
                    return Ok(Found::Data(bytes.split_to(length).freeze()));
                }
                Next::DataEnd => match bytes.get(..2) {
                    Some(b"\r\n") => {
                        bytes.advance(2);
                        self.0 = Next::Size;
                    }
                    Some(_) => return Err(Malformed),
                    None => return Ok(Found::More),
                },
                Next::Trailers => return self.take_trailers(bytes),
                Next::Nothing => return Ok(Found::End),
            }
        }
    }

    fn take_trailers(&mut self, bytes: &mut BytesMut) -> Result<Found, Malformed> {
        if bytes.starts_with(b"\r\n") {
            bytes.advance(2);
            self.0 = Next::Nothing;
            return Ok(Found::End);
        }
        let mut fields = [httparse::EMPTY_HEADER; MOST_TRAILERS];
        let (length, trailers) = match httparse::parse_headers(bytes, &mut fields) {
            Ok(httparse::Status::Complete((length, _))) if has_bare_lf(&bytes[..length]) => {
                return Err(Malformed);
            }
            Ok(httparse::Status::Complete((length, fields))) => (length, trailers(fields)?),
            Ok(httparse::Status::Partial) if bytes.len() <= LONGEST_TRAILERS => {
                return Ok(Found::More);
            }
            _ => return Err(Malformed),
        };
        bytes.advance(length);
        self.0 = Next::Nothing;
        Ok(Found::Trailers(trailers))
    }
}

/// Whether a line ends in a way that not everybody takes for an end.
fn has_bare_lf(bytes: &[u8]) -> bool {
    let mut before = 0;
    bytes.iter().any(|byte| std::mem::replace(&mut before, *byte) != b'\r' && *byte == b'\n')
}

fn trailers(fields: &[httparse::Header<'_>]) -> Result<HeaderMap, Malformed> {
    let field = |field: &httparse::Header<'_>| {
        let name = name(field.name.as_bytes())?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| Malformed)?;
        Ok((name, value))
    };
    fields.iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body and the trailers of a text that comes in pieces of this many bytes.
    fn read(text: &str, piece: usize) -> Result<(String, HeaderMap), Malformed> {
        let (mut chunks, mut bytes) = (Chunks::default(), BytesMut::new());
        let (mut body, mut trailers) = (Vec::new(), HeaderMap::new());
        let mut pieces = text.as_bytes().chunks(piece);
        loop {
            match chunks.take(&mut bytes)? {
                Found::Data(data) => body.extend_from_slice(&data),
                Found::Trailers(found) => trailers = found,
                Found::End => break,
                Found::More => bytes.extend_from_slice(pieces.next().ok_or(Malformed)?),
            }
        }
        assert!(chunks.has_ended());
        Ok((String::from_utf8(body).unwrap(), trailers))
    }

    #[test]
    fn chunks_are_found_however_they_come() {
        let text = "3\r\none\r\n4;a=b\r\ntwo!\r\n0\r\nX-Sum: 42\r\n\r\n";
        for piece in 1..text.len() {
            let (body, trailers) = read(text, piece).unwrap();
            assert_eq!(body, "onetwo!");
            assert_eq!(trailers["x-sum"], "42");
        }
        assert_eq!(read("0\r\n\r\n", 1).unwrap(), (String::new(), HeaderMap::new()));
        assert_eq!(read("A\r\n0123456789\r\n0\r\n\r\n", 3).unwrap().0, "0123456789");
    }

    #[test]
    fn what_are_no_chunks_is_malformed() {
        let endless = format!("3;{}", "a".repeat(LONGEST_SIZE_LINE));
        let trailer = format!("0\r\nX: {}", "a".repeat(LONGEST_TRAILERS));
        for text in [
            "x\r\n",
            "-1\r\n",
            "3\r\nonex\r\n0\r\n\r\n",
            "3\r\none\n0\r\n\r\n",
            "3;a\nb\r\none\r\n0\r\n\r\n",
            "3;a\0b\r\none\r\n0\r\n\r\n",
            "\r\n",
            "\r\n\r\n",
            ";a\r\n\r\n",
            " \r\n\r\n",
            "3\r\none\r\n\r\n\r\n",
            "0\r\n\n",
            "0\r\nX: y\n\n",
            "0\r\nX: y\n\r\n",
            "fffffffffffffffff\r\n",
            "0\r\nno colon\r\n\r\n",
            "3\r\non",
            &endless,
            &trailer,
        ] {
            assert_eq!(read(text, 5), Err(Malformed), "{text:?}");
        }
    }
}
