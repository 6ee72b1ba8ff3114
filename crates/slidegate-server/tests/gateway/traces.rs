//! Spans of requests, as a collector receives them that is built from OpenTelemetry's own protocol.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slidegate_testbed::program::free_address;
use slidegate_testbed::{
    Certificates, Directory, Gateway, GatewayOptions, Program, Upstream, tool, wait_until,
};

use crate::{configure, options};

/// What a tracing client sends.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A running collector, and the files that it writes.
struct Collector {
    address: SocketAddr,
    spans: PathBuf,
    calls: PathBuf,
    _program: Program,
    // Last, because the program writes to it.
    _directory: Directory,
}

impl Collector {
    fn start() -> Self {
        Self::start_with(None)
    }

    fn start_with(tls: Option<&Certificates>) -> Self {
        let (directory, address) = (Directory::new(), free_address());
        let (spans, calls) = (directory.file("spans"), directory.file("calls"));
        let packages = tool("google/protobuf");
        let script = "tests/gateway/traces/collector.py";
        let mut python = Command::new("python3");
        python
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
            .env("PYTHONPATH", packages.ancestors().nth(2).unwrap())
            .env("ADDRESS", address.to_string())
            .env("SPANS", &spans)
            .env("CALLS", &calls);
        if let Some(files) = tls {
            python.env("CERTIFICATE", &files.server).env("KEY", &files.server_key);
        }
        let program = Program::start(&mut python, "apt-get install python3", address);
        Self { address, spans, calls, _program: program, _directory: directory }
    }

    /// The spans received so far, in the order of their ends.
    fn spans(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.spans).unwrap_or_default();
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// All spans of a gateway, which is stopped.
    fn spans_of(&self, gateway: &Gateway) -> Vec<Value> {
        gateway.signal("TERM");
        assert_eq!(gateway.wait(), Some(0));
        self.spans()
    }

    /// A `[trace]` with this collector.
    fn section(&self, keys: &str) -> String {
        section(&format!("http://{}", self.address), keys)
    }
}

fn section(url: &str, keys: &str) -> String {
    format!("[trace]\notlp = {url:?}\n{keys}")
}

/// A gateway that trusts this machine.
fn trusting(upstream: &Upstream) -> GatewayOptions {
    let options = configure(upstream).key("trusted_proxies", "[\"127.0.0.1\"]");
    options.key("client_address", "\"x-forwarded-for\"")
}

fn traceparent(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{PARENT}-{flags}\r\n")
}

/// The trace id, span id and flags that upstream has received last.
fn received(upstream: &Upstream) -> [String; 3] {
    let value = upstream.last().value("traceparent").expect("a traceparent");
    let parts: Vec<String> = value.split('-').map(str::to_owned).collect();
    let [version, trace, span, flags] = parts.try_into().unwrap();
    assert_eq!((version.as_str(), trace.len(), span.len()), ("00", 32, 16), "{value}");
    [trace, span, flags]
}

