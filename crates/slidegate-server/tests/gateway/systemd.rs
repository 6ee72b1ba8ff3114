//! What the server reports to systemd, on a socket that the test has in systemd's place.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use slidegate_testbed::{Gateway, GatewayOptions, SlidegateOptions, Upstream};

use crate::{configure, options};

/// Longer than a start or a reload takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The socket that `NOTIFY_SOCKET` names.
struct ServiceManager(UnixDatagram);

impl ServiceManager {
    /// Begins to listen, and has the server report to it.
    fn new(options: SlidegateOptions) -> (Self, SlidegateOptions) {
        let path = options.directory().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        (Self(socket), options.variable("NOTIFY_SOCKET", path.to_str().unwrap()))
    }

    /// The assignments of the next message.
    fn next(&self) -> Vec<String> {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).expect("a message");
        let text = std::str::from_utf8(&buffer[..length]).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The next message besides those for the watchdog. It has this assignment.
    #[track_caller]
    fn expect(&self, assignment: &str) -> Vec<String> {
        let message = std::iter::repeat_with(|| self.next()).find(|message| *message != PING);
        let message = message.unwrap();
        assert!(message.iter().any(|line| line == assignment), "{assignment}: {message:?}");
        message
    }
}

const PING: [&str; 1] = ["WATCHDOG=1"];

/// The text of a message's status, of which there is one.
#[track_caller]
fn status(message: &[String]) -> &str {
    let statuses: Vec<&str> =
        message.iter().filter_map(|line| line.strip_prefix("STATUS=")).collect();
    assert_eq!(statuses.len(), 1, "{message:?}");
    statuses[0]
}

fn setup(upstream: &Upstream, quota: &str) -> GatewayOptions {
    configure(upstream).policy("api", quota, "")
}

/// Expects the messages of a reload, and returns the status after it.
#[track_caller]
fn reload(manager: &ServiceManager) -> String {
    let reloading = manager.expect("RELOADING=1");
    let instant = reloading.iter().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    assert!(instant.unwrap().parse::<u64>().unwrap() > 0, "as Type=notify-reload needs it");
    assert!(!reloading.contains(&"READY=1".to_owned()), "{reloading:?}");
    status(&manager.expect("READY=1")).to_owned()
}

#[test]
fn readiness_reloads_and_the_stop_are_reported() {
    let upstream = Upstream::simple();
    let (manager, options) = ServiceManager::new(options());
    let gateway = setup(&upstream, "3/min").start_with(options);

    let ready = manager.expect("READY=1");
    let address = gateway.listener();
    assert!(status(&ready).starts_with(&format!("Serving gateway {address}, admin ")), "{ready:?}");
    assert_eq!(gateway.status("/"), 200, "it listens when it says so");

    gateway.reconfigure(&setup(&upstream, "1/min").text());
    gateway.signal("HUP");
    assert_eq!(reload(&manager), status(&ready));
    assert_eq!(gateway.status("/"), 429, "the new quota is in force when it says so");

    gateway.reconfigure(&setup(&upstream, "9/fortnight").text());
    gateway.signal("HUP");
    let failed = reload(&manager);
    assert!(
        failed.contains("the last reload failed, the previous configuration is kept"),
        "{failed}"
    );
    assert_eq!(gateway.status("/"), 429);

    // Without a signal too.
    gateway.reconfigure(&setup(&upstream, "9/min").text());
    assert_eq!(reload(&manager), status(&ready), "all is well again");
    assert_eq!(gateway.status("/"), 200);

    gateway.signal("TERM");
    let stopping = manager.expect("STOPPING=1");
    assert!(status(&stopping).starts_with("Stopping"), "{stopping:?}");
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn the_watchdog_is_fed_at_half_of_its_time() {
    let upstream = Upstream::simple();
    let (manager, options) = ServiceManager::new(options());
    let options = options.variable("WATCHDOG_USEC", "400000");
    let _gateway: Gateway = configure(&upstream).start_with(options);
    manager.expect("READY=1");
    let began = Instant::now();
    for _ in 0..6 {
        assert_eq!(manager.next(), PING);
    }
    // Of six messages the first comes at once.
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
}

#[test]
fn a_watchdog_of_another_process_is_not_fed() {
    let upstream = Upstream::simple();
    let (manager, options) = ServiceManager::new(options());
    // As a child of the service would have it.
    let options = options.variable("WATCHDOG_USEC", "20000").variable("WATCHDOG_PID", "1");
    let gateway = configure(&upstream).start_with(options);
    manager.expect("READY=1");
    gateway.signal("TERM");
    assert_ne!(manager.next(), PING);
}

#[test]
fn a_manager_that_is_gone_stops_nothing() {
    let upstream = Upstream::simple();
    let options = options().variable("NOTIFY_SOCKET", "/nowhere/notify");
    let gateway = configure(&upstream).start_with(options);
    assert_eq!(gateway.status("/"), 200);
    assert!(gateway.output().contains("cannot notify the service manager"), "{}", gateway.output());
}
