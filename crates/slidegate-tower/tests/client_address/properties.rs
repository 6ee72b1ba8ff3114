//! What holds for every request: random headers and chains of proxies, held against a model.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderMap;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use slidegate::policy::Network;
use slidegate_tower::{AddressSource, ClientAddress};

use super::{SOURCES, ip, lines};

/// A range of addresses as the model sees it: so many leading bits of the IPv6 form.
#[derive(Debug, Clone, Copy)]
struct Range {
    address: IpAddr,
    bits: u32,
}

impl Range {
    fn holds(self, address: IpAddr) -> bool {
        let differing = v6_bits(self.address) ^ v6_bits(address);
        let v4 = |address: IpAddr| matches!(address.to_canonical(), IpAddr::V4(_));
        v4(self.address) == v4(address) && differing.leading_zeros() >= self.bits
    }

    fn network(self) -> Network {
        if let (IpAddr::V4(_), 96) = (self.address.to_canonical(), self.bits) {
            return "0.0.0.0/0".parse().unwrap();
        }
        let masked = v6_bits(self.address) & !u128::MAX.checked_shr(self.bits).unwrap_or(0);
        format!("{}/{}", Ipv6Addr::from_bits(masked), self.bits).parse().unwrap()
    }
}

fn v6_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// An entry of a list: what it means, and how it is written.
#[derive(Debug, Clone)]
struct Hop {
    address: Option<IpAddr>,
    written: String,
}

/// The first address from the right that is not trusted, worked out step by step.
fn model(trusted: &[Range], peer: IpAddr, chain: &[Hop]) -> IpAddr {
    let is_trusted = |address| trusted.iter().any(|range| range.holds(address));
    let mut client = peer;
    if !is_trusted(client) {
        return client.to_canonical();
    }
    for hop in chain.iter().rev().take(64) {
        let Some(address) = hop.address else { return client.to_canonical() };
        client = address;
        if !is_trusted(client) {
            return client.to_canonical();
        }
    }
    client.to_canonical()
}

/// Addresses that are close to each other, so that ranges hold some of them.
fn addresses() -> impl Strategy<Value = IpAddr> {
    let v4 = (any::<[bool; 2]>(), 0..4_u8)
        .prop_map(|([a, b], c)| Ipv4Addr::new(10 + u8::from(a), 0, u8::from(b), c));
    let v6 = (any::<[bool; 2]>(), 0..4_u16).prop_map(|([a, b], c)| {
        Ipv6Addr::new(0x2001, 0xdb8, u16::from(a), 0, u16::from(b), 0, 0, c)
    });
    prop_oneof![
        4 => v4.clone().prop_map(IpAddr::V4),
        2 => v4.prop_map(|v4| IpAddr::V6(v4.to_ipv6_mapped())),
        3 => v6.prop_map(IpAddr::V6),
        1 => any::<IpAddr>(),
    ]
}

fn ranges() -> impl Strategy<Value = Vec<Range>> {
    let range = (addresses(), 0..=32_u32).prop_map(|(address, off)| {
        let bits = match address.to_canonical() {
            IpAddr::V4(_) => 128 - off,
            IpAddr::V6(_) => 128 - off * 4,
        };
        Range { address, bits }
    });
    prop::collection::vec(range, 0..4)
}

const GARBAGE: [&str; 7] =
    ["", "unknown", "_hidden", "example.com", "10.0.0.01", "[10.0.0.1]", "\""];

/// Every way in which proxies write an address.
fn spelled(address: IpAddr, style: usize) -> String {
    match (address, style % 6) {
        (_, 0) => address.to_string(),
        (_, 1) => format!(" \"{address}\" "),
        (IpAddr::V4(v4), 2) => format!("{v4}:443"),
        (IpAddr::V4(v4), 3) => v4.to_ipv6_mapped().to_string(),
        (IpAddr::V4(v4), _) => format!("[{}]:8080", v4.to_ipv6_mapped()),
        (IpAddr::V6(v6), 2) => format!("[{v6}]"),
        (IpAddr::V6(v6), 3) => format!("[{v6}]:1"),
        (IpAddr::V6(v6), 4) => format!("{v6}%eth0"),
        (IpAddr::V6(v6), _) => v6.to_string().to_uppercase(),
    }
}

