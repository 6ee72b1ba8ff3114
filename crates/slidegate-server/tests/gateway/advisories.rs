//! Holes that other limiters had, tried at the running gateway. Each test is named after its
//! report; `slidegate-tower/tests/client_address/holes.rs` has those about addresses in detail.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Barrier;
use std::thread;

use slidegate_testbed::{Gateway, Upstream, Wire};

use crate::{PROGRAM, configure, options};

/// A gateway behind a proxy on this machine, one request a minute for each client.
fn behind_a_proxy(upstream: &Upstream, source: &str) -> Gateway {
    configure(upstream)
        .key("trusted_proxies", "[\"127.0.0.0/8\"]")
        .key("client_address", &format!("{source:?}"))
        .policy("all", "1/min", "")
        .start()
}

/// express-brute read a count, and wrote it back later: requests at the same time passed together.
#[test]
fn ghsa_984p_xq9m_4rjw_requests_at_once_do_not_pass_together() {
    const CLIENTS: usize = 16;
    let upstream = Upstream::simple();
    let gateway = configure(&upstream).policy("login", "5/min", "").start();
    let start = Barrier::new(CLIENTS);
    let allowed: usize = thread::scope(|scope| {
        let client = || {
            let mut wire = gateway.wire();
            start.wait();
            (0..5).filter(|_| wire.get("/login", "").status() == 200).count()
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert_eq!((allowed, upstream.received().len()), (5, 5));
}

/// express-rate-limit cut mapped addresses to an IPv6 prefix before it made them IPv4: all IPv4
/// clients of a dual-stack socket shared one bucket.
#[test]
fn cve_2026_30827_ipv4_clients_do_not_share_one_bucket() {
    let upstream = Upstream::simple();
    let gateway = behind_a_proxy(&upstream, "x-forwarded-for");
    for (client, status) in [
        ("::ffff:203.0.113.7", 200),
        ("::ffff:203.0.113.8", 200),
        ("::ffff:203.0.113.7", 429),
        ("203.0.113.8", 429),
    ] {
        let headers = format!("X-Forwarded-For: {client}\r\n");
        assert_eq!(gateway.get("/", &headers).status(), status, "{client}");
    }
}

/// The mapped form of an address had a budget of its own, on a dual-stack socket too.
#[test]
fn ghsa_5847_rm3g_23mw_the_mapped_form_of_an_address_is_no_second_client() {
    let upstream = Upstream::simple();
    let gateway =
        configure(&upstream).key("listen", "\"[::]:0\"").policy("all", "1/min", "").start();
    let port = gateway.listener().port();
    let mapped = SocketAddr::from((Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x7f00, 1), port));
    let plain = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(Wire::connect(plain).get("/", "").status(), 200);
    assert_eq!(Wire::connect(mapped).get("/", "").status(), 429);

    let gateway = behind_a_proxy(&upstream, "x-forwarded-for");
    for (client, status) in
        [("203.0.113.7", 200), ("::ffff:203.0.113.7", 429), ("::ffff:cb00:7107", 429)]
    {
        let headers = format!("X-Forwarded-For: {client}\r\n");
        assert_eq!(gateway.get("/", &headers).status(), status, "{client}");
    }
}

/// The errors of a configuration that trusts this network.
fn refusal_of(upstream: &Upstream, network: &str) -> String {
    let setup = configure(upstream).key("trusted_proxies", &format!("[{network:?}]"));
    let refused = options().configuration(&setup.text()).spawn();
    assert_eq!(refused.wait(), Some(1), "{network}");
    refused.output()
}

/// `::ffff:10.0.0.0/8` was taken for `::/8`, which trusted everyone.
#[test]
fn cve_2026_92395_a_mapped_network_does_not_trust_everyone() {
    let upstream = Upstream::simple();
    for network in ["::ffff:10.0.0.0/8", "::ffff:0:0/96", "::ffff:0.0.0.0/95"] {
        let output = refusal_of(&upstream, network);
        assert!(output.contains("gateway.trusted_proxies") && output.contains(network), "{output}");
    }
    let gateway = configure(&upstream)
        .key("trusted_proxies", "[\"::ffff:10.0.0.0/104\"]")
        .key("client_address", "\"x-forwarded-for\"")
        .policy("all", "1/min", "")
        .start();
    for (claim, status) in [("198.51.100.1", 200), ("198.51.100.2", 429)] {
        let headers = format!("X-Forwarded-For: {claim}\r\n");
        assert_eq!(gateway.get("/", &headers).status(), status, "{claim}");
    }
}

/// The same by a network whose host bits were dropped without a word.
#[test]
fn cve_2026_90711_a_sloppy_network_is_refused() {
    let upstream = Upstream::simple();
    for network in ["10.1.2.3/8", "2001:db8::1/32", "::ffff:10.1.2.3/104"] {
        let output = refusal_of(&upstream, network);
        assert!(output.contains(network) && output.contains("did you mean"), "{output}");
    }
}

/// Litestar's limiter used `X-Forwarded-For` from any peer.
#[test]
fn cve_2025_59152_a_client_cannot_name_itself() {
    let upstream = Upstream::simple();
    for source in ["peer", "x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip"] {
        let trusted = Gateway::options(PROGRAM).key("trusted_proxies", "[\"10.0.0.0/8\"]");
        let gateway = trusted
            .key("upstream", &format!("{:?}", upstream.url()))
            .key("client_address", &format!("{source:?}"))
            .policy("all", "1/min", "")
            .start();
        for (claim, status) in [("198.51.100.1", 200), ("198.51.100.2", 429)] {
            let headers = format!(
                "X-Forwarded-For: {claim}\r\nX-Real-IP: {claim}\r\nCF-Connecting-IP: {claim}\r\n\
                 Forwarded: for={claim}\r\n"
            );
            assert_eq!(gateway.get("/", &headers).status(), status, "{source}: {claim}");
        }
    }
}

/// The leftmost entry was taken, which is whatever the client sent.
#[test]
fn cve_2026_110723_the_leftmost_entry_is_not_the_client() {
    let upstream = Upstream::simple();
    let gateway = behind_a_proxy(&upstream, "x-forwarded-for");
    for (forged, status) in [("198.51.100.1", 200), ("198.51.100.2", 429)] {
        let headers = format!("X-Forwarded-For: {forged}, 203.0.113.7\r\n");
        assert_eq!(gateway.get("/", &headers).status(), status, "{forged}");
    }
}

/// The same where each proxy adds a line of its own.
#[test]
fn cve_2026_110724_the_first_line_is_not_the_client() {
    let upstream = Upstream::simple();
    let gateway = behind_a_proxy(&upstream, "x-forwarded-for");
    for (forged, status) in [("198.51.100.1", 200), ("198.51.100.2", 429)] {
        let headers = format!("X-Forwarded-For: {forged}\r\nX-Forwarded-For: 203.0.113.7\r\n");
        assert_eq!(gateway.get("/", &headers).status(), status, "{forged}");
    }
}

/// The same in `Forwarded`.
#[test]
fn cve_2026_110726_the_leftmost_element_is_not_the_client() {
    let upstream = Upstream::simple();
    let gateway = behind_a_proxy(&upstream, "forwarded");
    for (forged, status) in [("198.51.100.1", 200), ("198.51.100.2", 429)] {
        let headers = format!("Forwarded: for={forged}, for=203.0.113.7\r\n");
        assert_eq!(gateway.get("/", &headers).status(), status, "{forged}");
    }
}
