//! The faults of a network, as a client sees them.

#![allow(clippy::disallowed_methods, reason = "a delay can only be seen by real time")]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use slidegate_testbed::{FaultyNetwork, RedisServer, wait_until};

const PING: &[u8] = b"PING\r\n";
const PONG: &[u8] = b"+PONG\r\n";

#[test]
fn a_network_passes_bytes_and_counts_them() {
    let (_server, network) = server_and_network();
    let mut client = connect(&network);
    assert_eq!(ping(&mut client).unwrap(), PONG);
    assert_eq!(network.connections(), 1);
    assert_eq!(network.bytes_to_server(), PING.len() as u64);
    assert_eq!(network.bytes_to_client(), PONG.len() as u64);
    assert_eq!(network.url(), format!("redis://{}/", network.address()));
}

#[test]
fn a_blackhole_silences_old_and_new_connections_even_of_a_killed_server() {
    let (server, network) = server_and_network();
    let mut old = connect(&network);
    ping(&mut old).unwrap();
    network.blackhole();
    let mut new = connect(&network);
    server.kill();
    for client in [&mut old, &mut new] {
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert_eq!(ping(client).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
    assert_eq!(network.bytes_to_server(), PING.len() as u64);

    server.restart();
    network.pass();
    for mut client in [old, new] {
        client.set_read_timeout(None).unwrap();
        assert_is_reset(&mut client);
    }
    assert_eq!(ping(&mut connect(&network)).unwrap(), PONG);
}

#[test]
fn a_connection_that_lost_nothing_survives_a_blackhole() {
    let (_server, network) = server_and_network();
    let mut client = connect(&network);
    ping(&mut client).unwrap();
    network.blackhole();
    network.pass();
    assert_eq!(ping(&mut client).unwrap(), PONG);
}

#[test]
fn refusal_resets_old_and_new_connections() {
    let (server, network) = server_and_network();
    let mut old = connect(&network);
    ping(&mut old).unwrap();
    let received = server.info("total_connections_received");
    network.refuse();
    assert_is_reset(&mut old);
    assert_is_reset(&mut connect(&network));
    assert_eq!(server.info("total_connections_received"), received);
    network.pass();
    assert_eq!(ping(&mut connect(&network)).unwrap(), PONG);
}

#[test]
fn a_delay_holds_requests_and_replies_back() {
    let (_server, network) = server_and_network();
    let mut client = connect(&network);
    network.delay(Duration::from_millis(30));
    let start = Instant::now();
    assert_eq!(ping(&mut client).unwrap(), PONG);
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[test]
fn a_reply_can_be_cut_after_the_server_has_acted() {
    let (server, network) = server_and_network();
    for (after_bytes, rest) in [(0, &b""[..]), (2, b":1")] {
        server.command(&["SET", "key", "0"]).expect_ok();
        let mut client = connect(&network);
        network.cut_next_reply(after_bytes);
        client.write_all(b"INCR key\r\n").unwrap();
        let mut got = Vec::new();
        let error = client.read_to_end(&mut got).unwrap_err();
        assert_eq!((error.kind(), &got[..]), (io::ErrorKind::ConnectionReset, rest));
        assert_eq!(server.command(&["GET", "key"]).text(), "1");
        assert_eq!(ping(&mut connect(&network)).unwrap(), PONG);
    }
}

#[test]
fn a_close_of_either_side_is_passed_on() {
    let (server, network) = server_and_network();
    let mut client = connect(&network);
    ping(&mut client).unwrap();
    let clients = || server.info("connected_clients");
    assert_eq!(clients(), "2");
    drop(client);
    wait_until("the server to see the end", || clients() == "1");
    let mut client = connect(&network);
    ping(&mut client).unwrap();
    server.kill();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

fn server_and_network() -> (RedisServer, FaultyNetwork) {
    let server = RedisServer::start();
    let network = FaultyNetwork::in_front_of(&server);
    (server, network)
}

fn connect(network: &FaultyNetwork) -> TcpStream {
    TcpStream::connect(network.address()).expect("the network accepts")
}

fn ping(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    client.write_all(PING)?;
    let mut reply = vec![0; PONG.len()];
    let length = client.read(&mut reply)?;
    reply.truncate(length);
    Ok(reply)
}

fn assert_is_reset(client: &mut TcpStream) {
    let error = client.read(&mut [0]).expect_err("the connection has ended");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}