/// Every way in which an element of `Forwarded` has an address.
fn element(address: IpAddr, style: usize) -> String {
    let node = match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    };
    match style % 6 {
        0 => format!("for=\"{node}\""),
        1 => format!("For={node}"),
        2 => format!("proto=https;for=\"{node}:443\";by=_me"),
        3 => format!(" host=\"a,\\\"b;for=6.6.6.6\";for=\"{node}:_x\" "),
        4 => format!(";for=\"{}\";;", node.replace('.', "\\.")),
        _ => format!("for={node}; host=\"\\\\\""),
    }
}

fn chains(write: fn(IpAddr, usize) -> String) -> impl Strategy<Value = Vec<Hop>> {
    let hop = (addresses(), any::<usize>()).prop_map(move |(address, style)| Hop {
        address: Some(address),
        written: write(address, style),
    });
    let garbage = prop::sample::select(&GARBAGE[..])
        .prop_map(|text| Hop { address: None, written: text.to_owned() });
    prop::collection::vec(prop_oneof![19 => hop, 1 => garbage], 0..80)
}

/// The chain as header lines, broken at random places.
fn broken_up(chain: &[Hop], breaks: &[bool]) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for (i, hop) in chain.iter().enumerate() {
        match values.last_mut() {
            Some(line) if !breaks[i % breaks.len()] => {
                line.push(',');
                line.push_str(&hop.written);
            }
            _ => values.push(hop.written.clone()),
        }
    }
    values
}

/// Elements of `Forwarded` with long quotes, full of what would separate outside them, so that the
/// bytes that are looked at end somewhere in one.
fn long_elements() -> impl Strategy<Value = Vec<Hop>> {
    let inside = ["\\\"", "\\\\", ",", ";", "=", "x", ",for=6.6.6.6,"];
    let quoted = (prop::collection::vec(prop::sample::select(inside.to_vec()), 1..9), 1..300_usize)
        .prop_map(|(pieces, times)| pieces.concat().repeat(times));
    let hop = (addresses(), any::<usize>(), quoted).prop_map(|(address, style, quoted)| Hop {
        address: Some(address),
        written: format!("{};host=\"{quoted}\"", element(address, style)),
    });
    prop::collection::vec(hop, 1..12)
}

const MAX_BYTES: usize = 8192;

/// The elements of one line that are within the last 8 KiB, each with the comma before it.
fn within_the_cap(chain: &[Hop]) -> &[Hop] {
    let mut bytes = 0;
    let is_within = |(i, hop): &(usize, &Hop)| {
        bytes += hop.written.len() + usize::from(*i > 0);
        bytes <= MAX_BYTES
    };
    let within = chain.iter().enumerate().rev().take_while(is_within).count();
    &chain[chain.len() - within..]
}

/// Bytes that a header value may have, most of them with a meaning in some header. Some are longer
/// than what is looked at.
fn values() -> impl Strategy<Value = Vec<u8>> {
    let legal = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
    let piece = prop_oneof![
        3 => prop::sample::select(&b"\"\\,;=:.[]%_ \t0123af"[..]).prop_map(|byte| vec![byte]),
        2 => addresses().prop_map(|address| address.to_string().into_bytes()),
        1 => Just(b"for=".to_vec()),
        1 => any::<u8>().prop_filter("legal", move |byte| legal(*byte)).prop_map(|b| vec![b]),
    ];
    let times = prop_oneof![9 => Just(1), 1 => 2..200_usize];
    (prop::collection::vec(piece, 0..60), times)
        .prop_map(|(pieces, times)| pieces.concat().repeat(times))
}

fn any_headers() -> impl Strategy<Value = HeaderMap> {
    let names = ["x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip"];
    let of_one = |name: &'static str| {
        prop::collection::vec(values(), 0..4).prop_map(move |values| lines(name, values))
    };
    names.map(of_one).prop_map(|maps| {
        let mut all = HeaderMap::new();
        maps.into_iter().for_each(|map| all.extend(map));
        all
    })
}

