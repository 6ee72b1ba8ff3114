//! `slidegate health`, as a container's health check runs it.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use slidegate_testbed::{Upstream, assert_no_hang, wait_until};

use crate::terminal::{Operator, errors};
use crate::unlimited;

#[test]
fn a_server_is_ready_until_it_drains_and_unreachable_when_it_is_gone() {
    let upstream = Upstream::raw(|wire| {
        let _ = wire.rest();
    });
    let gateway = unlimited(&upstream);
    let operator = Operator::of(&gateway);
    assert_eq!(operator.run(&["health"]), "ready: memory\n");
    let mut busy = gateway.wire();
    busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it to be in flight", || upstream.connections() == 1);
    gateway.signal("TERM");
    let draining = "slidegate: not ready: draining, finishing requests in flight\n";
    wait_until("it to drain", || {
        let output = operator.command(&["health"]).output().unwrap();
        output.status.code() == Some(1) && errors(&output) == draining
    });
    gateway.signal("TERM");
    let _ = gateway.wait();
    let said = operator.fail(&["health"]);
    assert!(said.starts_with("slidegate: unreachable: cannot reach http://127.0.0.1:"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn what_is_no_server_or_does_not_answer_is_unreachable() {
    let gateway = unlimited(&Upstream::simple());
    let operator = Operator::of(&gateway);
    let elsewhere = format!("http://{}", gateway.listener());
    let said = operator.fail(&["health", "--admin", &elsewhere]);
    assert!(said.contains("unreachable: ") && said.contains("but not as slidegate's"), "{said}");
    let said = operator.fail(&["health", "--admin", "nowhere"]);
    assert!(said.contains("--admin \"nowhere\": expected http://HOST:PORT"), "{said}");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = format!("http://{}", silent.local_addr().unwrap());
    let began = Instant::now();
    let said = operator.fail(&["health", "--admin", &admin]);
    assert_eq!(said, format!("slidegate: unreachable: {admin} did not answer within 2 s\n"));
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    assert_no_hang(began, Duration::from_secs(10));
}
