//! Thousands of requests and hundreds of responses that servers read in different ways, over
//! connections that are used again.
//!
//! Whatever becomes of each, what upstream receives is what was decided on, one request for one
//! request, and no client gets the response to another's request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use slidegate_testbed::http1::response;
use slidegate_testbed::{Gateway, Message, Upstream, Wire, wait_until};

use crate::configure;

/// At once, so that connections to upstream are shared by clients with different intentions.
const CLIENTS: usize = 32;

/// What bodies hide.
const HIDDEN: &str = "GET /hidden/ID HTTP/1.1\r\nHost: a\r\n\r\n";

/// Beginnings of heads: targets and hosts.
const STARTS: &[&str] = &[
    "POST /case/ID HTTP/1.1\r\nHost: a\r\n",
    "GET /case/ID HTTP/1.1\r\nHost: a\r\n",
    "PUT http://a/case/ID HTTP/1.1\r\nHost: a\r\n",
    "POST http://b:81/case/ID HTTP/1.1\r\nHost: a\r\n",
    "BREW /case/ID HTTP/1.1\r\nHost: a:80\r\n",
    "POST /case/ID HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n",
    "POST /case/ID HTTP/1.1\r\nHost:\r\n",
    "POST /case/ID HTTP/1.1\r\nhost:a\r\nConnection: close, x-hop\r\n",
    "\r\n\r\nPOST /case/ID HTTP/1.1\r\nHost: a\r\n",
    "DELETE /case/../case/ID HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n",
];

/// Ways to say how long a body is.
const FRAMINGS: &[&str] = &[
    "",
    "Content-Length: LEN\r\n",
    "content-length:LEN\r\n",
    "Content-Length:  LEN  \r\n",
    "Content-Length:\tLEN\r\n",
    "Content-Length: 0LEN\r\n",
    "Content-Length: +LEN\r\n",
    "Content-Length: LEN, LEN\r\n",
    "Content-Length: LEN\r\nContent-Length: LEN\r\n",
    "Content-Length: 0\r\nContent-Length: LEN\r\n",
    "Content-Length: LEN\r\nContent-Length: 0\r\n",
    "Content-Length: LEN;x\r\n",
    "Content-Length: LENe0\r\n",
    "Content-Length : LEN\r\n",
    "Content-Length: LEN\nX: y\r\n",
    "Content-Length:\r\n LEN\r\n",
    "Content-Length: 18446744073709551617\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding:chunked\r\n",
    "Transfer-Encoding: CHUNKED\r\n",
    "Transfer-Encoding: chunked \r\n",
    "Transfer-Encoding:\tchunked\r\n",
    "Transfer-Encoding:\x0bchunked\r\n",
    "Transfer-Encoding: \"chunked\"\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: identity\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Transfer-Encoding:\r\n chunked\r\n",
    "Transfer-Encoding: chunked\nX: y\r\n",
    "X: y\rTransfer-Encoding: chunked\r\n",
    "Content-Length: LEN\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: LEN\r\n",
    "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
    "Transfer_Encoding: chunked\r\nContent-Length: LEN\r\n",
    "Connection: transfer-encoding, content-length\r\nTransfer-Encoding: chunked\r\n",
    "Connection: content-length\r\nContent-Length: LEN\r\n",
];

/// Bodies, most of them in chunks.
const BODIES: &[&str] = &[
    "",
    "hello",
    "HIDDEN",
    "0\r\n\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
    "5;ext=\"a\r\nb\"\r\nhello\r\n0\r\n\r\n",
    "5;ext\r\nhello\r\n0;last\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n",
    "05\r\nhello\r\n000\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "5\nhello\r\n0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "5\r\nhello\r\n0\n\n",
    "5\r\nhelloXX0\r\n\r\n",
    "ffffffffffffffff1\r\nhello\r\n0\r\n\r\n",
    "-1\r\nhello\r\n0\r\n\r\n",
    "0\r\n\r\nHIDDEN",
    "1\r\nG\r\n0\r\n\r\nHIDDEN",
    "0\r\nTransfer-Encoding: chunked\r\nHost: b\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n",
    "7\r\na\n\r\n\r\n0\r\n0\r\n\r\n",
];

