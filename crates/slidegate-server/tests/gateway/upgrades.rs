//! Connections that change to another protocol.

use std::net::TcpStream;
use std::time::Duration;

use slidegate_testbed::http1::response;
use slidegate_testbed::{Upstream, Wire, wait_until};

use crate::{configure, unlimited};

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Changes the protocol when asked, then sends everything it receives twice.
fn echoing_twice() -> Upstream {
    Upstream::raw(|wire: &mut Wire| {
        let Ok(head) = wire.head() else { return };
        assert!(head.to_ascii_lowercase().contains("\r\nupgrade: websocket\r\n"), "{head}");
        assert!(head.to_ascii_lowercase().contains("\r\nconnection: upgrade\r\n"), "{head}");
        // The first bytes of the new protocol come together with the head.
        wire.send(format!("{SWITCH}welcome"));
        while let Ok(byte) = wire.exactly(1) {
            wire.send([byte[0], byte[0]]);
        }
        wire.send("bye");
    })
}

const ASK: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn bytes_pass_both_ways_after_an_upgrade() {
    let upstream = echoing_twice();
    let gateway = configure(&upstream).policy("all", "2/min", "").start();
    for _ in 0..2 {
        let mut wire = gateway.wire();
        wire.send(format!("{ASK}early"));
        let switch = wire.response();
        assert_eq!(switch.status(), 101);
        assert_eq!(switch.value("upgrade").as_deref(), Some("websocket"));
        assert!(switch.value("connection").unwrap().eq_ignore_ascii_case("upgrade"));
        assert!(switch.value("sec-websocket-accept").is_some());
        assert_eq!(wire.exactly(17).unwrap(), b"welcomeeeaarrllyy");
        for _ in 0..3 {
            wire.send(b"\0\xff\r\n");
            assert_eq!(wire.exactly(8).unwrap(), b"\0\0\xff\xff\r\r\n\n");
        }
        wire.finish();
        assert_eq!(wire.rest().unwrap(), b"bye", "the other direction ends by itself");
    }
    assert_eq!(gateway.wire().get("/", "").status(), 429, "an upgrade counts as one request");
}

#[test]
fn a_tunnel_may_be_silent_and_outlives_the_start_of_a_drain() {
    let upstream = echoing_twice();
    let gateway = configure(&upstream).timeouts("idle = \"200ms\", drain = \"1s\"").start();
    let mut wire = gateway.wire();
    wire.send(ASK);
    assert_eq!(wire.response().status(), 101);
    assert_eq!(wire.exactly(7).unwrap(), b"welcome");
    assert!(wire.is_silent_for(Duration::from_millis(600)), "whatever HTTP's idle time is");
    wire.send("a");
    assert_eq!(wire.exactly(2).unwrap(), b"aa");
    gateway.signal("TERM");
    wait_until("the listener to close", || TcpStream::connect(gateway.listener()).is_err());
    wire.send("b");
    assert_eq!(wire.exactly(2).unwrap(), b"bb", "it goes on");
    assert_eq!(gateway.wait(), Some(0), "but not for ever");
    assert!(wire.is_closed());
    let output = gateway.output();
    assert!(output.contains("\"requests_cut_off\":true,\"connections_cut_off\":1"), "{output}");
}

#[test]
fn upstream_may_refuse_an_upgrade() {
    let upstream = Upstream::answering(|_| response("426 Upgrade Required", "", "no"));
    let gateway = unlimited(&upstream);
    let mut wire = gateway.wire();
    for _ in 0..2 {
        wire.send(ASK);
        let answer = wire.response();
        assert_eq!((answer.status(), answer.text().as_str()), (426, "no"));
    }
    assert_eq!(upstream.connections(), 1, "both connections go on");
}

#[test]
fn other_protocols_than_those_configured_are_not_upgraded_to() {
    let upstream = Upstream::simple();
    for (gateway, protocols) in [
        (
            unlimited(&upstream),
            &["h2c", "H2C", "websocket, h2c", "h2", "HTTP/2.0", "TLS/1.0", "HTTP/1.1", "echo"][..],
        ),
        (configure(&upstream).key("upgrades", "[]").start(), &["websocket"]),
    ] {
        for protocol in protocols {
            let headers = format!(
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAMAAABk\r\n"
            );
            assert_eq!(gateway.get("/", &headers).status(), 200);
            let received = upstream.last();
            for name in ["upgrade", "connection", "http2-settings"] {
                assert_eq!(received.value(name), None, "{protocol}");
            }
        }
    }
}

#[test]
fn an_upgrade_that_was_not_requested_is_a_bad_gateway() {
    let upstream = Upstream::raw(|wire: &mut Wire| {
        let _ = wire.head();
        let _ = wire.try_send(SWITCH);
        let _ = wire.rest();
    });
    let gateway = unlimited(&upstream);
    assert_eq!(gateway.get("/", "").problem(), 502);
    assert_eq!(gateway.get("/", "Upgrade: websocket\r\n").problem(), 502, "no Connection: upgrade");
}
