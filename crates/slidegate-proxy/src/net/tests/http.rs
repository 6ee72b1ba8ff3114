//! Requests and answers, and the bounds that they have.

use ::http::StatusCode;
use tokio::net::TcpStream;

use super::client::{Client, Http2Client};
use super::endpoint::{Endpoint, timeouts};

#[tokio::test]
async fn a_server_speaks_http1_and_keeps_connections() {
    let endpoint = Endpoint::open(&timeouts());
    let mut client = Client::connect(endpoint.address()).await;
    assert_eq!(client.get("/one").await, "GET /one");
    assert_eq!(client.get("/two").await, "GET /two");
    assert_eq!(client.get("/accepted").await, "Some(127.0.0.1) false");
    assert_eq!((endpoint.counts.open(), endpoint.counts.accepted()), (1, 1));
    drop(client);
    endpoint.close().await;
}

#[tokio::test]
async fn a_server_speaks_http2_with_prior_knowledge() {
    let endpoint = Endpoint::open(&timeouts());
    let stream = TcpStream::connect(endpoint.address()).await.unwrap();
    let mut client = Http2Client::on(stream).await;
    assert_eq!(client.get("/one").await.unwrap(), (StatusCode::OK, "GET /one".to_owned()));
    assert_eq!(client.get("/two").await.unwrap(), (StatusCode::OK, "GET /two".to_owned()));
    endpoint.close().await;
}

#[tokio::test]
async fn a_server_detects_the_version_however_slowly_a_connection_begins() {
    let endpoint = Endpoint::open(&timeouts());
    let mut client = Client::connect(endpoint.address()).await;
    // It begins like the preface of HTTP/2.
    for byte in b"PRI /x HTTP/1.1\r\nhost: h\r\n\r\n" {
        client.say([*byte]).await;
    }
    assert_eq!(client.answer().await.1, "PRI /x");
    endpoint.close().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let endpoint = Endpoint::open(&timeouts());
    let mut client = Client::connect(endpoint.address()).await;
    let requests: String =
        (0..100).map(|number| format!("GET /{number} HTTP/1.1\r\nhost: h\r\n\r\n")).collect();
    client.say(requests).await;
    for number in 0..100 {
        assert_eq!(client.answer().await.1, format!("GET /{number}"));
    }
    endpoint.close().await;
}

#[tokio::test]
async fn a_response_is_not_held_back_for_the_rest_of_the_next_request() {
    let endpoint = Endpoint::open(&timeouts());
    let mut client = Client::connect(endpoint.address()).await;
    client.say("GET /one HTTP/1.1\r\nhost: h\r\n\r\nGET /two HT").await;
    assert_eq!(client.answer().await.1, "GET /one");
    client.say("TP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(client.answer().await.1, "GET /two");
    endpoint.close().await;
}
