//! Bodies of any size, piece by piece.

use slidegate_testbed::http1::chunk;
use slidegate_testbed::{Upstream, Wire};

use crate::unlimited;

const HUGE: usize = 200 << 20;
const PIECE: usize = 1 << 18;

#[test]
fn a_bodys_first_bytes_arrive_before_its_last_are_sent() {
    // Both sides speak in turn: each waits for the other's piece before it sends its own.
    let upstream = Upstream::raw(|wire: &mut Wire| {
        wire.head().unwrap();
        wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for turn in 0..5 {
            let expected = chunk(&format!("there {turn}"));
            assert_eq!(wire.exactly(expected.len()).unwrap(), expected.as_bytes());
            wire.send(chunk(&format!("back {turn}")));
        }
        wire.send("0\r\n\r\n");
        assert_eq!(wire.exactly(5).unwrap(), b"0\r\n\r\n");
    });
    let gateway = unlimited(&upstream);
    let mut wire = gateway.wire();
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert!(wire.head().unwrap().starts_with("HTTP/1.1 200"));
    for turn in 0..5 {
        wire.send(chunk(&format!("there {turn}")));
        let expected = chunk(&format!("back {turn}"));
        assert_eq!(wire.exactly(expected.len()).unwrap(), expected.as_bytes());
    }
    wire.send("0\r\n\r\n");
    assert_eq!(wire.exactly(5).unwrap(), b"0\r\n\r\n");
}

#[test]
fn a_huge_download_needs_little_memory() {
    let upstream = Upstream::serving(|wire, _| {
        wire.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {HUGE}\r\n\r\n"))?;
        (0..HUGE / PIECE).try_for_each(|_| wire.try_send([b'x'; PIECE]))
    });
    let gateway = unlimited(&upstream);
    let before = gateway.peak_rss_kib();
    let mut wire = gateway.wire();
    wire.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wire.head().unwrap();
    for _ in 0..HUGE / PIECE {
        assert!(wire.exactly(PIECE).unwrap().iter().all(|byte| *byte == b'x'));
    }
    assert_little(before, gateway.peak_rss_kib());
}

#[test]
fn a_huge_upload_needs_little_memory() {
    for chunked in [false, true] {
        let upstream = Upstream::raw(move |wire: &mut Wire| {
            wire.head().unwrap();
            let mut left = HUGE;
            if chunked {
                while left > 0 {
                    left -= a_chunk(wire);
                }
            } else {
                while left > 0 {
                    left -= wire.exactly(PIECE).unwrap().len();
                }
            }
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        });
        let gateway = unlimited(&upstream);
        let before = gateway.peak_rss_kib();
        let mut wire = gateway.wire();
        let framing = if chunked {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {HUGE}")
        };
        wire.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        let piece = "y".repeat(PIECE);
        let piece = if chunked { chunk(&piece) } else { piece };
        (0..HUGE / PIECE).for_each(|_| wire.send(&piece));
        if chunked {
            wire.send("0\r\n\r\n");
        }
        assert_eq!(wire.response().text(), "done");
        assert_little(before, gateway.peak_rss_kib());
    }
}

fn a_chunk(wire: &mut Wire) -> usize {
    let mut size = Vec::new();
    while !size.ends_with(b"\r\n") {
        size.extend(wire.exactly(1).unwrap());
    }
    let size = std::str::from_utf8(&size).unwrap().trim();
    let size = usize::from_str_radix(size, 16).unwrap();
    wire.exactly(size + 2).unwrap();
    size
}

fn assert_little(before_kib: u64, after_kib: u64) {
    let grown = after_kib.saturating_sub(before_kib);
    assert!(grown < 16 * 1024, "grown by {grown} KiB");
}
