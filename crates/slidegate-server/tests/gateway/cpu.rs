//! What one request can cost: the largest heads and bodies, made to be costly, at every listener
//! and in both versions of HTTP.

use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, Method, Request};

use crate::support::{Front, Http2Client, Upstream, Wire, chunk, data, frames, gateway};

/// The most processor time that one request may take, in seconds. What this is to find takes
/// hundreds of milliseconds: work that grows faster than the request. The server's own code, and
/// serde's that is instantiated in it, is not optimised in tests; a release build takes a tenth.
const MAX_SECONDS: f64 = 0.040;
/// A processor's time is told in hundredths of a second: so many requests make it finer.
const TIMES: u32 = 20;
/// A little less than the 64 KiB that a head may have by default.
const HEAD_BYTES: usize = 62_000;
/// A little less than the 256 KiB that a body may have.
const BODY_BYTES: usize = 255_000;

/// A path with more readings than any other that is known, as it is repeated.
const ROUNDABOUT: &str = "e%20;z%20/..;x%20/..%20/c%20/..%20;/c%20/%20/e%20;z%20/d%20;z/..%20;/\
                          ..;x/d%20;z/%20/../";

#[derive(Debug, Clone)]
struct Costly {
    what: String,
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Costly {
    fn head(what: &str, path: String, headers: Vec<(String, String)>) -> Self {
        let body = String::new();
        Self { what: what.to_owned(), method: Method::GET, path, headers, body }
    }

    fn body(what: &str, path: &str, body: String) -> Self {
        assert!(body.len() <= 256 * 1024, "{what}: {}", body.len());
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { what: what.to_owned(), method: Method::POST, path: path.to_owned(), headers, body }
    }

    fn over_http1(&self, wire: &mut Wire) -> u16 {
        let Self { method, path, headers, body, .. } = self;
        let fields: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        // Trailers are looked at after chunks only.
        let (framing, body) = if headers.iter().any(|(name, _)| name == "trailer") {
            ("Transfer-Encoding: chunked".to_owned(), format!("{}0\r\n\r\n", chunk("hello")))
        } else {
            (format!("Content-Length: {}", body.len()), body.clone())
        };
        wire.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n{fields}\r\n{body}"
        ));
        wire.response().status()
    }

    /// The status; none if the connection does not take the request.
    fn over_http2(&self, client: &Http2Client) -> Option<u16> {
        let mut request =
            Request::builder().method(&self.method).uri(format!("http://localhost{}", self.path));
        for (name, value) in &self.headers {
            // HTTP/2 knows no such thing.
            if name != "connection" && name != "te" && name != "upgrade" {
                let name: HeaderName = name.parse().unwrap();
                request = request.header(name, HeaderValue::from_str(value).unwrap());
            }
        }
        let body = if self.body.is_empty() { frames([]) } else { frames([data(&self.body)]) };
        client.send(request.body(body).unwrap()).ok().map(|heard| heard.status.as_u16())
    }
}

/// As many different pieces as fit.
fn pieces(bytes: usize, piece: impl Fn(usize) -> String) -> String {
    let mut text = String::with_capacity(bytes);
    for i in 0.. {
        let next = piece(i);
        if text.len() + next.len() > bytes {
            break;
        }
        text += &next;
    }
    text
}

fn heads() -> Vec<Costly> {
    let mut heads = Vec::new();
    let names = pieces(HEAD_BYTES, |i| format!("{i:x},"));
    for list in ["connection", "trailer", "te", "x-forwarded-for", "forwarded", "cookie", "accept"]
    {
        heads.push(Costly::head(list, "/".into(), vec![(list.into(), names.clone())]));
    }
    // Names to look up, and fields to look up in them.
    let half = pieces(HEAD_BYTES / 2, |i| format!("n{i:x},"));
    let mut fields: Vec<_> = (0..90).map(|i| (format!("x{i}"), "y".repeat(300))).collect();
    for list in ["connection", "trailer"] {
        fields.push((list.into(), half.clone()));
        heads.push(Costly::head(&format!("{list} and fields"), "/".into(), fields.clone()));
        fields.pop();
    }
    fields.extend([("connection".into(), half[..30_000].into()), ("trailer".into(), "a".into())]);
    heads.push(Costly::head("both and fields", "/".into(), fields));
    let (half, other) =
        (pieces(30_000, |i| format!("{i:x},")), pieces(30_000, |i| format!("x{i:x},")));
    let both = vec![("connection".into(), half), ("trailer".into(), other)];
    heads.push(Costly::head("names in both", "/".into(), both));
    let same = (0..90).map(|_| ("x-api-key".into(), "k".repeat(600))).collect();
    heads.push(Costly::head("one field again and again", "/".into(), same));
    let scheme = vec![("authorization".into(), format!("{} t", "s".repeat(HEAD_BYTES)))];
    heads.push(Costly::head("a long scheme", "/".into(), scheme));
    for (what, piece) in [
        ("dots", "a/../"),
        ("slashes", "/"),
        ("encoded", "%41"),
        ("parameters", "..;x/"),
        ("everything", "a;b%20/%2e%2E;%41/"),
        ("encoded again and again", "%2525"),
        ("the most readings", ROUNDABOUT),
    ] {
        let path = format!("/{}", pieces(HEAD_BYTES, |_| piece.into()));
        heads.push(Costly::head(what, path, Vec::new()));
    }
    let query = format!("/v1/accounts?{}", pieces(HEAD_BYTES, |i| format!("{i:x}&")));
    heads.push(Costly::head("a query of many parameters", query, Vec::new()));
    heads
}