fn clients(source: AddressSource, trusted: &[Range]) -> ClientAddress {
    ClientAddress::new(source, trusted.iter().map(|range| range.network()))
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 2000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_list_is_walked_as_the_model_walks_it(
        trusted in ranges(),
        peer in addresses(),
        chain in chains(spelled),
        breaks in prop::collection::vec(any::<bool>(), 1..9),
    ) {
        let headers = lines("x-forwarded-for", broken_up(&chain, &breaks));
        let found = clients(AddressSource::XForwardedFor, &trusted).resolve(Some(peer), &headers);
        prop_assert_eq!(found, Some(model(&trusted, peer, &chain)));
    }

    #[test]
    fn forwarded_is_walked_as_the_model_walks_it(
        trusted in ranges(),
        peer in addresses(),
        chain in chains(element),
        breaks in prop::collection::vec(any::<bool>(), 1..9),
    ) {
        let headers = lines("forwarded", broken_up(&chain, &breaks));
        let found = clients(AddressSource::Forwarded, &trusted).resolve(Some(peer), &headers);
        prop_assert_eq!(found, Some(model(&trusted, peer, &chain)));
    }

    #[test]
    fn beyond_8_kib_nothing_is_seen_whatever_is_cut_in_two(
        peer in addresses(),
        chain in long_elements(),
        instead in values(),
    ) {
        let everyone = [ip("0.0.0.0"), ip("::")]
            .map(|address| Range { address, bits: if address.is_ipv4() { 96 } else { 0 } });
        let clients = clients(AddressSource::Forwarded, &everyone);
        let found = |line: &[u8]| clients.resolve(Some(peer), &lines("forwarded", [line]));
        let written: Vec<&str> = chain.iter().map(|hop| hop.written.as_str()).collect();
        let line = written.join(",").into_bytes();
        let expected = model(&everyone, peer, within_the_cap(&chain));
        prop_assert_eq!(found(&line), Some(expected));
        if line.len() > MAX_BYTES && !instead.is_empty() {
            let other = [&instead[..], &line[line.len() - MAX_BYTES..]].concat();
            prop_assert_eq!(found(&other), Some(expected), "with another beginning");
        }
    }

    #[test]
    fn a_header_of_one_value_is_one_step(
        trusted in ranges(),
        peer in addresses(),
        chain in chains(spelled),
    ) {
        for source in [AddressSource::XRealIp, AddressSource::CfConnectingIp] {
            let values = chain.iter().take(2).map(|hop| hop.written.as_str());
            let headers = lines(&source.to_string(), values);
            let steps = if chain.len() == 1 { &chain[..] } else { &[] };
            let found = clients(source, &trusted).resolve(Some(peer), &headers);
            prop_assert_eq!(found, Some(model(&trusted, peer, steps)));
        }
    }

    #[test]
    fn no_header_from_an_untrusted_peer_changes_anything(
        trusted in ranges(),
        peer in addresses(),
        headers in any_headers(),
    ) {
        for source in SOURCES {
            let clients = clients(source, &trusted);
            let found = clients.resolve(Some(peer), &headers);
            if !clients.trusts(peer) {
                prop_assert_eq!(found, Some(peer.to_canonical()));
            }
        }
    }

    #[test]
    fn no_header_panics_and_the_answer_is_canonical(peer in addresses(), headers in any_headers()) {
        for source in SOURCES {
            let clients = ClientAddress::new(source, super::networks(["0.0.0.0/0", "::/0"]));
            let found = clients.resolve(Some(peer), &headers);
            prop_assert_eq!(found, found.map(|address| address.to_canonical()));
            prop_assert!(found.is_some());
        }
    }

    #[test]
    fn nothing_before_an_untrusted_address_is_seen(
        written_by_client in prop::collection::vec(values(), 0..4),
        style in any::<usize>(),
        v6 in any::<bool>(),
    ) {
        let client = ip(if v6 { "2001:db8:ffff::7" } else { "203.0.113.7" });
        let cases = [
            (AddressSource::XForwardedFor, spelled(client, style)),
            (AddressSource::Forwarded, element(client, style)),
        ];
        for (source, appended) in cases {
            let clients = ClientAddress::new(source, super::networks(["10.0.0.0/8"]));
            let found = |values: &[Vec<u8>]| {
                clients.resolve(Some(ip("10.0.0.1")), &lines(&source.to_string(), values))
            };
            let mut values = written_by_client.clone();
            values.push(appended.clone().into_bytes());
            prop_assert_eq!(found(&values), Some(client), "a line of its own");
            let joined = values.join(&b","[..]);
            prop_assert_eq!(found(&[joined]), Some(client), "the same line");
        }
    }
}
