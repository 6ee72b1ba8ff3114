//! Upstreams and clients that are late, break off, or are too many.

use std::io::ErrorKind;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use slidegate_testbed::http1::{IO_TIMEOUT, chunk, response};
use slidegate_testbed::{Gateway, Upstream, Wire, assert_no_hang, wait_until};

use crate::{PROGRAM, configure, unlimited};

#[test]
fn an_upstream_failure_is_a_problem_document() {
    let upstream = Upstream::serving(|wire, request| match request.target() {
        "/breaks" => Err(ErrorKind::Other.into()),
        "/half" => {
            wire.try_send("HTTP/1.1 200 OK\r\nContent-")?;
            Err(ErrorKind::Other.into())
        }
        "/late" => {
            thread::sleep(Duration::from_millis(1500));
            wire.try_send(response("200 OK", "", "late"))
        }
        _ => wire.try_send(response("200 OK", "", "ok")),
    });
    let gateway = configure(&upstream).timeouts("response = \"500ms\"").start();
    for (path, status) in [("/breaks", 502), ("/half", 502), ("/late", 504), ("/", 200)] {
        let answer = gateway.get(path, "");
        assert_eq!(answer.status(), status, "{path}");
        if status != 200 {
            answer.problem();
            assert_eq!(answer.value("cache-control").as_deref(), Some("no-store"));
        }
    }
    assert_eq!(
        gateway.metric("slidegate_upstream_errors_total", "timeout"),
        1.0,
        "{}",
        gateway.metrics()
    );
}

#[test]
fn an_unreachable_upstream_is_a_bad_gateway() {
    let gone = Upstream::simple();
    let setup = configure(&gone);
    drop(gone);
    let gateway = setup.start();
    let mut wire = gateway.wire();
    for _ in 0..3 {
        assert_eq!(wire.get("/", "").problem(), 502, "the client's connection goes on");
    }
    let setup = Gateway::options(PROGRAM).key("upstream", "\"http://name.that.is.not.invalid:80\"");
    assert_eq!(setup.start().get("/", "").problem(), 502);
}

#[test]
fn a_failing_upstream_is_logged_with_its_address_and_the_cause_but_not_for_every_request() {
    let gone = Upstream::simple();
    let address = gone.address().to_string();
    let setup = configure(&gone).tables("[log]\naccess = true\nformat = \"json\"");
    drop(gone);
    let gateway = setup.start();
    for _ in 0..20 {
        assert_eq!(gateway.get("/", "").problem(), 502);
    }
    let lines = |gateway: &Gateway, part: &str| -> Vec<serde_json::Value> {
        let output = gateway.output();
        let lines = output.lines().filter(|line| line.contains(part));
        lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    wait_until("the access log", || lines(&gateway, "slidegate::access").len() == 20);
    for line in lines(&gateway, "slidegate::access") {
        assert_eq!((&line["status"], &line["reason"]), (&502.into(), &"connect".into()), "{line}");
    }
    let warnings = lines(&gateway, "upstream failed");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(
        (&warnings[0]["level"], &warnings[0]["upstream"]),
        (&"WARN".into(), &address.into())
    );
    let cause = warnings[0]["cause"].as_str().unwrap();
    assert!(cause.contains("refused"), "{cause}");
    let unhealthy = lines(&gateway, "upstream marked unhealthy");
    let pauses: Vec<_> = unhealthy.iter().map(|line| line["pause"].as_str()).collect();
    assert_eq!(pauses.first(), Some(&Some("1s")), "{unhealthy:?}");

    let upstream = Upstream::serving(|wire, request| match request.target() {
        "/breaks" => Err(ErrorKind::Other.into()),
        "/late" => {
            thread::sleep(Duration::from_millis(1500));
            wire.try_send(response("200 OK", "", "late"))
        }
        _ => wire.try_send(response("200 OK", "", "ok")),
    });
    let gateway = configure(&upstream)
        .timeouts("response = \"300ms\"")
        .tables("[log]\naccess = true\nformat = \"json\"")
        .start();
    for (path, status, reason) in
        [("/breaks", 502, Some("broken")), ("/late", 504, Some("timeout")), ("/", 200, None)]
    {
        assert_eq!(gateway.get(path, "").status(), status);
        wait_until("its line", || !lines(&gateway, &format!("\"path\":\"{path}\"")).is_empty());
        let line = &lines(&gateway, &format!("\"path\":\"{path}\""))[0];
        assert_eq!(line["reason"].as_str(), reason, "{line}");
    }
}

#[test]
fn an_upload_is_not_cut_by_the_time_for_the_response() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).timeouts("response = \"400ms\", idle = \"2s\"").start();
    let mut wire = gateway.wire();
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
    for pause in [150, 150, 150, 150, 150, 700, 150, 150, 150, 150] {
        thread::sleep(Duration::from_millis(pause));
        wire.send("x");
    }
    assert_eq!(wire.response().status(), 200);
    assert_eq!(upstream.last().text(), "xxxxxxxxxx");
}

