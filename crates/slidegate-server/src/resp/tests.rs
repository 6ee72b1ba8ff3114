//! Commands and calls as they are read, and a listener that is asked over a socket.

#![allow(clippy::disallowed_methods, reason = "a client at a socket lives by the real clock")]

mod fuzz;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slidegate::limit::SystemClock;
use slidegate::{ManualClock, MemoryStore, Policies, Policy, Quota, Source, Timestamp};
use slidegate_proxy::{
    Bounds, ConnectionTable, ListenAddress, Listeners, Settings, Timeouts, serve_raw,
};
use slidegate_tower::{AddressSource, ClientAddress, Responder};
use tokio_util::sync::CancellationToken;

use super::Resp;
use super::command::{MAX_BYTES, ProtocolError, first};
use super::throttle::{Call, ThrottleStyle};
use crate::admin::{Operator, RecentLists};
use crate::config::throttle::policies;
use crate::config::{LimiterConfig, LogConfig, LogFormat, Secret};
use crate::endpoint::token::RequiredToken;
use crate::holds::Holds;
use crate::live_config::LiveConfig;
use crate::observe::{ListenerKind, Observer};
use crate::shared::{OverrideService, Persistence};

const LOG: LogConfig = LogConfig { format: LogFormat::Json, level: String::new(), access: false };

/// Longer than anything takes that is to happen, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What a listener answers by, on a store whose clock stands still.
fn resp(token: Option<&str>) -> Resp {
    let jobs = Policy::new("jobs").identity([Source::User]).quota(Quota::per_minute(5));
    let built = policies(Default::default())
        .into_iter()
        .fold(Policies::builder().policy(jobs), |builder, policy| builder.policy(policy));
    let address = ClientAddress::new(AddressSource::Peer, []);
    let limiter = LimiterConfig::new(built.build().unwrap(), Responder::new(), address);
    let clock = ManualClock::new(Timestamp::from_millis(1_700_000_000_000));
    let store = MemoryStore::builder().clock(clock).build();
    let live = LiveConfig::of(limiter, store);
    let (gate, clock) = (live.gate().clone(), Arc::new(SystemClock::new()));
    let observer = Observer::new(gate.clone(), &LOG, None, clock.clone());
    let overrides = Arc::new(OverrideService::open(gate, Persistence::Process).unwrap());
    let within = Duration::from_secs(60);
    let holds = Arc::new(Holds::new(observer.clone(), clock.clone(), within));
    let failures = observer.token_failures();
    let token =
        token.map(|token| RequiredToken::new(&Secret::new(token), ListenerKind::Resp, failures));
    let operator =
        Operator { live: live.clone(), overrides, observer, recent: RecentLists::default() };
    Resp { live, operator, clock, holds, token }
}

/// A listener with a worker of its own.
struct Endpoint {
    address: SocketAddr,
    connections: Arc<ConnectionTable>,
    shutdown: CancellationToken,
    worker: Option<JoinHandle<()>>,
}

impl Endpoint {
    fn open() -> Self {
        Self::with(&Timeouts { head: TIMEOUT, ..Timeouts::default() }, None)
    }

    fn with(timeouts: &Timeouts, token: Option<&str>) -> Self {
        let resp = resp(token);
        let settings = Settings::new(timeouts, &Bounds::default());
        let connections = settings.connections().clone();
        let listen = ListenAddress::Tcp("127.0.0.1:0".parse().unwrap());
        let listeners = Listeners::bind(&[listen], 1).unwrap();
        let ListenAddress::Tcp(address) = listeners.local()[0] else { panic!("not TCP") };
        let sockets = listeners.into_workers().remove(0);
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let worker = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(serve_raw(sockets, settings, resp, stop)).unwrap();
        });
        Self { address, connections, shutdown, worker: Some(worker) }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Client(stream)
    }

    fn timeouts(&self) -> u64 {
        self.connections.counts().timeouts.load(Ordering::Relaxed)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(worker) = self.worker.take() {
            worker.join().unwrap();
        }
    }
}

struct Client(TcpStream);

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Reads exactly this.
    #[track_caller]
    fn expect(&mut self, reply: &str) {
        let mut read = vec![0; reply.len()];
        self.0.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8_lossy(&read), reply);
    }

    #[track_caller]
    fn ask(&mut self, command: &str, reply: &str) {
        self.send(&encoded(command));
        self.expect(reply);
    }

    /// Reads to the end of a line.
    fn until_line(&mut self) -> Vec<u8> {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        line
    }

    /// Reads to the end of the connection.
    fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("the connection ends in time");
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// A command of words.
fn encoded(command: &str) -> Vec<u8> {
    let words: Vec<&str> = command.split(' ').collect();
    let bulk = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), bulk.collect::<String>()).into_bytes()
}