/// Lines that are odd by themselves.
const ODD_LINES: &[&str] = &[
    "X: a\nContent-Length: 5\r\n",
    "X: a\r\n b\r\n",
    "X: a\r\n\tb\r\n",
    " X: a\r\n",
    "X : a\r\n",
    "X\t: a\r\n",
    ": a\r\n",
    "X\r\n",
    "X: a\rb\r\n",
    "X: a\0b\r\n",
    "X\0: a\r\n",
    "X(: a\r\n",
    "Host: b\r\n",
    "Host: a\r\n",
    "Host : b\r\n",
    "X-\u{e4}: a\r\n",
    "X: \u{e4}\r\n",
    "X: \x7f\r\n",
    "\r\nX: a\r\n",
    "\nX: a\r\n",
    "Connection: close\r\nConnection: keep-alive\r\n",
    "Connection: host\r\n",
    "Upgrade: h2c\r\nConnection: upgrade, http2-settings\r\nHTTP2-Settings: AAMAAABk\r\n",
    "Upgrade: websocket\r\nConnection: upgrade\r\n",
    "Trailer: content-length\r\n",
    "TE: trailers, chunked\r\n",
    "Proxy-Connection: keep-alive\r\n",
];

/// Request lines and hosts that are odd by themselves.
const ODD_STARTS: &[&str] = &[
    "GET /case/ID HTTP/1.1\nHost: a\n",
    "GET  /case/ID HTTP/1.1\r\nHost: a\r\n",
    "GET\t/case/ID\tHTTP/1.1\r\nHost: a\r\n",
    "GET /case/ID  HTTP/1.1\r\nHost: a\r\n",
    "GET /case/ID HTTP/1.1 \r\nHost: a\r\n",
    "GET /case/ID HTTP/1.1\r\r\nHost: a\r\n",
    "GET /case/ID HTTP/1.2\r\nHost: a\r\n",
    "GET /case/ID HTTP/0.9\r\nHost: a\r\n",
    "GET /case/ID HTTP/2.0\r\nHost: a\r\n",
    "GET /case/ID http/1.1\r\nHost: a\r\n",
    "GET /case/ID\r\nHost: a\r\n",
    " GET /case/ID HTTP/1.1\r\nHost: a\r\n",
    "GET case/ID HTTP/1.1\r\nHost: a\r\n",
    "GET http://me@a/case/ID HTTP/1.1\r\nHost: a\r\n",
    "GET http:///case/ID HTTP/1.1\r\nHost: a\r\n",
    "GET /case/ID#x HTTP/1.1\r\nHost: a\r\n",
    "GET /case/ID\0 HTTP/1.1\r\nHost: a\r\n",
    "GET /case/ID?\u{e4} HTTP/1.1\r\nHost: a\r\n",
    "get /case/ID HTTP/1.1\r\nHost: a\r\n",
    "G(T /case/ID HTTP/1.1\r\nHost: a\r\n",
    "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n",
    "TRACE /case/ID HTTP/1.1\r\nHost: a\r\n",
    "GET /case/ID HTTP/1.1\r\n",
    "GET /case/ID HTTP/1.1\r\nHost: a b\r\n",
    "GET /case/ID HTTP/1.1\r\nHost: a/b\r\n",
    "GET /case/ID HTTP/1.1\r\nHost: a, b\r\n",
    "GET /case/ID HTTP/1.1\r\nHost: me@a\r\n",
    "GET /case/ID HTTP/1.1\r\nHost: [::1]:80\r\n",
    "GET /case/ID HTTP/1.1\r\nHost: a:99999\r\n",
    "GET //b/case/ID HTTP/1.1\r\nHost: a\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET /case/ID HTTP/1.1\r\nHost: a\r\n",
];

/// All requests, without their numbers.
fn requests() -> Vec<String> {
    let mut requests = Vec::new();
    for (index, start) in STARTS.iter().enumerate() {
        for framing in FRAMINGS {
            // All bodies behind the first start, and a third of them behind each other one.
            let bodies = BODIES.iter().enumerate();
            for (_, body) in bodies.filter(|(at, _)| index == 0 || at % 3 == index % 3) {
                requests.push(format!("{start}{framing}\r\n{body}"));
            }
        }
    }
    for line in ODD_LINES {
        for rest in ["\r\n", "Content-Length: 5\r\n\r\nhello", "Content-Length: LEN\r\n\r\nHIDDEN"]
        {
            requests.push(format!("{}{line}{rest}", STARTS[0]));
            requests.push(format!("POST /case/ID HTTP/1.1\r\n{line}Host: a\r\n{rest}"));
        }
    }
    for start in ODD_STARTS {
        requests.push(format!("{start}\r\n"));
        requests.push(format!("{start}Content-Length: LEN\r\n\r\nHIDDEN"));
        requests.push(format!("{start}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nHIDDEN"));
    }
    requests
}

