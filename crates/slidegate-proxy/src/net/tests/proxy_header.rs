//! Headers of the PROXY protocol, good ones and others.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::net::UnixStream;

use slidegate_testbed::Directory;

use super::client::{Client, Http2Client};
use super::endpoint::{Endpoint, TEST_TIMEOUT, anywhere, timeouts, until};
use crate::net::{Listeners, Settings, TrustedPeers};
use crate::{Bounds, ListenAddress, Timeouts};

const REQUEST: &[u8] = b"GET /accepted HTTP/1.1\r\nhost: h\r\n\r\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// An endpoint for balancers on this machine.
fn endpoint(timeouts: &Timeouts) -> Endpoint {
    endpoint_that_trusts(timeouts, IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn endpoint_that_trusts(timeouts: &Timeouts, balancer: IpAddr) -> Endpoint {
    let trusted = TrustedPeers::new(move |peer| peer == balancer);
    let settings = Settings::new(timeouts, &Bounds::default());
    let listeners = Listeners::bind(&[anywhere()], 1).unwrap();
    Endpoint::with(listeners, &settings.with_trusted_peers(trusted).with_proxy_header())
}

/// A header of version 2.
fn binary(version_and_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[version_and_command, family], &length, rest].concat()
}

fn ipv6_rest() -> Vec<u8> {
    let source: std::net::Ipv6Addr = "2001:db8::7".parse().unwrap();
    [&source.octets()[..], &[0; 16], &[0x12, 0x34, 0x01, 0xbb]].concat()
}

/// Headers, and the client that each names.
fn headers() -> Vec<(Vec<u8>, &'static str)> {
    let ipv4 = [203, 0, 113, 7, 192, 0, 2, 1, 0x12, 0x34, 0x01, 0xbb];
    let with_extra = [&ipv4[..], &[0x04, 0x01, 0x00], &[0; 256]].concat();
    vec![
        (b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n".to_vec(), "Some(203.0.113.7)"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 443\r\n".to_vec(), "Some(2001:db8::7)"),
        (b"PROXY TCP6 ::ffff:203.0.113.7 ::1 1 443\r\n".to_vec(), "Some(203.0.113.7)"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "Some(127.0.0.1)"),
        (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n".to_vec(), "Some(127.0.0.1)"),
        (binary(0x21, 0x11, &ipv4), "Some(203.0.113.7)"),
        (binary(0x21, 0x11, &with_extra), "Some(203.0.113.7)"),
        (binary(0x21, 0x21, &ipv6_rest()), "Some(2001:db8::7)"),
        (binary(0x21, 0x31, &[b'x'; 216]), "Some(127.0.0.1)"),
        (binary(0x21, 0x00, &[]), "Some(127.0.0.1)"),
        (binary(0x20, 0x00, &[]), "Some(127.0.0.1)"),
        (binary(0x20, 0x11, &ipv4), "Some(127.0.0.1)"),
    ]
}

#[tokio::test]
async fn a_trusted_proxy_header_names_the_client() {
    let endpoint = endpoint(&timeouts());
    for (header, peer) in headers() {
        let mut client = Client::connect(endpoint.address()).await;
        client.say([&header[..], REQUEST].concat()).await;
        assert_eq!(client.answer().await.1, format!("{peer} false"), "{header:?}");
    }
    endpoint.close().await;
}

#[tokio::test]
async fn a_proxy_header_may_come_in_pieces() {
    let endpoint = endpoint(&timeouts());
    for (header, peer) in headers() {
        let mut client = Client::connect(endpoint.address()).await;
        client.stream.set_nodelay(true).unwrap();
        for byte in [&header[..], REQUEST].concat() {
            client.say([byte]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(client.answer().await.1, format!("{peer} false"), "{header:?}");
    }
    endpoint.close().await;
}

#[tokio::test]
async fn http2_may_follow_a_proxy_header() {
    let endpoint = endpoint(&timeouts());
    let mut client = Client::connect(endpoint.address()).await;
    client.say("PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n").await;
    let mut client = Http2Client::on(client.stream).await;
    assert_eq!(client.get("/accepted").await.unwrap().1, "Some(203.0.113.7) false");
    endpoint.close().await;
}

#[tokio::test]
async fn a_connection_without_a_proxy_header_is_closed_at_once() {
    let endpoint = endpoint(&timeouts());
    let endless = [&b"PROXY TCP4 "[..], &[b'1'; 200]].concat();
    let headers = [
        REQUEST.to_vec(),
        b"X".to_vec(),
        b"PROXY TCP4 203.0.113.7 192.0.2.1 56324\r\n".to_vec(),
        b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\n".to_vec(),
        b"PROXY TCP4 2001:db8::7 192.0.2.1 56324 443\r\n".to_vec(),
        b"PROXY TCP4 not-an-address 192.0.2.1 56324 443\r\n".to_vec(),
        b"PROXY UDP4 203.0.113.7 192.0.2.1 56324 443\r\n".to_vec(),
        b"PROXY TCP4 \xff\xfe 192.0.2.1 56324 443\r\n".to_vec(),
        endless,
        binary(0x11, 0x11, &[0; 12]),
        binary(0x2f, 0x11, &[0; 12]),
        binary(0x21, 0x11, &[0; 4]),
        binary(0x21, 0x11, &vec![0; 20_000]),
    ];
    for (number, header) in headers.iter().enumerate() {
        let mut client = Client::connect(endpoint.address()).await;
        client.say(header).await;
        assert_eq!(client.end().await.1, "", "{header:?}");
        let failures = u64::try_from(number).unwrap() + 1;
        until("it is counted", || endpoint.counts.proxy_header_failures() == failures).await;
    }
    endpoint.close().await;
}

#[tokio::test]
async fn a_peer_that_is_not_trusted_is_closed_whatever_it_sends() {
    let endpoint = endpoint_that_trusts(&timeouts(), "192.0.2.1".parse().unwrap());
    for header in [&b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n"[..], REQUEST] {
        let mut client = Client::connect(endpoint.address()).await;
        client.say([header, REQUEST].concat()).await;
        assert_eq!(client.end().await.1, "");
    }
    until("they are counted", || endpoint.counts.untrusted() == 2).await;
    endpoint.close().await;
}

#[tokio::test]
async fn a_connection_whose_proxy_header_takes_too_long_is_closed() {
    let endpoint = endpoint(&Timeouts { head: Duration::from_millis(150), ..timeouts() });
    let mut client = Client::connect(endpoint.address()).await;
    client.say("PROXY TCP4 203.0.").await;
    let (took, _) = client.end().await;
    assert!(took < TEST_TIMEOUT / 2, "{took:?}");
    until("it is counted", || endpoint.counts.proxy_header_failures() == 1).await;
    endpoint.close().await;
}

#[tokio::test]
async fn a_unix_socket_is_trusted() {
    let directory = Directory::new();
    let path = directory.path().join("socket");
    let settings = Settings::new(&timeouts(), &Bounds::default());
    let settings = settings.with_trusted_peers(TrustedPeers::new(|_| false)).with_proxy_header();
    let listeners = Listeners::bind(&[ListenAddress::Unix(path.clone())], 1).unwrap();
    let endpoint = Endpoint::with(listeners, &settings);
    for (header, peer) in
        [("TCP4 203.0.113.7 192.0.2.1 1 2", "Some(203.0.113.7)"), ("UNKNOWN", "None")]
    {
        let mut client = Client::on(UnixStream::connect(&path).await.unwrap());
        client.say(format!("PROXY {header}\r\n")).await;
        assert_eq!(client.get("/accepted").await, format!("{peer} false"));
    }
    endpoint.close().await;
}
