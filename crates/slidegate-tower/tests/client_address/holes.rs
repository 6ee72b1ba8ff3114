//! Holes that others had: each is named after its report.

use http::HeaderMap;
use slidegate::policy::{Network, Prefixes};
use slidegate::{Facts, Identity, Source};
use slidegate_tower::{AddressSource, ClientAddress};

use super::{PROXIES, found, ip, lines, networks};

/// Whose spending a direct connection counts as, by a policy with the default prefixes.
fn identity(peer: &str) -> Identity {
    let client = ClientAddress::default().resolve(Some(ip(peer)), &HeaderMap::new());
    let method = http::Method::GET;
    let facts = Facts::new(&method, "/").client(client.unwrap());
    Source::ip().read(&facts).unwrap()
}

/// Mapped addresses were cut to an IPv6 prefix before they were made IPv4, so that all IPv4
/// clients of a dual-stack socket shared one budget.
#[test]
fn cve_2026_30827_ipv4_clients_of_a_dual_stack_socket_are_apart() {
    assert_ne!(identity("::ffff:203.0.113.7"), identity("::ffff:203.0.113.8"));
    assert_eq!(identity("::ffff:203.0.113.7").as_str(), "ip:203.0.113.7");
}

/// `::ffff:10.0.0.0/8` was taken as `::/8` and trusted everyone.
#[test]
fn cve_2026_92395_a_mapped_network_does_not_trust_everyone() {
    for text in [
        "::ffff:10.0.0.0/8",
        "::ffff:a00:0/8",
        "::ffff:10.0.0.0/95",
        "::ffff:0:0/95",
        "::ffff:0:0/96",
        "::ffff:0.0.0.0/96",
    ] {
        assert!(text.parse::<Network>().is_err(), "{text}");
    }
    let clients = ClientAddress::new(
        AddressSource::XForwardedFor,
        networks(["::ffff:10.0.0.0/104", "::/8", "::/0"]),
    );
    assert!(clients.trusts(ip("10.1.2.3")) && clients.trusts(ip("::ffff:10.1.2.3")));
    let headers = lines("x-forwarded-for", ["198.51.100.1"]);
    for peer in ["203.0.113.7", "::ffff:203.0.113.7"] {
        assert_eq!(clients.resolve(Some(ip(peer)), &headers), Some(ip("203.0.113.7")), "{peer}");
    }
}

/// The same by a network whose host bits were set and silently dropped.
#[test]
fn cve_2026_90711_a_sloppy_network_is_refused() {
    for text in ["10.1.2.3/8", "10.0.0.1/31", "2001:db8::1/32", "::ffff:10.1.2.3/104", "1.2.3.4/0"]
    {
        let error = text.parse::<Network>().unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("did you mean"), "{error}");
    }
    for text in ["", "/8", "10.0.0.0/", "10.0.0.0/33", "::/129", "10/8", "010.0.0.0/8", "*"] {
        assert!(text.parse::<Network>().is_err(), "{text}");
    }
}

/// A limiter keyed on X-Forwarded-For from any peer.
#[test]
fn cve_2025_59152_a_client_cannot_name_itself() {
    for source in super::SOURCES {
        let clients = ClientAddress::new(source, networks(PROXIES));
        for spoofed in ["198.51.100.1", "10.0.0.1", "for=198.51.100.1"] {
            let headers = lines(&source.to_string(), [spoofed]);
            let client = clients.resolve(Some(ip("203.0.113.7")), &headers);
            assert_eq!(client, Some(ip("203.0.113.7")), "{source}: {spoofed}");
        }
    }
}

/// The leftmost entry was taken, which is whatever the client sent.
#[test]
fn cve_2026_110723_the_leftmost_entry_is_not_the_client() {
    let value = "198.51.100.1, 203.0.113.7";
    assert_eq!(found(AddressSource::XForwardedFor, [value]), "203.0.113.7");
}

/// The same where each proxy adds a line of its own: the first line is the client's.
#[test]
fn cve_2026_110724_the_first_line_is_not_the_client() {
    let values = ["198.51.100.1", "203.0.113.7"];
    assert_eq!(found(AddressSource::XForwardedFor, values), "203.0.113.7");
}

/// The same in the other list header.
#[test]
fn cve_2026_110726_the_leftmost_element_is_not_the_client() {
    let value = "for=198.51.100.1, for=203.0.113.7";
    assert_eq!(found(AddressSource::Forwarded, [value]), "203.0.113.7");
}

/// A client got a second budget by the mapped form of its address.
#[test]
fn ghsa_5847_rm3g_23mw_both_forms_of_an_address_are_one_client() {
    for mapped in ["::ffff:203.0.113.7", "::ffff:cb00:7107", "0:0:0:0:0:ffff:203.0.113.7"] {
        assert_eq!(identity(mapped), identity("203.0.113.7"));
        for source in [AddressSource::XForwardedFor, AddressSource::XRealIp] {
            assert_eq!(found(source, [mapped]), "203.0.113.7");
        }
        let element = format!("for=\"[{mapped}]\"");
        assert_eq!(found(AddressSource::Forwarded, [&element]), "203.0.113.7");
    }
}

/// One customer has a /64 at least; its addresses are not that many clients.
#[test]
fn ipv6_clients_are_counted_by_64_bits() {
    assert_eq!(identity("2001:db8:1:2::1"), identity("2001:db8:1:2:ffff::1"));
    assert_ne!(identity("2001:db8:1:2::1"), identity("2001:db8:1:3::1"));
    let wide = Prefixes::default().with_v6(48).unwrap();
    let [one, other] = ["2001:db8:1:2::1", "2001:db8:1:3::1"].map(|a| Identity::ip(ip(a), wide));
    assert_eq!(one, other);
}