/// Five integers.
fn five(numbers: [i64; 5]) -> String {
    let lines = numbers.iter().map(|number| format!(":{number}\r\n"));
    format!("*5\r\n{}", lines.collect::<String>())
}

#[test]
fn a_command_is_read_whole_or_not_yet() {
    let whole = encoded("CL.THROTTLE user:1 15 30 60");
    let more = [&whole[..], b"*1\r\n$4"].concat();
    let (arguments, length) = first(&more).unwrap().unwrap();
    assert_eq!(length, whole.len());
    assert_eq!(&arguments[..], [&b"CL.THROTTLE"[..], b"user:1", b"15", b"30", b"60"]);
    for half in 0..whole.len() {
        assert_eq!(first(&whole[..half]), Ok(None), "{half}");
    }
    assert_eq!(first(b"*0\r\n").unwrap().unwrap().1, 4);
    let (binary, _) = first(b"*1\r\n$4\r\n\r\n\0*\r\n").unwrap().unwrap();
    assert_eq!(&binary[..], [b"\r\n\0*"]);
}

#[test]
fn what_is_no_command_is_refused_before_it_takes_memory_or_stack() {
    let nested = b"*1\r\n".repeat(MAX_BYTES / 4);
    let huge = [&b"*2\r\n$4\r\nECHO\r\n$999999999\r\n"[..], &vec![b'x'; MAX_BYTES]].concat();
    let whole = encoded(&format!("ECHO {}", "x".repeat(MAX_BYTES)));
    let many = format!("*65\r\n{}", "$1\r\nx\r\n".repeat(65));
    for (sent, error) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], ProtocolError::Form),
        (b"PING\r\n", ProtocolError::Form),
        (b"\0\0\0", ProtocolError::Form),
        (b"*x\r\n", ProtocolError::Form),
        (b"*-1\r\n", ProtocolError::Form),
        (b"*+1\r\n$4\r\nPING\r\n", ProtocolError::Form),
        (b"*1\n$4\r\nPING\r\n", ProtocolError::Form),
        (b"*1\r\n:1\r\n", ProtocolError::Form),
        (b"*1\r\n$-1\r\n", ProtocolError::Form),
        (b"*1\r\n$x\r\n", ProtocolError::Form),
        (b"*1\r\n$99999999999999999999\r\n", ProtocolError::Form),
        (b"*111111111111111111111111111111111111", ProtocolError::Form),
        (b"*1000000000\r\n", ProtocolError::Arguments),
        (many.as_bytes(), ProtocolError::Arguments),
        (&nested, ProtocolError::Form),
        (&huge, ProtocolError::Bytes),
        (&whole, ProtocolError::Bytes),
    ] {
        let shown = String::from_utf8_lossy(&sent[..sent.len().min(40)]);
        assert_eq!(first(sent), Err(error), "{shown}");
    }
}

#[track_caller]
fn call(style: ThrottleStyle, call: &str) -> Result<Vec<String>, String> {
    let arguments: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
    let call = Call::read(style, &arguments)?;
    let quotas = |charge: &slidegate::NamedCharge<'_>| charge.quotas.unwrap().as_slice()[0];
    let shown =
        |charge: &slidegate::NamedCharge<'_>| format!("{} {}", quotas(charge), charge.identity);
    Ok(call.charges().iter().map(shown).collect())
}

