//! Requests that can be read in two ways. Each is refused, or passed on so that there is one way.

use std::time::Duration;

use slidegate_testbed::{Message, Upstream, wait_until};

use crate::unlimited;

/// What a request hides, or would if it were read in another way.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";

/// Requests that are refused, and nothing of them is passed on.
const REFUSED: &[(&str, &str)] = &[
    ("two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
    ("lengths in a list", "Content-Length: 5, 6\r\n\r\nhello"),
    ("a signed length", "Content-Length: +5\r\n\r\nhello"),
    ("a negative length", "Content-Length: -5\r\n\r\nhello"),
    ("a length in hex", "Content-Length: 0x5\r\n\r\nhello"),
    ("a length with a space", "Content-Length: 5 0\r\n\r\nhello"),
    ("a huge length", "Content-Length: 99999999999999999999999\r\n\r\nhello"),
    ("an unknown coding", "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("gzip without chunks", "Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n"),
    ("chunks before gzip", "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
    ("gzip in chunks", "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("chunks twice", "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    (
        "chunks on two lines",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    ("identity", "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
    ("a space before the colon", "Content-Length : 5\r\n\r\nhello"),
    ("a tab before the colon", "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"),
    ("a folded line", "X-A: b\r\n Content-Length: 5\r\n\r\nhello"),
    ("a folded line with a tab", "X-A: b\r\n\tc\r\n\r\n"),
    ("a line without a colon", "X-A\r\n\r\n"),
    ("an empty name", ": b\r\n\r\n"),
    ("NUL in a value", "X-A: b\0c\r\n\r\n"),
    ("NUL in a name", "X\0A: b\r\n\r\n"),
    ("CR in a value", "X-A: b\rTransfer-Encoding: chunked\r\n\r\n"),
    ("two hosts", "Host: b\r\n\r\n"),
    ("control characters", "X-A: \x01\r\n\r\n"),
    ("a name that is none", "X-Ä: b\r\n\r\n"),
    ("a name with a space", "X A: b\r\n\r\n"),
];

/// Requests whose body is broken. Upstream may have had their head, and no end.
const BROKEN: &[(&str, &str)] = &[
    ("a chunk size that is none", "xyz\r\nhello\r\n0\r\n\r\n"),
    ("a signed chunk size", "+5\r\nhello\r\n0\r\n\r\n"),
    ("a negative chunk size", "-1\r\nhello\r\n0\r\n\r\n"),
    ("a hex prefix", "0x5\r\nhello\r\n0\r\n\r\n"),
    ("a huge chunk size", "fffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
    ("a chunk that is longer than it says", "3\r\nhello\r\n0\r\n\r\n"),
    ("a chunk without an end", "5\r\nhello0\r\n\r\n"),
    ("bare LF after a size", "5\nhello\r\n0\r\n\r\n"),
    ("an extension with LF", "5;a\nb\r\nhello\r\n0\r\n\r\n"),
    ("an empty size", "\r\nhello\r\n0\r\n\r\n"),
];

/// The statuses of all responses in a text.
fn statuses(answer: &str) -> Vec<u16> {
    let responses = answer.split("HTTP/1.1 ").skip(1);
    responses.map(|response| response[..3].parse().expect("a status")).collect()
}

fn targets(received: &[Message]) -> Vec<&str> {
    received.iter().map(Message::target).collect()
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    for (what, rest) in REFUSED {
        let answer = gateway.answer_to(format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}{HIDDEN}"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{what}: the end of the connection");
        assert_eq!(upstream.received().len(), 0, "{what}");
    }
    for line in [
        "GET / HTTP/1.1\nHost: a\n\tb: c\n\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        "GET / HTTP/3\r\nHost: a\r\n\r\n",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "GET /\r\n\r\n",
        "G\0T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET login HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: me@a\r\n\r\n",
        "GET http://me:secret@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ] {
        let answer = gateway.answer_to(format!("{line}{HIDDEN}"));
        assert_eq!(statuses(&answer), [400], "{line:?}: {answer}");
        assert_eq!(upstream.received().len(), 0, "{line:?}");
    }
    let connect = gateway.answer_to(format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n{HIDDEN}"));
    assert_eq!(statuses(&connect), [405, 200], "no tunnel, so another request: {connect}");
    assert_eq!(targets(&upstream.received()), ["/hidden"]);
}

#[test]
fn a_length_beside_chunks_is_refused_or_gone() {
    const BODY: &str = "0\r\n\r\n";
    const OUTER: &[&str] = &["/outer"];
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    // Read by their lengths, these hide a request; read by their chunks, it stands after them.
    let length = BODY.len() + HIDDEN.len();
    for (headers, expected, passed) in [
        ("Content-Length: N\r\nTransfer-Encoding: chunked", &[200][..], OUTER),
        ("Transfer-Encoding: chunked\r\nContent-Length: N", &[200], OUTER),
        ("Transfer-Encoding: Chunked\r\nContent-Length: N", &[200], OUTER),
        ("Content-Length: N\r\nTransfer-Encoding: gzip, chunked", &[400], &[]),
        (
            "Connection: content-length\r\nTransfer-Encoding: chunked\r\nContent-Length: N",
            &[200],
            OUTER,
        ),
        (
            "Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\nContent-Length: N",
            &[200],
            OUTER,
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\nContent-Length: N",
            &[400],
            &[],
        ),
        // These have one meaning once the header with an underscore is dropped.
        ("Transfer_Encoding: chunked\r\nContent-Length: N", &[200], OUTER),
        ("Transfer-Encoding: chunked\r\nContent_Length: N", &[200, 200], &["/outer", "/hidden"]),
    ] {
        let before = upstream.received().len();
        let fields = headers.replace('N', &length.to_string());
        let answer = gateway.answer_to(format!(
            "POST /outer HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{BODY}{HIDDEN}"
        ));
        assert_eq!(statuses(&answer), expected, "{headers}: {answer}");
        let received: Vec<_> = upstream.received().split_off(before);
        assert_eq!(targets(&received), passed, "{headers}");
        for message in &received {
            let framings =
                message.values("content-length").len() + message.values("transfer-encoding").len();
            assert!(framings <= 1, "{headers}: {}", message.head);
        }
        if let Some(outer) = received.first() {
            let by_length = headers.contains("Transfer_Encoding");
            assert_eq!(outer.value("content-length").is_some(), by_length, "{headers}");
            assert_eq!(outer.text().contains("/hidden"), by_length, "{headers}");
        }
    }
}

#[test]
fn a_broken_body_does_not_end_well_for_upstream() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    for (what, body) in BROKEN {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}{HIDDEN}"
        );
        let answer = gateway.answer_to(request);
        assert!(answer.starts_with("HTTP/1.1 400 ") || answer.is_empty(), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), answer.matches("HTTP/1.1 400").count());
        assert_eq!(upstream.received().len(), 0, "{what}: {:?}", upstream.received());
    }
    // The servers' health is not the client's to say.
    assert_eq!(gateway.status("/"), 200);
    assert!(!gateway.output().contains("marked unhealthy"), "{}", gateway.output());
}

#[test]
fn a_body_that_ends_too_early_does_not_end_well_for_upstream() {
    let upstream = Upstream::simple();
    let gateway = unlimited(&upstream);
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let answer = gateway.answer_to(request);
        assert!(answer.starts_with("HTTP/1.1 400 ") || answer.is_empty(), "{answer}");
    }
    wait_until("upstream to see the end", || upstream.connections() == 2);
    assert_eq!(upstream.received().len(), 0, "upstream has no complete request");
}

#[test]
fn what_upstream_says_in_two_ways_is_not_passed_on() {
    let upstream = Upstream::answering(|request| match request.target() {
        "/two" => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        "/garbage" => "SMTP ready\r\n\r\n",
        "/folded" => "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        "/nul" => "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
        _ => {
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"
        }
    });
    let gateway = unlimited(&upstream);
    for path in ["/two", "/garbage", "/folded", "/nul"] {
        assert_eq!(gateway.get(path, "").problem(), 502, "{path}");
    }
    // No client gets an unsolicited response.
    for _ in 0..5 {
        let mut wire = gateway.wire();
        assert_eq!(wire.get("/more", "").text(), "ok");
        assert!(wire.is_silent_for(Duration::from_millis(20)));
    }
}