/// A request with its number, and its length where it says that.
fn numbered(request: &str, number: usize) -> String {
    let request = request.replace("HIDDEN", HIDDEN).replace("ID", &number.to_string());
    let body = request.rsplit_once("LEN").map_or("", |(_, rest)| rest);
    let length = body.split_once("\r\n\r\n").map_or(0, |(_, body)| body.len());
    request.replace("LEN", &length.to_string())
}

/// What becomes of a request between two honest ones: the targets of the responses that upstream
/// gave.
fn try_request(gateway: &Gateway, request: &str, number: usize) -> Vec<String> {
    let mut wire = gateway.wire();
    let mut answered = vec![wire.get(&format!("/before/{number}"), "").text()];
    let after = format!("GET /after/{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let _ = wire.try_send(format!("{}{after}", numbered(request, number)));
    while let Ok(message) = wire.response_to("GET") {
        match message.status() {
            200 => answered.push(message.text()),
            100 => {}
            status => {
                let refused = [400, 404, 405, 408, 413, 431, 502, 505];
                assert!(refused.contains(&status), "{request:?}: {}", message.head);
            }
        }
    }
    answered
}

/// Runs a job for all numbers, several at once.
fn in_parallel(count: usize, job: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    job(number);
                }
            });
        }
    });
}

/// What upstream may never hear, whatever was sent.
fn assert_has_one_meaning(message: &Message) {
    let head = &message.head;
    for line in head.split("\r\n") {
        assert!(!line.contains(['\r', '\n', '\0']), "{head:?}");
        assert!(!line.starts_with([' ', '\t']), "{head:?}");
    }
    let values = |name| message.values(name);
    assert!(values("content-length").len() + values("transfer-encoding").len() <= 1, "{head:?}");
    let is_length = |value: &String| value.bytes().all(|byte| byte.is_ascii_digit());
    assert!(values("content-length").iter().all(is_length), "{head:?}");
    assert!(values("transfer-encoding").iter().all(|coding| coding == "chunked"), "{head:?}");
    assert_eq!(values("host").len(), 1, "{head:?}");
    let upgrade = values("upgrade");
    assert!(upgrade.iter().all(|protocol| protocol == "websocket"), "{head:?}");
    assert_eq!(values("connection").len(), upgrade.len(), "{head:?}");
    for name in ["keep-alive", "proxy-connection", "http2-settings"] {
        assert_eq!(values(name), [""; 0], "{head:?}");
    }
    assert_eq!(values("x-forwarded-for"), ["127.0.0.1"], "{head:?}");
    assert!(!message.trailers.to_ascii_lowercase().contains("forwarded"), "{}", message.trailers);
    assert!(!message.trailers.to_ascii_lowercase().contains("host:"), "{}", message.trailers);
}

#[test]
fn one_request_is_one_request_however_it_is_written() {
    let upstream = Upstream::answering(|request| response("200 OK", "", request.target()));
    let gateway = configure(&upstream)
        .key("workers", "1")
        .timeouts("idle = \"250ms\", head = \"250ms\"")
        .tables("[log]\naccess = true\nformat = \"json\"")
        .start();
    let requests = requests();
    assert!(requests.len() >= 2_000, "{}", requests.len());
    let answered = std::sync::Mutex::new(BTreeMap::new());
    in_parallel(requests.len(), |number| {
        let targets = try_request(&gateway, &requests[number], number);
        answered.lock().unwrap().insert(number, targets);
    });

    let received = upstream.received();
    received.iter().for_each(assert_has_one_meaning);
    let mut by_number: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for message in &received {
        let number = message
            .target()
            .rsplit('/')
            .next()
            .and_then(|text| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok());
        let number = number.unwrap_or_else(|| panic!("no client sent {:?}", message.head));
        by_number.entry(number).or_default().push(message.target().to_owned());
    }
    for (number, answered) in answered.into_inner().unwrap() {
        let received = by_number.remove(&number).unwrap_or_default();
        assert_eq!(received, answered, "{:?}", numbered(&requests[number], number));
        assert!(
            received.iter().all(|target| target.contains(&format!("/{number}"))),
            "{received:?}"
        );
    }

    // And what was decided on is what upstream has received.
    let decided = || {
        let output = gateway.output();
        let lines = output.lines().filter(|line| line.contains("slidegate::access"));
        let mut decided: Vec<String> = lines
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|line| line["status"] == 200)
            .map(|line| {
                format!("{} {}", line["method"].as_str().unwrap(), line["path"].as_str().unwrap())
            })
            .collect();
        decided.sort();
        decided
    };
    let mut passed: Vec<String> = received
        .iter()
        .map(|message| {
            let path = message.target().split('?').next().unwrap_or_default();
            format!("{} {path}", message.start().split(' ').next().unwrap_or_default())
        })
        .collect();
    passed.sort();
    wait_until("the access log", || decided().len() >= passed.len());
    assert_eq!(decided(), passed);
}