#[test]
fn a_call_is_an_exact_window_and_a_shorter_one_for_bursts() {
    use ThrottleStyle::{RedisCell, Throttlecrab};
    for (style, arguments, expected) in [
        // The examples of both projects.
        (
            RedisCell,
            "user123 15 30 60",
            &["30/min throttle:60s:user123", "16/32s throttle-burst:32s:user123"][..],
        ),
        (
            Throttlecrab,
            "user:123 10 100 60",
            &["100/min throttle:60s:user:123", "10/6s throttle-burst:6s:user:123"],
        ),
        (RedisCell, "k 29 30 60 5", &["30/min throttle:60s:k"]),
        (Throttlecrab, "k 30 30 60", &["30/min throttle:60s:k"]),
        // One at a time.
        (RedisCell, "k 0 40 60", &["40/min throttle:60s:k", "1/1500ms throttle-burst:1500ms:k"]),
    ] {
        assert_eq!(call(style, arguments).unwrap(), expected, "{arguments}");
    }
    let most = call(RedisCell, "k 2147483647 4294967295 31622400").unwrap();
    assert_eq!(most[1], "2147483648/15811200004ms throttle-burst:15811200004ms:k");
    for (style, arguments, error) in [
        (
            RedisCell,
            "k 30 30 60",
            "max_burst: 30 asks for 31 at once, and a window of 30 in 60 s has no more than 30: expected at most 29",
        ),
        (
            Throttlecrab,
            "k 31 30 60",
            "max_burst: 31 asks for 31 at once, and a window of 30 in 60 s has no more than 30: expected at most 30",
        ),
        (
            Throttlecrab,
            "k 0 30 60",
            "max_burst: expected a whole number from 1 to 4294967295, not \"0\"",
        ),
        (RedisCell, "k 1 0 60", "count: expected a whole number from 1 to 4294967295, not \"0\""),
        (RedisCell, "k 1 5 0", "period: expected a whole number from 1 to 31622400, not \"0\""),
        (RedisCell, "k 1 5 -3", "period: expected a whole number from 1 to 31622400, not \"-3\""),
        (
            RedisCell,
            "k 1 5 60 x",
            "quantity: expected a whole number from 0 to 4294967295, not \"x\"",
        ),
        (
            RedisCell,
            "k 0 100000 1",
            "max_burst: 1 at once of 100000 in 1 s are spaced too closely for the clock: expected at least 999",
        ),
    ] {
        assert_eq!(call(style, arguments).unwrap_err(), error, "{arguments}");
    }
}

#[test]
fn every_key_has_its_own_account_that_names_its_window() {
    let long = format!("{} 29 30 60", "k".repeat(200));
    let other = format!("{}l 29 30 60", "k".repeat(199));
    let digested = |arguments: &str| call(ThrottleStyle::RedisCell, arguments).unwrap().remove(0);
    for arguments in [&long, "k\u{e9}y 29 30 60", "{x} 29 30 60", "~0 29 30 60"] {
        let account = digested(arguments);
        assert!(account.starts_with("30/min throttle:60s:~"), "{account}");
        assert_eq!(account.len(), "30/min throttle:60s:~".len() + 32, "{account}");
    }
    assert_ne!(digested(&long), digested(&other));
}

#[test]
fn both_commands_answer_with_their_own_five_integers() {
    let endpoint = Endpoint::open();
    let mut client = endpoint.connect();
    for (command, reply) in [
        ("CL.THROTTLE cell 2 3 60", [0, 3, 2, -1, 60]),
        ("cl.throttle cell 2 3 60 2", [0, 3, 0, -1, 60]),
        // Nothing is spent, and that is always allowed.
        ("CL.THROTTLE cell 2 3 60 0", [0, 3, 0, -1, 60]),
        ("CL.THROTTLE cell 2 3 60", [1, 3, 0, 60, 60]),
        // What can never be.
        ("CL.THROTTLE new 2 3 60 4", [1, 3, 0, -1, 0]),
        ("CL.THROTTLE new 2 3 60 0", [0, 3, 3, -1, 0]),
        // A burst of two in 40 s, of three in 60 s.
        ("CL.THROTTLE burst 1 3 60 2", [0, 2, 0, -1, 60]),
        ("THROTTLE crab 3 3 60", [1, 3, 2, 60, 0]),
        ("THROTTLE crab 3 3 60 3", [0, 3, 2, 60, 60]),
        ("THROTTLE crab 3 3 60 2", [1, 3, 0, 60, 0]),
        // Another period is another account.
        ("THROTTLE crab 3 3 3600", [1, 3, 2, 3600, 0]),
        // More units, and the history stays.
        ("THROTTLE crab 5 5 60", [1, 5, 1, 60, 0]),
    ] {
        client.ask(command, &five(reply));
    }
}

/// The id at the end of a reply that holds.
fn held(client: &mut Client, command: &str, numbers: [i64; 5]) -> String {
    client.ask(command, &five(numbers).replacen("*5", "*6", 1));
    let length = client.until_line();
    assert!(length.starts_with(b"$"), "{length:?}");
    String::from_utf8(client.until_line()).unwrap().trim_end().to_owned()
}

