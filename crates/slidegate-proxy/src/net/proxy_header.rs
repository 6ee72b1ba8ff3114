//! The PROXY protocol's header, in which a load balancer sends the client's address.

use std::io;
use std::net::IpAddr;

use ppp::{v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Maximum length of a version 1 header, including CRLF.
const MAX_V1_BYTES: usize = 107;

/// Maximum length of a version 2 header: addresses and TLVs, which may include a client
/// certificate.
const MAX_V2_BYTES: usize = 16 * 1024;

/// The signature, version, family and length fields of version 2.
const V2_PREAMBLE_BYTES: usize = 16;

/// The prefix of version 1.
const V1_PREFIX: &[u8] = b"PROXY ";

/// Reads exactly one header from a stream. Returns the client's address, or `None` for a connection
/// that the peer opened for itself (`LOCAL` or `UNKNOWN`).
pub(super) async fn read_proxy_header(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<IpAddr>> {
    let mut header = Vec::with_capacity(MAX_V1_BYTES);
    // One byte at a time until the length is known: the bytes after the header belong to TLS or HTTP.
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

/// The length of the header that starts with `bytes`; `None` if more bytes are needed.
fn header_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    if begins_like(bytes, v2::PROTOCOL_PREFIX) {
        return binary_length(bytes);
    }
    if !begins_like(bytes, V1_PREFIX) {
        return Err(invalid("not a PROXY header"));
    }
    match bytes.iter().take(MAX_V1_BYTES).position(|byte| *byte == b'\n') {
        Some(at) => Ok(Some(at + 1)),
        None if bytes.len() >= MAX_V1_BYTES => Err(invalid("PROXY header without a line end")),
        None => Ok(None),
    }
}

fn binary_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(&[high, low]) = bytes.get(V2_PREAMBLE_BYTES - 2..V2_PREAMBLE_BYTES) else {
        return Ok(None);
    };
    let length = V2_PREAMBLE_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_V2_BYTES {
        return Err(invalid("PROXY header too long"));
    }
    Ok(Some(length))
}

fn begins_like(bytes: &[u8], prefix: &[u8]) -> bool {
    let compared = bytes.len().min(prefix.len());
    bytes[..compared] == prefix[..compared]
}

/// The client's address in a complete header.
fn source(header: &[u8]) -> io::Result<Option<IpAddr>> {
    let address = if header.starts_with(V1_PREFIX) {
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