#[test]
fn spans_say_what_was_decided() {
    let (upstream, collector) = (Upstream::simple(), Collector::start());
    let gateway = trusting(&upstream)
        .route("/api/", &[&upstream])
        .policy("login", "2/min", "")
        .tables(&collector.section("service_name = \"edge\""))
        .start();
    for (target, status) in [("/api/v1?q=1", 200), ("/", 200), ("/api/v1", 429)] {
        assert_eq!(gateway.get(target, "X-Forwarded-For: 198.51.100.7\r\n").status(), status);
    }
    let mut wire = gateway.wire();
    wire.send("PURGE / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.8\r\n\r\n");
    assert_eq!(wire.response().status(), 200);

    let spans = collector.spans_of(&gateway);
    assert_eq!(spans.len(), 4, "{spans:#?}");
    let [allowed, root, refused, purge] = &spans[..] else { unreachable!() };
    assert_eq!(allowed["resource"]["service.name"], "edge");
    assert_eq!(allowed["scope"], "slidegate");
    assert_eq!(
        (&allowed["name"], &allowed["kind"]),
        (&json!("GET /api"), &json!("SPAN_KIND_SERVER"))
    );
    assert_eq!((&allowed["parent"], &allowed["status"]), (&json!(""), &json!(0)));
    let expected = json!({
        "http.request.method": "GET",
        "url.scheme": "http",
        "url.path": "/api/v1",
        "http.route": "/api",
        "network.protocol.version": "1.1",
        "http.response.status_code": 200,
        "slidegate.verdict": "allow",
        "slidegate.policy": "login",
        "slidegate.quota": "2/min",
        "slidegate.remaining": 1,
    });
    assert_eq!(allowed["attributes"], expected, "no more, and no identity");
    let [began, ended] = ["began_ns", "ended_ns"].map(|key| allowed[key].as_u64().unwrap());
    let decided = allowed["events"][0][1].as_u64().unwrap();
    assert_eq!(allowed["events"][0][0], "decided");
    assert!(began < decided && decided < ended, "{allowed}");

    assert_eq!((&root["name"], &root["attributes"]["http.route"]), (&json!("GET /"), &json!("/")));
    assert_eq!(refused["name"], "GET /api", "by its route, although it was not forwarded");
    let refused = &refused["attributes"];
    assert_eq!(refused["http.response.status_code"], 429);
    assert_eq!(refused["slidegate.verdict"], "deny");
    assert_eq!(
        (&refused["slidegate.remaining"], &refused["error.type"]),
        (&json!(0), &Value::Null)
    );
    let after = refused["slidegate.retry_after_ms"].as_u64().unwrap();
    assert!((50_000..=60_000).contains(&after), "{after}");
    assert_eq!(purge["name"], "HTTP /", "no name that clients make up");
    assert_eq!(purge["attributes"]["http.request.method"], "_OTHER");
    assert_eq!(purge["attributes"]["http.request.method_original"], "PURGE");
    let ids: Vec<&Value> = spans.iter().map(|span| &span["trace"]).collect();
    assert!((1..4).all(|i| !ids[..i].contains(&ids[i])), "each is a trace of its own: {ids:?}");
}

#[test]
fn a_failed_upstream_is_an_error_with_its_reason() {
    let collector = Collector::start();
    let gateway = Gateway::options(crate::PROGRAM)
        .key("upstream", &format!("\"http://{}\"", free_address()))
        .tables(&collector.section(""))
        .start();
    assert_eq!(gateway.status("/"), 502);
    // A request that is refused before it is decided is one too.
    assert!(gateway.answer_to("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").contains(" 400 "));
    let spans = collector.spans_of(&gateway);
    assert_eq!(spans[0]["status"], 2);
    assert_eq!(spans[0]["attributes"]["error.type"], "connect");
    assert_eq!(spans[0]["attributes"]["http.response.status_code"], 502);
    assert_eq!(spans[0]["attributes"]["slidegate.verdict"], "allow");
    assert_eq!(spans[1]["attributes"]["http.response.status_code"], 400);
    assert_eq!((&spans[1]["status"], &spans[1]["events"]), (&json!(0), &json!([])));
}

#[test]
fn a_request_that_its_client_gives_up_is_one_too() {
    let collector = Collector::start();
    let upstream = Upstream::raw(|wire| {
        let _ = wire.rest();
    });
    let gateway = configure(&upstream).tables(&collector.section("")).start();
    let mut wire = gateway.wire();
    wire.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it to be in flight", || upstream.connections() == 1);
    drop(wire);
    wait_until("its span", || collector.spans().len() == 1);
    let span = &collector.spans()[0];
    assert_eq!((&span["name"], &span["attributes"]["url.path"]), (&json!("GET"), &json!("/slow")));
    assert_eq!(span["attributes"]["error.type"], "aborted");
}