#[test]
fn held_units_are_settled_once() {
    let endpoint = Endpoint::open();
    let mut client = endpoint.connect();
    for (units, left) in [(1, 4), (0, 5), (3, 2), (4, 1), (u32::MAX, 0)] {
        let hold = "SLIDEGATE.HOLD jobs user:1 UNITS 3";
        let id = held(&mut client, hold, [1, 5, 2, 0, 60_000]);
        client.ask(&format!("SLIDEGATE.SETTLE {id} {units}"), ":1\r\n");
        client.ask(&format!("slidegate.settle {id} 0"), ":0\r\n");
        let (reset, retry) =
            (if left == 5 { 0 } else { 60_000 }, if left == 0 { 60_000 } else { 0 });
        let allowed = i64::from(left > 0);
        client.ask("SLIDEGATE.PEEK jobs user:1", &five([allowed, 5, left, retry, reset]));
        client.ask("SLIDEGATE.RESET jobs user:1", if left == 5 { ":0\r\n" } else { ":1\r\n" });
    }
    let nothing = five([0, 0, 0, -1, -1]).replacen("*5", "*6", 1);
    client.ask("SLIDEGATE.HOLD jobs user:1 units 6 plan any", &format!("{nothing}$-1\r\n"));
    client.send(&encoded("HELLO 3"));
    while client.until_line() != b"modules\r\n" {}
    client.expect("*0\r\n");
    client.ask("SLIDEGATE.HOLD jobs user:1 UNITS 6", &format!("{nothing}_\r\n"));
    let units = "expected a whole number from";
    for (command, error) in [
        ("SLIDEGATE.HOLD jobs user:1 COST 5", "expected UNITS n or PLAN p after the identity"),
        ("SLIDEGATE.HOLD jobs user:1 PLAN any", "expected UNITS n after the identity"),
        ("SLIDEGATE.HOLD jobs user:1 UNITS 0", &format!("UNITS: {units} 1 to 4294967295")),
        ("SLIDEGATE.SETTLE x 4294967296", &format!("units: {units} 0 to 4294967295")),
        ("SLIDEGATE.RECORD jobs user:1 0", &format!("units: {units} 1 to 4294967295")),
        ("SLIDEGATE.RECORD jobs user:1 1 COST 2", "expected PLAN p after the units"),
    ] {
        client.ask(command, &format!("-ERR {error}\r\n"));
    }
    client.send(&encoded("SLIDEGATE.SETTLE x 1"));
    let error = String::from_utf8(client.until_line()).unwrap();
    assert!(error.starts_with("-ERR there is nothing to settle by this id"), "{error}");
}

#[test]
fn units_are_recorded_whether_they_fit_or_not() {
    let endpoint = Endpoint::open();
    let mut client = endpoint.connect();
    client.ask("SLIDEGATE.RECORD jobs user:1 4", &five([1, 5, 1, 0, 60_000]));
    client.ask("SLIDEGATE.RECORD jobs user:1 2 PLAN any", &five([0, 5, 0, 60_000, 60_000]));
    client.ask("SLIDEGATE.RECORD jobs user:2 4000000", &five([0, 5, 0, 60_000, 60_000]));
    client.ask("SLIDEGATE.SPEND jobs user:2", &five([0, 5, 0, 60_000, 60_000]));
}

#[test]
fn named_policies_are_spent_peeked_and_reset() {
    let endpoint = Endpoint::open();
    let mut client = endpoint.connect();
    client.ask("SLIDEGATE.RESET jobs user:1", ":0\r\n");
    client.ask("SLIDEGATE.PEEK jobs user:1", &five([1, 5, 5, 0, 0]));
    client.ask("SLIDEGATE.SPEND jobs user:1 COST 4", &five([1, 5, 1, 0, 60_000]));
    client.ask("SLIDEGATE.SPEND jobs user:1 COST 2", &five([0, 5, 1, 60_000, 60_000]));
    client.ask("SLIDEGATE.PEEK jobs user:1 COST 6", &five([0, 0, 0, -1, -1]));
    client.ask("SLIDEGATE.RESET jobs user:1", ":1\r\n");
    client.ask("SLIDEGATE.PEEK jobs user:1 cost 5 PLAN any", &five([1, 5, 5, 0, 0]));
    for (command, error) in [
        ("SLIDEGATE.SPEND none user:1", "there is no policy \"none\""),
        (
            "SLIDEGATE.SPEND jobs user:1 COST 0",
            "COST: expected a whole number from 1 to 4294967295",
        ),
        ("SLIDEGATE.SPEND jobs user:1 FOR 5", "expected COST n or PLAN p after the identity"),
        (
            "SLIDEGATE.SPEND throttle throttle:60s:k",
            "policy \"throttle\" defines no quotas: each charge must supply them",
        ),
        (
            "SLIDEGATE.RESET none user:1",
            "there is no policy \"none\"; there is jobs, throttle, throttle-burst",
        ),
    ] {
        client.ask(command, &format!("-ERR {error}\r\n"));
    }
    client.send(&encoded("SLIDEGATE.SPEND jobs api-key:hunter2"));
    let error = String::from_utf8(client.until_line()).unwrap();
    assert!(error.starts_with("-ERR ") && !error.contains("hunter2"), "{error}");
}