fn bodies(path: &str) -> Vec<Costly> {
    let members = |name: &str| pieces(BODY_BYTES, |i| format!("\"{name}{i:x}\":1,"));
    let wrapped = |open: &str, inner: String, close: &str| {
        format!("{open}{}{close}", inner.trim_end_matches(','))
    };
    let lines = pieces(BODY_BYTES, |i| format!("\"x{i:x}\":\"y\","));
    let few = pieces(2400, |i| format!("\"u{i:x}\":1,"));
    let questions = vec![wrapped("{", few, "}"); 100].join(",");
    [
        ("members", wrapped("{", members("m"), "}")),
        (
            "one member again and again",
            wrapped("{", pieces(BODY_BYTES, |_| "\"a\":1,".into()), "}"),
        ),
        ("members with escapes", wrapped("{", members("\\u0061"), "}")),
        ("headers", wrapped("{\"headers\":{", lines, "}}")),
        ("bad headers", wrapped("{\"headers\":{", members(" "), "}}")),
        ("a header of many lines", {
            let lines = pieces(BODY_BYTES, |_| "\"y\",".into());
            wrapped("{\"headers\":{\"x-api-key\":[", lines, "]}}")
        }),
        ("a charge of many members", wrapped("{\"charges\":[{", members("c"), "}]}")),
        ("many charges", wrapped("{\"charges\":[", pieces(BODY_BYTES, |_| "{},".into()), "]}")),
        ("an identity of many members", {
            wrapped("{\"charges\":[{\"policy\":\"all\",\"identity\":{", members("i"), "}}]}")
        }),
        ("questions of many members", format!("[{questions}]")),
        ("a list", wrapped("[", pieces(BODY_BYTES, |_| "1,".into()), "]")),
        ("lists in lists", pieces(BODY_BYTES, |_| "[".into())),
        ("a path", format!("{{\"path\":\"/{}\"}}", "a;b%20/%2e%2E;/".repeat(4000))),
        ("a long path", format!("{{\"path\":\"/{}\"}}", "a;b%20/%2e%2E;/".repeat(16_000))),
        ("a text", format!("{{\"reason\":\"{}\"}}", "\\n".repeat(BODY_BYTES / 2 - 10))),
    ]
    .map(|(what, body)| Costly::body(what, path, body))
    .into()
}

/// Sends each request so many times, in both versions, and fails if any took too long.
fn check(front: &Front, address: SocketAddr, requests: &[Costly]) {
    let mut slow = Vec::new();
    for request in requests {
        let mut measure = |version: &str, send: &mut dyn FnMut()| {
            let before = front.cpu_seconds();
            for _ in 0..TIMES {
                send();
            }
            let each = (front.cpu_seconds() - before) / f64::from(TIMES);
            if each > MAX_SECONDS {
                slow.push(format!("{} over {version}: {:.1} ms", request.what, each * 1000.0));
            }
        };
        measure("HTTP/1.1", &mut || {
            let status = request.over_http1(&mut Wire::connect(address));
            assert!((200..500).contains(&status), "{}: {status}", request.what);
        });
        let mut client = Http2Client::connect(address);
        measure("HTTP/2", &mut || match request.over_http2(&client) {
            Some(status) => assert!((200..500).contains(&status), "{}: {status}", request.what),
            None => client = Http2Client::connect(address),
        });
    }
    assert!(slow.is_empty(), "more than {} ms each: {slow:#?}", MAX_SECONDS * 1000.0);
}

fn front(upstream: &Upstream) -> Front {
    gateway(upstream)
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .key("client_address", "\"x-forwarded-for\"")
        .tables("[decisions]\nlisten = \"127.0.0.1:0\"\n[exempt]\npaths = [\"/a/{*rest}\"]")
        .policy("all", "1000000/min", "identity = [\"api-key\", \"authorization\", \"ip\"]")
        .policy("login", "1000000/min", "match = { path = \"/login\" }")
        .start()
}

#[test]
fn no_request_costs_the_gateway_much() {
    let upstream = Upstream::simple();
    let front = front(&upstream);
    check(&front, front.gateway(), &heads());
}

#[test]
fn no_question_costs_the_decision_api_much() {
    let upstream = Upstream::simple();
    let front = front(&upstream);
    let address = front.address("decisions");
    check(&front, address, &bodies("/v1/decide"));
    let mut heads = heads();
    for head in &mut heads {
        head.path.insert_str(0, "/v1/auth/envoy");
    }
    check(&front, address, &heads);
}

#[test]
fn no_request_costs_the_admin_endpoint_much() {
    let upstream = Upstream::simple();
    let front = front(&upstream);
    check(&front, front.admin(), &heads());
    for action in ["reset", "ban", "grant"] {
        let path = format!("/v1/accounts/ip:203.0.113.7/{action}");
        check(&front, front.admin(), &bodies(&path));
    }
}