#[test]
fn a_stopped_upload_is_the_clients_failure_and_not_upstreams() {
    let upstream = Upstream::simple();
    for timeouts in [
        "idle = \"300ms\"",
        "idle = \"300ms\", response = \"300ms\"",
        "idle = \"600ms\", response = \"200ms\"",
    ] {
        let gateway = configure(&upstream).timeouts(timeouts).start();
        for head in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
            for _ in 0..2 {
                let mut wire = gateway.wire();
                wire.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n1"));
                assert_eq!(wire.response().problem(), 408, "{timeouts}: {head}");
                assert!(wire.is_closed());
            }
        }
        let output = gateway.output();
        assert!(!output.contains("marked unhealthy"), "upstream is blamed: {output}");
        assert_eq!(gateway.metric("slidegate_upstream_errors_total", ""), 0.0, "{timeouts}");
    }
    assert_eq!(upstream.received().len(), 0, "nothing that looks complete");
}

#[test]
fn a_response_that_stops_or_breaks_off_does_not_look_complete() {
    let upstream = Upstream::serving(|wire, request| {
        let head = if request.target().contains("chunked") {
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
        };
        let piece =
            if request.target().contains("chunked") { chunk("part") } else { "part".into() };
        wire.try_send(format!("{head}{piece}"))?;
        if request.target().contains("stops") {
            let _ = wire.rest();
        }
        Err(ErrorKind::Other.into())
    });
    let gateway = configure(&upstream).timeouts("idle = \"400ms\"").start();
    for path in ["/breaks", "/breaks/chunked", "/stops", "/stops/chunked"] {
        let mut wire = gateway.wire();
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let error = wire.response_to("GET").expect_err(path);
        let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
        assert!(kinds.contains(&error.kind()), "{path}: {error}");
    }
}