#[test]
fn clients_can_send_hello_and_unknown_commands_get_a_list_of_known_ones() {
    let endpoint = Endpoint::open();
    let mut client = endpoint.connect();
    let version = env!("CARGO_PKG_VERSION");
    let hello = |proto| {
        format!(
            "$6\r\nserver\r\n$9\r\nslidegate\r\n$7\r\nversion\r\n${}\r\n{version}\r\n\
             $5\r\nproto\r\n:{proto}\r\n$2\r\nid\r\n:0\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n\
             $4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
            version.len()
        )
    };
    client.ask("HELLO", &format!("*14\r\n{}", hello(2)));
    client.ask("HELLO 3 SETNAME me", &format!("%7\r\n{}", hello(3)));
    client.ask("COMMAND DOCS", "%0\r\n");
    client.ask("RESET", "+RESET\r\n");
    client.ask("COMMAND DOCS", "*0\r\n");
    client.ask("COMMAND COUNT", ":18\r\n");
    client.ask("COMMAND", "*18\r\n*6\r\n$11\r\nCL.THROTTLE\r\n:-5\r\n*0\r\n:1\r\n:1\r\n:1\r\n");
    let mut client = endpoint.connect();
    for (command, reply) in [
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("PING", "+PONG\r\n"),
        ("ping hi", "$2\r\nhi\r\n"),
        ("ECHO hi", "$2\r\nhi\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        ("CLIENT SETINFO LIB-NAME some", "+OK\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        (
            "GET x",
            "-ERR unknown command 'GET': there is CL.THROTTLE, THROTTLE, SLIDEGATE.SPEND, SLIDEGATE.PEEK, SLIDEGATE.HOLD, SLIDEGATE.SETTLE, SLIDEGATE.RECORD, SLIDEGATE.RESET, PING, ECHO, AUTH, HELLO, CLIENT, SELECT, COMMAND, INFO, RESET, QUIT\r\n",
        ),
        (
            "THROTTLE x",
            "-ERR wrong number of arguments for 'throttle' command: expected THROTTLE key max_burst count period [quantity]\r\n",
        ),
        (
            "AUTH x",
            "-ERR AUTH called without any password configured for the default user. Are you sure your configuration is correct?\r\n",
        ),
        ("QUIT", "+OK\r\n"),
    ] {
        client.ask(command, reply);
    }
    assert_eq!(client.rest(), "");
}

#[test]
fn with_a_token_nothing_is_answered_without_it() {
    let timeouts = Timeouts { head: Duration::from_secs(2), ..Timeouts::default() };
    let endpoint = Endpoint::with(&timeouts, Some("hunter2"));
    let mut client = endpoint.connect();
    let refused = "-NOAUTH Authentication required.\r\n";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    client.ask("PING", refused);
    client.ask("THROTTLE k 1 1 60", refused);
    client.ask("AUTH hunter", wrong);
    client.ask("HELLO 3 AUTH default hunter22", wrong);
    client.send(&encoded("HELLO 3"));
    assert!(client.until_line().starts_with(b"-NOAUTH HELLO must"));
    client.ask("AUTH hunter2", "+OK\r\n");
    client.ask("THROTTLE k 1 1 60", &five([1, 1, 0, 60, 0]));
    let mut other = endpoint.connect();
    other.send(&encoded("HELLO 2 AUTH default hunter2"));
    assert_eq!(other.until_line(), b"*14\r\n");

    // A client that presents nothing is not waited for, and one that has may be silent.
    let mut silent = endpoint.connect();
    assert_eq!(silent.rest(), "");
    assert_eq!(endpoint.timeouts(), 1);
    client.ask("PING", "+PONG\r\n");
    client.ask("RESET", "+RESET\r\n");
    client.ask("PING", refused);
}

#[test]
fn many_commands_at_once_are_answered_in_order_and_half_ones_when_they_are_whole() {
    let endpoint = Endpoint::open();
    let mut client = endpoint.connect();
    let commands = 20_000;
    let sent: Vec<u8> = (0..commands).flat_map(|i| encoded(&format!("ECHO {i}"))).collect();
    let mut writer = client.0.try_clone().unwrap();
    // In pieces that end anywhere.
    let writing = thread::spawn(move || {
        sent.chunks(7777).for_each(|piece| writer.write_all(piece).unwrap());
    });
    for i in 0..commands {
        let text = i.to_string();
        client.expect(&format!("${}\r\n{text}\r\n", text.len()));
    }
    writing.join().unwrap();
}

#[test]
fn bad_input_ends_its_own_connection_and_no_other() {
    let timeouts = Timeouts { head: Duration::from_secs(2), ..Timeouts::default() };
    let endpoint = Endpoint::with(&timeouts, None);
    let mut bystander = endpoint.connect();
    bystander.ask("PING", "+PONG\r\n");
    let form = "-ERR Protocol error: expected an array of bulk strings\r\n";
    let huge = [&b"*2\r\n$4\r\nECHO\r\n$999999999\r\n"[..], &vec![b'x'; 4 * MAX_BYTES]].concat();
    for (sent, reply) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), form),
        (b"*1\r\n".repeat(100_000), form),
        (huge, "-ERR Protocol error: a command has at most 65536 bytes\r\n"),
        (
            [encoded("PING"), b"*99\r\n".to_vec()].concat(),
            "+PONG\r\n-ERR Protocol error: a command has at most 64 arguments\r\n",
        ),
    ] {
        let mut client = endpoint.connect();
        client.send(&sent);
        client.0.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.rest(), reply);
    }
    // Half a command is waited for, though not for long, however slowly it comes.
    let mut slow = endpoint.connect();
    let mut ended = false;
    for byte in b"*2\r\n$4\r\nECHO\r\n$5000\r\n".iter().chain([&b'x'; 5000]) {
        let sent = slow.0.write_all(&[*byte]);
        thread::sleep(Duration::from_millis(20));
        if sent.is_err() {
            ended = true;
            break;
        }
    }
    assert!(ended && endpoint.timeouts() == 1, "{}", endpoint.timeouts());
    // Between commands a client may take its time, and what it then begins is waited for.
    let ping = encoded("PING");
    bystander.send(&ping[..5]);
    thread::sleep(Duration::from_millis(20));
    bystander.send(&ping[5..]);
    bystander.expect("+PONG\r\n");
}

