//! The last requests, when it is time to go.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::{Client, Http2Client};
use super::endpoint::{Endpoint, TEST_TIMEOUT, anywhere, timeouts, until};
use crate::net::{Listeners, Settings};
use crate::{Bounds, ListenAddress, Timeouts};

#[tokio::test]
async fn a_drain_finishes_requests_in_flight_and_closes_idle_connections() {
    let endpoint = Endpoint::open(&timeouts());
    let mut busy = Client::connect(endpoint.address()).await;
    let mut idle = Client::connect(endpoint.address()).await;
    idle.get("/").await;
    busy.say("GET /wait HTTP/1.1\r\nhost: h\r\n\r\n").await;
    until("it waits", || endpoint.answers.waiting.load(Ordering::SeqCst) == 1).await;

    endpoint.begin_to_close();
    assert_eq!(idle.end().await.1, "");
    assert!(!endpoint.is_closed());
    endpoint.answers.go.add_permits(1);
    let (head, body) = busy.answer().await;
    assert!(head.contains("connection: close\r\n"), "{head}");
    assert_eq!(body, "waited");
    busy.end().await;
    drop((busy, idle));
    endpoint.close().await;
}

#[tokio::test]
async fn a_drain_cuts_what_takes_longer() {
    let endpoint = Endpoint::open(&Timeouts { drain: Duration::from_millis(100), ..timeouts() });
    let mut busy = Client::connect(endpoint.address()).await;
    busy.say("GET /wait HTTP/1.1\r\nhost: h\r\n\r\n").await;
    until("it waits", || endpoint.answers.waiting.load(Ordering::SeqCst) == 1).await;
    endpoint.close().await;
    assert_eq!(busy.end().await.1, "");
}

#[tokio::test]
async fn http2_gets_a_goaway_and_finishes_what_it_has_begun() {
    let endpoint = Endpoint::open(&timeouts());
    let stream = TcpStream::connect(endpoint.address()).await.unwrap();
    let mut client = Http2Client::on(stream).await;
    let mut another = client.another();
    let waiting = tokio::spawn(async move { another.get("/wait").await });
    until("it waits", || endpoint.answers.waiting.load(Ordering::SeqCst) == 1).await;

    endpoint.begin_to_close();
    let refused = async { while client.get("/more").await.is_ok() {} };
    timeout(TEST_TIMEOUT, refused).await.unwrap();
    assert!(!endpoint.is_closed());
    endpoint.answers.go.add_permits(1);
    assert_eq!(waiting.await.unwrap().unwrap().1, "waited");
    endpoint.close().await;
}

#[tokio::test]
async fn a_head_that_has_begun_is_still_answered() {
    let endpoint = Endpoint::open(&timeouts());
    let mut client = Client::connect(endpoint.address()).await;
    client.get("/").await;
    client.say("GET /late HTTP/1.1\r\nho").await;
    // Until it is read.
    tokio::time::sleep(Duration::from_millis(50)).await;
    endpoint.begin_to_close();
    tokio::time::sleep(Duration::from_millis(50)).await;
    client.say("st: h\r\n\r\n").await;
    assert_eq!(client.answer().await.1, "GET /late");
    client.end().await;
    drop(client);
    endpoint.close().await;
}

#[tokio::test]
async fn connections_that_wait_to_be_accepted_are_still_served() {
    let listeners = Listeners::bind(&[anywhere()], 1).unwrap();
    let ListenAddress::Tcp(address) = listeners.local()[0] else { panic!("not TCP") };
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut client = Client::connect(address).await;
        client.say("GET /early HTTP/1.1\r\nhost: h\r\n\r\n").await;
        clients.push(client);
    }
    let settings = Settings::new(&timeouts(), &Bounds::default());
    let endpoint = Endpoint::drained_at_start(listeners, &settings);
    for client in &mut clients {
        assert_eq!(client.answer().await.1, "GET /early");
    }
    drop(clients);
    endpoint.close().await;
}

#[tokio::test]
async fn an_upgraded_connection_goes_on_until_the_drain_is_over() {
    let endpoint = Endpoint::open(&Timeouts { drain: Duration::from_millis(500), ..timeouts() });
    let mut client = Client::connect(endpoint.address()).await;
    client
        .say("GET /upgrade HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
        .await;
    let (head, _) = client.answer().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    endpoint.begin_to_close();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(endpoint.counts.open(), 1);
    client.say("still here\r\n\r\n").await;
    assert_eq!(client.answer().await.0, "still here\r\n\r\n");
    let (took, _) = client.end().await;
    assert!(took > Duration::from_millis(200), "{took:?}");
    endpoint.close().await;
}

#[tokio::test]
async fn a_drain_ends_with_the_last_upgraded_connection() {
    let endpoint = Endpoint::open(&timeouts());
    let mut client = Client::connect(endpoint.address()).await;
    client
        .say("GET /upgrade HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
        .await;
    client.answer().await;
    endpoint.begin_to_close();
    drop(client);
    endpoint.close().await;
}

#[tokio::test]
async fn connections_with_many_pipelined_requests_notice_a_drain_too() {
    let endpoint = Endpoint::open(&timeouts());
    let mut clients = Vec::new();
    // The runtime lets a task go on for 128 steps. After some of these there is none left.
    for requests in 100..140 {
        let mut client = Client::connect(endpoint.address()).await;
        client.say("GET / HTTP/1.1\r\nhost: h\r\n\r\n".repeat(requests)).await;
        for _ in 0..requests {
            client.answer().await;
        }
        clients.push(client);
    }
    endpoint.begin_to_close();
    for client in &mut clients {
        let (took, rest) = client.end().await;
        assert!(took < TEST_TIMEOUT / 2 && rest.is_empty(), "{took:?} {rest}");
    }
    drop(clients);
    endpoint.close().await;
}