#[test]
fn a_trusted_peer_continues_its_trace_and_decides_on_it() {
    let (upstream, collector) = (Upstream::simple(), Collector::start());
    // The peer's decision outweighs the ratio.
    let setup = trusting(&upstream).tables(&collector.section("ratio = 0"));
    let gateway = setup.start();
    let states =
        "tracestate: a=1, b=2\r\nTraceState: c=3\r\nConnection: traceparent, tracestate\r\n";
    assert_eq!(gateway.get("/", &(traceparent("01") + states)).status(), 200);
    let [trace, span, flags] = received(&upstream);
    assert_eq!((trace.as_str(), flags.as_str()), (TRACE, "01"));
    assert_eq!(upstream.last().value("tracestate").as_deref(), Some("a=1,b=2,c=3"));
    assert_eq!(gateway.get("/", &traceparent("00")).status(), 200);
    assert_eq!(received(&upstream)[2], "00");
    assert_eq!(upstream.last().value("tracestate"), None);

    let spans = collector.spans_of(&gateway);
    assert_eq!(spans.len(), 1, "only the sampled one: {spans:#?}");
    assert_eq!(spans[0]["trace"], TRACE);
    assert_eq!(spans[0]["parent"], PARENT);
    assert_eq!(spans[0]["span"], span, "upstream's parent is the span of the gateway");
    assert_ne!(span, PARENT);

    let setup = trusting(&upstream).tables(&collector.section("ratio = 1.0"));
    let gateway = setup.start();
    assert_eq!(gateway.get("/", &traceparent("00")).status(), 200);
    assert_eq!(collector.spans_of(&gateway).len(), 1, "nor does a ratio of 1 outweigh it");
}

#[test]
fn an_untrusted_peer_does_not_decide_what_is_sampled() {
    let (upstream, collector) = (Upstream::simple(), Collector::start());
    for (ratio, claimed, expected) in [("0", "01", "00"), ("1", "00", "01")] {
        let section = collector.section(&format!("ratio = {ratio}"));
        let gateway = configure(&upstream).tables(&section).start();
        // An id that every sampler by ratio would take.
        let small = traceparent(claimed).replace(TRACE, &format!("{:0>32}", 1));
        for parent in [traceparent(claimed), small, String::new()] {
            assert_eq!(
                gateway.get("/", &(parent.clone() + "tracestate: ot=th:0\r\n")).status(),
                200
            );
            let [trace, _, flags] = received(&upstream);
            assert_eq!(flags, expected, "{parent}");
            assert_eq!(parent.contains(&trace), !parent.is_empty(), "the trace goes on: {trace}");
            assert_eq!(upstream.last().value("tracestate"), None, "a state can decide it too");
        }
        let spans = collector.spans_of(&gateway);
        assert_eq!(spans.len(), if ratio == "0" { 0 } else { 3 }, "{spans:#?}");
    }
}

#[test]
fn a_malformed_parent_begins_another_trace() {
    let (upstream, collector) = (Upstream::simple(), Collector::start());
    let gateway = trusting(&upstream).tables(&collector.section("")).start();
    let good = traceparent("01");
    let mut traces = Vec::new();
    for bad in [
        format!("{good}traceparent: 00-{PARENT}{PARENT}-{PARENT}-01\r\n"),
        "traceparent: 00\r\n".to_owned(),
        good.replace("00-", "ff-"),
        good.replace(TRACE, &"0".repeat(32)),
        good.replace(PARENT, &"0".repeat(16)),
        good.replace("4b", "4B"),
    ] {
        assert_eq!(gateway.get("/", &bad).status(), 200);
        let [trace, span, flags] = received(&upstream);
        assert!(!bad.contains(&trace) && !bad.contains(&span), "{bad}");
        assert_eq!(flags, "01");
        assert!(!traces.contains(&trace), "{traces:?}");
        traces.push(trace);
        let head = upstream.last().head.to_ascii_lowercase();
        assert_eq!(head.matches("traceparent:").count(), 1, "{head}");
    }
}

#[test]
fn without_the_section_headers_of_traces_are_passed_on_as_they_are() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).start();
    gateway.get("/", "traceparent: whatever\r\ntracestate: x\r\n");
    assert_eq!(upstream.last().value("traceparent").as_deref(), Some("whatever"));
    assert_eq!(upstream.last().value("tracestate").as_deref(), Some("x"));
    assert!(!gateway.metrics().contains("slidegate_trace_spans"), "{}", gateway.metrics());
}

#[test]
fn a_file_without_an_authority_is_reported_at_the_start() {
    let options = options();
    let ca = options.directory().join("ca.pem");
    fs::write(&ca, "no certificate").unwrap();
    let trace = section("https://127.0.0.1:4317", &format!("ca = {ca:?}"));
    let text = configure(&Upstream::simple()).tables(&trace).text();
    let failed = options.configuration(&text).spawn();
    assert_eq!(failed.wait(), Some(1));
    let output = failed.output();
    assert!(output.contains("trace.ca = ") && output.contains("there is none"), "{output}");
}

