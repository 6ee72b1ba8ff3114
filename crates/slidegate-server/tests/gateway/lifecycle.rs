//! Starting, listening, and leaving.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slidegate_testbed::http1::{chunk, response};
use slidegate_testbed::{Gateway, Http2Client, SlidegateOptions, Upstream, Wire, wait_until};

use crate::{configure, options, unlimited};

/// A server on free ports, with defaults for the rest.
fn bare(upstream: &Upstream) -> SlidegateOptions {
    let url = upstream.url();
    let arguments = ["--upstream", &url, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    arguments.into_iter().fold(options(), SlidegateOptions::argument)
}

#[test]
fn a_server_needs_no_file_and_its_first_lines_describe_it() {
    let upstream = Upstream::simple();
    let slidegate = bare(&upstream).argument("--log").argument("pretty");
    let slidegate = slidegate.argument("--quota").argument("2/min").start();
    let get = || Wire::connect(slidegate.gateway()).get("/", "").status();
    assert_eq!([get(), get(), get()], [200, 200, 429]);
    let output = slidegate.output();
    let first: Vec<&str> = output.lines().take(8).collect();
    for part in ["2/min", " per ip", &upstream.url(), "/metrics"] {
        assert!(first.iter().any(|line| line.contains(part)), "no {part} in {first:?}");
    }
}

#[test]
fn environment_variables_alone_configure_limits() {
    let upstream = Upstream::simple();
    let seconds = bare(&upstream).variable("RATE_LIMIT_MAX", "2").variable("RATE_LIMIT_TTL", "90");
    let slidegate = seconds.start();
    let get = |path| Wire::connect(slidegate.gateway()).get(path, "");
    assert_eq!(get("/").value("ratelimit-policy").unwrap(), "\"default\";q=2;w=90");
    assert_eq!([get("/").status(), get("/").status()], [200, 429]);

    let millis = bare(&upstream)
        .variable("RATE_LIMIT_MAX", "1")
        .variable("RATE_LIMIT_WINDOW_MS", "30000")
        .start();
    let get = || Wire::connect(millis.gateway()).get("/", "");
    assert_eq!(get().value("ratelimit-policy").unwrap(), "\"default\";q=1;w=30");
    assert_eq!(get().status(), 429);

    let off = bare(&upstream)
        .variable("RATE_LIMIT_ENABLED", "false")
        .variable("RATE_LIMIT_MAX", "1")
        .start();
    let get = || Wire::connect(off.gateway()).get("/", "").status();
    assert_eq!([get(), get(), get()], [200; 3]);
    assert!(off.output().contains("switched off"), "{}", off.output());
}

#[test]
fn profiles_are_ready_made() {
    let upstream = Upstream::simple();
    for (profile, units) in
        [("development", "1000"), ("staging", "200"), ("production", "100"), ("strict", "20")]
    {
        let slidegate = bare(&upstream).argument("--profile").argument(profile).start();
        let answer = Wire::connect(slidegate.gateway()).get("/", "");
        assert_eq!(answer.value("x-ratelimit-limit").unwrap(), units, "{profile}");
    }
}

#[test]
fn requests_in_flight_are_finished_before_a_server_exits() {
    let go = Arc::new(AtomicBool::new(false));
    let gone = go.clone();
    let upstream = Upstream::serving(move |wire, _| {
        wire.try_send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        wire.try_send(chunk("first"))?;
        wait_until("the word", || gone.load(Ordering::SeqCst));
        wire.try_send(format!("{}0\r\n\r\n", chunk(" last")))
    });
    let gateway = configure(&upstream).timeouts("drain = \"20s\"").start();
    let address = gateway.listener();
    let mut idle = gateway.wire();
    let mut busy = gateway.wire();
    busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it to be in flight", || !upstream.received().is_empty());
    let head = busy.head().unwrap();
    gateway.signal("TERM");
    wait_until("new connections to be refused", || TcpStream::connect(address).is_err());
    assert!(idle.is_closed(), "a drain does not wait for idle connections");
    assert!(gateway.is_running());
    go.store(true, Ordering::SeqCst);
    assert!(head.starts_with("HTTP/1.1 200"));
    let rest = busy.rest().unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "the end of the body, then of the connection");
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn a_drain_delay_makes_a_server_unready_while_connections_are_accepted() {
    let upstream = Upstream::simple();
    let text = format!("drain_delay = \"2s\"\n{}", configure(&upstream).text());
    let start = || Gateway::from(options().configuration(&text).start());
    let gateway = start();
    let mut kept = gateway.wire();
    assert_eq!(kept.get("/", "").status(), 200);
    let signalled = Instant::now();
    gateway.signal("TERM");
    wait_until("it to be unready", || gateway.admin_page("/readyz").status() == 503);
    let page = gateway.admin_page("/readyz").text();
    assert!(page.contains("\"draining\":true"), "{page}");
    assert_eq!(gateway.get("/", "").status(), 200, "a new connection");
    assert_eq!(kept.get("/", "").status(), 200, "and one that was open");
    assert!(signalled.elapsed() < Duration::from_secs(2), "the machine is too slow for this test");
    assert_eq!(gateway.wait(), Some(0));
    assert!(signalled.elapsed() >= Duration::from_secs(2), "{:?}", signalled.elapsed());
    assert!(
        gateway.output().contains("accepting connections for 2 s more"),
        "{}",
        gateway.output()
    );

    let hurried = start();
    let signalled = Instant::now();
    hurried.signal("TERM");
    wait_until("it to be unready", || hurried.admin_page("/readyz").status() == 503);
    hurried.signal("TERM");
    assert_eq!(hurried.wait(), Some(0));
    assert!(signalled.elapsed() < Duration::from_secs(2), "another signal ends the delay");
}

#[test]
fn a_request_that_comes_in_the_last_moment_is_answered() {
    let upstream = Upstream::simple();
    for _ in 0..5 {
        let gateway = unlimited(&upstream);
        let mut wire = gateway.wire();
        assert_eq!(wire.get("/", "").status(), 200);
        let mut fresh = gateway.wire();
        gateway.signal("TERM");
        fresh.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = fresh.response_to("GET");
        assert_eq!(answer.expect("an answer").status(), 200);
        assert_eq!(gateway.wait(), Some(0));
    }
}

#[test]
fn http_2_connections_are_finished_too() {
    let upstream = Upstream::serving(|wire, _| {
        thread::sleep(Duration::from_millis(300));
        wire.try_send(response("200 OK", "", "ok"))
    });
    let gateway = unlimited(&upstream);
    let client = Http2Client::connect(gateway.listener());
    thread::scope(|scope| {
        let request = scope.spawn(|| client.get("http://a/"));
        wait_until("it to be in flight", || !upstream.received().is_empty());
        gateway.signal("TERM");
        assert_eq!(request.join().unwrap().status.as_u16(), 200);
    });
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn shutdown_takes_no_longer_than_the_drain_timeout() {
    let upstream = Upstream::raw(|wire: &mut Wire| {
        let _ = wire.rest();
    });
    for (signals, drain) in [(1, "500ms"), (2, "60s")] {
        let gateway = configure(&upstream).timeouts(&format!("drain = {drain:?}")).start();
        let mut busy = gateway.wire();
        busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("it to be in flight", || upstream.connections() >= signals);
        let began = Instant::now();
        gateway.signal("TERM");
        wait_until("the listener to close", || TcpStream::connect(gateway.listener()).is_err());
        if signals == 2 {
            gateway.signal("TERM");
        }
        let _ = gateway.wait();
        let least = if signals == 1 { Duration::from_millis(500) } else { Duration::ZERO };
        assert!(began.elapsed() >= least, "the drain was cut short: {:?}", began.elapsed());
        // With slack for a busy machine.
        let most = least + Duration::from_secs(3);
        assert!(began.elapsed() < most, "{:?} of {drain}", began.elapsed());
        assert!(busy.is_closed());
    }
}

#[test]
fn an_interrupt_drains_a_server_too() {
    let gateway = unlimited(&Upstream::simple());
    gateway.signal("INT");
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn a_gateway_listens_on_unix_sockets() {
    let upstream = Upstream::simple();
    let options = options();
    let path = options.directory().join("gate.sock");
    let gateway = configure(&upstream)
        .key("listen", &format!("[\"unix:{}\", \"127.0.0.1:0\"]", path.display()))
        .key("forwarding_headers", r#"["x-forwarded-for", "x-real-ip", "forwarded"]"#)
        .policy("api", "2/min", "")
        .start_with(options);
    for _ in 0..2 {
        assert_eq!(Wire::connect_unix(&path).get("/", "").text(), "ok");
        let received = upstream.last();
        assert_eq!(received.values("x-forwarded-for"), ["unknown"]);
        assert_eq!(received.values("forwarded"), ["for=unknown;host=\"a.example\";proto=http"]);
        assert_eq!(received.value("x-real-ip"), None);
    }
    assert_eq!(Wire::connect_unix(&path).get("/", "").status(), 429, "who has no address shares");
    assert_eq!(gateway.status("/"), 200, "and others do not");
    assert!(path.metadata().unwrap().file_type().is_socket());
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    assert!(!path.exists(), "the socket is gone with its owner");
}

/// A header of version 2 for a TCP connection over IPv4.
fn version_2(command: u8, source: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([0x20 | command, 0x11, 0, 12]);
    header.extend(source);
    header.extend([198, 51, 100, 1, 0xdd, 0xd5, 0x01, 0xbb]);
    header
}

#[test]
fn a_proxy_protocol_header_names_the_peer() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .key("proxy_protocol", "true")
        .key("trusted_proxies", "[\"127.0.0.1\"]")
        .key("forwarding_headers", r#"["x-forwarded-for", "x-real-ip", "forwarded"]"#)
        .timeouts("head = \"1s\"")
        .start();
    let v1 = |line: &str| format!("{line}\r\n").into_bytes();
    for (header, peer) in [
        (v1("PROXY TCP4 203.0.113.7 198.51.100.1 56324 443"), "203.0.113.7"),
        (v1("PROXY TCP6 2001:db8::7 2001:db8::1 56324 443"), "2001:db8::7"),
        (v1("PROXY TCP6 ::ffff:203.0.113.9 ::1 56324 443"), "203.0.113.9"),
        (v1("PROXY UNKNOWN"), "127.0.0.1"),
        (version_2(1, [203, 0, 113, 8]), "203.0.113.8"),
        (version_2(0, [203, 0, 113, 8]), "127.0.0.1"),
    ] {
        // Also when it comes in pieces.
        for split in [0, 5, header.len()] {
            let mut wire = gateway.wire();
            wire.send(&header[..split]);
            thread::sleep(Duration::from_millis(5));
            wire.send(&header[split..]);
            assert_eq!(wire.get("/", "").status(), 200, "{peer}");
            let received = upstream.last();
            assert_eq!(received.values("x-forwarded-for"), [peer]);
            assert_eq!(received.values("x-real-ip"), [peer]);
            let node = if peer.contains(':') { format!("\"[{peer}]\"") } else { peer.to_owned() };
            let forwarded = format!("for={node};host=\"a.example\";proto=http");
            assert_eq!(received.values("forwarded"), [forwarded]);
        }
    }
    let before = upstream.received().len();
    for bad in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"PROXY TCP4 nonsense\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PROXY TCP4 203.0.113.7",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
    ] {
        let mut wire = gateway.wire();
        wire.send(bad);
        assert!(wire.is_closed(), "{bad:?}");
    }
    assert_eq!(upstream.received().len(), before);
}

#[test]
fn a_proxy_protocol_header_of_an_untrusted_peer_does_not_count() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .key("proxy_protocol", "true")
        .key("trusted_proxies", "[\"10.0.0.0/8\"]")
        .start();
    let mut wire = gateway.wire();
    wire.send("PROXY TCP4 203.0.113.7 198.51.100.1 56324 443\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    if let Ok(answer) = wire.response_to("GET") {
        assert_eq!(answer.status(), 200);
        assert_eq!(upstream.last().values("x-forwarded-for"), ["127.0.0.1"]);
    }
}

/// The answer to a request by a client that is not ours.
fn over_tls(address: SocketAddr, ca: &Path) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-alpn", "http/1.1"])
        .args(["-servername", "localhost", "-verify_hostname", "localhost", "-connect"])
        .arg(address.to_string())
        .arg("-CAfile")
        .arg(ca)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is there (apt-get install openssl)");
    let request = "GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    client.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
    String::from_utf8(client.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn https_is_spoken_with_the_given_certificate() {
    let upstream = Upstream::simple();
    let (gateway, files) = configure(&upstream).timeouts("head = \"500ms\"").start_tls();
    let http2 = Http2Client::connect_tls(gateway.listener(), &files.ca).get("https://localhost/x");
    assert_eq!((http2.status.as_u16(), &http2.body[..]), (200, &b"ok"[..]));
    assert_eq!(upstream.last().values("x-forwarded-proto"), ["https"]);
    let http1 = over_tls(gateway.listener(), &files.ca);
    assert!(http1.starts_with("HTTP/1.1 200 OK\r\n"), "{http1}");
    assert!(http1.ends_with("\r\n\r\nok"), "{http1}");
    assert_eq!(upstream.last().values("x-forwarded-proto"), ["https"]);
    // Plain HTTP, silence and rubbish do no harm.
    let mut plain = gateway.wire();
    plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(plain.is_closed());
    assert!(gateway.wire().is_closed(), "a handshake has its time");
    assert!(gateway.is_running());
}
