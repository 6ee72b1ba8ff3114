//! The PROXY protocol's header, in which a load balancer sends the client's address.

use std::io;
use std::net::IpAddr;

use ppp::{v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

/// A header of version 1, with its line's end.
const LONGEST_LINE_BYTES: usize = 107;

/// A header of version 2: addresses, and what balancers add to them, among it perhaps the
/// certificate of a client.
const LONGEST_BINARY_BYTES: usize = 16 * 1024;

/// Version 2's signature, version and family, and the length of the rest.
const PREAMBLE_BYTES: usize = 16;

/// What version 1 begins with.
const LINE_PREFIX: &[u8] = b"PROXY ";

/// Reads a header off a stream, and nothing behind it. Returns the client's address: `None` if the
/// connection is the peer's own.
pub(super) async fn read_proxy_header(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<IpAddr>> {
    let mut header = Vec::with_capacity(LONGEST_LINE_BYTES);
    // One byte at a time until the length is known, because what follows is not ours to read.
    let length = loop {
        header.push(stream.read_u8().await?);
        if let Some(length) = header_length(&header)? {
            break length;
        }
    };
    let read = header.len();
    header.resize(length, 0);
    stream.read_exact(&mut header[read..]).await?;
    source(&header)
}

/// The length of the header that begins like this; `None` if not known yet.
fn header_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    if begins_like(bytes, v2::PROTOCOL_PREFIX) {
        return binary_length(bytes);
    }
    if !begins_like(bytes, LINE_PREFIX) {
        return Err(invalid("not a PROXY header"));
    }
    match bytes.iter().take(LONGEST_LINE_BYTES).position(|byte| *byte == b'\n') {
        Some(at) => Ok(Some(at + 1)),
        None if bytes.len() >= LONGEST_LINE_BYTES => Err(invalid("a PROXY line without end")),
        None => Ok(None),
    }
}

fn binary_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(&[high, low]) = bytes.get(PREAMBLE_BYTES - 2..PREAMBLE_BYTES) else {
        return Ok(None);
    };
    let length = PREAMBLE_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > LONGEST_BINARY_BYTES {
        return Err(invalid("a PROXY header that is too long"));
    }
    Ok(Some(length))
}

fn begins_like(bytes: &[u8], prefix: &[u8]) -> bool {
    let compared = bytes.len().min(prefix.len());
    bytes[..compared] == prefix[..compared]
}

/// The client's address in a complete header.
fn source(header: &[u8]) -> io::Result<Option<IpAddr>> {
    let address = if header.starts_with(LINE_PREFIX) {
        match v1::Header::try_from(header).map_err(invalid)?.addresses {
            v1::Addresses::Unknown => None,
            v1::Addresses::Tcp4(addresses) => Some(addresses.source_address.into()),
            v1::Addresses::Tcp6(addresses) => Some(addresses.source_address.into()),
        }
    } else {
        let header = v2::Header::try_from(header).map_err(invalid)?;
        match (header.command, header.addresses) {
            (v2::Command::Proxy, v2::Addresses::IPv4(addresses)) => {
                Some(addresses.source_address.into())
            }
            (v2::Command::Proxy, v2::Addresses::IPv6(addresses)) => {
                Some(addresses.source_address.into())
            }
            _ => None,
        }
    };
    Ok(address.map(|address: IpAddr| address.to_canonical()))
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
