//! One server: its life, its transports and its clock.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use slidegate_testbed::{Flavour, ManualTime, RedisServer, Reply};

#[test]
fn a_server_is_gone_with_its_value() {
    let server = RedisServer::start();
    let (pid, socket) = (server.pid(), server.socket());
    assert!(socket.exists());
    drop(server);
    assert!(!socket.parent().unwrap().exists());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_restarted_server_keeps_its_port_and_only_what_is_on_disk() {
    for (options, kept) in [
        (RedisServer::options(), Reply::Nil),
        (RedisServer::options().appendonly(), Reply::Text("value".to_owned())),
    ] {
        let server = options.start();
        let url = server.url();
        assert_eq!(server.command(&["SET", "key", "value"]).text(), "OK");
        server.kill();
        assert!(!server.is_running());
        server.restart();
        assert_eq!(server.url(), url);
        assert_eq!(server.command(&["GET", "key"]), kept);
    }
}

#[test]
fn a_paused_server_is_silent_until_it_is_resumed() {
    let server = RedisServer::start();
    server.pause();
    let mut client = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut reply = [0; 7];
    assert_eq!(client.read(&mut reply).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    server.resume();
    client.set_read_timeout(None).unwrap();
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

#[test]
fn options_reach_the_server() {
    let server = RedisServer::options().password("secret").line("maxmemory 4mb").start();
    assert_eq!(server.info("maxmemory"), "4194304");
    assert_eq!(
        redis_cli(&["-p", &server.port().to_string(), "-a", "secret", "--no-auth-warning", "PING"]),
        "PONG"
    );
    assert!(redis_cli(&["-p", &server.port().to_string(), "PING"]).contains("NOAUTH"));
    assert!(server.url().starts_with("redis://:secret@127.0.0.1:"));
    assert!(server.unix_url().ends_with("redis.sock?pass=secret"));
    assert!(server.cpu_seconds() < 60.0);
}

#[test]
fn a_server_without_a_port_has_its_socket() {
    let server = RedisServer::options().unix_only().start();
    assert_eq!(server.url(), server.unix_url());
    assert_eq!(redis_cli(&["-s", server.socket().to_str().unwrap(), "PING"]), "PONG");
}

#[test]
fn tls_asks_for_a_certificate_only_if_mutual() {
    for (options, admits_anyone) in
        [(RedisServer::options().tls(), true), (RedisServer::options().mutual_tls(), false)]
    {
        let server = options.start();
        let files = server.certificates().unwrap();
        let port = server.port().to_string();
        let anyone = ["--tls", "--cacert", files.ca.to_str().unwrap(), "-p", &port];
        let client = [files.client.to_str().unwrap(), files.client_key.to_str().unwrap()];
        let named = [&anyone[..], &["--cert", client[0], "--key", client[1], "PING"]].concat();
        assert_eq!(redis_cli(&named), "PONG");
        assert_eq!(redis_cli(&[&anyone[..], &["PING"]].concat()) == "PONG", admits_anyone);
        assert!(server.url().starts_with("rediss://"));
    }
}

#[test]
fn time_stands_still_until_it_is_moved() {
    for flavour in Flavour::BOTH {
        let time = ManualTime::new();
        let server = flavour.server().time(&time).start();
        assert_eq!(time_us(&server), 1_767_225_600_000_000);
        assert_eq!(server.command(&["SET", "key", "value", "PX", "1000"]).text(), "OK");
        time.advance(Duration::from_micros(999_999));
        assert_eq!(time_us(&server), time.now_us());
        assert_eq!(server.command(&["PTTL", "key"]).integer(), 1);
        time.step_back(Duration::from_millis(500));
        assert_eq!(server.command(&["PTTL", "key"]).integer(), 501);
        // A key lives through the millisecond at which its time to live is 0.
        time.advance(Duration::from_millis(501));
        assert_eq!(server.command(&["GET", "key"]).text(), "value");
        time.advance(Duration::from_millis(1));
        assert_eq!(server.command(&["GET", "key"]), Reply::Nil);
    }
}

#[test]
fn a_running_clock_is_ahead_of_the_real_time_and_goes_on() {
    let time = ManualTime::running_ahead();
    let server = RedisServer::options().time(&time).start();
    let real = RedisServer::start();
    let ahead = |seconds: u64| {
        let (from, seen, to) = (time_us(&real), time_us(&server), time_us(&real));
        (from + seconds * 1_000_000..=to + seconds * 1_000_000).contains(&seen)
    };
    assert!(ahead(86_400));
    time.advance(Duration::from_secs(5));
    assert!(ahead(86_405));
    time.step_back(Duration::from_secs(86_400));
    assert!(ahead(5));
}

#[test]
fn servers_of_one_clock_agree_and_scripts_see_it() {
    for flavour in Flavour::BOTH {
        let time = ManualTime::new();
        let servers = [(); 2].map(|()| flavour.server().time(&time).start());
        time.advance(Duration::from_secs(400 * 86_400));
        for server in &servers {
            let script = "local t = redis.call('TIME') return t[1] * 1000000 + t[2]";
            let seen_us = server.command(&["EVAL", script, "0"]).integer();
            assert_eq!(u64::try_from(seen_us).unwrap(), time.now_us());
        }
    }
}

fn time_us(server: &RedisServer) -> u64 {
    let parts = server.command(&["TIME"]).array().into_iter().map(Reply::text);
    let parts = parts.map(|part| part.parse::<u64>().expect("a number"));
    parts.reduce(|seconds, micros| seconds * 1_000_000 + micros).expect("two parts")
}

fn redis_cli(arguments: &[&str]) -> String {
    let output = Command::new("redis-cli").args(arguments).output();
    let output = output.expect("redis-cli comes with redis-server");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}
