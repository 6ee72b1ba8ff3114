//! What one request can cost: the largest heads and bodies, made to be costly, at every listener
//! and in both versions of HTTP.

use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, Method, Request, Version};
use slidegate_testbed::http1::chunk;
use slidegate_testbed::http2::{data, frames};
use slidegate_testbed::{Gateway, Http2Client, Upstream, Wire};

use crate::configure;

/// The most processor time that one request may take, in seconds. What this is to find takes
/// hundreds of milliseconds: work that grows faster than the request. The server's own code, and
/// serde's that is instantiated in it, is not optimised in tests; a release build takes a tenth.
const MAX_SECONDS: f64 = 0.040;
/// Processor time is reported in hundredths of a second: so many requests make it finer.
const TIMES: u32 = 20;
/// A little less than the 64 KiB that a head may have by default.
const HEAD_BYTES: usize = 62_000;
/// A little less than the 256 KiB that a question may have.
const QUESTION_BYTES: usize = 255_000;
/// A little less than the 64 KiB that a body may have at the admin endpoint.
const CHANGE_BYTES: usize = 63_000;

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

    fn over_http2(&self, client: &Http2Client) -> u16 {
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
        client.send(request.body(body).unwrap()).expect("a response").status.as_u16()
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

fn bodies(path: &str, bytes: usize) -> Vec<Costly> {
    let members = |name: &str| pieces(bytes, |i| format!("\"{name}{i:x}\":1,"));
    let wrapped = |open: &str, inner: String, close: &str| {
        format!("{open}{}{close}", inner.trim_end_matches(','))
    };
    let lines = pieces(bytes, |i| format!("\"x{i:x}\":\"y\","));
    let few = pieces(bytes / 106, |i| format!("\"u{i:x}\":1,"));
    let questions = vec![wrapped("{", few, "}"); 100].join(",");
    [
        ("members", wrapped("{", members("m"), "}")),
        ("one member again and again", wrapped("{", pieces(bytes, |_| "\"a\":1,".into()), "}")),
        ("members with escapes", wrapped("{", members("\\u0061"), "}")),
        ("headers", wrapped("{\"headers\":{", lines, "}}")),
        ("bad headers", wrapped("{\"headers\":{", members(" "), "}}")),
        ("a header of many lines", {
            let lines = pieces(bytes, |_| "\"y\",".into());
            wrapped("{\"headers\":{\"x-api-key\":[", lines, "]}}")
        }),
        ("a charge of many members", wrapped("{\"charges\":[{", members("c"), "}]}")),
        ("many charges", wrapped("{\"charges\":[", pieces(bytes, |_| "{},".into()), "]}")),
        ("an identity of many members", {
            wrapped("{\"charges\":[{\"policy\":\"all\",\"identity\":{", members("i"), "}}]}")
        }),
        ("questions of many members", format!("[{questions}]")),
        ("a list", wrapped("[", pieces(bytes, |_| "1,".into()), "]")),
        ("lists in lists", pieces(bytes, |_| "[".into())),
        ("a path", format!("{{\"path\":\"/{}\"}}", "a;b%20/%2e%2E;/".repeat(bytes / 64))),
        ("a long path", format!("{{\"path\":\"/{}\"}}", "a;b%20/%2e%2E;/".repeat(bytes / 16))),
        ("a text", format!("{{\"reason\":\"{}\"}}", "\\n".repeat(bytes / 2 - 10))),
    ]
    .map(|(what, body)| {
        assert!(body.len() <= bytes + 100, "{what}: {}", body.len());
        Costly::body(what, path, body)
    })
    .into()
}

/// Sends each request [`TIMES`] times, in both versions, and fails if any took too long or had
/// another status than expected.
fn check(
    gateway: &Gateway,
    address: SocketAddr,
    requests: &[Costly],
    expected: impl Fn(&Costly, Version) -> u16,
) {
    let mut slow = Vec::new();
    for request in requests {
        let mut measure = |version, send: &mut dyn FnMut() -> u16| {
            let before = gateway.cpu_seconds();
            for _ in 0..TIMES {
                let status = expected(request, version);
                assert_eq!(send(), status, "{} over {version:?} at {}", request.what, request.path);
            }
            let each = (gateway.cpu_seconds() - before) / f64::from(TIMES);
            if each > MAX_SECONDS {
                slow.push(format!("{} over {version:?}: {:.1} ms", request.what, each * 1000.0));
            }
        };
        measure(Version::HTTP_11, &mut || request.over_http1(&mut Wire::connect(address)));
        let client = Http2Client::connect(address);
        measure(Version::HTTP_2, &mut || request.over_http2(&client));
    }
    assert!(slow.is_empty(), "more than {} ms each: {slow:#?}", MAX_SECONDS * 1000.0);
}

fn start(upstream: &Upstream) -> Gateway {
    configure(upstream)
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .key("client_address", "\"x-forwarded-for\"")
        .tables("[decisions]\nlisten = \"127.0.0.1:0\"\n[exempt]\npaths = [\"/a/{*rest}\"]")
        .policy("all", "1000000/min", "identity = [\"api-key\", \"authorization\", \"ip\"]")
        .policy("login", "1000000/min", "match = { path = \"/login\" }")
        .start()
}

/// Whether the limiter refuses a head: a path that can be read in too many ways, or a key twice.
fn is_refused(request: &Costly) -> bool {
    let refused = [
        "dots",
        "slashes",
        "parameters",
        "everything",
        "the most readings",
        "one field again and again",
    ];
    refused.contains(&request.what.as_str())
}

#[test]
fn no_request_costs_the_gateway_much() {
    let upstream = Upstream::simple();
    let gateway = start(&upstream);
    check(&gateway, gateway.listener(), &heads(), |request, version| {
        let has_long = |name| {
            request.headers.iter().any(|(found, value)| found == name && value.len() > 10_000)
        };
        // HTTP/2 has no `Connection`.
        let is_invalid =
            has_long("trailer") || (version == Version::HTTP_11 && has_long("connection"));
        if is_invalid || is_refused(request) { 400 } else { 200 }
    });
}

#[test]
fn no_question_costs_the_decision_api_much() {
    let upstream = Upstream::simple();
    let gateway = start(&upstream);
    let address = gateway.address("decisions");
    check(&gateway, address, &bodies("/v1/decide", QUESTION_BYTES), |_, _| 400);
    let mut heads = heads();
    for head in &mut heads {
        head.path.insert_str(0, "/v1/auth/envoy");
    }
    check(&gateway, address, &heads, |head, _| if is_refused(head) { 400 } else { 200 });
}

#[test]
fn no_request_costs_the_admin_endpoint_much() {
    let upstream = Upstream::simple();
    let gateway = start(&upstream);
    check(&gateway, gateway.admin(), &heads(), |head, _| match head.path.as_str() {
        "/" => 200,
        path if path.contains('?') => 400,
        _ => 404,
    });
    for action in ["reset", "ban", "grant"] {
        let path = format!("/v1/accounts/ip:203.0.113.7/{action}");
        check(&gateway, gateway.admin(), &bodies(&path, CHANGE_BYTES), |_, _| 400);
        check(&gateway, gateway.admin(), &bodies(&path, QUESTION_BYTES)[..1], |_, _| 413);
    }
}
