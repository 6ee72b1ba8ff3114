//! A refusal that many clients are told.

use std::sync::OnceLock;

use bytes::Bytes;
use http::Response;

/// A whole refusal, which is made once and told to all whom it fits.
///
/// A server that is [given it](crate::Aside::refusal) can send it without copying it field by field
/// for each of them.
#[derive(Debug)]
pub struct SharedRefusal {
    response: Response<Bytes>,
    head: OnceLock<Box<[u8]>>,
}

impl SharedRefusal {
    pub(crate) fn new(response: Response<Bytes>) -> Self {
        Self { response, head: OnceLock::new() }
    }

    /// The refusal.
    pub fn response(&self) -> &Response<Bytes> {
        &self.response
    }

    /// Its head as HTTP/1 has it: the status line after the version, the fields and
    /// `content-length`, each with the end of its line. What else a server has to say and the empty
    /// line are to follow.
    pub fn head(&self) -> &[u8] {
        self.head.get_or_init(|| write_head(&self.response).into())
    }
}

fn write_head(response: &Response<Bytes>) -> Vec<u8> {
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or_default();
    let length = response.body().len().to_string();
    let mut head = Vec::with_capacity(1024);
    let mut put = |parts: [&[u8]; 4]| parts.iter().for_each(|part| head.extend_from_slice(part));
    put([status.as_str().as_bytes(), b" ", reason.as_bytes(), b""]);
    for (name, value) in response.headers() {
        put([b"\r\n", name.as_str().as_bytes(), b": ", value.as_bytes()]);
    }
    put([b"\r\ncontent-length: ", length.as_bytes(), b"\r\n", b""]);
    head
}
