//! Any bytes as the beginning of a connection that should begin with a PROXY header.

use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::net::proxy_header::read_proxy_header;

/// More than any header may have.
const MAX_BYTES: usize = 16 * 1024;

/// At how many places an input is torn apart.
const MAX_SPLITS: usize = 300;

fn read(mut stream: impl AsyncRead + Unpin) -> Result<Option<IpAddr>, io::ErrorKind> {
    let read = pin!(read_proxy_header(&mut stream));
    match read.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(read) => read.map_err(|error| error.kind()),
        Poll::Pending => panic!("all that there is has been sent"),
    }
}

#[test]
#[allow(clippy::needless_borrows_for_generic_args, reason = "what was not read is looked at")]
fn proxy_header() {
    slidegate_fuzz::check("proxy_header", |input| {
        let mut rest = input;
        let found = read(&mut rest);
        let length = input.len() - rest.len();
        assert!(length <= MAX_BYTES, "{length} bytes were read");
        for split in 0..=length.min(MAX_SPLITS) {
            let (mut begin, mut end) = input.split_at(split);
            assert_eq!(read((&mut begin).chain(&mut end)), found, "torn at {split}");
            assert_eq!(begin.len() + end.len(), rest.len(), "torn at {split}");
        }
        if let Ok(address) = found {
            let header = &input[..length];
            assert_eq!(read(header), Ok(address), "it depends on what comes after it");
            assert_eq!(read(&header[..length - 1]), Err(io::ErrorKind::UnexpectedEof));
            assert_eq!(address, written(header), "{}", header.escape_ascii());
        }
    });
}

/// The source address that stands in a header, at its place.
fn written(header: &[u8]) -> Option<IpAddr> {
    let address: IpAddr = if let Some(line) = header.strip_prefix(b"PROXY TCP") {
        std::str::from_utf8(line).unwrap().split(' ').nth(1).unwrap().parse().unwrap()
    } else if header.starts_with(b"PROXY") || header[12] & 0x0f == 0 {
        return None;
    } else {
        match header[13] >> 4 {
            1 => <[u8; 4]>::try_from(&header[16..20]).unwrap().into(),
            2 => <[u8; 16]>::try_from(&header[16..32]).unwrap().into(),
            _ => return None,
        }
    };
    Some(address.to_canonical())
}