/// Status lines and what precedes them.
const STATUS_LINES: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
    "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200\r\n",
    "HTTP/1.1  200 OK\r\n",
    "HTTP/1.1 2OO OK\r\n",
    "HTTP/1.1 099 No\r\n",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n",
    "HTTP/2.0 200 OK\r\n",
    "HTTP/1.1 200 OK\n",
    "\r\nHTTP/1.1 200 OK\r\n",
];

const RESPONSE_FRAMINGS: &[&str] = &[
    "Content-Length: 2\r\n",
    "Content-Length: 2\r\nContent-Length: 2\r\n",
    "Content-Length: 2\r\nContent-Length: 3\r\n",
    "Content-Length: 2, 2\r\n",
    "Content-Length: +2\r\n",
    "Content-Length: 2 2\r\n",
    "Content-Length : 2\r\n",
    "Content-Length:\r\n 2\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
    "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked, chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: identity\r\nContent-Length: 2\r\n",
    "Transfer-Encoding:\x0bchunked\r\n",
    "Content-Length: 2\r\nX: a\0b\r\n",
    "Content-Length: 2\r\nX: a\rb\r\n",
    "Content-Length: 2\r\nX: a\r\n b\r\n",
    "Content-Length: 0\r\n",
    "Connection: close\r\n",
    "",
];

/// Bodies with an unsolicited response behind them.
const RESPONSE_BODIES: &[&str] = &[
    "okWRONG",
    "2\r\nok\r\n0\r\n\r\nWRONG",
    "2\r\nok\r\n0\r\nX: y\r\n\r\nWRONG",
    "2;x\nok\r\n0\r\n\r\nWRONG",
    "zz\r\nok\r\n0\r\n\r\nWRONG",
    "WRONG",
];

#[test]
fn no_response_is_anothers_however_upstream_answers() {
    let mut responses = Vec::new();
    for status in STATUS_LINES {
        for framing in RESPONSE_FRAMINGS {
            for body in RESPONSE_BODIES {
                let wrong = response("200 OK", "X-Wrong: 1\r\n", "wrong");
                let body = body.replace("WRONG", &wrong);
                responses.push(format!("{status}{framing}\r\n{body}"));
            }
        }
    }
    assert!(responses.len() >= 300, "{}", responses.len());
    let bad = responses.clone();
    let upstream = Upstream::raw(move |wire: &mut Wire| {
        while let Ok(Some(request)) = wire.request() {
            let number =
                request.target().strip_prefix("/bad/").and_then(|n| n.parse::<usize>().ok());
            let answer = match number {
                Some(number) => bad[number].clone(),
                None => response("200 OK", "", request.target()),
            };
            if wire.try_send(answer).is_err() {
                return;
            }
        }
    });
    let gateway = configure(&upstream)
        .key("workers", "1")
        .timeouts("idle = \"200ms\", response = \"300ms\"")
        .start();
    in_parallel(responses.len(), |number| {
        let (said, mut wire) = (&responses[number], gateway.wire());
        assert_eq!(wire.get(&format!("/before/{number}"), "").text(), format!("/before/{number}"));
        wire.send(format!("GET /bad/{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let goes_on = match wire.response_to("GET") {
            Ok(message) => {
                assert_eq!(message.values("x-wrong"), [""; 0], "{said:?}: {}", message.head);
                let framings = message.values("content-length").len()
                    + message.values("transfer-encoding").len();
                assert!(framings <= 1, "{said:?}: {}", message.head);
                !message.values("connection").iter().any(|value| value == "close") && framings == 1
            }
            // Cut in the middle of its body.
            Err(_) => false,
        };
        let path = format!("/after/{number}");
        if goes_on {
            assert_eq!(wire.get(&path, "").text(), path, "{said:?}");
        }
        // And the next client.
        assert_eq!(gateway.get(&path, "").text(), path, "{said:?}");
    });
    assert!(gateway.is_running());
}
