//! The address of the client behind proxies: every form that it is written in, and where the walk
//! ends.

mod holes;
mod properties;

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use slidegate::policy::Network;
use slidegate_tower::{AddressSource, ClientAddress};

use AddressSource::{CfConnectingIp, Forwarded, Peer, XForwardedFor, XRealIp};

const SOURCES: [AddressSource; 5] = [Peer, XForwardedFor, Forwarded, XRealIp, CfConnectingIp];

/// The proxies of most tests: one network of each family.
const PROXIES: [&str; 2] = ["10.0.0.0/8", "2001:db8:ffff::/48"];
/// One of the proxies.
const PROXY: &str = "10.0.0.1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn networks<const N: usize>(texts: [&str; N]) -> [Network; N] {
    texts.map(|text| text.parse().unwrap())
}

/// The header of a source with these lines.
fn lines<V: AsRef<[u8]>>(name: &str, values: impl IntoIterator<Item = V>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_ref()).unwrap());
    }
    headers
}

/// What is found behind a proxy that sends these lines.
fn found<const N: usize>(source: AddressSource, values: [&str; N]) -> String {
    let clients = ClientAddress::new(source, networks(PROXIES));
    let headers = lines(&source.to_string(), values);
    clients.resolve(Some(ip(PROXY)), &headers).unwrap().to_string()
}

#[test]
fn by_default_the_peer_is_the_client_and_no_proxy_is_trusted() {
    let clients = ClientAddress::default();
    assert_eq!(clients, ClientAddress::new(Peer, []));
    let headers = lines("x-forwarded-for", ["203.0.113.7"]);
    assert_eq!(clients.resolve(Some(ip("10.0.0.1")), &headers), Some(ip("10.0.0.1")));
    assert_eq!(clients.resolve(Some(ip("::ffff:10.0.0.1")), &headers), Some(ip("10.0.0.1")));
    assert!(!clients.trusts(ip("127.0.0.1")));
}

#[test]
fn a_peer_without_an_address_cannot_name_a_client() {
    for source in SOURCES {
        let clients = ClientAddress::new(source, networks(["0.0.0.0/0", "::/0"]));
        let headers = lines("x-forwarded-for", ["203.0.113.7"]);
        assert_eq!(clients.resolve(None, &headers), None);
    }
}

#[test]
fn trust_is_by_bits_and_not_by_spelling() {
    let clients =
        ClientAddress::new(XForwardedFor, networks(["10.0.0.0/8", "::ffff:c000:0200/120"]));
    for (peer, trusted) in [
        ("10.255.255.255", true),
        ("::ffff:10.1.2.3", true),
        ("::ffff:a01:203", true),
        ("192.0.2.9", true),
        ("::ffff:192.0.2.9", true),
        ("11.0.0.0", false),
        ("::10.1.2.3", false),
        ("::1", false),
    ] {
        assert_eq!(clients.trusts(ip(peer)), trusted, "{peer}");
    }
}

#[test]
fn every_form_of_an_address_is_read() {
    for (entry, expected) in [
        ("203.0.113.7", "203.0.113.7"),
        (" \t203.0.113.7 \t", "203.0.113.7"),
        ("203.0.113.7:51234", "203.0.113.7"),
        ("\"203.0.113.7\"", "203.0.113.7"),
        ("\"203.0.113.7:51234\"", "203.0.113.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("\"[2001:db8::1]:443\"", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%eth0]:443", "fe80::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("::ffff:cb00:7107", "203.0.113.7"),
        ("[::ffff:203.0.113.7]:443", "203.0.113.7"),
        // Ambiguous without brackets, and an address as it stands.
        ("2001:db8::1:443", "2001:db8::1:443"),
    ] {
        for source in [XForwardedFor, XRealIp, CfConnectingIp] {
            assert_eq!(found(source, [entry]), expected, "{source}: {entry}");
        }
    }
}

#[test]
fn an_entry_that_is_no_address_is_laid_to_the_hop_that_sent_it() {
    for entry in [
        "",
        " ",
        "unknown",
        "localhost",
        "example.com:443",
        "203.0.113",
        "203.0.113.7.1",
        "203.0.113.007",
        "0xcb.0.113.7",
        "3405803783",
        "203.0.113.7:",
        "203.0.113.7:port",
        "203.0.113.7:+80",
        "203.0.113.7:123456",
        "203.0.113.7%eth0",
        "[203.0.113.7]",
        "[203.0.113.7",
        "[2001:db8::1",
        "2001:db8::1]",
        "[2001:db8::1]443",
        "[2001:db8::1]:",
        "[[2001:db8::1]]",
        "2001:db8::g",
        "\"203.0.113.7",
        "203.0.113.7\"",
        "\"\"203.0.113.7\"\"",
        "'203.0.113.7'",
        "203.0.113.7 198.51.100.1",
        "203.0.113.7;198.51.100.1",
        "2001:db8::1%eth0\"",
        "\u{ff12}03.0.113.7",
        "203.0.113.7/32",
    ] {
        for source in [XForwardedFor, XRealIp, CfConnectingIp] {
            assert_eq!(found(source, [entry]), PROXY, "{source}: {entry:?}");
        }
        let before = format!("{entry}, 10.0.0.2");
        assert_eq!(found(XForwardedFor, [&before]), "10.0.0.2", "{before:?}");
    }
}

