//! HTTP on a connection, from its first byte to its last.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::http::{Request, Response};
use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, copy, sink};
use tokio::time::timeout;

use super::activity::{InFlight, LastPart};
use super::course::{End, drive};
use super::guarded::Guarded;
use super::patience::Patience;
use super::{Accepted, Answer, Settings};
use crate::config::Timeouts;
use crate::shutdown::Shutdown;

/// What HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Enough for the head of most first requests.
const FIRST_READ_BYTES: usize = 2048;

/// Requests at once on one HTTP/2 connection: more than browsers send, and few enough that one
/// connection cannot take a worker for itself.
const STREAMS: u32 = 256;

/// What an HTTP/2 stream may have written ahead of a client that does not read. With all streams,
/// 16 MiB for a connection.
const STREAM_BUFFER_BYTES: usize = 64 * 1024;

/// hyper takes no less.
const LEAST_BUFFER_BYTES: usize = 8 * 1024;

/// After its last answer a connection is read for a while, and what comes is thrown away: if it
/// were closed with bytes unread, the kernel would tell the client of an error, and that error may
/// overtake the answer.
const LINGER: Duration = Duration::from_secs(2);

/// A version of HTTP, as far as connections differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

impl Version {
    /// Tells the version by a stream's first bytes. Returns them, too, to be read again.
    pub(super) async fn detect(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(Self, Bytes)> {
        let mut bytes = BytesMut::with_capacity(FIRST_READ_BYTES);
        loop {
            let ended = stream.read_buf(&mut bytes).await? == 0;
            let compared = bytes.len().min(PREFACE.len());
            if ended || bytes[..compared] != PREFACE[..compared] {
                return Ok((Self::Http1, bytes.freeze()));
            }
            if compared == PREFACE.len() {
                return Ok((Self::Http2, bytes.freeze()));
            }
        }
    }
}

/// How HTTP is spoken.
#[derive(Debug)]
pub(super) struct Protocols {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    timeouts: Timeouts,
}

impl Protocols {
    pub(super) fn new(settings: &Settings) -> Self {
        let mut http1 = http1::Builder::new();
        // Neither a timer nor `pipeline_flush`. hyper's time for a head includes the time for it to
        // begin, and costs an allocation and a timer for every request: `Patience` sees to both.
        // With `pipeline_flush` hyper buffers a response without bound for a client that does not
        // read, and holds an answer back while the next request is incomplete.
        http1
            .max_header_size(settings.head_bytes)
            .max_buf_size(settings.head_bytes.max(LEAST_BUFFER_BYTES));

        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_send_buf_size(STREAM_BUFFER_BYTES)
            .max_header_list_size(u32::try_from(settings.head_bytes).unwrap_or(u32::MAX))
            .keep_alive_interval(settings.timeouts.idle)
            .keep_alive_timeout(settings.timeouts.head);
        Self { http1, http2, timeouts: settings.timeouts.clone() }
    }

    /// Speaks HTTP on a stream until its end.
    pub(super) async fn speak<A: Answer, S>(
        &self,
        version: Version,
        stream: Guarded<S>,
        answer: A,
        accepted: Accepted,
        shutdown: &mut Shutdown,
    ) -> End
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Arc::clone(stream.activity());
        let requests = Arc::clone(&activity);
        let service = service_fn(move |request| {
            answer_one(answer.clone(), accepted, request, requests.begin_request())
        });
        let patience = Patience::new(&self.timeouts, version);
        let stream = TokioIo::new(stream);
        match version {
            Version::Http1 => {
                let connection = self.http1.serve_connection(stream, service);
                let mut connection = connection.with_upgrades();
                let end = drive(&mut connection, patience, &activity, shutdown).await;
                if let (End::Answered, Some(parts)) = (end, connection.into_parts()) {
                    linger(parts.io.into_inner()).await;
                }
                end
            }
            Version::Http2 => {
                let mut connection = self.http2.serve_connection(stream, service);
                drive(&mut connection, patience, &activity, shutdown).await
            }
        }
    }
}

/// Answers one request, and takes note of when it is over.
async fn answer_one<A: Answer>(
    answer: A,
    accepted: Accepted,
    request: Request<Incoming>,
    in_flight: InFlight,
) -> Result<Response<LastPart<A::Body>>, Infallible> {
    let response = answer.answer(accepted, request).await?;
    Ok(response.map(|body| LastPart::new(body, in_flight)))
}

/// Lets the client read the last answer in peace.
async fn linger(mut stream: Guarded<impl AsyncRead + Unpin>) {
    if !stream.has_ended() {
        let _ = timeout(LINGER, copy(&mut stream, &mut sink())).await;
    }
}
