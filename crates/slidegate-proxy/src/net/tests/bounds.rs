//! Clients that want too much, or too slowly.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ::http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use tokio::net::TcpStream;

use super::client::{Client, Http2Client};
use super::endpoint::{Endpoint, TEST_TIMEOUT, anywhere, timeouts, until};
use crate::net::{Listeners, Settings, TrustedPeers};
use crate::{Bounds, Timeouts};

const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

/// So much longer than `SHORT_TIMEOUT` that the one cannot be taken for the other.
const LATE: Duration = Duration::from_secs(10);

/// The preface, settings of enormous windows, and a request for `/endless`.
const ENDLESS_OVER_HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x7f\xff\xff\xff\
    \x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\x00\x00\x00\
    \x00\x00\x0f\x01\x05\x00\x00\x00\x01\x82\x86\x04\x08/endless\x01\x01h";

/// A request with a header of some length.
fn request_with(header_bytes: usize) -> String {
    format!("GET / HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "x".repeat(header_bytes))
}

#[tokio::test]
async fn a_head_that_is_too_large_gets_431() {
    for head_bytes in [1_000, 10_000, 64 * 1024] {
        let bounds = Bounds { head_bytes, ..Bounds::default() };
        let endpoint = Endpoint::with_bounds(&timeouts(), &bounds);
        let mut client = Client::connect(endpoint.address()).await;
        client.say(request_with(head_bytes - 100)).await;
        assert_eq!(client.answer().await.1, "GET /");

        // So large that the client is still at it when it is answered.
        client.say(request_with(head_bytes * 4)).await;
        let (head, _) = client.answer().await;
        assert!(head.starts_with("HTTP/1.1 431 "), "{head}");
        drop(client);
        endpoint.close().await;
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_over_http2_too() {
    let bounds = Bounds { head_bytes: 10_000, ..Bounds::default() };
    let endpoint = Endpoint::with_bounds(&timeouts(), &bounds);
    let stream = TcpStream::connect(endpoint.address()).await.unwrap();
    let mut client = Http2Client::on(stream).await;
    let request = |length| {
        let request = Request::get("http://h/").header("x", "x".repeat(length));
        request.body(Empty::new()).unwrap()
    };
    assert_eq!(client.send(request(9_000)).await.unwrap().0, StatusCode::OK);
    let status = client.send(request(11_000)).await.unwrap().0;
    assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    endpoint.close().await;
}

#[tokio::test]
async fn what_is_not_http_gets_400() {
    let endpoint = Endpoint::open(&timeouts());
    for request in
        ["nonsense\r\n\r\n", "GET / HTTP/1.1\r\n: x\r\n\r\n", "GET / HTTP/1.1\r\nab\r\n\r\n"]
    {
        let mut client = Client::connect(endpoint.address()).await;
        client.say(request).await;
        let (head, _) = client.answer().await;
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        client.end().await;
    }
    endpoint.close().await;
}

#[tokio::test]
async fn a_slow_head_is_cut_however_it_dawdles() {
    let endpoint = Endpoint::open(&Timeouts { head: SHORT_TIMEOUT, idle: LATE, ..timeouts() });
    // Nothing at all, the beginning of a first head, and of a second.
    for (first, beginning) in [(false, ""), (false, "GET / HT"), (true, "GET / HTTP/1.1\r\nho")] {
        let mut client = Client::connect(endpoint.address()).await;
        if first {
            client.get("/").await;
        }
        let dawdling = async {
            client.say(beginning).await;
            client.end().await.0
        };
        let took = dawdling.await;
        assert!(took < LATE / 2, "{took:?} for {beginning:?}");
    }
    until("they are counted", || endpoint.counts.timeouts() == 3).await;

    let mut client = Client::connect(endpoint.address()).await;
    client.say("GET / HTTP/1.1\r\n").await;
    let (mut reader, mut writer) = client.stream.split();
    let drip = async {
        loop {
            tokio::time::sleep(SHORT_TIMEOUT / 10).await;
            if tokio::io::AsyncWriteExt::write_all(&mut writer, b"x: y\r\n").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut rest);
    tokio::select! {
        () = drip => unreachable!(),
        _ = tokio::time::timeout(LATE / 2, read) => {}
    }
    until("it is counted", || endpoint.counts.timeouts() == 4).await;
    endpoint.close().await;
}

#[tokio::test]
async fn an_idle_connection_is_kept_longer_than_a_slow_head_and_then_closed() {
    let endpoint =
        Endpoint::open(&Timeouts { head: SHORT_TIMEOUT, idle: SHORT_TIMEOUT * 3, ..timeouts() });
    let mut client = Client::connect(endpoint.address()).await;
    client.get("/").await;
    tokio::time::sleep(SHORT_TIMEOUT * 2).await;
    client.get("/").await;
    let (took, rest) = client.end().await;
    assert!(took > SHORT_TIMEOUT * 2 && took < TEST_TIMEOUT / 2, "{took:?}");
    assert_eq!(rest, "");
    assert_eq!(endpoint.counts.timeouts(), 0);

    let stream = TcpStream::connect(endpoint.address()).await.unwrap();
    let mut client = Http2Client::on(stream).await;
    client.get("/").await.unwrap();
    client.end().await;
    until("it is gone", || endpoint.counts.open() == 0).await;
    assert_eq!(endpoint.counts.timeouts(), 0);
    endpoint.close().await;
}

#[tokio::test]
async fn a_request_may_take_longer_than_an_idle_connection() {
    let endpoint =
        Endpoint::open(&Timeouts { head: SHORT_TIMEOUT, idle: SHORT_TIMEOUT, ..timeouts() });
    let mut client = Client::connect(endpoint.address()).await;
    client.say("GET /wait HTTP/1.1\r\nhost: h\r\n\r\n").await;
    tokio::time::sleep(SHORT_TIMEOUT * 3).await;
    endpoint.answers.go.add_permits(1);
    assert_eq!(client.answer().await.1, "waited");
    client.end().await;
    endpoint.close().await;
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut() {
    let endpoint = Endpoint::open(&Timeouts { idle: SHORT_TIMEOUT, ..timeouts() });
    let mut http1 = Client::connect(endpoint.address()).await;
    http1.say("GET /endless HTTP/1.1\r\nhost: h\r\n\r\n").await;
    until("it is there", || endpoint.counts.open() == 1).await;
    until("it is gone", || endpoint.counts.open() == 0).await;
    drop(http1);

    // It takes what comes over the connection, but asks for no more.
    let stream = TcpStream::connect(endpoint.address()).await.unwrap();
    let mut http2 = Http2Client::on(stream).await;
    let unread = http2.begin("/endless").await;
    assert_eq!(endpoint.counts.open(), 1);
    until("it is gone", || endpoint.counts.open() == 0).await;
    drop(unread);

    // It does not even take what comes.
    let mut silent = Client::connect(endpoint.address()).await;
    silent.say(ENDLESS_OVER_HTTP2).await;
    until("it is there", || endpoint.counts.accepted() == 3).await;
    until("it is gone", || endpoint.counts.open() == 0).await;
    drop(silent);
    endpoint.close().await;
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_not_cut() {
    let endpoint = Endpoint::open(&Timeouts { idle: SHORT_TIMEOUT, ..timeouts() });
    let stream = TcpStream::connect(endpoint.address()).await.unwrap();
    let mut http2 = Http2Client::on(stream).await;
    let mut body = http2.begin("/endless").await;
    for _ in 0..8 {
        tokio::time::sleep(SHORT_TIMEOUT / 2).await;
        // Enough for HTTP/2 to tell the other side.
        let mut taken = 0;
        while taken < 2_000_000 {
            taken += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
        }
    }
    drop((body, http2));
    endpoint.close().await;
}

#[tokio::test]
async fn a_client_that_is_still_sending_is_not_cut_off_from_its_answer() {
    let endpoint = Endpoint::open(&timeouts());
    let mut client = Client::connect(endpoint.address()).await;
    client.say("POST /unread HTTP/1.1\r\nhost: h\r\ncontent-length: 50000000\r\n\r\n").await;
    // More than the kernel would take for a connection that is not read.
    for _ in 0..100 {
        client.say(vec![0; 100_000]).await;
    }
    assert_eq!(client.answer().await.1, "POST /unread");
    client.end().await;
    drop(client);
    endpoint.close().await;
}

#[tokio::test]
async fn thousands_of_idle_connections_are_no_trouble_to_others() {
    let bounds = Bounds { connections_per_address: 10_000, ..Bounds::default() };
    let endpoint = Endpoint::with_bounds(&timeouts(), &bounds);
    let mut idle = Vec::new();
    for number in 0..2_000 {
        let mut client = Client::connect(endpoint.address()).await;
        if number % 2 == 0 {
            client.get("/").await;
        }
        idle.push(client);
    }
    let mut client = Client::connect(endpoint.address()).await;
    for _ in 0..100 {
        assert_eq!(client.get("/x").await, "GET /x");
    }
    assert_eq!(endpoint.counts.open(), 2_001);
    endpoint.close().await;
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_busy_ones_to_end() {
    let bounds = Bounds { connections: 2, ..Bounds::default() };
    let endpoint = Endpoint::with_bounds(&timeouts(), &bounds);
    let mut clients = Vec::new();
    for number in 1..=2 {
        let mut client = Client::connect(endpoint.address()).await;
        client.say("GET /wait HTTP/1.1\r\nhost: h\r\n\r\n").await;
        until("it waits", || endpoint.answers.waiting.load(Ordering::SeqCst) == number).await;
        clients.push(client);
    }
    let mut third = Client::connect(endpoint.address()).await;
    third.say("GET /third HTTP/1.1\r\nhost: h\r\n\r\n").await;
    until("it waits", || endpoint.counts.waited() == 1).await;
    tokio::time::sleep(SHORT_TIMEOUT).await;
    assert_eq!((endpoint.counts.open(), endpoint.counts.accepted()), (2, 2));

    endpoint.answers.go.add_permits(1);
    assert_eq!(third.answer().await.1, "GET /third", "a busy one has become idle");
    endpoint.answers.go.add_permits(1);
    for client in &mut clients {
        assert_eq!(client.answer().await.1, "waited");
    }
    endpoint.close().await;
}

#[tokio::test]
async fn a_full_server_closes_the_longest_idle_connection() {
    let bounds = Bounds { connections: 3, ..Bounds::default() };
    let endpoint = Endpoint::with_bounds(&timeouts(), &bounds);
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::connect(endpoint.address()).await;
        client.get("/").await;
        clients.push(client);
    }
    assert_eq!(clients[0].get("/again").await, "GET /again");
    let mut fourth = Client::connect(endpoint.address()).await;
    assert_eq!(fourth.get("/fourth").await, "GET /fourth");
    assert_eq!(clients[1].end().await.1, "", "it was idle longest");
    assert_eq!(clients[0].get("/first").await, "GET /first");
    assert_eq!(clients[2].get("/third").await, "GET /third");
    assert_eq!(endpoint.counts.open(), 3);
    endpoint.close().await;
}

#[tokio::test]
async fn connections_that_say_nothing_make_room() {
    let bounds = Bounds { connections: 2, ..Bounds::default() };
    let endpoint = Endpoint::with_bounds(&timeouts(), &bounds);
    let mut silent =
        [Client::connect(endpoint.address()).await, Client::connect(endpoint.address()).await];
    until("they are there", || endpoint.counts.open() == 2).await;
    let (mut first, mut second) =
        (Client::connect(endpoint.address()).await, Client::connect(endpoint.address()).await);
    let began = tokio::time::Instant::now();
    assert_eq!((first.get("/").await, second.get("/").await), ("GET /".into(), "GET /".into()));
    for client in &mut silent {
        assert_eq!(client.end().await.1, "");
    }
    assert!(began.elapsed() < LATE, "{:?}", began.elapsed());
    endpoint.close().await;
}

#[tokio::test]
async fn one_address_cannot_have_every_place() {
    let bounds = Bounds { connections: 10, connections_per_address: 2, ..Bounds::default() };
    let endpoint = Endpoint::with_bounds(&timeouts(), &bounds);
    let mut first = Client::connect(endpoint.address()).await;
    let mut second = Client::connect(endpoint.address()).await;
    assert_eq!((first.get("/").await, second.get("/").await), ("GET /".into(), "GET /".into()));
    let mut third = Client::connect(endpoint.address()).await;
    assert_eq!(third.end().await.1, "");
    assert_eq!((endpoint.counts.over_address_limit(), endpoint.counts.open()), (1, 2));
    drop(first);
    until("there is room", || endpoint.counts.open() == 1).await;
    assert_eq!(Client::connect(endpoint.address()).await.get("/").await, "GET /");

    // Many clients are behind a trusted peer.
    let trusted = TrustedPeers::new(|peer| peer.is_loopback());
    let settings = Settings::new(&timeouts(), &bounds).with_trusted_peers(trusted);
    let endpoint = Endpoint::with(Listeners::bind(&[anywhere()], 1).unwrap(), &settings);
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = Client::connect(endpoint.address()).await;
        assert_eq!(client.get("/").await, "GET /");
        clients.push(client);
    }
    endpoint.close().await;
}

#[tokio::test]
async fn a_mistake_costs_one_connection() {
    let endpoint = Endpoint::open(&timeouts());
    let mut client = Client::connect(endpoint.address()).await;
    client.say("GET /panic HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(client.end().await.1, "");
    assert_eq!(Client::connect(endpoint.address()).await.get("/").await, "GET /");
    until("both are gone", || endpoint.counts.open() == 0).await;
    endpoint.close().await;
}

/// Runs itself once more, in a process that may have few files open.
#[tokio::test]
async fn too_many_open_files_are_a_passing_trouble() {
    const CHILD: &str = "SLIDEGATE_TEST_FEW_FILES";
    if std::env::var_os(CHILD).is_some() {
        return outlive_too_many_open_files().await;
    }
    let mut child = std::process::Command::new("sh");
    child.args(["-c", "ulimit -n 64 && exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
    child.arg("too_many_open_files_are_a_passing_trouble").env(CHILD, "1");
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn outlive_too_many_open_files() {
    let endpoint = Endpoint::open(&timeouts());
    Client::connect(endpoint.address()).await.get("/").await;
    until("it is gone", || endpoint.counts.open() == 0).await;
    let open = || std::fs::File::open("/dev/null").ok();
    let mut files: Vec<_> = std::iter::from_fn(open).collect();
    files.pop();
    let mut client = Client::connect(endpoint.address()).await;
    client.say("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    tokio::time::sleep(SHORT_TIMEOUT).await;
    assert_eq!(endpoint.counts.accepted(), 1);
    drop(files);
    assert_eq!(client.answer().await.1, "GET /");
    endpoint.close().await;
}

#[tokio::test]
async fn an_empty_line_between_requests_is_no_head() {
    let endpoint = Endpoint::open(&Timeouts { head: SHORT_TIMEOUT, idle: LATE, ..timeouts() });
    let mut client = Client::connect(endpoint.address()).await;
    client.say("POST /length HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\nx\r\n").await;
    assert_eq!(client.answer().await.1, "1");
    tokio::time::sleep(SHORT_TIMEOUT * 3).await;
    client.say("\r\n\r\n").await;
    assert_eq!(client.get("/").await, "GET /");
    assert_eq!(endpoint.counts.timeouts(), 0);
    endpoint.close().await;
}
