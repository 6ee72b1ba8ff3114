//! What hyper does not ask of the bytes of a request's head.

use memchr::memchr_iter;

/// The end of a head, if it is there: behind the first empty line. Bytes before `from` were
/// searched already.
pub(super) fn find_end(bytes: &[u8], from: usize) -> Option<usize> {
    memchr_iter(b'\n', &bytes[from..]).map(|at| from + at).find_map(|at| match bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// The end of the first empty line, which may have begun before these bytes.
pub(super) fn find_empty_line(before: [u8; 2], bytes: &[u8]) -> Option<usize> {
    let previous = |at: usize, back: usize| match at.checked_sub(back) {
        Some(at) => bytes[at],
        None => before[2 + at - back],
    };
    let ends_empty_line = |at: usize| previous(at, 1) == b'\r' && previous(at, 2) == b'\n';
    memchr_iter(b'\n', bytes).find(|at| ends_empty_line(*at)).map(|at| at + 1)
}

/// Whether a head has one meaning for every server that reads it: its lines end with CRLF, and it
/// does not frame its body in two ways. hyper takes a bare LF for the end of a line as well, and
/// prefers chunks to a length without a word.
pub(super) fn has_one_meaning(head: &[u8]) -> bool {
    let (mut has_length, mut is_coded) = (false, false);
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        if !line.ends_with(b"\r\n") {
            return false;
        }
        has_length |= is_field(line, b"content-length");
        is_coded |= is_field(line, b"transfer-encoding");
    }
    !(has_length && is_coded)
}

fn is_field(line: &[u8], name: &[u8]) -> bool {
    let (Some(start), Some(rest)) = (line.get(..name.len()), line.get(name.len()..)) else {
        return false;
    };
    // hyper refuses a name with a space behind it.
    start.eq_ignore_ascii_case(name) && rest.starts_with(b":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_with_an_empty_line() {
        for (bytes, end) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\nrest", Some(27)),
            ("GET / HTTP/1.1\nHost: a\n\nrest", Some(24)),
            ("GET / HTTP/1.1\r\n\r\n", Some(18)),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r", None),
            ("GET / HTTP/1.1\r\nHost: a\r\n", None),
            ("", None),
        ] {
            assert_eq!(find_end(bytes.as_bytes(), 0), end, "{bytes:?}");
            // However much was searched before.
            for had in 0..bytes.len() {
                if find_end(&bytes.as_bytes()[..had], 0).is_none() {
                    assert_eq!(find_end(bytes.as_bytes(), had.saturating_sub(3)), end);
                }
            }
        }
    }

    #[test]
    fn an_empty_line_is_found_wherever_it_is_cut() {
        let body = b"5\r\na\n\rbc\r\n0\r\n\r\nGET";
        for cut in 0..body.len() - 3 {
            let before = match &body[..cut] {
                [] => [0, 0],
                [one] => [0, *one],
                [.., one, two] => [*one, *two],
            };
            let found = find_empty_line(before, &body[cut..]).map(|at| at + cut);
            assert_eq!(found, (cut < 15).then_some(15), "{cut}");
        }
    }

    #[test]
    fn lines_end_in_one_way_and_bodies_too() {
        let one =
            |fields: &str| has_one_meaning(format!("GET / HTTP/1.1\r\n{fields}\r\n").as_bytes());
        assert!(one("") && one("Host: a\r\nContent-Length: 5\r\n"));
        assert!(one("Transfer-Encoding: chunked\r\nContent-Lengths: 5\r\nX: content-length:\r\n"));
        assert!(!one("Host: a\n") && !one("X: a\nb\r\n"));
        assert!(!one("Content-Length: 5\r\ntransfer-encoding: chunked\r\n"));
        assert!(!one("Transfer-Encoding: chunked\r\nX: y\r\nCONTENT-LENGTH: 5\r\n"));
        assert!(!has_one_meaning(b"GET / HTTP/1.1\n\r\n"));
    }
}