#[test]
fn requests_under_way_are_bounded() {
    let (release, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let upstream = Upstream::serving(move |wire, request| {
        if request.target() == "/slow" {
            let _ = wait.lock().unwrap().recv_timeout(IO_TIMEOUT);
        }
        wire.try_send(response("200 OK", "", "ok"))
    });
    let gateway = configure(&upstream).bounds("in_flight = 4, in_flight_per_address = 4").start();
    let mut slow: Vec<Wire> = (0..4).map(|_| gateway.wire()).collect();
    for wire in &mut slow {
        wire.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    wait_until("all to be in flight", || upstream.received().len() == 4);
    for _ in 0..3 {
        let answer = gateway.get("/", "");
        assert_eq!(answer.problem(), 503);
        assert!(answer.value("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    }
    (0..4).for_each(|_| release.send(()).unwrap());
    slow.iter_mut().for_each(|wire| assert_eq!(wire.response().status(), 200));
    wait_until("there to be room", || gateway.status("/") == 200);
}

#[test]
fn a_slow_request_delays_no_other_request() {
    let upstream = Upstream::serving(|wire, request| {
        if request.target() == "/slow" {
            thread::sleep(Duration::from_secs(2));
        }
        wire.try_send(response("200 OK", "", "ok"))
    });
    let gateway = configure(&upstream).key("workers", "1").start();
    let mut slow: Vec<Wire> = (0..20).map(|_| gateway.wire()).collect();
    slow.iter_mut().for_each(|wire| wire.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"));
    let began = Instant::now();
    (0..50).for_each(|_| assert_eq!(gateway.status("/"), 200));
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
    slow.iter_mut().for_each(|wire| assert_eq!(wire.response().status(), 200));
}

#[test]
fn an_early_answer_reaches_a_client_that_is_still_sending() {
    let upstream = Upstream::raw(|wire: &mut Wire| {
        let _ = wire.head();
        let _ = wire.try_send(response("413 Content Too Large", "Connection: close\r\n", "no"));
        // It reads what comes, as RFC 9112 9.6 has it, so that its answer is not lost.
        let _ = wire.rest();
    });
    let gateway = unlimited(&upstream);
    let mut wire = gateway.wire();
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
    let _ = wire.try_send(vec![b'x'; 1 << 16]);
    let answer = wire.response();
    assert_eq!((answer.status(), answer.text().as_str()), (413, "no"));
}

#[test]
fn a_client_that_leaves_makes_room() {
    let upstream = Upstream::serving(|wire, request| match request.target() {
        "/never" => wire.rest().map(|_| ()),
        _ => wire.try_send(response("200 OK", "", "ok")),
    });
    let gateway = configure(&upstream).bounds("in_flight = 1").start();
    let mut wire = gateway.wire();
    wire.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it to be in flight", || !upstream.received().is_empty());
    assert_eq!(gateway.get("/", "").problem(), 503);
    drop(wire);
    wait_until("there to be room", || gateway.status("/") == 200);
}

#[test]
fn a_body_is_not_requested_when_the_upstream_is_down() {
    let gone = Upstream::simple();
    let setup = configure(&gone);
    drop(gone);
    let gateway = setup.start();
    let mut wire = gateway.wire();
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(wire.response().problem(), 502);
}

#[test]
fn endless_informational_responses_end_in_an_error_and_delay_no_other_request() {
    let upstream = Upstream::serving(|wire, request| match request.target() {
        "/flood" => {
            let flood = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(1000);
            (0..100_000).try_for_each(|_| wire.try_send(&flood))
        }
        "/drip" => (0..100_000).try_for_each(|_| {
            thread::sleep(Duration::from_millis(10));
            wire.try_send("HTTP/1.1 103 Early Hints\r\n\r\n")
        }),
        _ => wire.try_send(response("200 OK", "", "ok")),
    });
    let gateway = configure(&upstream).key("workers", "1").timeouts("response = \"500ms\"").start();
    let began = Instant::now();
    let flooded: Vec<Wire> = (0..4)
        .map(|_| {
            let mut wire = gateway.wire();
            wire.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
            wire
        })
        .collect();
    assert_eq!(gateway.status("/"), 200);
    for mut wire in flooded {
        assert_eq!(wire.response().problem(), 502);
    }
    assert_eq!(gateway.get("/drip", "").problem(), 504, "the timeout holds");
    assert_no_hang(began, Duration::from_secs(5));
}

#[test]
fn a_response_that_breaks_off_has_passed_on_what_came() {
    let upstream = Upstream::serving(|wire, request| {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
        let sized = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
        wire.try_send(if request.target() == "/chunked" { chunked } else { sized })?;
        Err(ErrorKind::Other.into())
    });
    let gateway = unlimited(&upstream);
    for path in ["/chunked", "/sized"] {
        for _ in 0..20 {
            let mut wire = gateway.wire();
            wire.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert!(wire.head().expect("a head").starts_with("HTTP/1.1 200 "), "{path}");
            let rest = wire.all_for(Duration::from_secs(5));
            let rest = String::from_utf8_lossy(&rest);
            assert!(rest.contains("hello") && !rest.ends_with("0\r\n\r\n"), "{path}: {rest:?}");
        }
    }
}

#[test]
fn an_upstream_that_sends_on_idle_connections_gets_each_only_once() {
    let upstream = Upstream::serving(|wire, _| {
        wire.try_send(response("200 OK", "", "ok"))?;
        thread::sleep(Duration::from_millis(20));
        wire.try_send(response("200 OK", "X-Wrong: 1\r\n", "wrong"))
    });
    let gateway = configure(&upstream).key("workers", "1").start();
    assert_eq!(gateway.get("/", "").text(), "ok");
    thread::sleep(Duration::from_millis(100));
    let mut wire = gateway.wire();
    for _ in 0..20 {
        let answer = wire.get("/", "");
        assert_eq!((answer.text().as_str(), answer.value("x-wrong")), ("ok", None));
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(upstream.connections(), 21, "none was used twice");
    let warning = "upstream sent bytes on an idle connection; connections to it are not reused";
    assert_eq!(gateway.output().matches(warning).count(), 1, "{}", gateway.output());
}
