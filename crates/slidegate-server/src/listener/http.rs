//! HTTP on a connection, from its first byte to its last.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use ::http::{Request, Response};
use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::activity::{Activity, InFlight, LastPart};
use super::course::{ConnectionEnd, drive};
use super::guarded::Guarded;
use super::http1::{ConversationSettings, converse};
use super::patience::Patience;
use super::stream::{Rewound, TransportStream};
use super::{Accepted, Handler, RequestBody, Settings};
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

/// A version of HTTP, as far as connections differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

impl Version {
    /// Detects the version by a stream's first bytes, which are returned to be read again.
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
    http1: ConversationSettings,
    http2: http2::Builder<TokioExecutor>,
    timeouts: Timeouts,
}

impl Protocols {
    pub(super) fn new(settings: &Settings) -> Self {
        let http1 = ConversationSettings::new(&settings.timeouts, settings.head_bytes);
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
    pub(super) async fn speak<A: Handler>(
        &self,
        version: Version,
        stream: Guarded<Rewound<TransportStream>>,
        mut answer: A,
        accepted: Accepted,
        shutdown: &mut Shutdown,
    ) -> ConnectionEnd {
        match version {
            Version::Http1 => converse(stream, &mut answer, accepted, &self.http1, shutdown).await,
            // Its state is large: apart, no other connection has to carry it.
            Version::Http2 => Box::pin(self.speak_http2(stream, answer, accepted, shutdown)).await,
        }
    }

    async fn speak_http2<A: Handler>(
        &self,
        stream: Guarded<Rewound<TransportStream>>,
        answer: A,
        accepted: Accepted,
        shutdown: &mut Shutdown,
    ) -> ConnectionEnd {
        let activity = Arc::<Activity>::default();
        let requests = Arc::clone(&activity);
        let service = service_fn(move |request| {
            answer_one(answer.clone(), accepted, request, requests.begin_request())
        });
        let mut connection = self.http2.serve_connection(TokioIo::new(stream), service);
        drive(&mut connection, Patience::new(&self.timeouts), &activity, shutdown).await
    }
}

/// Answers one request, and takes note of when it is over.
async fn answer_one<A: Handler>(
    mut answer: A,
    accepted: Accepted,
    request: Request<Incoming>,
    in_flight: InFlight,
) -> Result<Response<LastPart<A::Body>>, Infallible> {
    let response = answer.answer(accepted, request.map(RequestBody::from)).await;
    Ok(response.map(|body| LastPart::new(body, in_flight)))
}
