//! Any header lines that say where a request comes from.

use std::net::{IpAddr, Ipv6Addr};

use http::{HeaderMap, HeaderName, HeaderValue};
use slidegate_tower::{AddressSource, ClientAddress};

use AddressSource::{CfConnectingIp, Forwarded, Peer, XForwardedFor, XRealIp};

const PROXY: &str = "10.0.0.1";
const CLIENT: &str = "203.0.113.7";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The lines that may be in a request. One without a name is another of the line before.
fn headers(input: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut name = HeaderName::from_static("x-forwarded-for");
    for line in input.split(|byte| *byte == b'\n').take(200) {
        let mut value = line;
        if let Some(colon) = line.iter().position(|byte| *byte == b':')
            && let Ok(own) = HeaderName::from_bytes(&line[..colon])
        {
            (name, value) = (own, line[colon + 1..].trim_ascii());
        }
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(&name, value);
        }
    }
    headers
}

/// Every address that is written in the lines of a header, however it is quoted.
fn written(headers: &HeaderMap, source: AddressSource) -> Vec<IpAddr> {
    let lines = headers.get_all(source.to_string()).into_iter();
    let lines = lines.map(|line| String::from_utf8_lossy(line.as_bytes()).replace('\\', ""));
    let mut found = Vec::new();
    for line in lines {
        for part in line.split([',', ';']).map(str::trim) {
            let value = part.split_once('=').map_or(part, |(_, value)| value);
            let value = value.trim_matches('"');
            let bracketed = value.split_once(']').map(|(inside, _)| inside.trim_start_matches('['));
            let bare = bracketed.unwrap_or(value);
            let without_zone = bare.split('%').next().unwrap_or_default();
            let without_port = bare.split(':').next().unwrap_or_default();
            let v6 = without_zone.parse::<Ipv6Addr>().map(IpAddr::V6).ok();
            found.extend(v6.or(without_port.parse().ok()).map(|address| address.to_canonical()));
        }
    }
    found
}

#[test]
fn forwarded() {
    slidegate_fuzz::check("forwarded", |input| {
        let headers = headers(input);
        for source in [Peer, XForwardedFor, Forwarded, XRealIp, CfConnectingIp] {
            let clients = ClientAddress::new(source, ["10.0.0.0/8".parse().unwrap()]);
            let found = clients.resolve(Some(ip(PROXY)), &headers).unwrap();
            assert_eq!(found, found.to_canonical());
            let is_written = found == ip(PROXY) || written(&headers, source).contains(&found);
            assert!(is_written, "{source}: nobody wrote {found}");
            let untrusted = clients.resolve(Some(ip(CLIENT)), &headers);
            assert_eq!(untrusted, Some(ip(CLIENT)), "{source}: believed without trust");
        }
        check_appended(&headers);
        check_bounds(&headers);
    });
}

/// What a trusted proxy appends is found, whatever the client wrote before it.
fn check_appended(headers: &HeaderMap) {
    for (source, element) in [(XForwardedFor, CLIENT), (Forwarded, "for=203.0.113.7;proto=http")] {
        let clients = ClientAddress::new(source, ["10.0.0.0/8".parse().unwrap()]);
        let name: HeaderName = source.to_string().parse().unwrap();
        let mut on_its_own_line = headers.clone();
        on_its_own_line.append(&name, HeaderValue::from_static(element));
        let written: Vec<&[u8]> =
            headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
        let joined = [&written.join(&b","[..])[..], b", ", element.as_bytes()].concat();
        let mut joined_headers = HeaderMap::new();
        joined_headers.insert(&name, HeaderValue::from_bytes(&joined).unwrap());
        for headers in [on_its_own_line, joined_headers] {
            let found = clients.resolve(Some(ip(PROXY)), &headers);
            assert_eq!(found, Some(ip(CLIENT)), "{source}: {headers:?}");
        }
    }
}

/// Beyond 64 hops nothing is read, even if every proxy is trusted.
fn check_bounds(headers: &HeaderMap) {
    let everyone = ["0.0.0.0/0", "::/0"].map(|network| network.parse().unwrap());
    for (source, element) in [(XForwardedFor, "10.0.0.9"), (Forwarded, "for=10.0.0.9")] {
        let clients = ClientAddress::new(source, everyone);
        let name: HeaderName = source.to_string().parse().unwrap();
        let mut headers = headers.clone();
        headers.append(&name, vec![element; 64].join(",").parse().unwrap());
        assert_eq!(clients.resolve(Some(ip(PROXY)), &headers), Some(ip("10.0.0.9")), "{source}");
    }
}
