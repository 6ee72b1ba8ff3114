//! Finding a client's address allocates nothing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::alloc::System;

use cap::Cap;
use http::HeaderMap;
use slidegate_tower::{AddressSource, ClientAddress};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const HEADERS: [(&str, &str); 4] = [
    ("x-forwarded-for", "198.51.100.1, \"[2001:db8::7]:443\", 10.0.0.3, 10.0.0.2:80"),
    ("forwarded", "for=_hidden, for=\"\\[2001:db8::7\\]:443\";host=\"a,b\", for=10.0.0.2"),
    ("x-real-ip", "2001:db8::7"),
    ("cf-connecting-ip", "2001:db8::7"),
];

#[test]
fn a_client_is_found_without_an_allocation() {
    let peer = Some("10.0.0.1".parse().unwrap());
    let client = Some("2001:db8::7".parse().unwrap());
    let mut headers = HeaderMap::new();
    for (name, value) in HEADERS {
        headers.insert(name, value.parse().unwrap());
    }
    for (name, _) in HEADERS {
        let source: AddressSource = name.parse().unwrap();
        let clients = ClientAddress::new(source, ["10.0.0.0/8".parse().unwrap()]);
        let before = ALLOCATOR.total_allocated();
        assert_eq!(clients.resolve(peer, &headers), client, "{name}");
        assert_eq!(ALLOCATOR.total_allocated() - before, 0, "{name}");
    }
}