#[test]
fn a_list_is_walked_from_the_right_through_trusted_hops() {
    for (values, expected) in [
        (&["203.0.113.7"][..], "203.0.113.7"),
        (&["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
        (&["198.51.100.1, 203.0.113.7, 10.0.0.2, 2001:db8:ffff::2"], "203.0.113.7"),
        (&["10.0.0.4,10.0.0.3,10.0.0.2"], "10.0.0.4"),
        (&["198.51.100.1", "203.0.113.7"], "203.0.113.7"),
        (&["198.51.100.1, 203.0.113.7", "10.0.0.2"], "203.0.113.7"),
        (&["203.0.113.7", "10.0.0.3, 10.0.0.2", "10.0.0.1"], "203.0.113.7"),
        (&["203.0.113.7, garbage, 10.0.0.2"], "10.0.0.2"),
        (&["203.0.113.7, , 10.0.0.2"], "10.0.0.2"),
        (&["203.0.113.7,"], PROXY),
        (&["203.0.113.7", ""], PROXY),
        (&[""], PROXY),
        (&[], PROXY),
    ] {
        let clients = ClientAddress::new(XForwardedFor, networks(PROXIES));
        let headers = lines("x-forwarded-for", values);
        assert_eq!(clients.resolve(Some(ip(PROXY)), &headers), Some(ip(expected)), "{values:?}");
    }
}

#[test]
fn forwarded_is_read_as_rfc_7239_writes_it() {
    for (values, expected) in [
        (&["for=192.0.2.43"][..], "192.0.2.43"),
        (&["For=192.0.2.43;proto=http;by=203.0.113.43"], "192.0.2.43"),
        (&["proto=https;FOR=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17"),
        (
            &["for=192.0.2.43, for=198.51.100.17;by=203.0.113.60;proto=http;host=example.com"],
            "198.51.100.17",
        ),
        (&["for=192.0.2.43, for=10.0.0.2"], "192.0.2.43"),
        (&["for=192.0.2.43", "for=10.0.0.3,for=10.0.0.2"], "192.0.2.43"),
        (&["for=\"192.0.2.43:_gazonk\""], "192.0.2.43"),
        (&["for=\"\\1\\9\\2.0.2.43\""], "192.0.2.43"),
        (&[";;for=192.0.2.43;;"], "192.0.2.43"),
        // Not as it ought to be written, but as it is.
        (&["for=192.0.2.43; proto=https"], "192.0.2.43"),
        (&["for=192.0.2.43:80"], "192.0.2.43"),
        (&["for=[2001:db8::1]:80"], "2001:db8::1"),
        // Separators in quotes separate nothing.
        (&["host=\"a,b;for=6.6.6.6\";for=192.0.2.43"], "192.0.2.43"),
        (&["for=192.0.2.43;host=\"a,for=6.6.6.6\""], "192.0.2.43"),
        (&["for=192.0.2.43;host=\"a\\\",for=6.6.6.6\""], "192.0.2.43"),
        (&["for=192.0.2.43;host=\"a\\\\\", for=10.0.0.2"], "192.0.2.43"),
    ] {
        let clients = ClientAddress::new(Forwarded, networks(PROXIES));
        let headers = lines("forwarded", values);
        assert_eq!(clients.resolve(Some(ip(PROXY)), &headers), Some(ip(expected)), "{values:?}");
    }
}

#[test]
fn an_element_that_is_no_address_is_laid_to_the_hop_that_sent_it() {
    for element in [
        "",
        ";",
        "for",
        "for=",
        "for=\"\"",
        "for=unknown",
        "for=_gazonk",
        "for=\"_gazonk:80\"",
        "for=example.com",
        "for=192.0.2.43;for=192.0.2.43",
        "for=192.0.2.43;For=unknown",
        "by=192.0.2.43",
        "xfor=192.0.2.43",
        "for =192.0.2.43",
        "for= 192.0.2.43",
        "for=192.0.2.43;proto",
        "for=192.0.2.43;=https",
        "for=192.0.2.43 proto=https",
        "for=\"192.0.2.43",
        "for=192.0.2.43\"",
        "for=\"192.0.2.43\"x",
        "for=\"192.0.2.43\\\"",
        "for=192.0.2.43;host=\"a\\\"",
        "for=\"\\\"192.0.2.43\\\"\"",
        "for=\"192.0.2.43, 198.51.100.1\"",
        "192.0.2.43",
    ] {
        assert_eq!(found(Forwarded, [element]), PROXY, "{element:?}");
        let before = format!("{element}, for=10.0.0.2");
        assert_eq!(found(Forwarded, [&before]), "10.0.0.2", "{before:?}");
    }
}

#[test]
fn an_open_quote_swallows_nothing_that_a_proxy_appended() {
    for client in ["for=\"", "for=\"\\", "\"", "\"\"\"", "host=\"a\\\"", "for=6.6.6.6;host=\""] {
        let value = format!("{client}, for=192.0.2.43;host=\"example.com\"");
        assert_eq!(found(Forwarded, [&value]), "192.0.2.43", "{value}");
    }
}

#[test]
fn a_header_of_one_value_counts_for_nothing_if_it_is_repeated() {
    for source in [XRealIp, CfConnectingIp] {
        assert_eq!(found(source, ["203.0.113.7"]), "203.0.113.7");
        assert_eq!(found(source, ["203.0.113.7", "203.0.113.7"]), PROXY);
        assert_eq!(found(source, ["203.0.113.7, 198.51.100.1"]), PROXY);
        assert_eq!(found(source, []), PROXY);
    }
}

#[test]
fn one_source_is_read_and_no_other() {
    for source in SOURCES {
        let clients = ClientAddress::new(source, networks(PROXIES));
        let mut headers = HeaderMap::new();
        for other in SOURCES.into_iter().filter(|other| *other != source) {
            let value = if other == Forwarded { "for=203.0.113.7" } else { "203.0.113.7" };
            headers.extend(lines(&other.to_string(), [value]));
        }
        headers.extend(lines("x_forwarded_for", ["203.0.113.7"]));
        headers.extend(lines("true-client-ip", ["203.0.113.7"]));
        assert_eq!(clients.resolve(Some(ip(PROXY)), &headers), Some(ip(PROXY)), "{source}");
    }
}

#[test]
fn a_walk_ends_at_the_64th_entry() {
    let hops = |n: u8| (1..=n).rev().map(|i| format!("10.0.1.{i}")).collect::<Vec<_>>();
    let clients = ClientAddress::new(XForwardedFor, networks(PROXIES));
    let resolve = |entries: &[String], per_line: usize| {
        let values = entries.chunks(per_line).map(|line| line.join(","));
        clients.resolve(Some(ip(PROXY)), &lines("x-forwarded-for", values))
    };
    for per_line in [1, 7, 100] {
        let chain = [vec!["203.0.113.7".to_owned()], hops(63)].concat();
        assert_eq!(resolve(&chain, per_line), Some(ip("203.0.113.7")));
        let chain = [vec!["203.0.113.7".to_owned()], hops(64)].concat();
        assert_eq!(resolve(&chain, per_line), Some(ip("10.0.1.64")));
    }
}

#[test]
fn a_walk_ends_8_kib_from_the_end() {
    let clients = ClientAddress::new(XForwardedFor, networks(PROXIES));
    let resolve = |values: &[String]| {
        clients.resolve(Some(ip(PROXY)), &lines("x-forwarded-for", values)).unwrap()
    };
    let padded = |spaces: usize| format!("203.0.113.7,{}10.0.0.2", " ".repeat(spaces));
    // The entry, a comma, the padding and the other entry are 8192 bytes.
    let fits = 8192 - "203.0.113.7,10.0.0.2".len();
    assert_eq!(resolve(&[padded(fits)]), ip("203.0.113.7"));
    assert_eq!(resolve(&[padded(fits + 1)]), ip("10.0.0.2"));
    // An address that is cut off would be another one: 1.203.0.113 and 203.0.113 are not alike.
    assert_eq!(resolve(&[format!("198.51.100.{}", padded(fits))]), ip("10.0.0.2"));
    // What a client puts before the proxy's entry does not hide it.
    assert_eq!(resolve(&[format!("{},203.0.113.7", "x".repeat(20_000))]), ip("203.0.113.7"));
    assert_eq!(resolve(&["x".repeat(20_000), "203.0.113.7".into()]), ip("203.0.113.7"));
    assert_eq!(resolve(&["x".repeat(20_000)]), ip(PROXY));
}

#[test]
fn sources_have_names() {
    for source in SOURCES {
        assert_eq!(source.to_string().parse(), Ok(source));
        assert_eq!(source.to_string().to_uppercase().parse(), Ok(source));
    }
    assert_eq!(XForwardedFor.to_string(), "x-forwarded-for");
    assert_eq!(CfConnectingIp.to_string(), "cf-connecting-ip");
    let error = "true-client-ip".parse::<AddressSource>().unwrap_err().to_string();
    assert!(error.contains("\"true-client-ip\""), "{error}");
    for source in SOURCES {
        assert!(error.contains(&source.to_string()), "{error}");
    }
}