/// How many spans have this outcome.
fn spans(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric("slidegate_trace_spans_total", &format!("outcome=\"{outcome}\""))
}

/// Sends so many requests one after another, and returns the longest time that one took.
fn longest(gateway: &Gateway, requests: usize) -> Duration {
    let mut wire = gateway.wire();
    let each = (0..requests).map(|_| {
        let began = Instant::now();
        assert_eq!(wire.get("/", "").status(), 200);
        began.elapsed()
    });
    each.max().unwrap()
}

/// Far more than a request takes on a busy machine, and far less than an export waits.
const PROMPTLY: Duration = Duration::from_secs(2);

#[test]
fn a_collector_that_is_gone_delays_nothing_and_is_counted() {
    let upstream = Upstream::simple();
    let gone = section(&format!("http://{}", free_address()), "");
    let gateway = configure(&upstream).tables(&gone).start();
    assert!(longest(&gateway, 1000) < PROMPTLY);
    wait_until("all to have failed", || spans(&gateway, "failed") == 1000.0);
    assert_eq!((spans(&gateway, "exported"), spans(&gateway, "dropped")), (0.0, 0.0));
    let output = gateway.output();
    assert_eq!(output.matches("spans are lost").count(), 1, "one line a minute: {output}");
}

#[test]
fn a_collector_that_never_answers_delays_nothing_and_is_counted() {
    let upstream = Upstream::simple();
    // The kernel accepts connections, and nothing reads from them.
    let stalled = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", stalled.local_addr().unwrap());
    let gateway = configure(&upstream).tables(&section(&url, "")).start();
    assert!(longest(&gateway, 1000) < PROMPTLY);
    // More than there is room for.
    assert!(longest(&gateway, 5000) < PROMPTLY);
    let dropped = spans(&gateway, "dropped");
    assert!((300.0..=1904.0).contains(&dropped), "beside 4096 in the queue: {dropped}");
    let output = gateway.output();
    assert_eq!(output.matches("spans are lost").count(), 1, "one line a minute: {output}");
    let began = Instant::now();
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "its end is bounded: {:?}", began.elapsed());
}

#[test]
fn spans_are_exported_over_tls_with_headers_and_without_secrets() {
    let (upstream, files) = (Upstream::simple(), Certificates::new());
    let collector = Collector::start_with(Some(&files));
    let keys = format!("ca = {:?}\nidentity = true", files.ca);
    let gateway = trusting(&upstream)
        .tables("[plans.pro]\nquotas = [\"5/min\"]")
        .tables("[[api_key]]\nkey = \"sk-secret-one\"\nname = \"acme\"\nplan = \"pro\"")
        .policy(
            "api",
            "",
            "identity = [\"api-key\", \"authorization\", \"ip\"]\nplan = { default = \"pro\" }",
        )
        .tables(&section(&format!("https://{}", collector.address), &keys))
        .start_with(options().variable("OTEL_EXPORTER_OTLP_HEADERS", "x-team=edge"));
    for header in [
        "X-API-Key: sk-secret-one\r\n",
        "X-API-Key: sk-secret-two\r\n",
        "Authorization: Bearer sk-secret-three\r\nCookie: session=sk-secret-four\r\n",
        "X-Forwarded-For: 198.51.100.7\r\n",
    ] {
        assert_eq!(gateway.get("/a?key=sk-secret-five", header).status(), 200);
    }
    let spans = collector.spans_of(&gateway);
    let identities: Vec<&Value> =
        spans.iter().map(|span| &span["attributes"]["slidegate.identity"]).collect();
    assert_eq!((identities[0], identities[3]), (&json!("api-key:acme"), &json!("ip:198.51.100.7")));
    assert_eq!(spans[3]["attributes"]["client.address"], "198.51.100.7");
    assert_eq!(spans[0]["attributes"]["slidegate.plan"], "pro");
    let calls = String::from_utf8_lossy(&fs::read(&collector.calls).unwrap()).into_owned();
    assert!(calls.contains("x-team"), "{calls}");
    assert!(!calls.contains("sk-secret"), "{calls}");
}