#[test]
fn a_client_that_never_reads_is_cut_and_delays_no_other() {
    let timeouts =
        Timeouts { idle: Duration::from_millis(300), head: TIMEOUT, ..Timeouts::default() };
    let endpoint = Endpoint::with(&timeouts, None);
    let mut deaf = endpoint.connect();
    deaf.0.set_write_timeout(Some(TIMEOUT)).unwrap();
    let echo = encoded(&format!("ECHO {}", "x".repeat(10_000)));
    let mut other = endpoint.connect();
    let mut sent: u64 = 0;
    // Until our side has no room left for replies and reads no more.
    let error = loop {
        match deaf.0.write_all(&echo) {
            Ok(()) => sent += echo.len() as u64,
            Err(error) => break error,
        }
        assert!(sent < 1 << 30, "what is not read is not kept");
        other.ask("PING", "+PONG\r\n");
    };
    assert_ne!(error.kind(), ErrorKind::WouldBlock, "it was cut");
    assert_eq!(endpoint.timeouts(), 1);
    other.ask("PING", "+PONG\r\n");
}

#[test]
fn draining_answers_what_is_on_its_way_and_closes_the_idle() {
    let endpoint = Endpoint::open();
    let mut client = endpoint.connect();
    client.ask("PING", "+PONG\r\n");
    client.send(&encoded("PING"));
    endpoint.shutdown.cancel();
    client.expect("+PONG\r\n");
    assert_eq!(client.rest(), "");
}

#[test]
fn a_client_that_guesses_tokens_is_disconnected() {
    let endpoint = Endpoint::with(&Timeouts::default(), Some("hunter2"));
    let mut guesser = endpoint.connect();
    for n in 0..10 {
        let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
        guesser.ask(&format!("AUTH guess{n}"), wrong);
    }
    guesser.send(&encoded("AUTH hunter2"));
    assert!(guesser.rest().starts_with("-ERR too many wrong tokens from this address: retry in "));
}
