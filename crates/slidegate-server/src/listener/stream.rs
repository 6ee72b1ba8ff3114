//! Bytes of a client, however they come.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::streams::either_stream;

/// A connection of the kernel's.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A client's stream after the beginnings that are not HTTP's.
#[derive(Debug)]
pub(super) enum TransportStream {
    Plain(Rewound<Socket>),
    Tls(Box<TlsStream<Rewound<Socket>>>),
}

/// A stream of which some was read and given back.
#[derive(Debug)]
pub(super) struct Rewound<S> {
    unread: Bytes,
    stream: S,
}

impl<S> Rewound<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { unread: Bytes::new(), stream }
    }

    /// Puts bytes back, to be read again before all others. None may be left from before.
    pub(super) fn unread(&mut self, bytes: Bytes) {
        debug_assert!(self.unread.is_empty(), "bytes were given back twice");
        self.unread = bytes;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..length]);
        self.unread.advance(length);
        if self.unread.is_empty() {
            self.unread = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

either_stream!(Socket: Socket::Tcp, Socket::Unix);
either_stream!(TransportStream: TransportStream::Plain, TransportStream::Tls);
