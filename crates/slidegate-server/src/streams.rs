//! Streams that are one of several.

/// Makes an enum of streams a stream, which hands every call on to whichever of them it is.
macro_rules! either_stream {
    ($type:ty: $($variant:path),+) => {
        impl ::tokio::io::AsyncRead for $type {
            fn poll_read(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                buffer: &mut ::tokio::io::ReadBuf<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() {
                    $($variant(stream) => ::std::pin::Pin::new(stream).poll_read(cx, buffer),)+
                }
            }
        }

        impl ::tokio::io::AsyncWrite for $type {
            fn poll_write(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                bytes: &[u8],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                match self.get_mut() {
                    $($variant(stream) => ::std::pin::Pin::new(stream).poll_write(cx, bytes),)+
                }
            }

            fn poll_write_vectored(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                slices: &[::std::io::IoSlice<'_>],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                match self.get_mut() {
                    $($variant(stream) => {
                        ::std::pin::Pin::new(stream).poll_write_vectored(cx, slices)
                    })+
                }
            }

            fn is_write_vectored(&self) -> bool {
                match self {
                    $($variant(stream) => stream.is_write_vectored(),)+
                }
            }

            fn poll_flush(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() {
                    $($variant(stream) => ::std::pin::Pin::new(stream).poll_flush(cx),)+
                }
            }

            fn poll_shutdown(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() {
                    $($variant(stream) => ::std::pin::Pin::new(stream).poll_shutdown(cx),)+
                }
            }
        }
    };
}

pub(crate) use either_stream;
